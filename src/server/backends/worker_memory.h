/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared memory of a worker: creates the page and lanes of worker_ring.h for
 * one model. The server keeps its own copy of the layout, because the worker may
 * overwrite the page. Used by backend_worker.c.
 */
#ifndef HB_SERVER_WORKER_MEMORY_H
#define HB_SERVER_WORKER_MEMORY_H

#include "server/backends/worker_ring.h"
#include "server/models/model_config.h"

struct hb_worker_memory {
	int fd; /* the memory's descriptor; -1 = none */
	struct hb_worker_page *page;
	size_t bytes;
	uint64_t lane_bytes, in_offset, out_offset, out_bytes; /* see struct hb_worker_page */
};

/* Creates and maps the memory. Returns 0, or negative errno with *error. Call hb_worker_memory_fini() in both cases. */
int hb_worker_memory_init(const struct hb_model_config *config, struct hb_worker_memory *out, struct hb_error *error);
void hb_worker_memory_fini(struct hb_worker_memory *memory);
/*
 * Returns how many bytes all inputs of variable size of one batch may have together; 0 = the model has no such input.
 */
uint64_t hb_worker_room_bytes(const struct hb_model_config *config);
struct hb_worker_lane *hb_worker_memory_lane(const struct hb_worker_memory *memory, uint32_t lane);

/* Copies the worker's error text, which may be any bytes, perhaps without NUL. Bytes that are not UTF-8 become "?". */
void hb_worker_lane_read_error(const struct hb_worker_lane *lane, char *out, size_t size);

#endif
