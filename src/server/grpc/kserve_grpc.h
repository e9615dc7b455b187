/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KServe v2 over gRPC, unary calls only: HTTP/2 by nghttp2, messages by protobuf-c
 * (kserve.proto), one event loop in a thread of its own. Large compressed messages
 * are decompressed on a second thread. A call that waits for the GPU takes nothing
 * but its memory. If a client cancels or disconnects, its requests are cancelled.
 */
#ifndef HB_SERVER_KSERVE_GRPC_H
#define HB_SERVER_KSERVE_GRPC_H

#include "server/kserve/memory_budget.h"
#include "server/kserve/shared_memory.h"
#include "server/models/dispatch.h"
#include "server/security/access.h"
#include "server/security/tls.h"
#include "server/security/unix_listener.h"

#include <netinet/in.h>

struct hb_kserve_grpc;

struct hb_kserve_grpc_config {
	struct sockaddr_storage address;              /* AF_UNSPEC: only the Unix socket */
	const struct hb_unix_listener *unix_listener; /* NULL = none */
	uint32_t connections;
	uint32_t client_connections; /* connections of one client (peer_limit.h) */
	uint64_t body_bytes;         /* largest message */
	uint32_t idle_s;             /* limit for a connection without calls, or whose calls do not progress */
	struct hb_dispatch *dispatch;
	struct hb_shared_memory *shared_memory;
	struct hb_memory_budget *memory;
	struct hb_access *access;
	struct hb_tls *tls; /* for the address; NULL = none */
};

/* Starts the server. Returns 0, or negative errno with *error. */
int hb_kserve_grpc_new(const struct hb_kserve_grpc_config *config, struct hb_kserve_grpc **out, struct hb_error *error);
uint16_t hb_kserve_grpc_port(const struct hb_kserve_grpc *grpc);
/* Closes all connections and ends the server. */
void hb_kserve_grpc_free(struct hb_kserve_grpc *grpc);

#endif
