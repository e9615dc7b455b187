/* SPDX-License-Identifier: Apache-2.0 */
/* See rpc_link.h. */
#include "grpc/rpc_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MAX 64 /* calls at one time on a connection */
#define MESSAGE_FIRST_BYTES 1024

/* Bytes on their way to the socket. */
struct rpc_write {
	uv_write_t request;
	char data[];
};

/* ---- messages ---- */

bool hb_rpc_message_append(struct hb_rpc_message *message, const uint8_t *data, size_t bytes)
{
	if (bytes > HB_RPC_MESSAGE_MAX + HB_RPC_PREFIX - message->bytes)
		return false;
	size_t capacity = message->capacity ? message->capacity : MESSAGE_FIRST_BYTES;
	while (capacity < message->bytes + bytes)
		capacity *= 2;
	if (capacity > message->capacity) {
		uint8_t *grown = realloc(message->data, capacity);
		if (!grown)
			return false;
		message->data = grown;
		message->capacity = capacity;
	}
	memcpy(message->data + message->bytes, data, bytes);
	message->bytes += bytes;
	return true;
}

bool hb_rpc_message_pack(struct hb_rpc_message *message, const ProtobufCMessage *from)
{
	size_t bytes = protobuf_c_message_get_packed_size(from);
	uint8_t *data = malloc(HB_RPC_PREFIX + bytes);
	if (!data)
		return false;
	data[0] = 0;
	for (int i = 0; i < 4; i++)
		data[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
	protobuf_c_message_pack(from, data + HB_RPC_PREFIX);
	free(message->data);
	*message = (struct hb_rpc_message){data, HB_RPC_PREFIX + bytes, HB_RPC_PREFIX + bytes};
	return true;
}

void hb_rpc_message_fini(struct hb_rpc_message *message)
{
	free(message->data);
	*message = (struct hb_rpc_message){0};
}

/* ---- sending ---- */

static void note_written(uv_write_t *request, int status)
{
	struct hb_rpc_link *link = request->handle->data;
	free(request->data);
	if (status == 0)
		hb_rpc_link_send(link);
	else
		hb_rpc_link_close(link);
}

static bool send_chunk(struct hb_rpc_link *link)
{
	const uint8_t *data;
	ssize_t n = nghttp2_session_mem_send(link->session, &data);
	if (n <= 0)
		return false;
	struct rpc_write *write = malloc(sizeof(*write) + (size_t)n);
	if (!write)
		return false;
	memcpy(write->data, data, (size_t)n);
	write->request.data = write;
	uv_buf_t buffer = uv_buf_init(write->data, (unsigned int)n);
	if (uv_write(&write->request, (uv_stream_t *)&link->pipe, &buffer, 1, note_written) == 0)
		return true;
	free(write);
	return false;
}

void hb_rpc_link_send(struct hb_rpc_link *link)
{
	if (!link->session || link->in_callback)
		return;
	while (uv_stream_get_write_queue_size((uv_stream_t *)&link->pipe) < HB_RPC_UNSENT_MAX && send_chunk(link))
		;
	if (!nghttp2_session_want_read(link->session) && !nghttp2_session_want_write(link->session))
		hb_rpc_link_close(link);
}

/* ---- receiving ---- */

static void provide_buffer(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
	struct hb_rpc_link *link = handle->data;
	*buffer = uv_buf_init(link->received, sizeof(link->received));
}

static void receive_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
	struct hb_rpc_link *link = stream->data;
	if (n == 0 || !link->session)
		return;
	if (n < 0) {
		hb_rpc_link_close(link);
		return;
	}
	link->in_callback = true;
	ssize_t taken = nghttp2_session_mem_recv(link->session, (const uint8_t *)buffer->base, (size_t)n);
	link->in_callback = false;
	if (taken < 0)
		hb_rpc_link_close(link);
	else
		hb_rpc_link_send(link);
}

/* ---- the session ---- */

static void set_callbacks(nghttp2_session_callbacks *callbacks, const struct hb_rpc_link_ops *ops)
{
	if (ops->begin_headers)
		nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, ops->begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, ops->header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, ops->data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, ops->frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, ops->stream_closed);
}

static int open_session(struct hb_rpc_link *link, bool is_server)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
		{NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, HB_SESSION_HEADER_TABLE_BYTES},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HB_SESSION_HEADER_BYTES_MAX}};
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_mem memory = hb_session_memory_functions(&link->memory);
	nghttp2_option *limits = hb_session_limits_new();
	int result = limits ? nghttp2_session_callbacks_new(&callbacks) : -1;
	if (result == 0) {
		set_callbacks(callbacks, link->ops);
		/* Kubelets before 1.26 send the socket's path as :authority, which HTTP does not allow there. */
		nghttp2_option_set_no_http_messaging(limits, is_server);
		result = is_server ? nghttp2_session_server_new3(&link->session, callbacks, link, limits, &memory)
				   : nghttp2_session_client_new3(&link->session, callbacks, link, limits, &memory);
	}
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_option_del(limits);
	if (result == 0)
		result = nghttp2_submit_settings(link->session, NGHTTP2_FLAG_NONE, settings,
						 sizeof(settings) / sizeof(*settings));
	return result == 0 ? 0 : -ENOMEM;
}

int hb_rpc_link_init(struct hb_rpc_link *link, uv_loop_t *loop, const struct hb_rpc_link_ops *ops, void *owner)
{
	*link = (struct hb_rpc_link){.ops = ops, .owner = owner};
	int result = uv_pipe_init(loop, &link->pipe, 0);
	link->pipe.data = link;
	return result;
}

int hb_rpc_link_open(struct hb_rpc_link *link, bool is_server)
{
	int result = open_session(link, is_server);
	if (result == 0)
		result = uv_read_start((uv_stream_t *)&link->pipe, provide_buffer, receive_bytes);
	if (result == 0)
		hb_rpc_link_send(link);
	return result;
}

static void finish_close(uv_handle_t *handle)
{
	struct hb_rpc_link *link = handle->data;
	link->ops->closed(link);
}

void hb_rpc_link_close(struct hb_rpc_link *link)
{
	if (link->is_closing)
		return;
	link->is_closing = true;
	link->ops->closing(link); /* nghttp2 reports no streams when the session is deleted */
	nghttp2_session_del(link->session);
	link->session = NULL;
	uv_close((uv_handle_t *)&link->pipe, finish_close);
}
