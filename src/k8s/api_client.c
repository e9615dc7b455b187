/* SPDX-License-Identifier: Apache-2.0 */
/* See api_client.h. */
#include "k8s/api_client.h"

#include "base/clock.h"
#include "base/json.h"
#include "k8s/http_answer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKEN_MAX 16384 /* bytes */
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct api_connection {
	const struct hb_api_server *server;
	int64_t until_ns;
	int fd;
	gnutls_certificate_credentials_t trust;
	gnutls_session_t session;
	char *received;
	size_t bytes, capacity;
};

static int fail_tls(const struct hb_api_server *server, int code, struct hb_error *error)
{
	return hb_error_set(error, -EPROTO, "API server %s:%s: %s", server->host, server->port, gnutls_strerror(code));
}

/* ---- the token ---- */

/* Reads the token without its newline, so that no header can be added to a request. */
static int read_token(const struct hb_api_server *server, char token[TOKEN_MAX], struct hb_error *error)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/token", server->credentials);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, token, TOKEN_MAX - 1);
	int result = n < 0 ? -errno : 0;
	if (fd >= 0)
		close(fd);
	if (result < 0)
		return hb_error_set(error, result, "%s: %s", path, strerror(-result));
	token[n] = '\0';
	token[strcspn(token, "\r\n")] = '\0';
	if (!token[0] || n == TOKEN_MAX - 1)
		return hb_error_set(error, -EINVAL, "%s: is not a token", path);
	return 0;
}

/* ---- the connection ---- */

static int wait_for(const struct api_connection *connection, short events)
{
	struct pollfd ready = {.fd = connection->fd, .events = events};
	int n;
	do {
		int64_t left_ns = connection->until_ns - hb_clock_now_ns();
		if (left_ns <= 0)
			return -ETIMEDOUT;
		n = poll(&ready, 1, (int)(left_ns / HB_NS_PER_MS) + 1);
	} while (n == 0 || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : 0;
}

static int connect_to(struct api_connection *connection, const struct addrinfo *address)
{
	int code, result, on = 1;
	socklen_t size = sizeof(code);
	connection->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connection->fd < 0)
		return -errno;
	/* The request follows the end of the handshake at once. */
	setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	result = connect(connection->fd, address->ai_addr, address->ai_addrlen) < 0 ? -errno : 0;
	if (result == -EINPROGRESS)
		result = wait_for(connection, POLLOUT);
	if (result == 0 && getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0)
		result = -code;
	if (result < 0) {
		close(connection->fd);
		connection->fd = -1;
	}
	return result;
}

static int connect_any(struct api_connection *connection, struct hb_error *error)
{
	const struct hb_api_server *server = connection->server;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *addresses;
	int code = getaddrinfo(server->host, server->port, &hints, &addresses), result = -EADDRNOTAVAIL;
	if (code)
		return hb_error_set(error, -EADDRNOTAVAIL, "API server %s:%s: %s", server->host, server->port,
				    gai_strerror(code));
	for (const struct addrinfo *at = addresses; at && result < 0 && result != -ETIMEDOUT; at = at->ai_next)
		result = connect_to(connection, at);
	freeaddrinfo(addresses);
	if (result < 0)
		hb_error_set(error, result, "API server %s:%s: %s", server->host, server->port, strerror(-result));
	return result;
}

/* Waits until the session can continue after `code`. 0 = it can, else a negative errno with *error. */
static int wait_for_session(const struct api_connection *connection, int code, struct hb_error *error)
{
	if (code != GNUTLS_E_AGAIN && code != GNUTLS_E_INTERRUPTED)
		return fail_tls(connection->server, code, error);
	int result = wait_for(connection, gnutls_record_get_direction(connection->session) ? POLLOUT : POLLIN);
	if (result < 0)
		return hb_error_set(error, result, "API server %s:%s: %s", connection->server->host,
				    connection->server->port,
				    result == -ETIMEDOUT ? "no answer in time" : strerror(-result));
	return 0;
}

static int fail_certificate(const struct api_connection *connection, struct hb_error *error)
{
	gnutls_datum_t text = {NULL, 0};
	gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(connection->session),
						     GNUTLS_CRT_X509, &text, 0);
	hb_error_format(error, "API server %s:%s: %s (%s/ca.crt)", connection->server->host, connection->server->port,
			text.data ? (const char *)text.data : "its certificate is not trusted",
			connection->server->credentials);
	gnutls_free(text.data);
	return -EACCES;
}

static int shake_hands(struct api_connection *connection, struct hb_error *error)
{
	int result = 0, code;
	while (result == 0 && (code = gnutls_handshake(connection->session)) < 0) {
		if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
			return fail_certificate(connection, error);
		if (code == GNUTLS_E_WARNING_ALERT_RECEIVED)
			continue;
		result = wait_for_session(connection, code, error);
	}
	return result;
}

static int open_session(struct api_connection *connection, struct hb_error *error)
{
	const struct hb_api_server *server = connection->server;
	char path[4096];
	unsigned char address[16];
	snprintf(path, sizeof(path), "%s/ca.crt", server->credentials);
	if (gnutls_certificate_allocate_credentials(&connection->trust) < 0)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int code = gnutls_certificate_set_x509_trust_file(connection->trust, path, GNUTLS_X509_FMT_PEM);
	if (code <= 0)
		return hb_error_set(error, -EINVAL, "%s: %s", path,
				    code < 0 ? gnutls_strerror(code) : "contains no certificate in PEM format");
	code = gnutls_init(&connection->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK);
	if (code == 0)
		code = gnutls_priority_set_direct(connection->session, PRIORITIES, NULL);
	if (code == 0)
		code = gnutls_credentials_set(connection->session, GNUTLS_CRD_CERTIFICATE, connection->trust);
	/* TLS has names of servers, but no addresses. */
	if (code == 0 && inet_pton(AF_INET, server->host, address) != 1 &&
	    inet_pton(AF_INET6, server->host, address) != 1)
		code = gnutls_server_name_set(connection->session, GNUTLS_NAME_DNS, server->host, strlen(server->host));
	if (code < 0)
		return fail_tls(server, code, error);
	gnutls_session_set_verify_cert(connection->session, server->host, 0);
	gnutls_transport_set_int(connection->session, connection->fd);
	return shake_hands(connection, error);
}

static void close_connection(struct api_connection *connection)
{
	if (connection->session)
		gnutls_deinit(connection->session);
	if (connection->trust)
		gnutls_certificate_free_credentials(connection->trust);
	if (connection->fd >= 0)
		close(connection->fd);
	free(connection->received);
}

/* ---- the exchange ---- */

static int send_text(struct api_connection *connection, const char *text, struct hb_error *error)
{
	size_t left = strlen(text);
	int result = 0;
	while (left && result == 0) {
		ssize_t n = gnutls_record_send(connection->session, text, left);
		if (n < 0) {
			result = wait_for_session(connection, (int)n, error);
			continue;
		}
		text += n;
		left -= (size_t)n;
	}
	return result;
}

static bool has_room(struct api_connection *connection)
{
	if (connection->bytes < connection->capacity)
		return true;
	size_t capacity = connection->capacity ? 2 * connection->capacity : 16384;
	char *grown = capacity > HB_API_ANSWER_MAX ? NULL : realloc(connection->received, capacity);
	if (!grown)
		return false;
	connection->received = grown;
	connection->capacity = capacity;
	return true;
}

/* Receives to the end of the connection. Whether the answer is complete is seen in the answer. */
static int receive_all(struct api_connection *connection, struct hb_error *error)
{
	for (;;) {
		if (!has_room(connection))
			return hb_error_set(error, -EFBIG, "API server %s:%s: the answer has more than %d bytes",
					    connection->server->host, connection->server->port, HB_API_ANSWER_MAX);
		ssize_t n = gnutls_record_recv(connection->session, connection->received + connection->bytes,
					       connection->capacity - connection->bytes);
		if (n == 0 || n == GNUTLS_E_PREMATURE_TERMINATION)
			return 0;
		if (n > 0) {
			connection->bytes += (size_t)n;
			continue;
		}
		/* New tickets and keys of TLS 1.3 arrive as GNUTLS_E_AGAIN. */
		int result = wait_for_session(connection, (int)n, error);
		if (result < 0)
			return result;
	}
}

static char *make_request(const struct hb_api_server *server, const char *method, const char *path, const char *token,
			  const char *body)
{
	char *text = NULL;
	bool is_v6 = strchr(server->host, ':');
	int n = asprintf(&text,
			 "%s %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nAuthorization: Bearer %s\r\nAccept: application/json\r\n"
			 "User-Agent: hummingbird\r\nConnection: close\r\n%s"
			 "Content-Length: %zu\r\n\r\n%s",
			 method, path, is_v6 ? "[" : "", server->host, is_v6 ? "]" : "", server->port, token,
			 body ? "Content-Type: application/json\r\n" : "", body ? strlen(body) : (size_t)0,
			 body ? body : "");
	return n < 0 ? NULL : text;
}

static int exchange_texts(struct api_connection *connection, const char *request, json_t **answer,
			  struct hb_error *error)
{
	struct hb_api_reply found;
	int result = connect_any(connection, error);
	if (result == 0)
		result = open_session(connection, error);
	if (result == 0)
		result = send_text(connection, request, error);
	if (result == 0)
		result = receive_all(connection, error);
	if (result < 0)
		return result;
	if (hb_http_answer_parse(connection->received, connection->bytes, &found) < 0)
		return hb_error_set(error, -EPROTO, "API server %s:%s: the answer is not HTTP/1.1, or not complete",
				    connection->server->host, connection->server->port);
	*answer = json_loadb(found.body, found.body_bytes, 0, NULL);
	return found.status;
}

int hb_api_request(const struct hb_api_server *server, const char *method, const char *path, const json_t *body,
		   json_t **answer, struct hb_error *error)
{
	char token[TOKEN_MAX];
	int result = read_token(server, token, error);
	if (result < 0)
		return result;
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	char *request = make_request(server, method, path, token, text);
	struct api_connection connection = {
		.server = server, .fd = -1, .until_ns = hb_clock_now_ns() + server->limit_ms * HB_NS_PER_MS};
	*answer = NULL;
	if (request && (text || !body))
		result = exchange_texts(&connection, request, answer, error);
	else
		result = hb_error_set(error, -ENOMEM, "out of memory");
	close_connection(&connection);
	free(request);
	free(text);
	return result;
}

void hb_api_refused(struct hb_error *error, const char *method, const char *path, int status, const json_t *answer)
{
	const char *message = json_string_value(json_object_get(answer, "message"));
	hb_error_format(error, "API server: %s %s: %d %.300s", method, path, status, message ? message : "");
}
