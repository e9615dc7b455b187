/* SPDX-License-Identifier: Apache-2.0 */
/* See rpc_client.h. A request is a connection with one stream, and a timer. */
#include "grpc/rpc_client.h"

#include "grpc/grpc_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rpc_request {
	struct hb_rpc_link socket;
	uv_connect_t connect;
	uv_timer_t timer;
	uint32_t n_handles; /* the last one frees the request */
	char path[128];
	struct hb_rpc_message out;
	size_t sent;
	hb_rpc_done *done;
	void *argument;
	int status; /* 0 or more: of gRPC; negative: no status has arrived */
	char text[512];
};

static void release_request(struct rpc_request *request)
{
	if (--request->n_handles)
		return;
	hb_rpc_message_fini(&request->out);
	free(request);
}

static void release_timer(uv_handle_t *timer)
{
	release_request(timer->data);
}

/* Ends the request, whatever has arrived. */
static void finish_request(struct hb_rpc_link *socket)
{
	struct rpc_request *request = socket->owner;
	uv_close((uv_handle_t *)&request->timer, release_timer);
	request->done(request->argument, request->status, request->text);
}

static void release_link(struct hb_rpc_link *socket)
{
	release_request(socket->owner);
}

static int read_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
		       const uint8_t *value, size_t value_length, uint8_t flags, void *socket)
{
	struct rpc_request *request = ((struct hb_rpc_link *)socket)->owner;
	char number[16];
	if (hb_grpc_header_is_named(name, name_length, "grpc-message")) {
		hb_grpc_header_copy(request->text, sizeof(request->text), value, value_length);
	} else if (hb_grpc_header_is_named(name, name_length, "grpc-status")) {
		hb_grpc_header_copy(number, sizeof(number), value, value_length);
		request->status = atoi(number);
		if (request->status == 0)
			request->text[0] = '\0';
	}
	return 0;
}

static int ignore_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t bytes,
		       void *socket)
{
	return 0;
}

static int ignore_frame(nghttp2_session *session, const nghttp2_frame *frame, void *socket)
{
	return 0;
}

/* The call has ended: so does the session, when it has sent its GOAWAY. */
static int end_stream(nghttp2_session *session, int32_t stream, uint32_t error, void *socket)
{
	nghttp2_session_terminate_session(session, NGHTTP2_NO_ERROR);
	return 0;
}

static const struct hb_rpc_link_ops request_ops = {NULL,       read_header,    ignore_data, ignore_frame,
						   end_stream, finish_request, release_link};

static ssize_t read_message(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t size, uint32_t *flags,
			    nghttp2_data_source *source, void *socket)
{
	struct rpc_request *request = source->ptr;
	size_t left = request->out.bytes - request->sent, n = left < size ? left : size;
	memcpy(buffer, request->out.data + request->sent, n);
	request->sent += n;
	if (request->sent == request->out.bytes)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

#define HEADER(name_, value_) \
	{ \
		.name = (uint8_t *)(name_), .value = (uint8_t *)(value_), .namelen = strlen(name_), \
		.valuelen = strlen(value_) \
	}

static void begin_request(uv_connect_t *connect, int status)
{
	struct rpc_request *request = connect->data;
	if (request->socket.is_closing)
		return;
	if (status == 0)
		status = hb_rpc_link_open(&request->socket, false);
	if (status < 0) {
		request->status = status;
		snprintf(request->text, sizeof(request->text), "%s", uv_strerror(status));
		hb_rpc_link_close(&request->socket);
		return;
	}
	nghttp2_nv headers[] = {HEADER(":method", "POST"),          HEADER(":scheme", "http"),
				HEADER(":path", request->path),     HEADER(":authority", "localhost"),
				HEADER("te", "trailers"),           HEADER("content-type", "application/grpc"),
				HEADER("user-agent", "hummingbird")};
	nghttp2_data_provider provider = {.source.ptr = request, .read_callback = read_message};
	nghttp2_submit_request(request->socket.session, NULL, headers, sizeof(headers) / sizeof(*headers), &provider,
			       request);
	hb_rpc_link_send(&request->socket);
}

static void end_late_request(uv_timer_t *timer)
{
	struct rpc_request *request = timer->data;
	request->status = -ETIMEDOUT;
	strcpy(request->text, "no answer in time");
	hb_rpc_link_close(&request->socket);
}

int hb_rpc_request(uv_loop_t *loop, const char *socket, const char *path, const ProtobufCMessage *message,
		   uint64_t timeout_ms, hb_rpc_done *done, void *argument)
{
	struct rpc_request *request = calloc(1, sizeof(*request));
	if (!request || !hb_rpc_message_pack(&request->out, message)) {
		free(request);
		return -ENOMEM;
	}
	int result = hb_rpc_link_init(&request->socket, loop, &request_ops, request);
	if (result < 0) {
		hb_rpc_message_fini(&request->out);
		free(request);
		return result;
	}
	request->done = done;
	request->argument = argument;
	request->status = -ECONNRESET;
	strcpy(request->text, "the connection was closed without an answer");
	snprintf(request->path, sizeof(request->path), "%s", path);
	request->n_handles = 2;
	uv_timer_init(loop, &request->timer);
	request->timer.data = request;
	uv_timer_start(&request->timer, end_late_request, timeout_ms, 0);
	request->connect.data = request;
	uv_pipe_connect(&request->connect, &request->socket.pipe, socket, begin_request);
	return 0;
}
