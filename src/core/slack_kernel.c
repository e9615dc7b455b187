/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What LP knows of its kernels: durations, shapes on fewer SMs, and the harm
 * each does to HP; see slack_low.h. Compiled into the core and the shim: no
 * lock, no allocation, no clock.
 *
 * Harm. HP tells how much longer than alone its last request took (excess). LP
 * knows which kernels it ran beside it and how long, x_k. The model is
 * excess = sum of h_k * x_k, and h is learned by the normalised least mean
 * squares rule: h_k += rate * (excess - predicted) * x_k / sum of x^2. It needs
 * no matrix, forgets, and puts blame where the time was; noise of HP's own
 * averages out over 1 / rate requests. h never goes below zero.
 */
#include "core/slack_kernel.h"

#include <string.h>

#define NEIGHBOURS 8
/* Harm before anything was learned: little for a masked kernel; beside HP on the whole GPU, HP's kernels wait for blocks. */
#define HARM_MASKED_PPM 10000
#define HARM_PER_BLOCK_NS 20 /* ppm: blocks of 50 us delay HP by as much as they run */
#define HARM_MOST_PPM 4000000
#define RATE_SHIFT 6
/* A kernel of one wave that occupies its SMs this long is called persistent. */
#define PERSISTENT_NS 100000

static void forget(struct hb_slack_kernel *kernel, const struct hb_slack_shape *shape)
{
	*kernel = (struct hb_slack_kernel){
		.key = shape->key,
		.blocks = shape->blocks,
		.per_sm = (uint16_t)(shape->per_sm < UINT16_MAX ? shape->per_sm : UINT16_MAX),
		.flags = (uint8_t)shape->flags,
		.reserve = UINT16_MAX,
		.harm_ppm = {HARM_MASKED_PPM, HB_SLACK_PPM},
	};
}

uint32_t hb_slack_place(struct hb_slack_low *low, const struct hb_slack_shape *shape)
{
	uint32_t from = (uint32_t)shape->key & (HB_SLACK_KERNELS - NEIGHBOURS), oldest = from;
	/* The key's low bit is always set; start with bits that are not. */
	uint32_t first = (uint32_t)(shape->key >> 32) & (NEIGHBOURS - 1);
	for (uint32_t i = 0; i < NEIGHBOURS; i++) {
		uint32_t at = from + ((first + i) & (NEIGHBOURS - 1));
		struct hb_slack_kernel *kernel = &low->kernels[at];
		if (kernel->key == shape->key)
			return at;
		if (!kernel->key) {
			oldest = at;
			break;
		}
		if ((int32_t)(kernel->used - low->kernels[oldest].used) < 0)
			oldest = at;
	}
	low->counts.evicted += low->kernels[oldest].key != 0;
	forget(&low->kernels[oldest], shape);
	low->kernels[oldest].used = low->launches;
	return oldest;
}

const struct hb_slack_kernel *hb_slack_find(const struct hb_slack_low *low, uint64_t key)
{
	uint32_t from = (uint32_t)key & (HB_SLACK_KERNELS - NEIGHBOURS);
	for (uint32_t i = 0; i < NEIGHBOURS; i++)
		if (low->kernels[from + i].key == key)
			return &low->kernels[from + i];
	return 0;
}

/* --- shapes --- */

static uint64_t waves(const struct hb_slack_kernel *kernel, uint32_t sms)
{
	uint64_t room = (uint64_t)kernel->per_sm * sms;
	return room ? (kernel->blocks + room - 1) / room : 1;
}

static enum hb_slack_class class_of(const struct hb_slack_kernel *kernel, uint32_t sms)
{
	if (!kernel->blocks || !kernel->per_sm)
		return HB_SLACK_UNKNOWN;
	if (waves(kernel, sms) > 1)
		return HB_SLACK_PLAIN;
	return kernel->blocks > sms / 2 && kernel->block_ns >= PERSISTENT_NS ? HB_SLACK_PERSISTENT : HB_SLACK_SMALL;
}

static uint32_t cut(uint64_t value)
{
	return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Fewest SMs with the waves that `most` of them take, in pairs: what a mask can tell apart. */
static uint32_t no_more_than_needed(const struct hb_slack_kernel *kernel, uint32_t most)
{
	uint64_t rows = (uint64_t)kernel->per_sm * waves(kernel, most);
	uint64_t needed = (kernel->blocks + rows - 1) / rows;
	needed += needed & 1;
	return needed < most ? (uint32_t)needed : most;
}

void hb_slack_fit(const struct hb_slack_low *low, struct hb_slack_kernel *kernel, uint32_t reserve)
{
	uint32_t all = low->limits.sms, duration_ns = kernel->duration_ns ? kernel->duration_ns : HB_SLACK_GUESS_NS;
	uint32_t most = all > reserve + 2 ? (all - reserve) & ~UINT32_C(1) : 2;
	kernel->reserve = (uint16_t)reserve;
	kernel->sms = (uint16_t)most;
	kernel->block_ns = duration_ns;
	kernel->beside_ns = cut((uint64_t)duration_ns * all / most);
	kernel->class = HB_SLACK_UNKNOWN;
	if (!kernel->blocks || !kernel->per_sm)
		return;
	uint64_t alone = waves(kernel, all), masked = waves(kernel, most);
	kernel->block_ns = cut(duration_ns / alone);
	kernel->class = (uint8_t)class_of(kernel, all);
	kernel->beside_ns = cut((uint64_t)duration_ns * masked / alone);
	if (kernel->class == HB_SLACK_PERSISTENT)
		kernel->sms = (uint16_t)no_more_than_needed(kernel, most);
}

/* --- durations --- */

void hb_slack_note_duration(struct hb_slack_low *low, uint32_t place, int64_t duration_ns, bool masked)
{
	struct hb_slack_kernel *kernel = &low->kernels[place];
	uint32_t *known = masked ? &kernel->beside_ns : &kernel->duration_ns;
	int64_t was_ns = *known, now_ns = duration_ns < INT32_MAX ? duration_ns : INT32_MAX;
	if (now_ns < 500)
		now_ns = 500;
	bool first = !masked && !kernel->measured;
	/* Others can only make it longer: believe what is shorter sooner. */
	if (!first)
		now_ns = now_ns < was_ns ? (was_ns + now_ns) / 2 : was_ns + (now_ns - was_ns) / 8;
	*known = (uint32_t)now_ns;
	if (masked)
		return;
	kernel->measured += kernel->measured < UINT32_MAX;
	if (first || now_ns < was_ns - was_ns / 8 || now_ns > was_ns + was_ns / 8)
		hb_slack_fit(low, kernel, kernel->reserve == UINT16_MAX ? 0 : kernel->reserve);
	if (first) {
		uint64_t wide_ppm = (uint64_t)kernel->block_ns * HARM_PER_BLOCK_NS;
		kernel->harm_ppm[1] = wide_ppm < HB_SLACK_PPM ? (uint32_t)wide_ppm : HB_SLACK_PPM;
	}
}

void hb_slack_learn(struct hb_slack_low *low, const struct hb_slack_shape *shape, int64_t duration_ns)
{
	if (duration_ns > 0)
		hb_slack_note_duration(low, hb_slack_place(low, shape), duration_ns, false);
}

/* --- harm --- */

static uint32_t *harm_of(struct hb_slack_low *low, const struct hb_slack_use *use)
{
	return use->kernel < HB_SLACK_KERNELS ? &low->kernels[use->kernel].harm_ppm[use->wide] : &low->entry_ppm;
}

static int64_t expected_ns(struct hb_slack_low *low, const struct hb_slack_use *use)
{
	return (int64_t)use->ns * *harm_of(low, use) / HB_SLACK_PPM;
}

void hb_slack_note_excess(struct hb_slack_low *low, int64_t excess_ns)
{
	uint32_t n = low->n_last;
	int64_t error_ns = excess_ns;
	__int128 squares = 0;
	low->n_last = 0;
	for (uint32_t i = 0; i < n; i++) {
		error_ns -= expected_ns(low, &low->last[i]);
		squares += (__int128)low->last[i].ns * low->last[i].ns;
	}
	if (!squares)
		return;
	low->counts.lessons++;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t *harm_ppm = harm_of(low, &low->last[i]);
		__int128 step = (__int128)error_ns * low->last[i].ns * (HB_SLACK_PPM >> RATE_SHIFT) / squares;
		__int128 harm = *harm_ppm + step;
		*harm_ppm = harm <= 0 ? 0 : harm >= HARM_MOST_PPM ? HARM_MOST_PPM : (uint32_t)harm;
	}
}
