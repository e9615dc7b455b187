/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP/2 connection: nghttp2 between a libuv stream and gRPC calls. Used by kserve_grpc.c only, on its loop. */
#ifndef HB_SERVER_GRPC_CONNECTION_H
#define HB_SERVER_GRPC_CONNECTION_H

#include "server/grpc/grpc_call.h"

/* Takes the next connection from the listener; failing is the client's to notice. */
void hb_grpc_connection_accept(struct hb_kserve_grpc *grpc);
/* The call's answer is there: sends it, and gives the call to the connection. */
void hb_grpc_connection_answer(struct hb_grpc_call *call);
/* Closes those on which nothing has moved. */
void hb_grpc_connections_tick(struct hb_kserve_grpc *grpc, int64_t now_ns);
void hb_grpc_connections_close(struct hb_kserve_grpc *grpc);

#endif
