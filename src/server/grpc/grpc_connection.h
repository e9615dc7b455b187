/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP/2 connection: nghttp2 between a libuv stream and gRPC calls. Used by kserve_grpc.c, on its loop. */
#ifndef HB_SERVER_GRPC_CONNECTION_H
#define HB_SERVER_GRPC_CONNECTION_H

#include "server/grpc/grpc_call.h"

/* Accepts the next connection of a listener; if that fails, the client's connection is closed. */
void hb_grpc_connection_accept(struct hb_kserve_grpc *grpc, uv_stream_t *listener);
/* Describes the client of the connection. */
struct hb_client hb_grpc_connection_client(const struct hb_grpc_connection *connection);
/* Sends the answer of a call and lets the connection free the call. */
void hb_grpc_connection_answer(struct hb_grpc_call *call);
/* Closes connections that have exceeded a time limit. Call once a second. */
void hb_grpc_connections_check(struct hb_kserve_grpc *grpc, int64_t now_ns);
void hb_grpc_connections_close(struct hb_kserve_grpc *grpc);

#endif
