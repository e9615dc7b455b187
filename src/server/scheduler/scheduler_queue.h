/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of waiting requests: one for each model and priority. A queue is two
 * linked lists over the same requests, by arrival and by deadline ("urgency").
 * Requests are stored in a pool of fixed size. Part of the scheduler; only
 * scheduler*.c, miss_chance.c and pick_*.c use it.
 *
 * An insertion by deadline searches from the latest deadline, because requests of
 * one model mostly arrive in order of deadline.
 */
#ifndef HB_SCHEDULER_QUEUE_H
#define HB_SCHEDULER_QUEUE_H

#include "server/scheduler/predictor.h"

#define HB_SCHEDULER_NONE UINT32_MAX

enum hb_scheduler_order { HB_ORDER_ARRIVAL, HB_ORDER_URGENCY, HB_ORDERS };

struct hb_waiting {
	uint64_t cookie;
	uint32_t model, items;
	uint32_t generation;                 /* changes with each use of this place in the pool; odd while in use */
	enum hb_scheduler_priority priority; /* priority that the client requested */
	enum hb_scheduler_priority class;    /* priority of the queue that the request is in */
	enum hb_scheduler_priority
		limit; /* priority whose queue_max counts this request: `priority`, or low after a downgrade */
	int64_t arrival_ns, deadline_ns;
	uint64_t room_bytes;
	bool queued;
	uint32_t next[HB_ORDERS], previous[HB_ORDERS];
};

struct hb_scheduler_queue {
	uint32_t first[HB_ORDERS], last[HB_ORDERS];
	uint32_t requests, items;
};

struct hb_scheduler_pool {
	struct hb_waiting *requests;
	uint32_t capacity, free;
};

int hb_scheduler_pool_init(struct hb_scheduler_pool *pool, uint32_t capacity);
void hb_scheduler_pool_fini(struct hb_scheduler_pool *pool);
/*
 * Functions that allocate a request and free one. Allocating returns its index, or HB_SCHEDULER_NONE when the pool is
 * full.
 */
uint32_t hb_scheduler_pool_take(struct hb_scheduler_pool *pool);
void hb_scheduler_pool_give(struct hb_scheduler_pool *pool, uint32_t index);

void hb_scheduler_queue_init(struct hb_scheduler_queue *queue);
void hb_scheduler_queue_insert(struct hb_scheduler_queue *queue, struct hb_scheduler_pool *pool, uint32_t index);
void hb_scheduler_queue_remove(struct hb_scheduler_queue *queue, struct hb_scheduler_pool *pool, uint32_t index);

#endif
