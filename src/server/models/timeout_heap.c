/* SPDX-License-Identifier: Apache-2.0 */
/* See timeout_heap.h. */
#include "server/models/timeout_heap.h"

#include <errno.h>
#include <stdlib.h>

int hb_timeout_heap_init(struct hb_timeout_heap *heap, uint32_t capacity)
{
	*heap = (struct hb_timeout_heap){.at = calloc(capacity, sizeof(*heap->at)), .capacity = capacity};
	return heap->at ? 0 : -ENOMEM;
}

void hb_timeout_heap_fini(struct hb_timeout_heap *heap)
{
	free(heap->at);
}

static void put_at(struct hb_timeout_heap *heap, uint32_t place, struct hb_inference *infer)
{
	heap->at[place] = infer;
	infer->heap_place = place;
}

static void move_up(struct hb_timeout_heap *heap, uint32_t place, struct hb_inference *infer)
{
	while (place > 0 && heap->at[(place - 1) / 2]->expires_ns > infer->expires_ns) {
		put_at(heap, place, heap->at[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	put_at(heap, place, infer);
}

static void move_down(struct hb_timeout_heap *heap, uint32_t place, struct hb_inference *infer)
{
	for (uint32_t child; (child = 2 * place + 1) < heap->n; place = child) {
		if (child + 1 < heap->n && heap->at[child + 1]->expires_ns < heap->at[child]->expires_ns)
			child++;
		if (heap->at[child]->expires_ns >= infer->expires_ns)
			break;
		put_at(heap, place, heap->at[child]);
	}
	put_at(heap, place, infer);
}

void hb_timeout_heap_insert(struct hb_timeout_heap *heap, struct hb_inference *infer)
{
	if (heap->n < heap->capacity)
		move_up(heap, heap->n++, infer);
}

void hb_timeout_heap_remove(struct hb_timeout_heap *heap, struct hb_inference *infer)
{
	uint32_t place = infer->heap_place;
	struct hb_inference *last = heap->at[--heap->n];
	infer->heap_place = UINT32_MAX;
	if (place == heap->n)
		return;
	move_up(heap, place, last);
	move_down(heap, last->heap_place, last);
}

struct hb_inference *hb_timeout_heap_first(const struct hb_timeout_heap *heap)
{
	return heap->n ? heap->at[0] : NULL;
}
