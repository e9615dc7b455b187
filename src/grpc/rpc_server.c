/* SPDX-License-Identifier: Apache-2.0 */
/* See rpc_server.h. */
#include "grpc/rpc_server.h"

#include "base/log.h"
#include "grpc/grpc_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECTIONS_MAX 16
#define BACKLOG 128
#define PATH_BYTES_MAX 128

struct hb_rpc_call {
	struct rpc_connection *connection; /* NULL: the caller of a deferred call has gone */
	struct hb_rpc_call *next, **link;
	int32_t stream;
	char path[PATH_BYTES_MAX];
	size_t header_bytes;
	struct hb_rpc_message received;
	bool is_too_large, is_open; /* is_open: a stream that gets further messages */
	bool is_deferred;
	enum hb_rpc_status status;
	char text[512];
	struct hb_rpc_message out; /* is being sent */
	size_t sent;
	struct hb_rpc_message waiting; /* of a stream: follows `out` */
};

struct rpc_connection {
	struct hb_rpc_link socket;
	struct hb_rpc_server *server;
	struct hb_rpc_call *calls;
	struct rpc_connection *next, **link;
};

struct hb_rpc_server {
	uv_loop_t *loop;
	uv_pipe_t listener;
	const struct hb_rpc_method *methods;
	void *service;
	char path[HB_RPC_SOCKET_PATH_MAX];
	dev_t device; /* device and inode of the socket */
	ino_t inode;
	uint32_t n_handles; /* the listener and the connections; the last one frees the server */
	struct rpc_connection *connections;
};

static void release_server(struct hb_rpc_server *server)
{
	if (--server->n_handles == 0)
		free(server);
}

/* ---- calls ---- */

static void free_call(struct hb_rpc_call *call)
{
	hb_rpc_message_fini(&call->received);
	hb_rpc_message_fini(&call->out);
	hb_rpc_message_fini(&call->waiting);
	free(call);
}

/* Forgets a call whose stream has ended. If it is deferred, hb_rpc_finish() frees it. */
static void drop_call(struct hb_rpc_call *call)
{
	*call->link = call->next;
	if (call->next)
		call->next->link = call->link;
	call->connection = NULL;
	if (!call->is_deferred)
		free_call(call);
}

#define HEADER(name_, value_, length) \
	{ \
		.name = (uint8_t *)(name_), .value = (uint8_t *)(value_), .namelen = sizeof(name_) - 1, \
		.valuelen = (length), .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME \
	}

/* Takes the message that waits, when the one before was sent. */
static void take_waiting(struct hb_rpc_call *call)
{
	if (call->sent < call->out.bytes || !call->waiting.data)
		return;
	hb_rpc_message_fini(&call->out);
	call->out = call->waiting;
	call->waiting = (struct hb_rpc_message){0};
	call->sent = 0;
}

static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t size, uint32_t *flags,
			   nghttp2_data_source *source, void *socket)
{
	struct hb_rpc_call *call = source->ptr;
	take_waiting(call);
	size_t left = call->out.bytes - call->sent, n = left < size ? left : size;
	if (n)
		memcpy(buffer, call->out.data + call->sent, n);
	call->sent += n;
	if (call->is_open)
		return n ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
	if (call->sent == call->out.bytes) {
		nghttp2_nv trailer = HEADER("grpc-status", "0", 1);
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		nghttp2_submit_trailer(session, call->stream, &trailer, 1);
	}
	return (ssize_t)n;
}

static void submit_answer(struct hb_rpc_call *call)
{
	nghttp2_session *session = call->connection->socket.session;
	char status[12], text[1024];
	int status_length = snprintf(status, sizeof(status), "%d", call->status);
	nghttp2_nv headers[] = {
		HEADER(":status", "200", 3),
		HEADER("content-type", "application/grpc", 16),
		HEADER("grpc-status", status, (size_t)status_length),
		HEADER("grpc-message", text, hb_grpc_message_encode(call->text, text, sizeof(text))),
	};
	nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_answer};
	if (call->status == HB_RPC_OK)
		nghttp2_submit_response(session, call->stream, headers, 2, &provider);
	else
		nghttp2_submit_response(session, call->stream, headers, 4, NULL);
}

void hb_rpc_answer(struct hb_rpc_call *call, const ProtobufCMessage *message)
{
	if (!hb_rpc_message_pack(&call->out, message))
		hb_rpc_fail(call, HB_RPC_RESOURCE_EXHAUSTED, "out of memory");
}

void hb_rpc_fail(struct hb_rpc_call *call, enum hb_rpc_status status, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(call->text, sizeof(call->text), format, arguments);
	va_end(arguments);
	call->status = status;
}

static const struct hb_rpc_method *find_method(const struct hb_rpc_call *call)
{
	const struct hb_rpc_method *method = call->connection->server->methods;
	while (method->path && strcmp(method->path, call->path) != 0)
		method++;
	return method->path ? method : NULL;
}

/* Whether the bytes are one message that is not compressed. */
static bool is_message(const struct hb_rpc_message *message)
{
	uint32_t length = 0;
	for (size_t i = 1; i < HB_RPC_PREFIX && i < message->bytes; i++)
		length = length << 8 | message->data[i];
	return message->bytes >= HB_RPC_PREFIX && message->data[0] == 0 && message->bytes - HB_RPC_PREFIX == length;
}

static void call_function(struct hb_rpc_call *call, const struct hb_rpc_method *method)
{
	ProtobufCMessage *request = protobuf_c_message_unpack(
		method->request, NULL, call->received.bytes - HB_RPC_PREFIX, call->received.data + HB_RPC_PREFIX);
	if (!request) {
		hb_rpc_fail(call, HB_RPC_INVALID_ARGUMENT, "%s: the message is not a %s", call->path,
			    method->request->name);
		return;
	}
	call->is_open = method->is_stream;
	method->function(call, call->connection->server->service, request);
	call->is_open = method->is_stream && call->status == HB_RPC_OK;
	protobuf_c_message_free_unpacked(request, NULL);
}

static void run_call(struct hb_rpc_call *call)
{
	const struct hb_rpc_method *method = find_method(call);
	if (!method)
		hb_rpc_fail(call, HB_RPC_UNIMPLEMENTED, "%s: there is no such method", call->path);
	else if (call->is_too_large)
		hb_rpc_fail(call, HB_RPC_RESOURCE_EXHAUSTED, "%s: the message has more than %d bytes", call->path,
			    HB_RPC_MESSAGE_MAX);
	else if (!is_message(&call->received))
		hb_rpc_fail(call, HB_RPC_INVALID_ARGUMENT, "%s: the call is not one message without compression",
			    call->path);
	else
		call_function(call, method);
	hb_rpc_message_fini(&call->received);
	if (!call->is_deferred)
		submit_answer(call);
}

void hb_rpc_defer(struct hb_rpc_call *call)
{
	call->is_deferred = true;
}

bool hb_rpc_is_wanted(const struct hb_rpc_call *call)
{
	return call->connection;
}

void hb_rpc_finish(struct hb_rpc_call *call)
{
	struct rpc_connection *connection = call->connection;
	call->is_deferred = false;
	if (!connection) {
		free_call(call);
		return;
	}
	submit_answer(call);
	hb_rpc_link_send(&connection->socket);
}

/* ---- what nghttp2 reports ---- */

static int begin_call(nghttp2_session *session, const nghttp2_frame *frame, void *socket)
{
	struct rpc_connection *connection = ((struct hb_rpc_link *)socket)->owner;
	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	struct hb_rpc_call *call = calloc(1, sizeof(*call));
	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	call->connection = connection;
	call->stream = frame->hd.stream_id;
	call->next = connection->calls;
	call->link = &connection->calls;
	if (call->next)
		call->next->link = &call->next;
	connection->calls = call;
	nghttp2_session_set_stream_user_data(session, call->stream, call);
	return 0;
}

static int read_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
		       const uint8_t *value, size_t value_length, uint8_t flags, void *socket)
{
	struct hb_rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (!call)
		return 0;
	call->header_bytes += name_length + value_length + 32;
	if (call->header_bytes > HB_SESSION_HEADER_BYTES_MAX)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream is reset */
	if (hb_grpc_header_is_named(name, name_length, ":path"))
		hb_grpc_header_copy(call->path, sizeof(call->path), value, value_length);
	return 0;
}

static int read_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t bytes,
		     void *socket)
{
	struct hb_rpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
	if (call && !call->is_too_large && !hb_rpc_message_append(&call->received, data, bytes)) {
		call->is_too_large = true;
		hb_rpc_message_fini(&call->received);
	}
	return 0;
}

static int note_frame(nghttp2_session *session, const nghttp2_frame *frame, void *socket)
{
	if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	struct hb_rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (call && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		run_call(call);
	return 0;
}

static int end_call(nghttp2_session *session, int32_t stream, uint32_t error, void *socket)
{
	struct hb_rpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
	if (call)
		drop_call(call);
	return 0;
}

/* ---- connections ---- */

static void drop_calls(struct hb_rpc_link *socket)
{
	struct rpc_connection *connection = socket->owner;
	while (connection->calls)
		drop_call(connection->calls);
	*connection->link = connection->next;
	if (connection->next)
		connection->next->link = connection->link;
}

static void free_connection(struct hb_rpc_link *socket)
{
	struct rpc_connection *connection = socket->owner;
	struct hb_rpc_server *server = connection->server;
	free(connection);
	release_server(server);
}

static const struct hb_rpc_link_ops connection_ops = {begin_call, read_header, read_data,      note_frame,
						      end_call,   drop_calls,  free_connection};

static bool is_full(const struct hb_rpc_server *server)
{
	uint32_t n = 0;
	for (const struct rpc_connection *connection = server->connections; connection; connection = connection->next)
		n++;
	return n >= CONNECTIONS_MAX;
}

static void accept_connection(uv_stream_t *listener, int status)
{
	struct hb_rpc_server *server = listener->data;
	struct rpc_connection *connection = status == 0 ? calloc(1, sizeof(*connection)) : NULL;
	if (!connection || hb_rpc_link_init(&connection->socket, server->loop, &connection_ops, connection) < 0) {
		free(connection);
		return;
	}
	bool full = is_full(server);
	connection->server = server;
	connection->next = server->connections;
	connection->link = &server->connections;
	if (connection->next)
		connection->next->link = &connection->next;
	server->connections = connection;
	server->n_handles++;
	if (uv_accept(listener, (uv_stream_t *)&connection->socket.pipe) < 0 || full ||
	    hb_rpc_link_open(&connection->socket, true) < 0)
		hb_rpc_link_close(&connection->socket);
}

/* ---- the server ---- */

static void free_listener(uv_handle_t *handle)
{
	release_server(handle->data);
}

/* The mode is right from the beginning: at no time can another user connect. */
static int bind_socket(struct hb_rpc_server *server)
{
	struct stat found;
	if (lstat(server->path, &found) == 0 && !S_ISSOCK(found.st_mode))
		return -EEXIST;
	unlink(server->path);
	mode_t mask = umask(0177);
	int result = uv_pipe_bind(&server->listener, server->path);
	umask(mask);
	if (result == 0)
		result = uv_listen((uv_stream_t *)&server->listener, BACKLOG, accept_connection);
	if (result == 0 && lstat(server->path, &found) < 0)
		result = -errno;
	server->device = found.st_dev;
	server->inode = found.st_ino;
	return result;
}

int hb_rpc_server_open(uv_loop_t *loop, const char *path, const struct hb_rpc_method *methods, void *service,
		       struct hb_rpc_server **out, struct hb_error *error)
{
	if (strlen(path) >= HB_RPC_SOCKET_PATH_MAX)
		return hb_error_set(error, -ENAMETOOLONG, "%s: the path of a socket has at most %d bytes", path,
				    HB_RPC_SOCKET_PATH_MAX - 1);
	struct hb_rpc_server *server = calloc(1, sizeof(*server));
	if (!server || uv_pipe_init(loop, &server->listener, 0) < 0) {
		free(server);
		return hb_error_set(error, -ENOMEM, "out of memory");
	}
	server->listener.data = server;
	server->loop = loop;
	server->methods = methods;
	server->service = service;
	server->n_handles = 1;
	strcpy(server->path, path);
	int result = bind_socket(server);
	if (result < 0) {
		hb_error_set(error, result, "%s: %s", path,
			     result == -EEXIST ? "exists and is not a socket" : uv_strerror(result));
		hb_rpc_server_close(server);
		return result;
	}
	*out = server;
	return 0;
}

bool hb_rpc_server_is_reachable(const struct hb_rpc_server *server)
{
	struct stat found;
	return lstat(server->path, &found) == 0 && found.st_dev == server->device && found.st_ino == server->inode;
}

static void publish_on(struct hb_rpc_call *call, const ProtobufCMessage *message)
{
	if (!call->is_open || !hb_rpc_message_pack(&call->waiting, message))
		return;
	nghttp2_session_resume_data(call->connection->socket.session, call->stream);
}

void hb_rpc_server_publish(struct hb_rpc_server *server, const ProtobufCMessage *message)
{
	struct rpc_connection *next;
	for (struct rpc_connection *connection = server->connections; connection; connection = next) {
		next = connection->next;
		for (struct hb_rpc_call *call = connection->calls; call; call = call->next)
			publish_on(call, message);
		hb_rpc_link_send(&connection->socket);
	}
}

void hb_rpc_server_close(struct hb_rpc_server *server)
{
	if (!server)
		return;
	while (server->connections)
		hb_rpc_link_close(&server->connections->socket);
	/* libuv removes the file, which may meanwhile be the socket of another program. */
	bool is_ours = hb_rpc_server_is_reachable(server);
	if (is_ours)
		unlink(server->path);
	uv_close((uv_handle_t *)&server->listener, free_listener);
}
