/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed set of timers, each known by a small number, in a binary heap ordered
 * by (time, order of setting). Called by core.c and policy_api.c. Never
 * allocates after init and knows no clock.
 */
#include "core/core_priv.h"

#include <errno.h>
#include <stdlib.h>

int hb_timers_init(struct hb_timers *timers, uint32_t size)
{
	*timers = (struct hb_timers){.size = size};
	timers->at_ns = calloc(size, sizeof *timers->at_ns);
	timers->sequence = calloc(size, sizeof *timers->sequence);
	timers->heap = calloc(size, sizeof *timers->heap);
	timers->position = calloc(size, sizeof *timers->position);
	return timers->at_ns && timers->sequence && timers->heap && timers->position ? 0 : -ENOMEM;
}

void hb_timers_fini(struct hb_timers *timers)
{
	free(timers->at_ns);
	free(timers->sequence);
	free(timers->heap);
	free(timers->position);
}

static bool before(const struct hb_timers *timers, uint32_t a, uint32_t b)
{
	if (timers->at_ns[a] != timers->at_ns[b])
		return timers->at_ns[a] < timers->at_ns[b];
	return timers->sequence[a] < timers->sequence[b];
}

static void put(struct hb_timers *timers, uint32_t place, uint32_t timer)
{
	timers->heap[place] = timer;
	timers->position[timer] = place + 1;
}

static void sift_up(struct hb_timers *timers, uint32_t place)
{
	uint32_t timer = timers->heap[place];
	while (place > 0) {
		uint32_t parent = (place - 1) / 2;
		if (!before(timers, timer, timers->heap[parent]))
			break;
		put(timers, place, timers->heap[parent]);
		place = parent;
	}
	put(timers, place, timer);
}

static void sift_down(struct hb_timers *timers, uint32_t place)
{
	uint32_t timer = timers->heap[place];
	for (;;) {
		uint32_t child = 2 * place + 1;
		if (child >= timers->count)
			break;
		if (child + 1 < timers->count && before(timers, timers->heap[child + 1], timers->heap[child]))
			child++;
		if (!before(timers, timers->heap[child], timer))
			break;
		put(timers, place, timers->heap[child]);
		place = child;
	}
	put(timers, place, timer);
}

void hb_timers_cancel(struct hb_timers *timers, uint32_t timer)
{
	uint32_t place = timers->position[timer];
	if (!place--)
		return;
	timers->position[timer] = 0;
	uint32_t moved = timers->heap[--timers->count];
	if (moved == timer)
		return;
	put(timers, place, moved);
	sift_up(timers, place);
	sift_down(timers, timers->position[moved] - 1);
}

void hb_timers_set(struct hb_timers *timers, uint32_t timer, int64_t at_ns)
{
	hb_timers_cancel(timers, timer);
	timers->at_ns[timer] = at_ns;
	timers->sequence[timer] = timers->next_sequence++;
	put(timers, timers->count, timer);
	sift_up(timers, timers->count++);
}

bool hb_timers_pending(const struct hb_timers *timers, uint32_t timer)
{
	return timers->position[timer] != 0;
}

int64_t hb_timers_next_ns(const struct hb_timers *timers)
{
	return timers->count ? timers->at_ns[timers->heap[0]] : HB_TIME_NEVER;
}

uint32_t hb_timers_pop(struct hb_timers *timers)
{
	if (!timers->count)
		return HB_TIMER_NONE;
	uint32_t timer = timers->heap[0];
	hb_timers_cancel(timers, timer);
	return timer;
}
