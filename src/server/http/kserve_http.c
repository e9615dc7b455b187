/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See kserve_http.h. libmicrohttpd calls handle_request() when the head of a
 * request has arrived, for each part of the body, and when the body is complete.
 * Then http_routes.c chooses the function that answers. A request that must wait
 * is suspended; the thread that completes it resumes the connection, and
 * handle_request() is called again and sends the response.
 */
#include "server/http/http_call.h"

#include "base/log.h"
#include "server/kserve/content_coding.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define HEAD_BYTES_MAX (16 * 1024)
#define COMPRESSED_BYTES_MIN 512 /* shorter responses are not compressed */
/* Memory for a body is allocated at once up to this part of its announced size, the rest when the bytes have arrived. */
#define ANNOUNCED_BYTES_MAX (16 * 1024)

/* ---- responses ---- */

/* Compresses a long body in a way that the client accepts. Returns the coding's name; NULL = the body is unchanged. */
static const char *compress_body(const struct hb_http_call *call, char **body, size_t *bytes)
{
	void *shrunk;
	size_t shrunk_bytes;
	if (*bytes < COMPRESSED_BYTES_MIN)
		return NULL;
	enum hb_coding coding = hb_coding_choose(
		MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT_ENCODING));
	if (coding == HB_CODING_IDENTITY || !hb_coding_shrink(coding, *body, *bytes, &shrunk, &shrunk_bytes))
		return NULL;
	free(*body);
	*body = shrunk;
	*bytes = shrunk_bytes;
	return hb_coding_name(coding);
}

static enum MHD_Result send_response(struct hb_http_call *call, int status, const char *type, char *body, size_t bytes,
				     const char *coding, const char *json_bytes)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(body);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == 503)
		MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	if (coding)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, coding);
	if (call->end_unclear)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	if (json_bytes)
		MHD_add_response_header(response, HB_HTTP_JSON_LENGTH, json_bytes);
	enum MHD_Result result = MHD_queue_response(call->connection, (unsigned int)status, response);
	MHD_destroy_response(response);
	return result;
}

enum MHD_Result hb_http_send(struct hb_http_call *call, int status, const char *type, char *body, size_t bytes,
			     size_t json_bytes)
{
	char length[24];
	bool parts = json_bytes < bytes;
	snprintf(length, sizeof(length), "%zu", json_bytes);
	const char *coding = compress_body(call, &body, &bytes);
	return send_response(call, status, type, body, bytes, coding, parts ? length : NULL);
}

enum MHD_Result hb_http_send_json(struct hb_http_call *call, int status, char *json)
{
	if (!json)
		return MHD_NO; /* no memory: the library closes the connection */
	return send_response(call, status, "application/json", json, strlen(json), NULL, NULL);
}

enum MHD_Result hb_http_refuse(struct hb_http_call *call, int status, const char *reason)
{
	return hb_http_send_json(call, status, hb_kserve_json_error(reason));
}

enum MHD_Result hb_http_send_nothing(struct hb_http_call *call, int status)
{
	char *body = calloc(1, 1);
	return body ? send_response(call, status, "application/json", body, 0, NULL, NULL) : MHD_NO;
}

/* ---- waiting ---- */

bool hb_http_begin_wait(struct hb_kserve_http *http)
{
	int n = atomic_load(&http->n_waiting);
	while (n > 0)
		if (atomic_compare_exchange_weak(&http->n_waiting, &n, n + 1))
			return true;
	return false;
}

/* Ends a counted wait. The count reaches 0 only when the server shuts down, so requests do not take the lock. */
void hb_http_end_wait(struct hb_kserve_http *http)
{
	if (atomic_fetch_sub(&http->n_waiting, 1) != 1)
		return;
	pthread_mutex_lock(&http->lock);
	http->over = true;
	pthread_cond_broadcast(&http->ended);
	pthread_mutex_unlock(&http->lock);
}

static void resume_connection(struct hb_http_call *call)
{
	/* When the connection is resumed, the call may end at once, and the server with it. */
	struct hb_kserve_http *http = call->http;
	struct hb_http_loop *loop = call->loop;
	bool counted = hb_http_begin_wait(http);
	MHD_resume_connection(call->connection);
	hb_http_loop_wake(loop);
	if (counted)
		hb_http_end_wait(http);
}

enum MHD_Result hb_http_suspend(struct hb_http_call *call)
{
	MHD_suspend_connection(call->connection);
	if (atomic_exchange(&call->wait_state, HB_CALL_SUSPENDED) == HB_CALL_RESUMED)
		resume_connection(call);
	return MHD_YES;
}

void hb_http_resume(struct hb_http_call *call)
{
	if (atomic_exchange(&call->wait_state, HB_CALL_RESUMED) == HB_CALL_SUSPENDED)
		resume_connection(call);
}

/* ---- bodies ---- */

/*
 * Returns whether a request has low priority, while its body (which may name another priority) arrives: its model's
 * priority.
 */
static bool has_low_priority(const struct hb_http_call *call)
{
	return call->model && hb_dispatch_is_low(call->http->config.dispatch, call->model, call->model_length);
}

static bool grow_body(struct hb_http_call *call, size_t bytes)
{
	size_t capacity = hb_memory_grown_capacity(call->capacity, bytes);
	if (capacity == call->capacity)
		return true;
	size_t more = capacity - call->capacity;
	if ((hb_memory_would_use_reserve(&call->body->charge, more) && has_low_priority(call)) ||
	    !hb_memory_charge_add(&call->body->charge, more))
		return false;
	char *data = realloc(call->body->data, capacity);
	if (!data)
		return false;
	call->body->data = data;
	call->capacity = capacity;
	return true;
}

/*
 * Refuses a request. The rest of its body is read and dropped, because some clients read no response before they have
 * sent all.
 */
static void refuse_body(struct hb_http_call *call, int status)
{
	call->refused = status;
	hb_http_body_clear(call->body);
}

static void receive_body(struct hb_http_call *call, const char *data, size_t bytes)
{
	struct hb_http_body *body = call->body;
	if (call->refused)
		return;
	if (bytes > call->body_limit - body->bytes) {
		refuse_body(call, 413);
	} else if (!grow_body(call, body->bytes + bytes)) {
		refuse_body(call, 503);
	} else {
		memcpy(body->data + body->bytes, data, bytes);
		body->bytes += bytes;
		hb_http_timeout_extend(call->timeout, bytes);
	}
}

static enum MHD_Result send_refusal(struct hb_http_call *call)
{
	const char *why = call->end_unclear      ? "the request needs one Content-Length, or Transfer-Encoding: chunked"
			  : call->refused == 400 ? "the body is not compressed as Content-Encoding says"
			  : call->refused == 413 ? "the request is larger than the server allows"
			  : call->refused == 415 ? "Content-Encoding must be gzip, deflate or identity"
						 : HB_MEMORY_FULL;
	return hb_http_refuse(call, call->refused, why);
}

/* Decompresses the body. Returns 200, or the HTTP status of the refusal. */
static int expand_body(struct hb_http_call *call)
{
	struct hb_http_body *body = call->body;
	const char *given = MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND,
							MHD_HTTP_HEADER_CONTENT_ENCODING);
	enum hb_coding coding = given ? hb_coding_parse(given, strlen(given)) : HB_CODING_IDENTITY;
	void *data;
	size_t bytes;
	if (coding == HB_CODING_IDENTITY)
		return 200;
	if (coding == HB_CODING_UNKNOWN)
		return 415;
	int result = hb_coding_expand(coding, body->data, body->bytes, call->body_limit, &body->charge, &data, &bytes);
	if (result < 0)
		return result == -EINVAL ? 400 : result == -E2BIG ? 413 : 503;
	free(body->data); /* the charge for this memory remains until the request ends */
	body->data = data;
	body->bytes = bytes;
	return 200;
}

static struct hb_http_timeout *find_timeout(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	return info ? info->socket_context : NULL;
}

/* Returns the model's name in the path of an infer request; NULL = another path. */
static const char *find_model_name(const char *url, size_t *length)
{
	static const char before[] = "/v2/models/", after[] = "/infer";
	size_t bytes = strlen(url), skip = sizeof(before) - 1, end = sizeof(after) - 1;
	if (bytes < skip + end || strncmp(url, before, skip) != 0 || strcmp(url + bytes - end, after) != 0)
		return NULL;
	*length = strcspn(url + skip, "/");
	return url + skip;
}

/* Counts the headers of a request that say where its body ends. */
struct http_framing {
	uint32_t n_lengths, n_codings;
	bool chunked;
};

static enum MHD_Result count_framing_header(void *framing_, enum MHD_ValueKind kind, const char *name,
					    const char *value)
{
	struct http_framing *framing = framing_;
	framing->n_lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
	if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
		framing->n_codings++;
		framing->chunked = value && strcasecmp(value, "chunked") == 0;
	}
	return MHD_YES;
}

/*
 * Returns whether at most one header says where the body ends, in a way that the library knows. Of two such headers the
 * library takes the first, but a proxy in front of the server may take the other: bytes of this request would then be
 * read as another client's request (request smuggling).
 */
static bool is_end_clear(struct MHD_Connection *connection)
{
	struct http_framing framing = {.n_lengths = 0};
	MHD_get_connection_values(connection, MHD_HEADER_KIND, count_framing_header, &framing);
	return framing.n_lengths + framing.n_codings <= 1 && (framing.chunked || !framing.n_codings);
}

static struct hb_http_call *new_call(struct hb_kserve_http *http, struct MHD_Connection *connection, const char *url)
{
	struct hb_http_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->http = http;
	call->connection = connection;
	call->loop = hb_http_loop_here();
	call->timeout = find_timeout(connection);
	call->body = hb_http_body_new();
	if (!call->body) {
		free(call);
		return NULL;
	}
	call->body->charge.budget = call->charge.budget = http->config.memory;
	call->end_unclear = !is_end_clear(connection);
	const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	unsigned long long bytes = length ? strtoull(length, NULL, 10) : 0;
	call->model = find_model_name(url, &call->model_length);
	call->body_limit = call->model || http->config.body_bytes < HB_CONTROL_BYTES_MAX ? http->config.body_bytes
											 : HB_CONTROL_BYTES_MAX;
	if (call->end_unclear)
		call->refused = 400;
	else if (bytes > http->config.body_bytes)
		call->refused = 413;
	else if (bytes > 0 && !grow_body(call, bytes < ANNOUNCED_BYTES_MAX ? bytes : ANNOUNCED_BYTES_MAX))
		call->refused = 503;
	return call;
}

/* Announces the request to its back end while the body still arrives, so that the GPU can be prepared. */
static void announce_request(const struct hb_http_call *call, const char *method)
{
	if (call->model && strcmp(method, "POST") == 0)
		hb_dispatch_expect(call->http->config.dispatch, call->model, call->model_length);
}

static enum MHD_Result handle_request(void *argument, struct MHD_Connection *connection, const char *url,
				      const char *method, const char *version, const char *data, size_t *bytes,
				      void **context)
{
	struct hb_http_call *call = *context;
	if (!call) {
		call = *context = new_call(argument, connection, url);
		if (!call)
			return MHD_NO;
		announce_request(call, method);
		/*
		 * If the request is refused before its body was sent, the library closes the connection after the
		 * response.
		 */
		return call->refused ? send_refusal(call) : MHD_YES;
	}
	if (*bytes > 0) {
		receive_body(call, data, *bytes);
		*bytes = 0;
		return MHD_YES;
	}
	hb_http_timeout_stop(call->timeout);
	if (call->refused)
		return send_refusal(call);
	if (call->finish)
		return call->finish(call);
	int status = expand_body(call);
	if (status != 200) {
		call->refused = status;
		return send_refusal(call);
	}
	return hb_http_route(call, url, method);
}

static void end_request(void *argument, struct MHD_Connection *connection, void **context,
			enum MHD_RequestTerminationCode why)
{
	struct hb_http_call *call = *context;
	if (!call)
		return;
	if (call->infer)
		hb_http_release_inference(call);
	hb_http_timeout_start(call->timeout);
	hb_memory_charge_end(&call->charge);
	hb_http_body_free(call->body);
	free(call->load_error);
	free(call);
	*context = NULL;
}

/* ---- the server ---- */

static void note_connection(void *argument, struct MHD_Connection *connection, void **timeout,
			    enum MHD_ConnectionNotificationCode what)
{
	struct hb_kserve_http *http = argument;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		hb_http_timeouts_remove(http->timeouts, *timeout);
		hb_http_loop_note_closed(hb_http_loop_here());
	} else if (info)
		*timeout = hb_http_timeouts_add(http->timeouts, info->connect_fd);
}

__attribute__((format(printf, 2, 0))) static void log_line(void *argument, const char *format, va_list arguments)
{
	char line[256];
	int n = vsnprintf(line, sizeof(line), format, arguments);
	while (n > 0 && (size_t)n < sizeof(line) && line[n - 1] == '\n')
		line[--n] = '\0';
	hb_log_info("http: %s", line);
}

static struct MHD_Daemon *start_daemon_at(void *argument, unsigned flags, int listening, uint32_t connections)
{
	struct hb_kserve_http *http = argument;
	return MHD_start_daemon(flags | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle_request,
				http, MHD_OPTION_EXTERNAL_LOGGER, log_line, NULL, MHD_OPTION_LISTEN_SOCKET, listening,
				MHD_OPTION_CONNECTION_LIMIT, (unsigned)connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				(size_t)HEAD_BYTES_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)http->config.idle_s,
				MHD_OPTION_NOTIFY_COMPLETED, end_request, NULL, MHD_OPTION_NOTIFY_CONNECTION,
				note_connection, http, MHD_OPTION_END);
}

static int start_loops(struct hb_kserve_http *http, struct hb_error *error)
{
	struct hb_http_loops_config config = {
		.address = http->config.address,
		.threads = http->config.threads,
		.connections = http->config.connections,
		.start = start_daemon_at,
		.argument = http,
	};
	return hb_http_loops_new(&config, &http->loops, error);
}

int hb_kserve_http_new(const struct hb_kserve_http_config *config, struct hb_kserve_http **out, struct hb_error *error)
{
	struct hb_kserve_http *http = calloc(1, sizeof(*http));
	if (!http)
		return hb_error_set(error, -ENOMEM, "out of memory");
	http->config = *config;
	pthread_mutex_init(&http->lock, NULL);
	pthread_cond_init(&http->ended, NULL);
	atomic_init(&http->n_waiting, 1);
	http->disconnects = hb_disconnect_watch_new(config->dispatch);
	http->timeouts = hb_http_timeouts_new(config->idle_s);
	int result = http->disconnects && http->timeouts
			     ? start_loops(http, error)
			     : hb_error_set(error, -ENOMEM, "http: no memory or no thread is left");
	if (result < 0) {
		hb_kserve_http_free(http);
		return result;
	}
	*out = http;
	return 0;
}

uint16_t hb_kserve_http_port(const struct hb_kserve_http *http)
{
	return hb_http_loops_port(http->loops);
}

void hb_kserve_http_free(struct hb_kserve_http *http)
{
	if (!http)
		return;
	if (http->loops) {
		hb_http_loops_quiesce(http->loops);
		hb_http_end_wait(http);
		pthread_mutex_lock(&http->lock);
		while (!http->over || http->n_loading)
			pthread_cond_wait(&http->ended, &http->lock);
		pthread_mutex_unlock(&http->lock);
		hb_http_loops_free(http->loops);
	}
	hb_disconnect_watch_free(http->disconnects);
	hb_http_timeouts_free(http->timeouts);
	pthread_mutex_destroy(&http->lock);
	pthread_cond_destroy(&http->ended);
	free(http);
}
