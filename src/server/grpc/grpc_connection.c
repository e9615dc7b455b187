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
#include "server/kserve/transfer_rate.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MAX 1024 /* calls at one time on a connection */
#define WINDOW_BYTES (8 << 20)
#define UNSENT_BYTES_MAX (1 << 20)
#define READ_BYTES (64 * 1024)

struct hb_grpc_connection {
	struct hb_kserve_grpc *grpc;
	uv_tcp_t socket;
	nghttp2_session *session;
	int64_t read_ns;     /* last time that a call began or its message was complete; at first, time of the accept */
	int64_t written_ns;  /* last time that the socket took bytes */
	uint32_t n_incoming; /* calls whose message is not complete */
	uint32_t n_unsent;   /* calls whose answer was not sent completely */
	int64_t unsent_since_ns; /* start of the wait to send them; moves forward with the bytes sent (transfer_rate.h) */
	struct hb_grpc_call *calls;
	bool closing, in_callback;
	bool greeted; /* the client has sent its settings */
	struct hb_grpc_connection *next, **link;
	char read[READ_BYTES];
};

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
	call->connection = NULL;
	if (!call->waits)
		hb_grpc_call_free(call);
	else if (call->infer)
		hb_dispatch_cancel(call->grpc->config.dispatch, call->infer);
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
	*connection->link = connection->next;
	if (connection->next)
		connection->next->link = connection->link;
	uv_close((uv_handle_t *)&connection->socket, free_connection);
}

static bool send_chunk(struct hb_grpc_connection *connection)
{
	const uint8_t *data;
	ssize_t n = nghttp2_session_mem_send(connection->session, &data);
	if (n <= 0)
		return false;
	struct grpc_write *write = malloc(sizeof(*write) + (size_t)n);
	if (!write)
		return false;
	memcpy(write->data, data, (size_t)n);
	write->request.data = write;
	uv_buf_t buffer = uv_buf_init(write->data, (unsigned int)n);
	if (uv_stream_get_write_queue_size((uv_stream_t *)&connection->socket) == 0)
		connection->written_ns = hb_clock_now_ns();
	if (uv_write(&write->request, (uv_stream_t *)&connection->socket, &buffer, 1, note_written) == 0)
		return true;
	free(write);
	return false;
}

static void send_pending(struct hb_grpc_connection *connection)
{
	if (connection->closing || connection->in_callback)
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

/* Writes a message in gRPC's percent-encoding. Returns the length. */
static size_t encode_message(const char *from, char *to, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t n = 0;
	for (; *from && n + 4 < size; from++) {
		unsigned char c = (unsigned char)*from;
		if (c >= 0x20 && c <= 0x7e && c != '%') {
			to[n++] = (char)c;
			continue;
		}
		to[n++] = '%';
		to[n++] = digits[c >> 4];
		to[n++] = digits[c & 15];
	}
	return n;
}

static void submit_trailers(nghttp2_session *session, const struct hb_grpc_call *call)
{
	char status[12], message[1024];
	size_t status_length = (size_t)snprintf(status, sizeof(status), "%d", call->status);
	nghttp2_nv trailers[] = {
		HEADER("grpc-status", status, status_length),
		HEADER("grpc-message", message, encode_message(call->message, message, sizeof(message)))};
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
		HEADER("grpc-message", message, encode_message(call->message, message, sizeof(message))),
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
	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	call->grpc = connection->grpc;
	call->connection = connection;
	call->stream = frame->hd.stream_id;
	call->begun_ns = hb_clock_now_ns();
	call->charge.budget = connection->grpc->config.memory;
	if (connection->n_incoming++ == 0)
		connection->read_ns = call->begun_ns;
	call->sibling = connection->calls;
	call->link = &connection->calls;
	if (call->sibling)
		call->sibling->link = &call->sibling;
	connection->calls = call;
	nghttp2_session_set_stream_user_data(session, call->stream, call);
	return 0;
}

/* Parses a time-out like "100m", a number and a unit. Returns ns; 0 = the text is not a valid time-out. */
static int64_t parse_timeout(const char *text, size_t length)
{
	static const struct {
		char unit;
		int64_t ns;
	} units[] = {{'H', INT64_C(3600000000000)}, {'M', INT64_C(60000000000)}, {'S', HB_NS_PER_S},
		     {'m', HB_NS_PER_MS},           {'u', HB_NS_PER_US},         {'n', 1}};
	int64_t number = 0;
	if (length < 2 || length > 9) /* the protocol allows at most 8 digits */
		return 0;
	for (size_t i = 0; i + 1 < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return 0;
		number = number * 10 + (text[i] - '0');
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (units[i].unit == text[length - 1])
			return number > INT64_C(86400000000000) / units[i].ns ? INT64_C(86400000000000)
									      : number * units[i].ns;
	return 0;
}

static bool is_named(const uint8_t *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

static int read_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
		       const uint8_t *value, size_t value_length, uint8_t flags, void *connection)
{
	struct hb_grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (!call)
		return 0;
	if (is_named(name, name_length, ":path"))
		snprintf(call->path, sizeof(call->path), "%.*s", (int)value_length, (const char *)value);
	else if (is_named(name, name_length, "grpc-timeout"))
		call->timeout_ns = parse_timeout((const char *)value, value_length);
	else if (is_named(name, name_length, "grpc-encoding"))
		call->coding = hb_coding_parse((const char *)value, value_length);
	return 0;
}

static bool grow_data(struct hb_grpc_call *call, size_t bytes)
{
	size_t capacity = hb_memory_grown_capacity(call->capacity, bytes);
	if (capacity == call->capacity)
		return true;
	size_t more = capacity - call->capacity;
	/* Small requests like ServerLive are answered even if the memory budget is used up. */
	bool free_of_charge = capacity == HB_MEMORY_FIRST_BYTES && !hb_grpc_call_infers(call);
	call->memory_full = !free_of_charge &&
			    ((hb_memory_would_use_reserve(&call->charge, more) && hb_grpc_call_is_low(call)) ||
			     !hb_memory_charge_add(&call->charge, more));
	uint8_t *data = call->memory_full ? NULL : realloc(call->data, capacity);
	if (!data)
		return false;
	call->data = data;
	call->capacity = capacity;
	return true;
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
	    !grow_data(call, call->bytes + bytes)) {
		drop_message(call);
		return 0;
	}
	memcpy(call->data + call->bytes, data, bytes);
	call->bytes += bytes;
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
	struct hb_grpc_connection *connection = handle->data;
	*buffer = uv_buf_init(connection->read, sizeof(connection->read));
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
	ssize_t used = nghttp2_session_mem_recv(connection->session, (const uint8_t *)buffer->base, (size_t)n);
	connection->in_callback = false;
	if (used < 0)
		close_connection(connection);
	else
		send_pending(connection);
}

static int open_session(struct hb_grpc_connection *connection)
{
	nghttp2_session_callbacks *callbacks;
	nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
					     {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES}};
	if (nghttp2_session_callbacks_new(&callbacks) != 0)
		return -1;
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_call);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, read_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, read_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, note_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, close_refused_stream);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, end_call);
	int result = nghttp2_session_server_new(&connection->session, callbacks, connection);
	nghttp2_session_callbacks_del(callbacks);
	if (result != 0)
		return -1;
	if (nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings, 2) != 0 ||
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

static bool open_connection(struct hb_grpc_connection *connection)
{
	struct hb_kserve_grpc *grpc = connection->grpc;
	return uv_accept((uv_stream_t *)&grpc->listener, (uv_stream_t *)&connection->socket) == 0 &&
	       grpc->n_connections < grpc->config.connections && open_session(connection) == 0;
}

void hb_grpc_connection_accept(struct hb_kserve_grpc *grpc)
{
	struct hb_grpc_connection *connection = calloc(1, sizeof(*connection));
	if (!connection)
		return;
	connection->grpc = grpc;
	connection->read_ns = hb_clock_now_ns();
	connection->socket.data = connection;
	if (uv_tcp_init(&grpc->loop, &connection->socket) != 0) {
		free(connection);
		return;
	}
	if (!open_connection(connection)) {
		uv_close((uv_handle_t *)&connection->socket, free_socket);
		return;
	}
	grpc->n_connections++;
	connection->next = grpc->connections;
	connection->link = &grpc->connections;
	if (connection->next)
		connection->next->link = &connection->next;
	grpc->connections = connection;
	uv_tcp_nodelay(&connection->socket, 1);
	uv_read_start((uv_stream_t *)&connection->socket, provide_buffer, receive_bytes);
	send_pending(connection);
}

void hb_grpc_connections_check(struct hb_kserve_grpc *grpc, int64_t now_ns)
{
	struct hb_grpc_connection *next;
	int64_t limit_ns = (int64_t)grpc->config.idle_s * HB_NS_PER_S;
	for (struct hb_grpc_connection *connection = grpc->connections; connection; connection = next) {
		next = connection->next;
		bool unread = uv_stream_get_write_queue_size((uv_stream_t *)&connection->socket) > 0;
		/* There is no limit for a connection without calls, nor for a client that waits for an answer. */
		if (((connection->n_incoming || !connection->greeted) && now_ns - connection->read_ns > limit_ns) ||
		    (unread && now_ns - connection->written_ns > limit_ns) ||
		    (connection->n_unsent && now_ns - connection->unsent_since_ns > 2 * limit_ns))
			close_connection(connection);
	}
}

void hb_grpc_connections_close(struct hb_kserve_grpc *grpc)
{
	while (grpc->connections)
		close_connection(grpc->connections);
}
