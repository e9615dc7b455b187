/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LP's knowledge about its kernels: durations, masks, and the harm each does to HP; see
 * spatial_low.h. No lock, no allocation, no clock.
 *
 * Harm. HP publishes how much longer than alone its last request took (excess). LP knows
 * which kernels it ran beside the request and for how long, x_k. The model is excess = sum
 * of h_k * x_k, and h is learned by the normalised least mean squares rule:
 * h_k += rate * (excess - predicted) * x_k / sum of x^2. This rule needs no matrix, forgets
 * old data, and blames kernels in proportion to their time. HP's own variations average
 * out over 1 / rate requests. h never falls below zero.
 */
#include "decide/spatial_kernel.h"

#include <string.h>

#define NEIGHBOURS 8
/* Harm before anything was learned: little for a masked kernel; beside HP on the whole GPU, HP's kernels wait for blocks. */
#define HARM_MASKED_PPM 10000
#define HARM_PER_BLOCK_NS 20 /* ppm: blocks of 50 us delay HP by as much as they run */
#define HARM_MOST_PPM 4000000
#define RATE_SHIFT 6
#define DURATION_LEAST_NS 500

static void forget(struct hb_spatial_kernel *kernel, const struct hb_spatial_shape *shape)
{
	*kernel = (struct hb_spatial_kernel){
		.key = shape->key,
		.blocks = shape->blocks,
		.per_sm = (uint16_t)(shape->per_sm < UINT16_MAX ? shape->per_sm : UINT16_MAX),
		.flags = (uint8_t)shape->flags,
		.reserve = UINT16_MAX,
		.harm_ppm = {HARM_MASKED_PPM, HB_SPATIAL_PPM},
	};
}

uint32_t hb_spatial_place(struct hb_spatial_low *low, const struct hb_spatial_shape *shape)
{
	uint32_t from = (uint32_t)shape->key & (HB_SPATIAL_KERNELS - NEIGHBOURS), oldest = from;
	/* The key's low bit is always set; start with bits that are not. */
	uint32_t first = (uint32_t)(shape->key >> 32) & (NEIGHBOURS - 1);
	for (uint32_t i = 0; i < NEIGHBOURS; i++) {
		uint32_t at = from + ((first + i) & (NEIGHBOURS - 1));
		struct hb_spatial_kernel *kernel = &low->kernels[at];
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

const struct hb_spatial_kernel *hb_spatial_find(const struct hb_spatial_low *low, uint64_t key)
{
	uint32_t from = (uint32_t)key & (HB_SPATIAL_KERNELS - NEIGHBOURS);
	for (uint32_t i = 0; i < NEIGHBOURS; i++)
		if (low->kernels[from + i].key == key)
			return &low->kernels[from + i];
	return 0;
}

uint32_t hb_spatial_spot(struct hb_spatial_low *low, const uint64_t after[HB_SPATIAL_AFTER], uint64_t key)
{
	uint64_t hash = key;
	for (uint32_t i = 0; i < HB_SPATIAL_AFTER; i++) {
		hash ^= after[i];
		hash *= UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	uint32_t place = (uint32_t)hash & (HB_SPATIAL_SPOTS - 1), tag = (uint32_t)(hash >> 32) | 1;
	struct hb_spatial_spot *spot = &low->spots[place];
	if (spot->tag != tag)
		*spot = (struct hb_spatial_spot){.tag = tag};
	return place;
}

/* --- shapes --- */

static uint64_t waves(const struct hb_spatial_kernel *kernel, uint32_t sms)
{
	uint64_t room = (uint64_t)kernel->per_sm * sms;
	return room ? (kernel->blocks + room - 1) / room : 1;
}

static enum hb_spatial_class class_of(const struct hb_spatial_kernel *kernel, uint32_t sms)
{
	if (waves(kernel, sms) > 1)
		return HB_SPATIAL_PLAIN;
	return kernel->blocks > sms / 2 ? HB_SPATIAL_PERSISTENT : HB_SPATIAL_SMALL;
}

uint32_t hb_spatial_sms_left(const struct hb_spatial_low *low, uint32_t reserve)
{
	uint32_t all = low->limits.sms;
	return all > reserve + 2 ? (all - reserve) & ~UINT32_C(1) : 2;
}

uint32_t hb_spatial_stretch_q10(const struct hb_spatial_low *low, const struct hb_spatial_kernel *kernel, uint32_t most)
{
	uint32_t all = low->limits.sms;
	if (!kernel->blocks || !kernel->per_sm)
		return (all << 10) / most;
	uint64_t alone = waves(kernel, all), masked = waves(kernel, most);
	uint64_t stretch = (masked << 10) / alone;
	/*
	 * One wave that does not fit behind the mask: libraries' persistent kernels hand their work out as blocks come
	 * free, so they slow down as SMs are fewer (measured, docs/spatial-programs.md), not by whole waves. The rest is learned.
	 */
	if (alone == 1 && kernel->blocks > most)
		stretch = (all << 10) / most;
	return stretch < UINT32_C(1) << 20 ? (uint32_t)stretch : UINT32_C(1) << 20;
}

void hb_spatial_fit(const struct hb_spatial_low *low, struct hb_spatial_kernel *kernel, uint32_t reserve)
{
	uint32_t all = low->limits.sms;
	kernel->reserve = (uint16_t)reserve;
	kernel->sms = (uint16_t)hb_spatial_sms_left(low, reserve);
	kernel->stretch_q10 = hb_spatial_stretch_q10(low, kernel, kernel->sms);
	kernel->one_wave_q16 = 1 << 16;
	kernel->class = HB_SPATIAL_UNKNOWN;
	if (!kernel->blocks || !kernel->per_sm)
		return;
	kernel->class = (uint8_t)class_of(kernel, all);
	kernel->one_wave_q16 = (uint32_t)((UINT64_C(1) << 16) / waves(kernel, all));
}

/* --- durations --- */

/* Other work can only make a kernel longer, so shorter measurements count more. */
static uint32_t follow(uint32_t was, int64_t now)
{
	return (uint32_t)(now < was ? (was + now) / 2 : was + (now - was) / 8);
}

void hb_spatial_note_duration(struct hb_spatial_low *low, uint32_t place, uint32_t spot_place, int64_t duration_ns,
			      bool bound)
{
	struct hb_spatial_kernel *kernel = &low->kernels[place];
	struct hb_spatial_spot *spot = &low->spots[spot_place];
	bool first = !kernel->measured;
	if (duration_ns < DURATION_LEAST_NS)
		duration_ns = DURATION_LEAST_NS;
	if (duration_ns > INT32_MAX)
		duration_ns = INT32_MAX;
	if (bound && spot->duration_ns && duration_ns >= spot->duration_ns)
		return;
	spot->duration_ns = spot->measured ? follow(spot->duration_ns, duration_ns) : (uint32_t)duration_ns;
	kernel->duration_ns = first ? (uint32_t)duration_ns : follow(kernel->duration_ns, duration_ns);
	spot->measured += spot->measured < UINT32_MAX;
	kernel->measured += kernel->measured < UINT32_MAX;
	if (!first)
		return;
	uint64_t wide_ppm = (duration_ns * kernel->one_wave_q16 >> 16) * HARM_PER_BLOCK_NS;
	kernel->harm_ppm[1] = wide_ppm < HB_SPATIAL_PPM ? (uint32_t)wide_ppm : HB_SPATIAL_PPM;
}

void hb_spatial_note_masked(struct hb_spatial_low *low, uint32_t place, uint32_t spot_place, int64_t duration_ns,
			    bool exact)
{
	struct hb_spatial_kernel *kernel = &low->kernels[place];
	const struct hb_spatial_spot *spot = &low->spots[spot_place];
	if (duration_ns > INT32_MAX)
		return;
	if (!spot->measured) {
		int64_t alone_ns = (duration_ns << 10) / kernel->stretch_q10;
		if (alone_ns > low->limits.window_ns)
			hb_spatial_note_duration(low, place, spot_place, alone_ns, true);
		return;
	}
	if (!exact)
		return;
	int64_t stretch = (duration_ns << 10) / spot->duration_ns;
	if (stretch < 1 << 10)
		stretch = 1 << 10;
	if (stretch > 1 << 20)
		stretch = 1 << 20;
	kernel->stretch_q10 += (uint32_t)((stretch - kernel->stretch_q10) / 8);
}

/* --- harm --- */

static uint32_t *harm_of(struct hb_spatial_low *low, const struct hb_spatial_use *use)
{
	return use->kernel < HB_SPATIAL_KERNELS ? &low->kernels[use->kernel].harm_ppm[use->wide] : &low->entry_ppm;
}

static int64_t expected_ns(struct hb_spatial_low *low, const struct hb_spatial_use *use)
{
	return (int64_t)use->ns * *harm_of(low, use) / HB_SPATIAL_PPM;
}

void hb_spatial_note_excess(struct hb_spatial_low *low, int64_t excess_ns)
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
		__int128 step = (__int128)error_ns * low->last[i].ns * (HB_SPATIAL_PPM >> RATE_SHIFT) / squares;
		__int128 harm = *harm_ppm + step;
		*harm_ppm = harm <= 0 ? 0 : harm >= HARM_MOST_PPM ? HARM_MOST_PPM : (uint32_t)harm;
	}
}
