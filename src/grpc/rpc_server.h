/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small gRPC server on a Unix socket, for methods that answer with one message, at once or later, or keep their stream open
 * and send a new message when their state changes (as ListAndWatch does). `hb serve` has a server of its own, because its
 * calls wait for a GPU and their memory is charged. Everything runs on the loop's thread.
 */
#ifndef HB_GRPC_RPC_SERVER_H
#define HB_GRPC_RPC_SERVER_H

#include "base/error.h"
#include "grpc/rpc_link.h"

struct hb_rpc_call;

/* Answers with hb_rpc_answer() or hb_rpc_fail() before it returns, or calls hb_rpc_defer(). */
typedef void hb_rpc_function(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request);

struct hb_rpc_method {
	const char *path; /* "/v1beta1.DevicePlugin/Allocate" */
	const ProtobufCMessageDescriptor *request;
	hb_rpc_function *function;
	bool is_stream; /* the stream stays open after an answer */
};

struct hb_rpc_server;

/*
 * Serves at this path, which only the user of this process may open; a socket that is there is replaced. `methods` ends
 * with a row without path, and stays valid. 0, or a negative errno with *error.
 */
int hb_rpc_server_open(uv_loop_t *loop, const char *path, const struct hb_rpc_method *methods, void *service,
		       struct hb_rpc_server **server, struct hb_error *error);
/* Whether the path still leads to this server: the kubelet removes sockets when it starts. */
bool hb_rpc_server_is_reachable(const struct hb_rpc_server *server);
/* Sends a message on all open streams. A stream whose reader is slow gets the last message only. */
void hb_rpc_server_publish(struct hb_rpc_server *server, const ProtobufCMessage *message);
/* Ends connections and removes the socket. Memory is freed when the loop has run. NULL is allowed. */
void hb_rpc_server_close(struct hb_rpc_server *server);

void hb_rpc_answer(struct hb_rpc_call *call, const ProtobufCMessage *message);
void hb_rpc_fail(struct hb_rpc_call *call, enum hb_rpc_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * For a method that works on another thread: the call stays until hb_rpc_finish(), also if its caller goes away. Not for
 * streams. The request is freed when the function returns.
 */
void hb_rpc_defer(struct hb_rpc_call *call);
/* Whether the caller of a deferred call still waits. */
bool hb_rpc_is_wanted(const struct hb_rpc_call *call);
/* Sends the answer of a deferred call, on the loop's thread after hb_rpc_answer() or hb_rpc_fail(), and frees the call. */
void hb_rpc_finish(struct hb_rpc_call *call);

#endif
