/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of requests of one HP process, and what HP's side of the spatial engine has
 * learned of each (spatial_high.h). Requests are of one kind if their numbers of launches
 * differ by less than an eighth; a request of CUDA graphs has few. Duration does not
 * distinguish kinds, because LP changes it.
 *
 * The kind of a request is known when it ends. The next request is assumed to be of the
 * same kind, so only the first request after a change is misjudged.
 *
 * Everything that limits LP belongs to the kind. A kind that was delayed does not limit LP
 * beside another, and a kind that returns after HB_SPATIAL_ABSENT_NS has forgotten its
 * back-off (docs/decisions/0024).
 */
#ifndef HB_DECIDE_SPATIAL_KIND_H
#define HB_DECIDE_SPATIAL_KIND_H

#include "decide/spatial_guard.h"

#define HB_SPATIAL_STRIDE 16     /* launches that share one position */
#define HB_SPATIAL_POSITIONS 128 /* later launches share the last position */
#define HB_SPATIAL_KINDS 16      /* a new kind replaces the one that was not seen for longest */
#define HB_SPATIAL_SAMPLES 8
#define HB_SPATIAL_ABSENT_NS INT64_C(500000000)

struct hb_spatial_kind {
	uint32_t launches; /* 0 = unused */
	uint32_t requests;
	int64_t seen_ns;       /* end of the last such request */
	uint32_t closed;       /* requests measured alone so far */
	int64_t alone_ns;      /* lower quartile of the newest HB_SPATIAL_SAMPLES times alone */
	int64_t wait_ns;       /* the same of the part that is spent waiting */
	int64_t mean_alone_ns; /* alone_ns, smoothed; 0 = not known */
	int64_t gap_mean_ns; /* from the end of a request to the begin of the next, without long pauses; 0 = not known */
	uint32_t gaps;       /* gaps seen so far; counts the first ones only */
	uint32_t chained_ppm; /* share of requests that began as soon as the one before had ended; smoothed */
	int64_t all_of_ns[HB_SPATIAL_SAMPLES], wait_of_ns[HB_SPATIAL_SAMPLES];
	uint16_t need[HB_SPATIAL_POSITIONS];   /* most SMs that one of a position's launches fills; 0 = not known */
	int64_t left_ns[HB_SPATIAL_POSITIONS]; /* time left that nine of ten requests keep; 0 = not known */
	struct hb_spatial_guard guard;
};

/*
 * The kind as the policy sees it: one of 15 classes by the power of two of the number of launches. Processes of one tenant
 * agree on it. 0 = not known.
 */
static inline uint32_t hb_spatial_kind_class(const struct hb_spatial_kind *kind)
{
	uint32_t class = kind->launches ? 32 - (uint32_t)__builtin_clz(kind->launches) : 0;
	return class < 15 ? class : 15;
}

/*
 * SMs that a launch fills, estimated from its grid, its block and its dynamic shared memory: an SM holds 1024 threads, as with 64
 * registers each, and 224 KiB of shared memory. Too many rather than too few: small kernels use fewer registers.
 */
static inline uint32_t hb_spatial_needed_sms(uint64_t blocks, uint32_t threads, uint32_t shared_bytes)
{
	uint32_t by_threads = threads && threads < 1024 ? 1024 / threads : 1;
	uint32_t by_shared = shared_bytes > 7168 ? (224 << 10) / (shared_bytes < 224 << 10 ? shared_bytes : 224 << 10)
						 : 32;
	uint32_t per_sm = by_threads < by_shared ? by_threads : by_shared;
	uint64_t sms = (blocks + per_sm - 1) / per_sm;
	return sms < UINT16_MAX ? (uint32_t)sms : UINT16_MAX;
}

struct hb_spatial_kinds {
	struct hb_spatial_kind *last; /* of the last request; never NULL */
	struct hb_spatial_kind of[HB_SPATIAL_KINDS];
};

void hb_spatial_kinds_init(struct hb_spatial_kinds *kinds, uint32_t sms);
/* A request with this number of launches has ended: makes its kind the last one. True = it is another kind than before. */
bool hb_spatial_kinds_note(struct hb_spatial_kinds *kinds, uint32_t launches, int64_t now_ns);
/* The objective has changed: all guards forget their back-off. */
void hb_spatial_kinds_return(struct hb_spatial_kinds *kinds);
/* A request of the kind was measured alone. */
void hb_spatial_kind_learn_alone(struct hb_spatial_kind *kind, int64_t all_ns, int64_t wait_ns);
/* A request took took_ns from this position on. */
void hb_spatial_kind_learn_left(struct hb_spatial_kind *kind, uint32_t position, int64_t took_ns);
/* The launches of a position needed at most `sms` SMs. */
void hb_spatial_kind_learn_need(struct hb_spatial_kind *kind, uint32_t position, uint32_t sms);
/*
 * Returns what the launches from a position on need, if that is less than the reserve. Looks as far ahead as they need no more; for_ns is the
 * time until then. Returns the number of SMs; 0 = the whole reserve.
 */
uint32_t hb_spatial_kind_next_need(const struct hb_spatial_kind *kind, uint32_t position, uint32_t reserve,
				   int64_t *for_ns);
/* Share of the time in which requests of this kind are served without LP; 0 = not known. */
uint32_t hb_spatial_kind_present_ppm(const struct hb_spatial_kind *kind);
void hb_spatial_kind_learn_gap(struct hb_spatial_kind *kind, int64_t gap_ns);

#endif
