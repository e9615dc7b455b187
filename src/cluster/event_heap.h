/* SPDX-License-Identifier: Apache-2.0 */
/* Future events in the order of their time; events of the same time in the order in which they were pushed. Caller: cluster_sim.c. */
#ifndef HB_CLUSTER_EVENT_HEAP_H
#define HB_CLUSTER_EVENT_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct hb_cluster_event {
	double time_s;
	uint64_t order; /* set by hb_event_push() */
	uint32_t kind, subject, version;
};

struct hb_event_heap {
	struct hb_cluster_event *events;
	uint32_t n, size;
	uint64_t pushed;
};

/* 0, or -ENOMEM. A zeroed heap is empty. */
int hb_event_push(struct hb_event_heap *heap, struct hb_cluster_event event);
/* Takes the first event. False: there is none. */
bool hb_event_pop(struct hb_event_heap *heap, struct hb_cluster_event *event);
void hb_event_heap_fini(struct hb_event_heap *heap);

#endif
