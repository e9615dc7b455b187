/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP/2 connection over a Unix socket: a libuv pipe below a session of nghttp2. rpc_server.c and rpc_client.c make
 * calls of it. Everything runs on the loop's thread. Memory is bounded: bytes to send are made only while less than
 * HB_RPC_UNSENT_MAX wait in the socket.
 */
#ifndef HB_GRPC_RPC_LINK_H
#define HB_GRPC_RPC_LINK_H

#include "grpc/session_limits.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <uv.h>

#define HB_RPC_PREFIX 5               /* bytes in front of each message: a flag for compression, and the length */
#define HB_RPC_MESSAGE_MAX (4 << 20)  /* bytes; also the limit of other gRPC libraries */
#define HB_RPC_UNSENT_MAX (256 << 10) /* bytes */
#define HB_RPC_SOCKET_PATH_MAX 108    /* with its NUL: sizeof sockaddr_un.sun_path */

/* Status codes of gRPC that this folder and its users send. */
enum hb_rpc_status {
	HB_RPC_OK = 0,
	HB_RPC_INVALID_ARGUMENT = 3,
	HB_RPC_RESOURCE_EXHAUSTED = 8,
	HB_RPC_FAILED_PRECONDITION = 9,
	HB_RPC_UNIMPLEMENTED = 12,
	HB_RPC_INTERNAL = 13,
	HB_RPC_UNAVAILABLE = 14
};

struct hb_rpc_link;

/* What the owner of a link does; `user_data` of nghttp2's callbacks is the link. */
struct hb_rpc_link_ops {
	nghttp2_on_begin_headers_callback begin_headers; /* NULL: none */
	nghttp2_on_header_callback header;
	nghttp2_on_data_chunk_recv_callback data;
	nghttp2_on_frame_recv_callback frame;
	nghttp2_on_stream_close_callback stream_closed;
	void (*closing)(struct hb_rpc_link *link); /* the session ends: forget its streams */
	void (*closed)(struct hb_rpc_link *link);  /* the link may be freed */
};

struct hb_rpc_link {
	uv_pipe_t pipe;
	const struct hb_rpc_link_ops *ops;
	void *owner;
	nghttp2_session *session; /* NULL = not open, or closing */
	struct hb_session_memory memory;
	bool in_callback, is_closing;
	char received[16 << 10];
};

/* A message in memory. */
struct hb_rpc_message {
	uint8_t *data;
	size_t bytes, capacity;
};

/* Initializes the pipe. 0 or a negative errno; then the link may be freed at once. */
int hb_rpc_link_init(struct hb_rpc_link *link, uv_loop_t *loop, const struct hb_rpc_link_ops *ops, void *owner);
/* Begins HTTP/2 on a connected pipe. 0 or -ENOMEM; close the link then. */
int hb_rpc_link_open(struct hb_rpc_link *link, bool is_server);
/* Sends what the session has to send. May close the link. */
void hb_rpc_link_send(struct hb_rpc_link *link);
/* Ends session and pipe. The owner's function `closed` is called later. A second call does nothing. */
void hb_rpc_link_close(struct hb_rpc_link *link);

/* Appends received bytes. False: there is no memory, or the message is larger than HB_RPC_MESSAGE_MAX. */
bool hb_rpc_message_append(struct hb_rpc_message *message, const uint8_t *data, size_t bytes);
/* Packs a message behind its prefix. False: no memory; *message is unchanged. */
bool hb_rpc_message_pack(struct hb_rpc_message *message, const ProtobufCMessage *from);
void hb_rpc_message_fini(struct hb_rpc_message *message);

#endif
