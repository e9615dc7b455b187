/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server; see http_server.h. */
#include "daemon/http_server.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/http_request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct http_connection {
	struct hb_http *http;
	uv_tcp_t tcp;
	uv_write_t write;
	uv_shutdown_t shutdown;
	int64_t since_ns;
	bool answered, closing;
	bool waiting; /* for the handler to make an answer */
	size_t used;
	char head[HB_HTTP_HEAD_MAX]; /* head of the request, then of the answer */
	struct hb_http_answer answer;
};

struct hb_http {
	uv_tcp_t tcp;
	hb_http_handler *handler;
	void *argument;
	bool loopback;
	char address[HB_HTTP_ADDRESS_MAX];
	struct http_connection *connections[HB_HTTP_CONNECTIONS_MAX];
};

/* --- addresses ------------------------------------------------------------------------ */

/* Reads the address from the socket, which knows the port if any free port was requested. */
static void read_address(struct hb_http *http)
{
	struct sockaddr_storage found;
	char host[64] = "";
	int length = sizeof found;
	if (uv_tcp_getsockname(&http->tcp, (struct sockaddr *)&found, &length) < 0)
		return;
	const struct sockaddr_in *four = (const struct sockaddr_in *)&found;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&found;
	bool old = found.ss_family == AF_INET;
	inet_ntop(found.ss_family, old ? (const void *)&four->sin_addr : (const void *)&six->sin6_addr, host,
		  sizeof host);
	snprintf(http->address, sizeof http->address, old ? "%s:%u" : "[%s]:%u", host,
		 (unsigned)ntohs(old ? four->sin_port : six->sin6_port));
}

/* --- closing connections ------------------------------------------------------------------ */

static void free_connection(uv_handle_t *handle)
{
	struct http_connection *connection = handle->data;
	hb_shared_text_drop(connection->answer.body);
	free(connection);
}

static void drop_connection(struct http_connection *connection)
{
	struct hb_http *http = connection->http;
	if (connection->closing)
		return;
	connection->closing = true;
	for (size_t i = 0; i < HB_HTTP_CONNECTIONS_MAX; i++)
		if (http->connections[i] == connection)
			http->connections[i] = NULL;
	uv_close((uv_handle_t *)&connection->tcp, free_connection);
}

static void handle_shutdown(uv_shutdown_t *shutdown, int status)
{
	drop_connection(shutdown->data);
}

static void handle_written(uv_write_t *write, int status)
{
	struct http_connection *connection = write->data;
	if (status < 0 || connection->closing || uv_shutdown(&connection->shutdown, write->handle, handle_shutdown) < 0)
		drop_connection(connection);
}

/* --- answers -------------------------------------------------------------------------------- */

static void send_answer(struct http_connection *connection, int status, bool with_body)
{
	struct hb_http_answer *answer = &connection->answer;
	const char *reason = hb_http_reason(status);
	size_t length = answer->body ? answer->body->length : strlen(reason) + 1;
	uv_buf_t parts[3];
	unsigned n_parts = 1;
	connection->answered = true;
	int head = snprintf(connection->head, sizeof connection->head,
			    "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n"
			    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
			    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
			    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\n%s\r\n",
			    status, reason, answer->body ? answer->type : "text/plain; charset=utf-8", length,
			    status == 405 ? "Allow: GET, HEAD\r\n" : "");
	parts[0] = uv_buf_init(connection->head, (unsigned)head);
	if (with_body && answer->body) {
		parts[n_parts++] = uv_buf_init(answer->body->text, (unsigned)length);
	} else if (with_body) {
		parts[n_parts++] = uv_buf_init((char *)reason, (unsigned)strlen(reason));
		parts[n_parts++] = uv_buf_init((char *)"\n", 1);
	}
	if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, parts, n_parts, handle_written) < 0)
		drop_connection(connection);
}

static void serve_request(struct http_connection *connection)
{
	struct hb_http *http = connection->http;
	struct hb_http_request request;
	int status = hb_http_request_read(connection->head, connection->used, &request);
	if (status == -EAGAIN)
		return;
	uv_read_stop((uv_stream_t *)&connection->tcp);
	if (status == 0 && http->loopback && request.host[0] && !hb_http_host_is_loopback(request.host))
		status = 403;
	if (status) {
		send_answer(connection, status, true);
		return;
	}
	connection->answer = (struct hb_http_answer){.status = 200};
	http->handler(http->argument, request.path, &connection->answer);
	connection->waiting = connection->answer.status == 0;
	if (!connection->waiting)
		send_answer(connection, connection->answer.status, !request.head);
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
	struct http_connection *connection = handle->data;
	*room = uv_buf_init(connection->head + connection->used,
			    (unsigned)(sizeof connection->head - connection->used));
}

static void handle_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *room)
{
	struct http_connection *connection = stream->data;
	if (n < 0) {
		drop_connection(connection);
		return;
	}
	connection->used += (size_t)n;
	if (n > 0)
		serve_request(connection);
}

/* --- listening ------------------------------------------------------------------------------- */

/* Returns a free place. If there is none, closes the oldest connection, which was answered long ago or is silent. */
static struct http_connection **make_place(struct hb_http *http)
{
	struct http_connection **oldest = &http->connections[0];
	for (size_t i = 0; i < HB_HTTP_CONNECTIONS_MAX; i++) {
		struct http_connection **place = &http->connections[i];
		if (!*place)
			return place;
		if ((*place)->since_ns < (*oldest)->since_ns)
			oldest = place;
	}
	drop_connection(*oldest);
	return oldest;
}

static void free_refused(uv_handle_t *handle)
{
	free(handle);
}

/* Without memory a connection is accepted and closed at once: if it stayed waiting, the loop would never sleep. */
static void refuse_connection(uv_stream_t *listener)
{
	uv_tcp_t *tcp = malloc(sizeof *tcp);
	if (!tcp || uv_tcp_init(listener->loop, tcp) < 0) {
		free(tcp);
		return;
	}
	uv_accept(listener, (uv_stream_t *)tcp);
	uv_close((uv_handle_t *)tcp, free_refused);
}

static void handle_connection(uv_stream_t *listener, int status)
{
	struct hb_http *http = listener->data;
	struct http_connection **place = status < 0 ? NULL : make_place(http);
	struct http_connection *connection = place ? calloc(1, sizeof *connection) : NULL;
	if (status < 0)
		return;
	if (!connection || uv_tcp_init(listener->loop, &connection->tcp) < 0) {
		free(connection);
		refuse_connection(listener);
		return;
	}
	connection->http = http;
	connection->since_ns = hb_clock_now_ns();
	connection->tcp.data = connection->write.data = connection->shutdown.data = connection;
	*place = connection;
	if (uv_accept(listener, (uv_stream_t *)&connection->tcp) < 0 ||
	    uv_read_start((uv_stream_t *)&connection->tcp, give_buffer, handle_input) < 0)
		drop_connection(connection);
}

static void free_server(uv_handle_t *handle)
{
	free(handle->data);
}

int hb_http_new(uv_loop_t *loop, const struct sockaddr_storage *address, hb_http_handler *handler, void *argument,
		struct hb_http **http, struct hb_error *error)
{
	struct hb_http *made = calloc(1, sizeof *made);
	if (!made)
		return hb_error_set(error, -ENOMEM, "out of memory");
	made->handler = handler;
	made->argument = argument;
	made->loopback = hb_http_address_is_loopback(address);
	int result = uv_tcp_init(loop, &made->tcp);
	if (result < 0) {
		free(made);
		return hb_error_set(error, result, "%s", uv_strerror(result));
	}
	made->tcp.data = made;
	result = uv_tcp_bind(&made->tcp, (const struct sockaddr *)address, 0);
	if (result == 0)
		result = uv_listen((uv_stream_t *)&made->tcp, HB_HTTP_CONNECTIONS_MAX, handle_connection);
	if (result < 0) {
		uv_close((uv_handle_t *)&made->tcp, free_server);
		return hb_error_set(error, result, "%s", uv_strerror(result));
	}
	read_address(made);
	*http = made;
	return 0;
}

void hb_http_free(struct hb_http *http)
{
	if (!http)
		return;
	for (size_t i = 0; i < HB_HTTP_CONNECTIONS_MAX; i++)
		if (http->connections[i])
			drop_connection(http->connections[i]);
	uv_close((uv_handle_t *)&http->tcp, free_server);
}

const char *hb_http_address(const struct hb_http *http)
{
	return http->address;
}

void hb_http_tick(struct hb_http *http, int64_t now_ns)
{
	for (size_t i = 0; i < HB_HTTP_CONNECTIONS_MAX; i++)
		if (http->connections[i] && http->connections[i]->waiting)
			serve_request(http->connections[i]);
	for (size_t i = 0; i < HB_HTTP_CONNECTIONS_MAX; i++)
		if (http->connections[i] && now_ns - http->connections[i]->since_ns > HB_HTTP_LIMIT_NS)
			drop_connection(http->connections[i]);
}
