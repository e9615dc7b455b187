/* SPDX-License-Identifier: Apache-2.0 */
/* Pods that wait, first come first served. The caller takes the first one away with head++. Caller: cluster_sim.c. */
#ifndef HB_CLUSTER_WAITING_H
#define HB_CLUSTER_WAITING_H

#include <stdint.h>

#define HB_WAITING_NONE UINT32_MAX

struct hb_cluster_queue {
	uint32_t *pods;
	uint32_t head, tail, size; /* a ring; size is a power of two, or 0 */
};

/* 0, or -ENOMEM. A zeroed queue is empty. */
int hb_waiting_add(struct hb_cluster_queue *queue, uint32_t pod);
/* The pod that has waited longest; HB_WAITING_NONE: there is none. It stays in the queue. */
uint32_t hb_waiting_first(const struct hb_cluster_queue *queue);
void hb_waiting_fini(struct hb_cluster_queue *queue);

#endif
