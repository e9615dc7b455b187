/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by the time at which they are cut off: a binary heap, the first on top. Used by the dispatcher, under its lock. */
#ifndef HB_SERVER_CUT_HEAP_H
#define HB_SERVER_CUT_HEAP_H

#include "server/kserve/inference.h"

struct hb_timeout_heap {
	struct hb_inference **at;
	uint32_t n, capacity;
};

/* Room for that many, which is never more than the queue takes. 0 or -ENOMEM. */
int hb_timeout_heap_init(struct hb_timeout_heap *heap, uint32_t capacity);
void hb_timeout_heap_fini(struct hb_timeout_heap *heap);
/* By its expires_ns. A full heap leaves it out: it then has no time-out. */
void hb_timeout_heap_insert(struct hb_timeout_heap *heap, struct hb_inference *infer);
void hb_timeout_heap_remove(struct hb_timeout_heap *heap, struct hb_inference *infer);
struct hb_inference *hb_timeout_heap_first(const struct hb_timeout_heap *heap);

#endif
