/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a worker shares with the server: the page and lanes of
 * worker_ring.h, laid out for one model. The layout is kept here, too, as the
 * worker may write to what it shares. Used by backend_worker.c.
 */
#ifndef HB_FRONT_WORKER_MEMORY_H
#define HB_FRONT_WORKER_MEMORY_H

#include "server/backends/worker_ring.h"
#include "server/models/model_config.h"

struct hb_worker_memory {
	int fd; /* -1 = none */
	struct hb_worker_page *page;
	size_t bytes;
	uint64_t lane_bytes, in_offset, out_offset, out_bytes; /* as in the page */
};

/* 0, or negative errno with *error; hb_worker_memory_fini() in any case. */
int hb_worker_memory_init(const struct hb_model_config *config, struct hb_worker_memory *out, struct hb_error *error);
void hb_worker_memory_fini(struct hb_worker_memory *memory);
/* For all inputs of open size of one batch; 0 = the model has none. */
uint64_t hb_worker_room_bytes(const struct hb_model_config *config);
struct hb_worker_lane *hb_worker_memory_lane(const struct hb_worker_memory *memory, uint32_t lane);

#endif
