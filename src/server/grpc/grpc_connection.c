/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See grpc_connection.h. Received bytes go through nghttp2_session_mem_recv(),
 * whose callbacks make calls of them. Bytes to send are taken from
 * nghttp2_session_mem_send() only while less than UNSENT_BYTES_MAX wait in the
 * socket, so a client that reads slowly costs no memory. If a stream closes early,
 * its call is cancelled; a call that waits for the GPU is then freed when its wait
 * ends.
 */
#include "server/grpc/grpc_connection.h"

#include "base/clock.h"
#include "base/log.h"
#include "grpc/grpc_text.h"
#include "grpc/session_limits.h"
#include "server/kserve/peer_limit.h"
#include "server/kserve/transfer_rate.h"
#include "server/security/tls_session.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MAX 1024 /* calls at one time on a connection */
#define WINDOW_BYTES (8 << 20)
#define UNSENT_BYTES_MAX (1 << 20)

struct hb_grpc_connection {
	struct hb_kserve_grpc *grpc;
	union {
		uv_tcp_t tcp;
		uv_pipe_t pipe;
		uv_handle_t handle;
	} socket;
	struct hb_client client;
	nghttp2_session *session;
	struct hb_tls_session *tls; /* between socket and session; NULL = no encryption */
	int64_t read_ns; /* last time that a call began, or that bytes of its message came; at first, time of the accept */
	int64_t written_ns;      /* last time that the socket took bytes */
	uint32_t n_incoming;     /* calls whose message is not complete */
	uint32_t n_unsent;       /* calls whose answer was not sent completely */
	int64_t unsent_since_ns; /* start of the wait to send them; moves forward with the bytes sent (transfer_rate.h) */
	struct hb_grpc_call *calls;
	int64_t quiet_since_ns; /* when the last call ended; at first, time of the accept */
	struct hb_peer_count *peer;
	struct hb_memory_charge charge;  /* memory of the connection and its session */
	struct hb_session_memory memory; /* of the session; charge.bytes follows it */
	bool closing, in_callback;
	bool greeted; /* the client has sent its settings */
	bool leaving; /* the client was notified that the connection ends */
	struct hb_grpc_connection *next, **link;
};

/*
 * Makes the charge follow the memory of the connection. It is not refused: the number of connections has a limit, and
 * health checks need a connection also when requests have used up the memory.
 */
static void charge_connection(struct hb_grpc_connection *connection)
{
	hb_memory_charge_connection(&connection->charge, sizeof(*connection) + connection->memory.bytes);
}

/* ---- sending ---- */

/* Bytes on their way to the socket. */
struct grpc_write {
	uv_write_t request;
	char data[];
};

static void send_pending(struct hb_grpc_connection *connection);

static void note_written(uv_write_t *request, int status)
{
	struct hb_grpc_connection *connection = request->handle->data;
	free(request->data);
	connection->written_ns = hb_clock_now_ns();
	if (status == 0)
		send_pending(connection);
}

static void free_connection(uv_handle_t *handle)
{
	struct hb_grpc_connection *connection = handle->data;
	connection->grpc->n_connections--;
	hb_peer_limit_leave(connection->grpc->peers, connection->peer);
	hb_memory_charge_connection(&connection->charge, 0);
	free(connection);
}

/* Records that the message of a call is complete, or that the rest of it will not be read. */
static void note_message_end(struct hb_grpc_call *call)
{
	if (call->complete)
		return;
	call->complete = true;
	call->connection->n_incoming--;
	call->connection->read_ns = hb_clock_now_ns();
}

/* Records that the sending of an answer begins. From now on the client must read at the minimum rate. */
static void note_answer_begin(struct hb_grpc_call *call)
{
	call->unsent = true;
	if (call->connection->n_unsent++ == 0)
		call->connection->unsent_since_ns = hb_clock_now_ns();
}

static void note_bytes_sent(struct hb_grpc_call *call, size_t bytes)
{
	struct hb_grpc_connection *connection = call->connection;
	connection->unsent_since_ns = hb_transfer_rate_credit(connection->unsent_since_ns, bytes, hb_clock_now_ns());
}

static void note_answer_end(struct hb_grpc_call *call)
{
	call->connection->n_unsent -= call->unsent;
	call->unsent = false;
}

/* Gives up a call whose stream has ended. A call that waits for the GPU is freed when its wait ends. */
static void drop_call(struct hb_grpc_call *call)
{
	note_message_end(call);
	note_answer_end(call);
	*call->link = call->sibling;
	if (call->sibling)
		call->sibling->link = call->link;
	call->connection->quiet_since_ns = hb_clock_now_ns();
	call->connection = NULL;
	if (!call->waits)
		hb_grpc_call_free(call);
	else if (call->infer)
		hb_dispatch_cancel(call->grpc->config.dispatch, call->infer);
	else if (call->load)
		hb_dispatch_cancel_load(call->grpc->config.dispatch, call->load);
}

static void close_connection(struct hb_grpc_connection *connection)
{
	if (connection->closing)
		return;
	connection->closing = true;
	while (connection->calls) /* nghttp2 reports no streams when the session is deleted */
		drop_call(connection->calls);
	nghttp2_session_del(connection->session);
	connection->session = NULL;
	hb_tls_session_free(connection->tls);
	connection->tls = NULL;
	*connection->link = connection->next;
	if (connection->next)
		connection->next->link = connection->link;
	uv_close((uv_handle_t *)&connection->socket, free_connection);
}

static bool write_bytes(void *connection_, const void *data, size_t n)
{
	struct hb_grpc_connection *connection = connection_;
	struct grpc_write *write = malloc(sizeof(*write) + n);
	if (!write)
		return false;
	memcpy(write->data, data, n);
	write->request.data = write;
	uv_buf_t buffer = uv_buf_init(write->data, (unsigned int)n);
	if (uv_stream_get_write_queue_size((uv_stream_t *)&connection->socket) == 0)
		connection->written_ns = hb_clock_now_ns();
	if (uv_write(&write->request, (uv_stream_t *)&connection->socket, &buffer, 1, note_written) == 0)
		return true;
	free(write);
	return false;
}

static bool send_chunk(struct hb_grpc_connection *connection)
{
	const uint8_t *data;
	ssize_t n = nghttp2_session_mem_send(connection->session, &data);
	if (n <= 0)
		return false;
	return connection->tls ? hb_tls_session_send(connection->tls, data, (size_t)n)
			       : write_bytes(connection, data, (size_t)n);
}

static void send_pending(struct hb_grpc_connection *connection)
{
	if (connection->closing || connection->in_callback)
		return;
	if (connection->tls && !hb_tls_session_is_open(connection->tls))
		return;
	while (uv_stream_get_write_queue_size((uv_stream_t *)&connection->socket) < UNSENT_BYTES_MAX &&
	       send_chunk(connection))
		;
	if (!nghttp2_session_want_read(connection->session) && !nghttp2_session_want_write(connection->session))
		close_connection(connection);
}

/* ---- answers ---- */

#define HEADER(name_, value_, length) \
	{ \
		.name = (uint8_t *)(name_), .value = (uint8_t *)(value_), .namelen = sizeof(name_) - 1, \
		.valuelen = (length), .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME \
	}

static void submit_trailers(nghttp2_session *session, const struct hb_grpc_call *call)
{
	char status[12], message[1024];
	size_t status_length = (size_t)snprintf(status, sizeof(status), "%d", call->status);
	nghttp2_nv trailers[] = {
		HEADER("grpc-status", status, status_length),
		HEADER("grpc-message", message, hb_grpc_message_encode(call->message, message, sizeof(message)))};
	nghttp2_submit_trailer(session, call->stream, trailers, 2);
}

static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t size, uint32_t *flags,
			   nghttp2_data_source *source, void *connection)
{
	struct hb_grpc_call *call = source->ptr;
	size_t left = call->out_bytes - call->sent, n = left < size ? left : size;
	memcpy(buffer, call->out + call->sent, n);
	call->sent += n;
	note_bytes_sent(call, n);
	if (call->sent == call->out_bytes) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		submit_trailers(session, call);
		note_answer_end(call);
	}
	return (ssize_t)n;
}

static void submit_answer(struct hb_grpc_call *call)
{
	nghttp2_session *session = call->connection->session;
	char status[12], message[1024];
	size_t status_length = (size_t)snprintf(status, sizeof(status), "%d", call->status);
	nghttp2_nv headers[] = {
		HEADER(":status", "200", 3),
		HEADER("content-type", "application/grpc", 16),
		HEADER("grpc-accept-encoding", "identity,deflate,gzip", 21),
		HEADER("grpc-status", status, status_length),
		HEADER("grpc-message", message, hb_grpc_message_encode(call->message, message, sizeof(message))),
	};
	nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_answer};
	if (call->status == 0) {
		note_answer_begin(call);
		nghttp2_submit_response(session, call->stream, headers, 3, &provider);
	} else {
		nghttp2_submit_response(session, call->stream, headers, 5, NULL);
	}
}

void hb_grpc_connection_answer(struct hb_grpc_call *call)
{
	struct hb_grpc_connection *connection = call->connection;
	submit_answer(call);
	send_pending(connection);
}

/* ---- calls ---- */

static void run_call(struct hb_grpc_call *call)
{
	hb_grpc_call_run(call);
	if (!call->waits)
		submit_answer(call);
}

static int begin_call(nghttp2_session *session, const nghttp2_frame *frame, void *connection_)
{
	struct hb_grpc_connection *connection = connection_;
	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	struct hb_grpc_call *call = calloc(1, sizeof(*call));
	if (call)
		call->headers = calloc(1, sizeof(*call->headers));
	if (!call || !call->headers) {
		free(call);
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	call->grpc = connection->grpc;
	call->connection = connection;
	call->stream = frame->hd.stream_id;
	call->reads_since_ns = hb_clock_now_ns();
	call->charge.budget = connection->grpc->config.memory;
	if (connection->n_incoming++ == 0)
		connection->read_ns = call->reads_since_ns;
	call->sibling = connection->calls;
	call->link = &connection->calls;
	if (call->sibling)
		call->sibling->link = &call->sibling;
	connection->calls = call;
	nghttp2_session_set_stream_user_data(session, call->stream, call);
	return 0;
}

struct hb_client hb_grpc_connection_client(const struct hb_grpc_connection *connection)
{
	return connection->client;
}

static int read_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
		       const uint8_t *value, size_t value_length, uint8_t flags, void *connection)
{
	struct hb_grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (!call)
		return 0;
	call->header_bytes += name_length + value_length + 32;
	if (call->header_bytes > HB_SESSION_HEADER_BYTES_MAX)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream is reset */
	if (hb_grpc_header_is_named(name, name_length, ":path"))
		snprintf(call->path, sizeof(call->path), "%.*s", (int)value_length, (const char *)value);
	else if (hb_grpc_header_is_named(name, name_length, "grpc-timeout"))
		call->timeout_ns = hb_grpc_timeout_parse((const char *)value, value_length);
	else if (hb_grpc_header_is_named(name, name_length, "grpc-encoding"))
		call->coding = hb_coding_parse((const char *)value, value_length);
	else if (call->headers)
		hb_grpc_headers_read(call->headers, name, name_length, value, value_length);
	return 0;
}

/* Drops the bytes of a message that have arrived; later ones are not stored. */
static void drop_message(struct hb_grpc_call *call)
{
	call->too_large = !call->memory_full;
	free(call->data);
	call->data = NULL;
	call->bytes = call->capacity = 0;
	hb_memory_charge_end(&call->charge);
}

static int read_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t bytes,
		     void *connection)
{
	struct hb_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
	if (!call || call->too_large || call->memory_full || call->waits || call->refused)
		return 0;
	if (bytes > hb_grpc_call_size_limit(call) + HB_GRPC_PREFIX - call->bytes ||
	    !hb_grpc_call_grow(call, call->bytes + bytes)) {
		drop_message(call);
		return 0;
	}
	memcpy(call->data + call->bytes, data, bytes);
	call->bytes += bytes;
	call->connection->read_ns = hb_clock_now_ns();
	call->reads_since_ns = hb_transfer_rate_credit(call->reads_since_ns, bytes, call->connection->read_ns);
	hb_grpc_announce_request(call);
	return 0;
}

/* Answers a call before its message is complete: a client that streams ends its side only after an answer. */
static void refuse_early(struct hb_grpc_call *call)
{
	call->refused = true;
	note_message_end(call);
	submit_answer(call);
}

/* Closes the stream of a call that was refused early. nghttp2 would not send the answer if this were done before. */
static int close_refused_stream(nghttp2_session *session, const nghttp2_frame *frame, void *connection)
{
	const struct hb_grpc_call *call;
	if (frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (call && call->refused)
		nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_NO_ERROR);
	return 0;
}

/* Runs a call when its message is complete, or refuses it when its headers name no method. */
static int note_frame(nghttp2_session *session, const nghttp2_frame *frame, void *connection_)
{
	struct hb_grpc_connection *connection = connection_;
	struct hb_grpc_call *call;
	connection->greeted = true;
	if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (!call || call->refused)
		return 0;
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
		note_message_end(call);
		run_call(call);
	} else if (frame->hd.type == NGHTTP2_HEADERS && !hb_grpc_call_begin(call)) {
		refuse_early(call);
	}
	return 0;
}

static int end_call(nghttp2_session *session, int32_t stream, uint32_t error, void *connection)
{
	struct hb_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
	if (call)
		drop_call(call);
	return 0;
}

/* ---- receiving ---- */

static void provide_buffer(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
	struct hb_kserve_grpc *grpc = ((struct hb_grpc_connection *)handle->data)->grpc;
	*buffer = uv_buf_init(grpc->received, sizeof(grpc->received));
}

/* Passes decrypted bytes to HTTP/2. */
static bool deliver_bytes(void *connection, const uint8_t *data, size_t n)
{
	return nghttp2_session_mem_recv(((struct hb_grpc_connection *)connection)->session, data, n) >= 0;
}

static void receive_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
	struct hb_grpc_connection *connection = stream->data;
	if (connection->closing || n == 0)
		return;
	if (n < 0) {
		close_connection(connection);
		return;
	}
	connection->in_callback = true;
	bool taken = connection->tls ? hb_tls_session_receive(connection->tls, buffer->base, (size_t)n)
				     : deliver_bytes(connection, (const uint8_t *)buffer->base, (size_t)n);
	connection->in_callback = false;
	charge_connection(connection);
	if (taken)
		send_pending(connection);
	else
		close_connection(connection);
}

static const nghttp2_settings_entry our_settings[] = {
	{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
	{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
	{NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, HB_SESSION_HEADER_TABLE_BYTES},
	{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HB_SESSION_HEADER_BYTES_MAX}};

static int open_session(struct hb_grpc_connection *connection)
{
	nghttp2_session_callbacks *callbacks;
	nghttp2_mem memory = hb_session_memory_functions(&connection->memory);
	nghttp2_option *limits = hb_session_limits_new();
	if (!limits)
		return -1;
	if (nghttp2_session_callbacks_new(&callbacks) != 0) {
		nghttp2_option_del(limits);
		return -1;
	}
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_call);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, read_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, read_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, note_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, close_refused_stream);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, end_call);
	int result = nghttp2_session_server_new3(&connection->session, callbacks, connection, limits, &memory);
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_option_del(limits);
	if (result != 0)
		return -1;
	if (nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, our_settings,
				    sizeof(our_settings) / sizeof(*our_settings)) != 0 ||
	    nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0, WINDOW_BYTES) != 0) {
		nghttp2_session_del(connection->session);
		return -1;
	}
	return 0;
}

/* Frees a connection that was closed at once, because the server has reached its limit. */
static void free_socket(uv_handle_t *handle)
{
	free(handle->data);
}

static bool open_tls(struct hb_grpc_connection *connection)
{
	static const struct hb_tls_session_calls calls = {.send = write_bytes, .deliver = deliver_bytes};
	struct hb_tls *tls = connection->grpc->config.tls;
	if (!tls || connection->client.kind == HB_CLIENT_UNIX)
		return true;
	connection->tls = hb_tls_session_new(tls, &calls, connection);
	return connection->tls != NULL;
}

/* Opens HTTP/2, and TLS below it. */
static bool open_layers(struct hb_grpc_connection *connection, int fd)
{
	connection->client = hb_client_of_socket(fd);
	if (open_session(connection) != 0)
		return false;
	if (open_tls(connection))
		return true;
	nghttp2_session_del(connection->session);
	return false;
}

static bool open_connection(struct hb_grpc_connection *connection, uv_stream_t *listener)
{
	struct hb_kserve_grpc *grpc = connection->grpc;
	int fd;
	if (uv_accept(listener, (uv_stream_t *)&connection->socket) != 0 ||
	    grpc->n_connections >= grpc->config.connections || uv_fileno((uv_handle_t *)&connection->socket, &fd) != 0)
		return false;
	connection->peer = hb_peer_limit_enter(grpc->peers, fd);
	if (connection->peer && open_layers(connection, fd))
		return true;
	hb_peer_limit_leave(grpc->peers, connection->peer);
	return false;
}

void hb_grpc_connection_accept(struct hb_kserve_grpc *grpc, uv_stream_t *listener)
{
	bool is_unix = listener == (uv_stream_t *)&grpc->unix_listener;
	struct hb_grpc_connection *connection = calloc(1, sizeof(*connection));
	if (!connection)
		return;
	connection->grpc = grpc;
	connection->read_ns = connection->quiet_since_ns = hb_clock_now_ns();
	connection->charge.budget = grpc->config.memory;
	int result = is_unix ? uv_pipe_init(&grpc->loop, &connection->socket.pipe, 0)
			     : uv_tcp_init(&grpc->loop, &connection->socket.tcp);
	if (result != 0) {
		free(connection);
		return;
	}
	connection->socket.handle.data = connection;
	if (!open_connection(connection, listener)) {
		uv_close((uv_handle_t *)&connection->socket, free_socket);
		return;
	}
	grpc->n_connections++;
	connection->next = grpc->connections;
	connection->link = &grpc->connections;
	if (connection->next)
		connection->next->link = &connection->next;
	grpc->connections = connection;
	charge_connection(connection);
	if (!is_unix)
		uv_tcp_nodelay(&connection->socket.tcp, 1);
	uv_read_start((uv_stream_t *)&connection->socket, provide_buffer, receive_bytes);
	send_pending(connection);
}

/* Notifies the client that the connection ends (GOAWAY); it ends when that was sent. */
static void leave_client(struct hb_grpc_connection *connection)
{
	connection->leaving = true;
	nghttp2_session_terminate_session(connection->session, NGHTTP2_NO_ERROR);
	send_pending(connection);
}

/* There is no limit for a client that waits for an answer. */
static bool makes_no_progress(const struct hb_grpc_connection *connection, int64_t now_ns, int64_t limit_ns)
{
	bool unread = uv_stream_get_write_queue_size((const uv_stream_t *)&connection->socket) > 0;
	return ((connection->n_incoming || !connection->greeted) && now_ns - connection->read_ns > limit_ns) ||
	       (unread && now_ns - connection->written_ns > limit_ns) ||
	       (connection->n_unsent && now_ns - connection->unsent_since_ns > 2 * limit_ns);
}

/* Resets the streams of calls whose message arrives more slowly than the minimum rate. */
static void reset_slow_calls(struct hb_grpc_connection *connection, int64_t now_ns, int64_t limit_ns)
{
	bool any = false;
	for (struct hb_grpc_call *call = connection->calls; call; call = call->sibling)
		if (!call->complete && now_ns - call->reads_since_ns > 2 * limit_ns) {
			nghttp2_submit_rst_stream(connection->session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_CANCEL);
			any = true;
		}
	if (any)
		send_pending(connection);
}

void hb_grpc_connections_check(struct hb_kserve_grpc *grpc, int64_t now_ns)
{
	struct hb_grpc_connection *next;
	int64_t limit_ns = (int64_t)grpc->config.idle_s * HB_NS_PER_S;
	for (struct hb_grpc_connection *connection = grpc->connections; connection; connection = next) {
		next = connection->next;
		if (!connection->closing)
			reset_slow_calls(connection, now_ns, limit_ns);
		bool quiet = !connection->calls && now_ns - connection->quiet_since_ns > limit_ns;
		if (makes_no_progress(connection, now_ns, limit_ns))
			close_connection(connection);
		else if (quiet && !connection->leaving)
			leave_client(connection);
		else
			charge_connection(connection);
	}
}

void hb_grpc_connections_close(struct hb_kserve_grpc *grpc)
{
	while (grpc->connections)
		close_connection(grpc->connections);
}
