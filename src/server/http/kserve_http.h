/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KServe v2 over HTTP/1.1, with libmicrohttpd: inference, health, metadata;
 * Triton's extensions for binary tensors, statistics, model repository and system
 * shared memory; and /metrics. A few threads serve all connections; a request
 * that waits for the GPU occupies none of them.
 */
#ifndef HB_SERVER_KSERVE_HTTP_H
#define HB_SERVER_KSERVE_HTTP_H

#include "server/kserve/memory_budget.h"
#include "server/kserve/shared_memory.h"
#include "server/models/dispatch.h"
#include "server/security/access.h"
#include "server/security/tls.h"
#include "server/security/unix_listener.h"

#include <netinet/in.h>

struct hb_kserve_http;

struct hb_kserve_http_config {
	struct sockaddr_storage address;              /* AF_UNSPEC: only the Unix socket */
	const struct hb_unix_listener *unix_listener; /* NULL = none */
	uint32_t threads, connections;
	uint32_t client_connections; /* connections of one client (peer_limit.h) */
	uint64_t body_bytes;         /* largest body of a request */
	uint32_t idle_s;             /* a connection without transfer is closed after this time; see http_timeouts.h */
	struct hb_dispatch *dispatch;
	struct hb_shared_memory *shared_memory;
	struct hb_memory_budget *memory;
	struct hb_access *access;
	struct hb_tls *tls; /* for the address; NULL = none */
};

/* Starts the server. Returns 0, or negative errno with *error. */
int hb_kserve_http_new(const struct hb_kserve_http_config *config, struct hb_kserve_http **out, struct hb_error *error);
uint16_t hb_kserve_http_port(const struct hb_kserve_http *http);
/* Accepts no more connections, answers the requests that wait, and ends the server. */
void hb_kserve_http_free(struct hb_kserve_http *http);

#endif
