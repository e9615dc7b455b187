/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that have a time-out, ordered by the time at which they are answered
 * with it (expires_ns): a binary heap. Used by the dispatcher, under its lock.
 */
#ifndef HB_SERVER_TIMEOUT_HEAP_H
#define HB_SERVER_TIMEOUT_HEAP_H

#include "server/kserve/inference.h"

struct hb_timeout_heap {
	struct hb_inference **at;
	uint32_t n, capacity;
};

/* Allocates places for `capacity` requests: as many as the queue admits. Returns 0 or -ENOMEM. */
int hb_timeout_heap_init(struct hb_timeout_heap *heap, uint32_t capacity);
void hb_timeout_heap_fini(struct hb_timeout_heap *heap);
/* Inserts a request. If the heap is full, the request is left out and has no time-out. */
void hb_timeout_heap_insert(struct hb_timeout_heap *heap, struct hb_inference *infer);
void hb_timeout_heap_remove(struct hb_timeout_heap *heap, struct hb_inference *infer);
/* Returns the request that expires first; NULL if the heap is empty. */
struct hb_inference *hb_timeout_heap_first(const struct hb_timeout_heap *heap);

#endif
