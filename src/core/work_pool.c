/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed pool of records and the doubly linked lists made of them: unfinished
 * requests and launches of each tenant, oldest first. Called by the core's other
 * parts. Never allocates after init; a full pool is the caller's error to report.
 */
#include "core/core_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hb_pool_init(struct hb_work_pool *pool, uint32_t size)
{
	pool->nodes = calloc(size, sizeof *pool->nodes);
	if (!pool->nodes)
		return -ENOMEM;
	pool->size = size;
	pool->used = 0;
	pool->free = HB_NODE_NONE;
	return 0;
}

void hb_pool_fini(struct hb_work_pool *pool)
{
	free(pool->nodes);
	pool->nodes = NULL;
}

void hb_list_init(struct hb_work_list *list)
{
	*list = (struct hb_work_list){HB_NODE_NONE, HB_NODE_NONE, 0};
}

/* Nodes never used come after those given back, so that a mostly empty pool stays untouched memory. */
static uint32_t take_node(struct hb_work_pool *pool)
{
	uint32_t node = pool->free;
	if (node != HB_NODE_NONE) {
		pool->free = pool->nodes[node].next;
		return node;
	}
	return pool->used < pool->size ? pool->used++ : HB_NODE_NONE;
}

static void link_last(struct hb_work_pool *pool, struct hb_work_list *list, uint32_t node)
{
	pool->nodes[node].next = HB_NODE_NONE;
	pool->nodes[node].prev = list->last;
	if (list->last == HB_NODE_NONE)
		list->first = node;
	else
		pool->nodes[list->last].next = node;
	list->last = node;
	list->count++;
}

static void unlink_node(struct hb_work_pool *pool, struct hb_work_list *list, uint32_t node)
{
	struct hb_work_node *n = &pool->nodes[node];
	if (n->prev == HB_NODE_NONE)
		list->first = n->next;
	else
		pool->nodes[n->prev].next = n->next;
	if (n->next == HB_NODE_NONE)
		list->last = n->prev;
	else
		pool->nodes[n->next].prev = n->prev;
	list->count--;
}

struct hb_work *hb_list_append(struct hb_work_pool *pool, struct hb_work_list *list, uint64_t id)
{
	uint32_t node = take_node(pool);
	if (node == HB_NODE_NONE)
		return NULL;
	memset(&pool->nodes[node].work, 0, sizeof pool->nodes[node].work);
	pool->nodes[node].work.id = id;
	link_last(pool, list, node);
	return &pool->nodes[node].work;
}

uint32_t hb_list_find(const struct hb_work_pool *pool, const struct hb_work_list *list, uint64_t id)
{
	uint32_t node = list->first;
	while (node != HB_NODE_NONE && pool->nodes[node].work.id != id)
		node = pool->nodes[node].next;
	return node;
}

const struct hb_work *hb_list_first(const struct hb_work_pool *pool, const struct hb_work_list *list)
{
	return list->first == HB_NODE_NONE ? NULL : &pool->nodes[list->first].work;
}

void hb_list_remove(struct hb_work_pool *pool, struct hb_work_list *list, uint32_t node)
{
	unlink_node(pool, list, node);
	pool->nodes[node].next = pool->free;
	pool->free = node;
}

void hb_list_move_first(struct hb_work_pool *pool, struct hb_work_list *from, struct hb_work_list *to)
{
	uint32_t node = from->first;
	unlink_node(pool, from, node);
	link_last(pool, to, node);
}

void hb_list_clear(struct hb_work_pool *pool, struct hb_work_list *list)
{
	while (list->first != HB_NODE_NONE)
		hb_list_remove(pool, list, list->first);
}
