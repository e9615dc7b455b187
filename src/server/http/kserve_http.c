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
#include "server/http/request_head.h"
#include "server/kserve/content_coding.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_BYTES_MAX (16 * 1024)
#define UNIX_SHARE 4 /* one connection in 4 is kept for the Unix socket */
/*
 * An answer that is larger than ANSWER_WHOLE_BYTES is given to the library in blocks, so that it is known how much the client
 * has taken. The library allocates a block for each answer.
 */
#define ANSWER_WHOLE_BYTES (64 * 1024)
#define ANSWER_BLOCK_BYTES (16 * 1024)
#define COMPRESSED_BYTES_MIN 512 /* shorter responses are not compressed */
/* Memory for a body is allocated at once up to this part of its announced size, the rest when the bytes have arrived. */
#define ANNOUNCED_BYTES_MAX (16 * 1024)

/* ---- responses ---- */

const char *hb_http_compress(const struct hb_http_call *call, char **body, size_t *bytes)
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

/* The body of a large response. */
struct http_answer {
	char *body;
	size_t bytes;
	uint64_t taken; /* bytes that the socket has taken */
	struct hb_http_timeout *timeout;
};

/* The library calls this when the socket has taken the bytes before `position`. */
static ssize_t read_answer(void *answer_, uint64_t position, char *out, size_t most)
{
	struct http_answer *answer = answer_;
	size_t left = answer->bytes - position, n = left < most ? left : most;
	hb_http_timeout_extend(answer->timeout, position - answer->taken);
	answer->taken = position;
	memcpy(out, answer->body + position, n);
	return (ssize_t)n;
}

static void free_answer(void *answer_)
{
	struct http_answer *answer = answer_;
	free(answer->body);
	free(answer);
}

/* Makes a response and takes the body. Returns NULL without memory. */
static struct MHD_Response *make_response(const struct hb_http_call *call, char *body, size_t bytes)
{
	struct http_answer *answer = bytes > ANSWER_WHOLE_BYTES ? malloc(sizeof(*answer)) : NULL;
	struct MHD_Response *response;
	if (answer) {
		*answer = (struct http_answer){.body = body, .bytes = bytes, .timeout = call->timeout};
		response = MHD_create_response_from_callback(bytes, ANSWER_BLOCK_BYTES, read_answer, answer,
							     free_answer);
		if (!response)
			free_answer(answer);
		return response;
	}
	response = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
	if (!response)
		free(body);
	return response;
}

enum MHD_Result hb_http_send(struct hb_http_call *call, int status, const char *type, char *body, size_t bytes,
			     const char *coding, size_t json_bytes)
{
	char length[24];
	struct MHD_Response *response = make_response(call, body, bytes);
	if (!response)
		return MHD_NO;
	hb_http_timeout_start_answer(call->timeout);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == 401)
		MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (status == 503)
		MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	if (coding)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, coding);
	if (call->head_error || hb_request_body_end_is_unclear(call->connection))
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	snprintf(length, sizeof(length), "%zu", json_bytes);
	if (json_bytes)
		MHD_add_response_header(response, HB_HTTP_JSON_LENGTH, length);
	enum MHD_Result result = MHD_queue_response(call->connection, (unsigned int)status, response);
	MHD_destroy_response(response);
	return result;
}

enum MHD_Result hb_http_send_json(struct hb_http_call *call, int status, char *json)
{
	if (!json)
		return MHD_NO; /* no memory: the library closes the connection */
	return hb_http_send(call, status, "application/json", json, strlen(json), NULL, 0);
}

enum MHD_Result hb_http_refuse(struct hb_http_call *call, int status, const char *reason)
{
	return hb_http_send_json(call, status, hb_kserve_json_error(reason));
}

enum MHD_Result hb_http_send_nothing(struct hb_http_call *call, int status)
{
	char *body = calloc(1, 1);
	return body ? hb_http_send(call, status, "application/json", body, 0, NULL, 0) : MHD_NO;
}

/* ---- bodies ---- */

/*
 * Returns whether a request has low priority, while its body (which may name another priority) arrives: its model's
 * priority.
 */
static bool has_low_priority(const struct hb_http_call *call)
{
	return call->model && (call->caller.low_only ||
			       hb_dispatch_is_low(call->http->config.dispatch, call->model, call->model_length));
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
	if (call->refusal)
		return hb_http_refuse(call, call->refused, hb_access_text(call->http->config.access, call->refusal));
	const char *why = call->head_error       ? call->head_error
			  : call->refused == 400 ? "the body is not compressed as Content-Encoding says"
			  : call->refused == 413 ? "the request is larger than the server allows"
			  : call->refused == 415 ? "Content-Encoding must be gzip, deflate or identity"
						 : HB_MEMORY_FULL;
	return hb_http_refuse(call, call->refused, why);
}

/* The server's data for a connection. */
struct http_client {
	struct hb_http_timeout *timeout;
	struct hb_peer_count *peer;
	struct hb_tls_handshake handshake;
};

static struct hb_http_timeout *find_timeout(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	const struct http_client *client = info ? info->socket_context : NULL;
	return client ? client->timeout : NULL;
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

/* Calls of this thread whose heads have not arrived completely. */
static _Thread_local struct hb_http_call *arriving;

static void unlink_arriving(struct hb_http_call *call)
{
	if (!call->arriving_link)
		return;
	*call->arriving_link = call->arriving_next;
	if (call->arriving_next)
		call->arriving_next->arriving_link = call->arriving_link;
	call->arriving_link = NULL;
}

/* The library calls this when a request line has arrived, and stores the result as the `*context` of the request. */
static void *new_call(void *http, const char *target, struct MHD_Connection *connection)
{
	struct hb_http_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NULL;
	call->http = http;
	call->connection = connection;
	call->bad_target = !hb_request_target_fits(target);
	call->arriving_next = arriving;
	call->arriving_link = &arriving;
	if (arriving)
		arriving->arriving_link = &call->arriving_next;
	arriving = call;
	return call;
}

/*
 * Answers a request whose Content-Length is not a number, and ends its connection. Called when the library logs something:
 * it finds such a length before it calls the handler, and would send its answer twice.
 */
static void refuse_bad_lengths(void)
{
	static const char answer[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: "
				     "application/json\r\nContent-Length: 43\r\n\r\n"
				     "{\"error\":\"Content-Length must be a number\"}";
	for (struct hb_http_call *call = arriving; call; call = call->arriving_next) {
		const union MHD_ConnectionInfo *info = MHD_get_connection_info(call->connection,
									       MHD_CONNECTION_INFO_CONNECTION_FD);
		if (call->ended || !info || !hb_request_head_has_bad_length(call->connection))
			continue;
		call->ended = true;
		if (!MHD_get_connection_info(call->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION))
			send(info->connect_fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		shutdown(info->connect_fd, SHUT_RDWR);
	}
}

/* Begins a request whose head has arrived. False: no memory is left. */
static bool begin_call(struct hb_http_call *call, const char *url, const char *method, const char *version)
{
	struct hb_kserve_http *http = call->http;
	struct MHD_Connection *connection = call->connection;
	unlink_arriving(call);
	call->begun = true;
	call->loop = hb_http_loop_here();
	call->timeout = find_timeout(connection);
	call->body = hb_http_body_new();
	if (!call->body)
		return false;
	call->body->charge.budget = call->charge.budget = http->config.memory;
	call->head_error = call->bad_target ? "the request's target has a character that must be encoded"
					    : hb_request_head_find_error(connection, method, url, version);
	const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	unsigned long long bytes = length ? strtoull(length, NULL, 10) : 0;
	call->model = find_model_name(url, &call->model_length);
	if (call->head_error)
		call->refused = 400;
	else
		hb_http_check_access(call, url, method);
	if (call->refused)
		return true;
	call->body_limit = hb_access_size_limit(call->right, call->model, http->config.body_bytes);
	uint64_t at_once = call->body_limit < ANNOUNCED_BYTES_MAX ? call->body_limit : ANNOUNCED_BYTES_MAX;
	if (bytes > http->config.body_bytes)
		call->refused = 413;
	else if (bytes > 0 && !grow_body(call, bytes < at_once ? bytes : at_once))
		call->refused = 503;
	return true;
}

/* Announces the request to its back end while the body still arrives, so that the GPU can be prepared. */
static void announce_request(const struct hb_http_call *call, const char *method)
{
	if (call->model && strcmp(method, "POST") == 0 && !call->refused && !call->caller.low_only)
		hb_dispatch_expect(call->http->config.dispatch, call->model, call->model_length);
}

static enum MHD_Result handle_request(void *argument, struct MHD_Connection *connection, const char *url,
				      const char *method, const char *version, const char *data, size_t *bytes,
				      void **context)
{
	struct hb_http_call *call = *context;
	if (!call)
		return MHD_NO; /* no memory: the library closes the connection */
	if (!call->begun) {
		if (!begin_call(call, url, method, version))
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
	enum MHD_Result result = MHD_NO;
	int status = hb_http_expand_body(call, &result);
	if (status == 0)
		return result;
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
	unlink_arriving(call);
	if (call->infer)
		hb_http_release_inference(call);
	hb_http_release_load(call);
	hb_http_uncount_wait(call);
	free(call->expand.out);
	free(call->out);
	hb_http_timeout_start(call->timeout);
	hb_memory_charge_end(&call->charge);
	hb_http_body_free(call->body);
	free(call);
	*context = NULL;
}

/* ---- the server ---- */

/* Returns NULL if the client has too many connections, or no memory is left. */
static struct http_client *add_client(struct hb_kserve_http *http, int fd)
{
	struct http_client *client = calloc(1, sizeof(*client));
	if (!client)
		return NULL;
	client->peer = hb_peer_limit_enter(http->peers, fd);
	if (!client->peer) {
		free(client);
		return NULL;
	}
	client->timeout = hb_http_timeouts_add(http->timeouts, fd);
	return client;
}

static void remove_client(struct hb_kserve_http *http, struct http_client *client)
{
	if (!client)
		return;
	hb_http_timeouts_remove(http->timeouts, client->timeout);
	hb_peer_limit_leave(http->peers, client->peer);
	hb_tls_end_http(&client->handshake);
	free(client);
}

/* A Unix socket has no TLS, and its connections no session. */
static void begin_tls(struct hb_kserve_http *http, struct http_client *client, struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	struct hb_http_loop *loop = hb_http_loop_here();
	if (info && info->tls_session && loop)
		hb_tls_begin_http(http->config.tls, info->tls_session, &client->handshake,
				  hb_http_loop_handshakes(loop));
}

static void note_connection(void *argument, struct MHD_Connection *connection, void **client,
			    enum MHD_ConnectionNotificationCode what)
{
	struct hb_kserve_http *http = argument;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		remove_client(http, *client);
		*client = NULL;
		hb_http_loop_note_closed(hb_http_loop_here());
	} else if (info) {
		*client = add_client(http, info->connect_fd);
		if (!*client)
			shutdown(info->connect_fd, SHUT_RDWR); /* the library reads an end and closes the connection */
		else if (http->config.tls)
			begin_tls(http, *client, connection);
	}
}

__attribute__((format(printf, 2, 0))) static void log_line(void *argument, const char *format, va_list arguments)
{
	char line[256];
	if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
		hb_http_loop_note_starved();
	refuse_bad_lengths();
	int n = vsnprintf(line, sizeof(line), format, arguments);
	while (n > 0 && (size_t)n < sizeof(line) && line[n - 1] == '\n')
		line[--n] = '\0';
	hb_log_info("http: %s", line);
}

static struct MHD_Daemon *start_daemon(struct hb_kserve_http *http, unsigned flags, int listening, uint32_t connections,
				       struct MHD_OptionItem *more)
{
	/* Versions before 1.0.0 would answer twice when they find no Host; request_head.c checks more than they do. */
	int is_strict = strtol(MHD_get_version(), NULL, 10) >= 1;
	return MHD_start_daemon(flags | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle_request,
				http, MHD_OPTION_EXTERNAL_LOGGER, log_line, NULL, MHD_OPTION_LISTEN_SOCKET, listening,
				MHD_OPTION_CONNECTION_LIMIT, (unsigned)connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				(size_t)HEAD_BYTES_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)http->config.idle_s,
				MHD_OPTION_NOTIFY_COMPLETED, end_request, NULL, MHD_OPTION_NOTIFY_CONNECTION,
				note_connection, http, MHD_OPTION_URI_LOG_CALLBACK, new_call, http,
				MHD_OPTION_STRICT_FOR_CLIENT, is_strict, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

static struct MHD_Daemon *start_plain_daemon(void *http, unsigned flags, int listening, uint32_t connections)
{
	struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
	return start_daemon(http, flags, listening, connections, none);
}

static struct MHD_Daemon *start_tls_daemon(void *argument, unsigned flags, int listening, uint32_t connections)
{
	struct hb_kserve_http *http = argument;
	const struct hb_tls *tls = http->config.tls;
	struct MHD_OptionItem options[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (char *)hb_tls_cert_text(tls)},
					   {MHD_OPTION_HTTPS_MEM_KEY, 0, (char *)hb_tls_key_text(tls)},
					   {MHD_OPTION_HTTPS_PRIORITIES, 0, (char *)hb_tls_priorities()},
					   {MHD_OPTION_END, 0, NULL}};
	/*
	 * With MHD_USE_TURBO, version 0.9.75 does not watch the socket of a connection whose handshake has not begun: it
	 * would never end, and the loop would run all the time.
	 */
	flags &= ~(unsigned)MHD_USE_TURBO;
	return start_daemon(http, flags | MHD_USE_TLS, listening, connections, options);
}

/* The Unix socket has one thread and a quarter of the connections: other clients cannot take those from an operator. */
static int start_unix_loops(struct hb_kserve_http *http, struct hb_error *error)
{
	struct hb_http_loops_config config = {
		.address = {.ss_family = AF_UNIX},
		.unix_listener = hb_unix_listener_fd(http->config.unix_listener),
		.threads = 1,
		.connections = http->config.connections / UNIX_SHARE + 1,
		.start = start_plain_daemon,
		.argument = http,
	};
	return hb_http_loops_new(&config, &http->unix_loops, error);
}

static int start_loops(struct hb_kserve_http *http, struct hb_error *error)
{
	uint32_t unix_connections = http->config.unix_listener ? http->config.connections / UNIX_SHARE + 1 : 0;
	int result = http->config.unix_listener ? start_unix_loops(http, error) : 0;
	if (result < 0 || http->config.address.ss_family == AF_UNSPEC)
		return result;
	if (http->config.tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return hb_error_set(error, -ENOTSUP, "http: libmicrohttpd of this machine was built without TLS");
	struct hb_http_loops_config config = {
		.address = http->config.address,
		.threads = http->config.threads,
		.unix_listener = -1,
		.connections = http->config.connections > unix_connections ? http->config.connections - unix_connections
									   : 1,
		.start = http->config.tls ? start_tls_daemon : start_plain_daemon,
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
	http->peers = hb_peer_limit_new("http", config->client_connections);
	http->jobs = hb_job_thread_new();
	int result = http->disconnects && http->timeouts && http->peers && http->jobs
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
	return http->loops ? hb_http_loops_port(http->loops) : 0;
}

void hb_kserve_http_free(struct hb_kserve_http *http)
{
	if (!http)
		return;
	if (http->loops || http->unix_loops) {
		hb_http_loops_quiesce(http->loops);
		hb_http_loops_quiesce(http->unix_loops);
		hb_http_end_wait(http);
		pthread_mutex_lock(&http->lock);
		while (!http->over)
			pthread_cond_wait(&http->ended, &http->lock);
		pthread_mutex_unlock(&http->lock);
		hb_http_loops_free(http->loops);
		hb_http_loops_free(http->unix_loops);
	}
	hb_job_thread_free(http->jobs);
	hb_disconnect_watch_free(http->disconnects);
	hb_http_timeouts_free(http->timeouts);
	hb_peer_limit_free(http->peers);
	pthread_mutex_destroy(&http->lock);
	pthread_cond_destroy(&http->ended);
	free(http);
}
