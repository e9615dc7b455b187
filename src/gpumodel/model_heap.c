/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap of events ordered by (time, order pushed); used by the GPU model only. */
#include "gpumodel/model_internal.h"

#include <errno.h>
#include <stdlib.h>

static bool is_before(const struct model_event *a, const struct model_event *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

int hb_gpu_model_heap_push(struct model_heap *heap, int64_t at_ns, enum hb_gpu_model_event_kind kind, uint32_t object,
			   uint32_t generation)
{
	if (heap->count == heap->capacity) {
		uint32_t capacity = heap->capacity ? 2 * heap->capacity : 32;
		struct model_event *events = realloc(heap->events, capacity * sizeof *events);
		if (!events)
			return -ENOMEM;
		heap->events = events;
		heap->capacity = capacity;
	}
	struct model_event event = {
		.at_ns = at_ns, .order = heap->next_order++, .object = object, .generation = generation, .kind = kind};
	uint32_t at = heap->count++;
	while (at > 0 && is_before(&event, &heap->events[(at - 1) / 2])) {
		heap->events[at] = heap->events[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap->events[at] = event;
	return 0;
}

bool hb_gpu_model_heap_pop(struct model_heap *heap, int64_t until_ns, struct model_event *event)
{
	if (heap->count == 0 || heap->events[0].at_ns > until_ns)
		return false;
	*event = heap->events[0];
	struct model_event last = heap->events[--heap->count];
	uint32_t at = 0;
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= heap->count)
			break;
		if (child + 1 < heap->count && is_before(&heap->events[child + 1], &heap->events[child]))
			child++;
		if (!is_before(&heap->events[child], &last))
			break;
		heap->events[at] = heap->events[child];
		at = child;
	}
	if (heap->count)
		heap->events[at] = last;
	return true;
}

int64_t hb_gpu_model_heap_next(const struct model_heap *heap)
{
	return heap->count ? heap->events[0].at_ns : HB_GPU_MODEL_NEVER;
}

void hb_gpu_model_heap_fini(struct model_heap *heap)
{
	free(heap->events);
	*heap = (struct model_heap){0};
}
