/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of an HP tenant that tells none: its first work after idle begins
 * one, the idle after its last work ends it. Called by core_post.c when a
 * tenant becomes busy or idle, and by core.c for its timer; does nothing once a
 * tenant has told a request of its own.
 *
 * A program is also idle inside a request, between two launches. So an idle time
 * ends the request only when it has lasted the think gap, and the request's end
 * is then where it began. The think gap is THINK_LEAST_NS, ten times the gaps of
 * an eager model, unless longer idle times make two heaps, pauses inside requests
 * and times between them, with a valley. They are counted in classes of half an
 * octave; the think gap is the upper end of the deepest valley that is at most a
 * quarter of the smaller heap beside it.
 *
 * Example. Requests every 16 to 40 ms that pause three times for 300 us (another
 * service is asked): heaps in the classes from 262 us and around 2^24 ns, nothing
 * between; the first empty class ends at 0.52 ms, the think gap.
 *
 * Bad at: requests that overlap (they are one), requests that follow one another
 * within the think gap, and work that is nobody's request.
 */
#include "core/core_priv.h"

#define THINK_LEAST_NS INT64_C(100000)
/* Until enough is known: longer than gaps inside the recorded requests, shorter than those between most. */
#define THINK_FIRST_NS INT64_C(1000000)
#define THINK_MOST_NS INT64_C(50000000)
#define LEARN_EVERY 32
/* A heap's highest class has so many idle times, and the heap this part of all. */
#define PEAK_LEAST 4
#define HEAP_SHARE 16
#define VALLEY_PPM 250000
/* The counts are halved when there are so many, so they forget. */
#define COUNTS_MOST 1024
#define CLASS_FIRST_BITS 16

/* Half an octave each from 65 us on; the first and the last take what lies outside. */
static uint32_t class_of(int64_t gap_ns)
{
	if (gap_ns < INT64_C(1) << CLASS_FIRST_BITS)
		return 0;
	uint32_t bits = 63 - (uint32_t)__builtin_clzll((uint64_t)gap_ns);
	uint32_t half = (uint32_t)(gap_ns >> (bits - 1)) & 1;
	uint32_t class = 2 * (bits - CLASS_FIRST_BITS) + half + 1;
	return class < HB_INFER_CLASSES ? class : HB_INFER_CLASSES - 1;
}

static int64_t class_end_ns(uint32_t class)
{
	int64_t octave_ns = INT64_C(1) << (CLASS_FIRST_BITS + class / 2);
	return class % 2 ? octave_ns + octave_ns / 2 : octave_ns;
}

struct heap {
	uint32_t peak, sum;
};

static struct heap heap_of(const struct hb_infer *infer, uint32_t from, uint32_t to)
{
	struct heap heap = {0};
	for (uint32_t class = from; class < to; class ++) {
		heap.sum += infer->gaps[class];
		if (infer->gaps[class] > heap.peak)
			heap.peak = infer->gaps[class];
	}
	return heap;
}

static bool counts(const struct hb_infer *infer, struct heap heap)
{
	return heap.peak >= PEAK_LEAST && heap.sum >= infer->n_gaps / HEAP_SHARE;
}

static int64_t think_ns(const struct hb_infer *infer)
{
	int64_t found_ns = THINK_LEAST_NS;
	uint32_t best_ppm = VALLEY_PPM + 1;
	for (uint32_t class = 1; class + 1 < HB_INFER_CLASSES; class ++) {
		struct heap left = heap_of(infer, 0, class), right = heap_of(infer, class + 1, HB_INFER_CLASSES);
		if (!counts(infer, left) || !counts(infer, right))
			continue;
		uint32_t smaller = left.peak < right.peak ? left.peak : right.peak;
		uint32_t depth_ppm = (uint32_t)(UINT64_C(1000000) * infer->gaps[class] / smaller);
		if (depth_ppm >= best_ppm)
			continue;
		best_ppm = depth_ppm;
		found_ns = class_end_ns(class);
	}
	if (found_ns < THINK_LEAST_NS)
		return THINK_LEAST_NS;
	return found_ns < THINK_MOST_NS ? found_ns : THINK_MOST_NS;
}

static void learn(struct hb_infer *infer, int64_t gap_ns)
{
	if (gap_ns < THINK_LEAST_NS)
		return;
	infer->gaps[class_of(gap_ns)]++;
	if (++infer->n_gaps % LEARN_EVERY == 0)
		infer->think_ns = think_ns(infer);
	if (infer->n_gaps < COUNTS_MOST)
		return;
	infer->n_gaps = 0;
	for (uint32_t class = 0; class < HB_INFER_CLASSES; class ++) {
		infer->gaps[class] /= 2;
		infer->n_gaps += infer->gaps[class];
	}
}

static bool infers(const struct hb_core *core, const struct hb_slot *slot)
{
	return core->config.infer_requests && slot->tenant.priority == HB_PRIORITY_HIGH && !slot->infer.told;
}

static void finish(struct hb_core *core, struct hb_slot *slot)
{
	slot->infer.open = false;
	hb_core_end_request(core, slot, slot->infer.request, slot->tenant.idle_since_ns, -1);
}

void hb_infer_busy(struct hb_core *core, struct hb_slot *slot)
{
	struct hb_infer *infer = &slot->infer;
	if (!infers(core, slot))
		return;
	if (!infer->think_ns)
		infer->think_ns = THINK_FIRST_NS;
	hb_timers_cancel(&core->timers, hb_core_infer_timer(core, slot->tenant.id));
	int64_t gap_ns = core->now_ns - slot->tenant.idle_since_ns;
	if (slot->tenant.idle_since_ns >= 0)
		learn(infer, gap_ns);
	if (infer->open && gap_ns < infer->think_ns)
		return;
	if (infer->open)
		finish(core, slot);
	infer->open = hb_core_begin_request(core, slot, infer->request + 1, 0) == 0;
	infer->request += infer->open;
	slot->tenant.counters.requests_inferred += infer->open;
}

void hb_infer_idle(struct hb_core *core, struct hb_slot *slot)
{
	if (slot->infer.open)
		hb_timers_set(&core->timers, hb_core_infer_timer(core, slot->tenant.id),
			      core->now_ns + slot->infer.think_ns);
}

void hb_infer_timer(struct hb_core *core, uint32_t tenant)
{
	if (core->slots[tenant].infer.open)
		finish(core, &core->slots[tenant]);
}

/* What was begun is dropped, neither met nor missed: the tenant knows better what its requests are. */
void hb_infer_told(struct hb_core *core, struct hb_slot *slot)
{
	slot->infer.told = true;
	if (!slot->infer.open)
		return;
	slot->infer.open = false;
	hb_timers_cancel(&core->timers, hb_core_infer_timer(core, slot->tenant.id));
	hb_account_drop(core, slot, slot->infer.request);
}
