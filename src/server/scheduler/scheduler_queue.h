/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait: one queue for each model and priority, its requests in
 * order of arrival and in order of urgency at the same time. Requests live in a
 * pool of fixed size. Part of the scheduler (scheduler.c); nothing else calls it.
 *
 * Urgency goes by the deadline. Inserting by it walks from the latest: requests
 * of one model mostly come in order.
 */
#ifndef HB_SCHEDULER_SERVE_QUEUE_H
#define HB_SCHEDULER_SERVE_QUEUE_H

#include "server/scheduler/predictor.h"

#define HB_SCHEDULER_NONE UINT32_MAX

enum hb_scheduler_order { HB_ORDER_ARRIVAL, HB_ORDER_URGENCY, HB_ORDERS };

struct hb_waiting {
	uint64_t cookie;
	uint32_t model, items;
	uint32_t generation;                 /* odd while in use */
	enum hb_scheduler_priority priority; /* as it was asked for */
	enum hb_scheduler_priority class;    /* the queue it is in */
	enum hb_scheduler_priority
		limit; /* the one whose limit it counts against: as asked for, until it is downgraded */
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
/* HB_SCHEDULER_NONE when full. */
uint32_t hb_scheduler_pool_take(struct hb_scheduler_pool *pool);
void hb_scheduler_pool_give(struct hb_scheduler_pool *pool, uint32_t index);

void hb_scheduler_queue_init(struct hb_scheduler_queue *queue);
void hb_scheduler_queue_insert(struct hb_scheduler_queue *queue, struct hb_scheduler_pool *pool, uint32_t index);
void hb_scheduler_queue_remove(struct hb_scheduler_queue *queue, struct hb_scheduler_pool *pool, uint32_t index);

#endif
