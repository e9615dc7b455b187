/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of waiting requests; see scheduler_queue.h. */
#include "server/scheduler/scheduler_queue.h"

#include <errno.h>
#include <stdlib.h>

int hb_scheduler_pool_init(struct hb_scheduler_pool *pool, uint32_t capacity)
{
	pool->requests = calloc(capacity, sizeof *pool->requests);
	if (!pool->requests)
		return -ENOMEM;
	pool->capacity = capacity;
	pool->free = 0;
	for (uint32_t i = 0; i < capacity; i++)
		pool->requests[i].next[0] = i + 1 < capacity ? i + 1 : HB_SCHEDULER_NONE;
	return 0;
}

void hb_scheduler_pool_fini(struct hb_scheduler_pool *pool)
{
	free(pool->requests);
	pool->requests = NULL;
}

uint32_t hb_scheduler_pool_take(struct hb_scheduler_pool *pool)
{
	uint32_t index = pool->free;
	if (index == HB_SCHEDULER_NONE)
		return index;
	pool->free = pool->requests[index].next[0];
	uint32_t generation = pool->requests[index].generation + 1;
	pool->requests[index] = (struct hb_waiting){.generation = generation};
	return index;
}

void hb_scheduler_pool_give(struct hb_scheduler_pool *pool, uint32_t index)
{
	pool->requests[index].generation++;
	pool->requests[index].next[0] = pool->free;
	pool->free = index;
}

void hb_scheduler_queue_init(struct hb_scheduler_queue *queue)
{
	*queue = (struct hb_scheduler_queue){
		.first = {HB_SCHEDULER_NONE, HB_SCHEDULER_NONE},
		.last = {HB_SCHEDULER_NONE, HB_SCHEDULER_NONE},
	};
}

static void link_request_after(struct hb_scheduler_queue *queue, struct hb_scheduler_pool *pool,
			       enum hb_scheduler_order order, uint32_t index, uint32_t after)
{
	struct hb_waiting *all = pool->requests;
	uint32_t next = after == HB_SCHEDULER_NONE ? queue->first[order] : all[after].next[order];
	all[index].previous[order] = after;
	all[index].next[order] = next;
	*(after == HB_SCHEDULER_NONE ? &queue->first[order] : &all[after].next[order]) = index;
	*(next == HB_SCHEDULER_NONE ? &queue->last[order] : &all[next].previous[order]) = index;
}

void hb_scheduler_queue_insert(struct hb_scheduler_queue *queue, struct hb_scheduler_pool *pool, uint32_t index)
{
	struct hb_waiting *request = &pool->requests[index];
	uint32_t after = queue->last[HB_ORDER_URGENCY];
	while (after != HB_SCHEDULER_NONE && pool->requests[after].deadline_ns > request->deadline_ns)
		after = pool->requests[after].previous[HB_ORDER_URGENCY];
	link_request_after(queue, pool, HB_ORDER_URGENCY, index, after);
	link_request_after(queue, pool, HB_ORDER_ARRIVAL, index, queue->last[HB_ORDER_ARRIVAL]);
	request->queued = true;
	queue->requests++;
	queue->items += request->items;
}

void hb_scheduler_queue_remove(struct hb_scheduler_queue *queue, struct hb_scheduler_pool *pool, uint32_t index)
{
	struct hb_waiting *all = pool->requests, *request = &all[index];
	for (int order = 0; order < HB_ORDERS; order++) {
		uint32_t next = request->next[order], previous = request->previous[order];
		*(previous == HB_SCHEDULER_NONE ? &queue->first[order] : &all[previous].next[order]) = next;
		*(next == HB_SCHEDULER_NONE ? &queue->last[order] : &all[next].previous[order]) = previous;
	}
	request->queued = false;
	queue->requests--;
	queue->items -= request->items;
}
