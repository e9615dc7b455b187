/* SPDX-License-Identifier: Apache-2.0 */
/* One gRPC call to a server on a Unix socket, without waiting: the loop continues to serve meanwhile. */
#ifndef HB_GRPC_RPC_CLIENT_H
#define HB_GRPC_RPC_CLIENT_H

#include "grpc/rpc_link.h"

/* `status`: 0, a status of gRPC, or a negative errno if no answer came; `text` says why. */
typedef void hb_rpc_done(void *argument, int status, const char *text);

/*
 * Sends the message to the method `path` of the server at the socket; `done` is called once, later, on the loop. The body
 * of the answer is not used. Returns 0, or a negative errno, and then `done` is not called.
 */
int hb_rpc_request(uv_loop_t *loop, const char *socket, const char *path, const ProtobufCMessage *message,
		   uint64_t timeout_ms, hb_rpc_done *done, void *argument);

#endif
