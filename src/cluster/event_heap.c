/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap of events; see event_heap.h. */
#include "cluster/event_heap.h"

#include <errno.h>
#include <stdlib.h>

static bool is_before(const struct hb_cluster_event *a, const struct hb_cluster_event *b)
{
	return a->time_s < b->time_s || (a->time_s == b->time_s && a->order < b->order);
}

int hb_event_push(struct hb_event_heap *heap, struct hb_cluster_event event)
{
	if (heap->n == heap->size) {
		uint32_t size = heap->size ? 2 * heap->size : 1024;
		struct hb_cluster_event *events = realloc(heap->events, size * sizeof *events);
		if (!events)
			return -ENOMEM;
		heap->events = events;
		heap->size = size;
	}
	uint32_t at = heap->n++;
	event.order = heap->pushed++;
	for (; at && is_before(&event, &heap->events[(at - 1) / 2]); at = (at - 1) / 2)
		heap->events[at] = heap->events[(at - 1) / 2];
	heap->events[at] = event;
	return 0;
}

bool hb_event_pop(struct hb_event_heap *heap, struct hb_cluster_event *event)
{
	if (!heap->n)
		return false;
	*event = heap->events[0];
	struct hb_cluster_event last = heap->events[--heap->n];
	uint32_t at = 0, child;
	while ((child = 2 * at + 1) < heap->n) {
		child += child + 1 < heap->n && is_before(&heap->events[child + 1], &heap->events[child]);
		if (!is_before(&heap->events[child], &last))
			break;
		heap->events[at] = heap->events[child];
		at = child;
	}
	heap->events[at] = last;
	return true;
}

void hb_event_heap_fini(struct hb_event_heap *heap)
{
	free(heap->events);
	*heap = (struct hb_event_heap){0};
}
