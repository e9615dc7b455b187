/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KServe v2 over HTTP/1.1 (libmicrohttpd does the protocol), with Triton's
 * extensions: binary tensors, statistics, repository, system shared memory; and
 * /metrics. A few threads; a request that waits for the GPU holds none of them.
 */
#ifndef HB_SERVER_KSERVE_HTTP_H
#define HB_SERVER_KSERVE_HTTP_H

#include "server/kserve/memory_budget.h"
#include "server/kserve/shared_memory.h"
#include "server/models/dispatch.h"

#include <netinet/in.h>

struct hb_kserve_http;

struct hb_kserve_http_config {
	struct sockaddr_storage address;
	uint32_t threads, connections;
	uint64_t body_bytes; /* a larger one is refused */
	uint32_t idle_s;     /* a connection on which nothing moves is closed; see http_timeouts.h */
	struct hb_dispatch *dispatch;
	struct hb_shared_memory *regions;
	struct hb_memory_budget *memory;
};

/* 0, or negative errno with *error. */
int hb_kserve_http_new(const struct hb_kserve_http_config *config, struct hb_kserve_http **out, struct hb_error *error);
uint16_t hb_kserve_http_port(const struct hb_kserve_http *http);
/* Takes no new connection, answers what is there, and ends. */
void hb_kserve_http_free(struct hb_kserve_http *http);

#endif
