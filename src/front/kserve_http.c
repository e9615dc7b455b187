/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See kserve_http.h. How a request lives: libmicrohttpd calls handle() when the
 * head has come, for each piece of the body, and when all is there. Then it is
 * routed (http_routes.c). One that must wait is suspended; whoever ends it
 * resumes the connection, handle() is called again and answers.
 */
#include "front/http_call.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES (16 * 1024) /* of a connection: the longest head */
#define FIRST_BYTES 1024       /* of a body */

/* ---- answers ---- */

enum MHD_Result hb_http_send(struct hb_http_call *call, int status, const char *type, char *body, size_t bytes,
			     size_t json_bytes)
{
	char length[24];
	struct MHD_Response *response = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(body);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (json_bytes < bytes) {
		snprintf(length, sizeof(length), "%zu", json_bytes);
		MHD_add_response_header(response, HB_HTTP_JSON_LENGTH, length);
	}
	enum MHD_Result result = MHD_queue_response(call->connection, (unsigned int)status, response);
	MHD_destroy_response(response);
	return result;
}

enum MHD_Result hb_http_send_json(struct hb_http_call *call, int status, char *json)
{
	if (!json)
		return MHD_NO; /* no memory: the connection is closed */
	size_t bytes = strlen(json);
	return hb_http_send(call, status, "application/json", json, bytes, bytes);
}

enum MHD_Result hb_http_refuse(struct hb_http_call *call, int status, const char *reason)
{
	return hb_http_send_json(call, status, hb_kserve_error(reason));
}

enum MHD_Result hb_http_send_nothing(struct hb_http_call *call, int status)
{
	char *body = calloc(1, 1);
	return body ? hb_http_send(call, status, "application/json", body, 0, 0) : MHD_NO;
}

/* ---- waiting ---- */

enum MHD_Result hb_http_park(struct hb_http_call *call)
{
	MHD_suspend_connection(call->connection);
	if (atomic_exchange(&call->parked, HB_CALL_PARKED) == HB_CALL_DONE)
		MHD_resume_connection(call->connection);
	return MHD_YES;
}

void hb_http_resume(struct hb_http_call *call)
{
	if (atomic_exchange(&call->parked, HB_CALL_DONE) == HB_CALL_PARKED)
		MHD_resume_connection(call->connection);
}

/* ---- bodies ---- */

static bool make_room(struct hb_http_call *call, size_t bytes)
{
	size_t capacity = call->capacity ? call->capacity : FIRST_BYTES;
	while (capacity < bytes)
		capacity *= 2;
	if (capacity == call->capacity)
		return true;
	char *data = realloc(call->body->data, capacity);
	if (!data)
		return false;
	call->body->data = data;
	call->capacity = capacity;
	return true;
}

static void receive(struct hb_http_call *call, const char *data, size_t bytes)
{
	struct hb_body *body = call->body;
	if (call->too_large || bytes > call->http->config.body_bytes - body->bytes ||
	    !make_room(call, body->bytes + bytes)) {
		call->too_large = true;
		return;
	}
	memcpy(body->data + body->bytes, data, bytes);
	body->bytes += bytes;
}

static struct hb_http_call *begin(struct hb_kserve_http *http, struct MHD_Connection *connection, const char *method)
{
	struct hb_http_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->http = http;
	call->connection = connection;
	call->body = hb_body_new();
	if (!call->body) {
		free(call);
		return NULL;
	}
	const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	unsigned long long bytes = length ? strtoull(length, NULL, 10) : 0;
	call->too_large = bytes > http->config.body_bytes;
	if (!call->too_large && bytes > 0)
		make_room(call, bytes < 1 << 20 ? bytes : 1 << 20); /* more only when it really comes */
	return call;
}

static enum MHD_Result handle(void *argument, struct MHD_Connection *connection, const char *url, const char *method,
			      const char *version, const char *data, size_t *bytes, void **context)
{
	struct hb_http_call *call = *context;
	if (!call) {
		call = *context = begin(argument, connection, method);
		if (!call)
			return MHD_NO;
		/* Refused before the body is sent; the connection ends after that. */
		return call->too_large ? hb_http_refuse(call, 413, "the request is larger than the server takes")
				       : MHD_YES;
	}
	if (*bytes > 0) {
		receive(call, data, *bytes);
		*bytes = 0;
		return MHD_YES;
	}
	if (call->too_large)
		return hb_http_refuse(call, 413, "the request is larger than the server takes");
	if (call->finish)
		return call->finish(call);
	return hb_http_route(call, url, method);
}

static void end(void *argument, struct MHD_Connection *connection, void **context, enum MHD_RequestTerminationCode why)
{
	struct hb_http_call *call = *context;
	if (!call)
		return;
	if (call->infer)
		hb_http_forget_infer(call);
	hb_body_free(call->body);
	free(call->answer);
	free(call);
	*context = NULL;
}

/* ---- the server ---- */

__attribute__((format(printf, 2, 0))) static void log_line(void *argument, const char *format, va_list arguments)
{
	char line[256];
	int n = vsnprintf(line, sizeof(line), format, arguments);
	while (n > 0 && (size_t)n < sizeof(line) && line[n - 1] == '\n')
		line[--n] = '\0';
	hb_log_info("http: %s", line);
}

static int start(struct hb_kserve_http *http, struct hb_error *error)
{
	const struct hb_kserve_http_config *config = &http->config;
	unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			     MHD_USE_TURBO;
	if (config->address.ss_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	errno = 0;
	http->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, handle, http, MHD_OPTION_EXTERNAL_LOGGER, log_line, NULL, MHD_OPTION_SOCK_ADDR,
		(const struct sockaddr *)&config->address, MHD_OPTION_THREAD_POOL_SIZE, (unsigned int)config->threads,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)config->connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)HEAD_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)config->idle_s,
		MHD_OPTION_LISTEN_BACKLOG_SIZE, 4096U, MHD_OPTION_NOTIFY_COMPLETED, end, NULL, MHD_OPTION_END);
	if (!http->daemon)
		return hb_error_set(error, -(errno ? errno : EIO), "http: cannot listen: %s",
				    errno ? strerror(errno) : "see the log");
	return 0;
}

int hb_kserve_http_new(const struct hb_kserve_http_config *config, struct hb_kserve_http **out, struct hb_error *error)
{
	struct hb_kserve_http *http = calloc(1, sizeof(*http));
	if (!http)
		return hb_error_set(error, -ENOMEM, "out of memory");
	http->config = *config;
	pthread_mutex_init(&http->lock, NULL);
	pthread_cond_init(&http->slow_ended, NULL);
	http->gone = hb_gone_watch_new(config->dispatch);
	int result = http->gone ? start(http, error) : hb_error_set(error, -ENOMEM, "http: out of memory or threads");
	if (result < 0) {
		hb_kserve_http_free(http);
		return result;
	}
	*out = http;
	return 0;
}

uint16_t hb_kserve_http_port(const struct hb_kserve_http *http)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
	return info ? info->port : 0;
}

void hb_kserve_http_free(struct hb_kserve_http *http)
{
	if (!http)
		return;
	if (http->daemon) {
		MHD_socket listening = MHD_quiesce_daemon(http->daemon);
		pthread_mutex_lock(&http->lock);
		while (http->waiting || http->slow)
			pthread_cond_wait(&http->slow_ended, &http->lock);
		pthread_mutex_unlock(&http->lock);
		MHD_stop_daemon(http->daemon);
		if (listening != MHD_INVALID_SOCKET)
			close(listening);
	}
	hb_gone_watch_free(http->gone);
	pthread_mutex_destroy(&http->lock);
	pthread_cond_destroy(&http->slow_ended);
	free(http);
}
