/* SPDX-License-Identifier: Apache-2.0 */
/* HP's side of the spatial engine; see spatial_high.h. No lock, no allocation, no clock. */
#include "decide/spatial_high.h"

#include <string.h>

/* A moving quantile: 9 steps up when exceeded, 1 step down when not, so one request in ten exceeds it. */
#define QUANTILE_UP 9
#define QUANTILE_STEP_SHIFT 7
/* Moving means: weight 1/8 for each sample; less for gaps, which vary more. */
#define MEAN_SHIFT 3
#define GAP_SHIFT 5
/* Requests have the same length if their launches differ by less than an eighth. */
#define LENGTH_SHIFT 3
/* A process that waits for less than an eighth of its time alone sets its own pace. */
#define OWN_PACE_SHIFT 3
/* The excess of a request counts at most as this many times its time alone, so that outliers teach no prices. */
#define STRAY 1
/* The first rows of requests that allow nothing begin at powers of two, from this one on. */
#define EARLY_LEAST 16
/* Requests of one length measured alone before an excess is published. */
#define CLOSED_LEAST 2
/* Requests before a batch may be judged: a single outlier says nothing. */
#define JUDGED_LEAST 8
/* Requests without excess after which earlier failures are forgotten. */
#define WELL 2048
#define PATIENCE_MOST 65536
#define PAUSE_MOST 65536
#define LEAST_SMS 2
#define GAP_MAX_NS UINT32_C(4000000000)

static void put64(_Atomic int64_t *word, int64_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static void put32(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint32_t share_of(uint32_t sms, uint32_t ppm)
{
	return (uint32_t)((uint64_t)sms * ppm / HB_SPATIAL_PPM);
}

/* Not 0: without any mask LP's launches would count as not maskable. */
static uint32_t least_reserve(const struct hb_spatial_high *high)
{
	uint32_t least = share_of(high->sms, HB_DEFAULT_RESERVE_LEAST_PPM);
	return least > LEAST_SMS ? least : LEAST_SMS;
}

static uint32_t first_reserve(const struct hb_spatial_high *high)
{
	return share_of(high->sms, HB_DEFAULT_RESERVE_PPM);
}

/* While the allowance is 0 a large reserve would only slow LP between requests. */
static void tell_reserve(struct hb_spatial_high *high)
{
	uint32_t reserve = high->guard.gated ? first_reserve(high) : high->guard.reserve;
	if (high->beacon)
		put32(&high->beacon->reserve, reserve | high->guard.gaps << HB_SPATIAL_GAPS_SHIFT);
}

void hb_spatial_high_tell(struct hb_spatial_high *high)
{
	if (high->beacon)
		put64(&high->beacon->latest_ns, INT64_MAX);
	tell_reserve(high);
}

void hb_spatial_high_init(struct hb_spatial_high *high, struct hb_spatial_beacon *beacon, uint32_t sms)
{
	memset(high, 0, sizeof *high);
	high->beacon = beacon;
	high->sms = sms;
	high->guard = (struct hb_spatial_guard){.reserve = first_reserve(high),
						.patience = HB_SPATIAL_PATIENCE,
						.gaps_patience = HB_SPATIAL_PATIENCE,
						.pause = HB_SPATIAL_PAUSE};
	high->last_end_ns = -1;
	if (!beacon)
		return;
	put64(&beacon->end_ns, 0);
	put64(&beacon->expect_ns, 0);
	put32(&beacon->allow_ns, 0);
	put32(&beacon->gap_ns, 0);
	hb_spatial_high_tell(high);
}

void hb_spatial_high_set_slo(struct hb_spatial_high *high, int64_t slo_ns)
{
	high->slo_ns = slo_ns > 0 ? slo_ns : 0;
}

static uint32_t position_of(uint32_t launches)
{
	uint32_t position = launches / HB_SPATIAL_STRIDE;
	return position < HB_SPATIAL_POSITIONS ? position : HB_SPATIAL_POSITIONS - 1;
}

int64_t hb_spatial_high_left_ns(const struct hb_spatial_high *high)
{
	return high->serving ? high->left_ns[high->position] : 0;
}

static void tell_position(struct hb_spatial_high *high, int64_t now_ns)
{
	struct hb_spatial_beacon *beacon = high->beacon;
	if (!beacon)
		return;
	int64_t left_ns = high->left_ns[high->position];
	put64(&beacon->seen_ns, now_ns);
	put64(&beacon->end_ns, left_ns ? now_ns + left_ns : 0);
}

/* --- begin --- */

static void learn_gap(struct hb_spatial_high *high, int64_t now_ns)
{
	if (high->last_end_ns < 0)
		return;
	int64_t gap_ns = now_ns - high->last_end_ns;
	if (gap_ns < 0)
		gap_ns = 0;
	if (!high->gap_mean_ns)
		high->gap_mean_ns = gap_ns;
	high->gap_mean_ns += (gap_ns - high->gap_mean_ns) >> GAP_SHIFT;
	if (high->gap_mean_ns < 1)
		high->gap_mean_ns = 1;
	if (high->beacon)
		put32(&high->beacon->gap_ns, high->gap_mean_ns < GAP_MAX_NS ? (uint32_t)high->gap_mean_ns : GAP_MAX_NS);
}

static bool is_closed_request(const struct hb_spatial_high *high)
{
	uint32_t n = high->requests, row = n - n % HB_SPATIAL_CLOSED_RUN;
	bool early = n < HB_SPATIAL_CLOSED_EVERY && row >= EARLY_LEAST && !(row & (row - 1));
	return n < HB_SPATIAL_FIRST_CLOSED || n % HB_SPATIAL_CLOSED_EVERY < HB_SPATIAL_CLOSED_RUN || early ||
	       high->guard.gated > 0;
}

/* Returns the delay allowed by a request with this time alone. */
static int64_t terms_of(const struct hb_spatial_high *high, int64_t alone_ns)
{
	uint32_t allowance_ppm = high->allowance_ppm;
	if (allowance_ppm > HB_SPATIAL_PPM)
		allowance_ppm = HB_SPATIAL_PPM;
	return (alone_ns < INT64_C(4000000000) ? alone_ns : INT64_C(4000000000)) * allowance_ppm / HB_SPATIAL_PPM;
}

static uint32_t allowed_ns(const struct hb_spatial_high *high)
{
	return high->closed ? 0 : (uint32_t)terms_of(high, high->alone_ns);
}

/* Computes the allowance of the next request. An allowance of 0 in the policy also closes it. */
static uint32_t choose_allowance(struct hb_spatial_high *high)
{
	high->closed = is_closed_request(high);
	uint32_t allow_ns = allowed_ns(high);
	high->closed = !allow_ns;
	return allow_ns;
}

void hb_spatial_high_begin(struct hb_spatial_high *high, int64_t now_ns, int64_t deadline_ns)
{
	struct hb_spatial_beacon *beacon = high->beacon;
	if (high->serving)
		return;
	learn_gap(high, now_ns);
	high->serving = true;
	high->begin_ns = now_ns;
	high->launches = high->position = 0;
	high->wait_since_ns = -1;
	high->passed_ns[0] = now_ns;
	high->deadline_ns = deadline_ns > 0 ? deadline_ns : high->slo_ns ? now_ns + high->slo_ns : INT64_MAX;
	uint32_t allow_ns = choose_allowance(high);
	if (!beacon)
		return;
	put64(&beacon->latest_ns, high->deadline_ns);
	put32(&beacon->allow_ns, allow_ns);
	put64(&beacon->expect_ns, 0);
	tell_position(high, now_ns);
	uint32_t word = atomic_load_explicit(&beacon->word, memory_order_relaxed);
	atomic_store_explicit(&beacon->word, word | 1, memory_order_release);
}

bool hb_spatial_high_count(struct hb_spatial_high *high)
{
	high->wait_since_ns = -1;
	return high->serving && position_of(++high->launches) != high->position;
}

void hb_spatial_high_pass(struct hb_spatial_high *high, int64_t now_ns)
{
	high->position = position_of(high->launches);
	high->passed_ns[high->position] = now_ns;
	tell_position(high, now_ns);
}

void hb_spatial_high_launch(struct hb_spatial_high *high, int64_t now_ns)
{
	if (hb_spatial_high_count(high))
		hb_spatial_high_pass(high, now_ns);
}

int64_t hb_spatial_high_harm_ns(const struct hb_spatial_high *high)
{
	return high->harm_ns;
}

void hb_spatial_high_wait(struct hb_spatial_high *high, int64_t now_ns)
{
	if (high->serving && high->wait_since_ns < 0)
		high->wait_since_ns = now_ns;
}

/* --- end --- */

/* A request that has ended: its duration, and the part that it waited for the GPU. */
struct taken {
	int64_t all_ns, wait_ns;
	bool reported; /* a wait was reported; else wait_ns is the whole duration */
};

static struct taken taken_by(const struct hb_spatial_high *high, int64_t end_ns)
{
	struct taken taken = {.all_ns = end_ns - high->begin_ns};
	taken.reported = high->wait_since_ns >= high->begin_ns && high->wait_since_ns <= end_ns;
	taken.wait_ns = taken.reported ? end_ns - high->wait_since_ns : taken.all_ns;
	return taken;
}

static void learn_left(struct hb_spatial_high *high, int64_t end_ns)
{
	for (uint32_t i = 0; i <= high->position; i++) {
		int64_t took_ns = end_ns - high->passed_ns[i], *left_ns = &high->left_ns[i];
		int64_t step_ns = (*left_ns >> QUANTILE_STEP_SHIFT) + 1;
		if (!*left_ns)
			*left_ns = took_ns > 0 ? took_ns : 1;
		else if (took_ns > *left_ns)
			*left_ns += QUANTILE_UP * step_ns;
		else if (*left_ns > step_ns)
			*left_ns -= step_ns;
	}
}

static bool same_length(uint32_t a, uint32_t b)
{
	uint32_t apart = a > b ? a - b : b - a;
	return apart <= a >> LENGTH_SHIFT;
}

/* Finds the record of requests of this length; a new one replaces the record unused for longest. */
static struct hb_spatial_length *length_of(struct hb_spatial_high *high)
{
	struct hb_spatial_length *oldest = &high->lengths[0];
	for (uint32_t i = 0; i < HB_SPATIAL_LENGTHS; i++) {
		struct hb_spatial_length *length = &high->lengths[i];
		if (length->launches && same_length(length->launches, high->launches)) {
			length->used = high->requests;
			return length;
		}
		if (!length->launches || (oldest->launches && (int32_t)(length->used - oldest->used) < 0))
			oldest = length;
	}
	*oldest = (struct hb_spatial_length){.launches = high->launches ? high->launches : 1, .used = high->requests};
	return oldest;
}

static int64_t lower_quartile(const int64_t *values, uint32_t n)
{
	int64_t sorted[HB_SPATIAL_SAMPLES];
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i;
		for (; at > 0 && sorted[at - 1] > values[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = values[i];
	}
	return sorted[n / 4];
}

static void learn_alone(struct hb_spatial_length *length, const struct taken *taken)
{
	uint32_t at = length->closed++ % HB_SPATIAL_SAMPLES;
	uint32_t n = length->closed < HB_SPATIAL_SAMPLES ? length->closed : HB_SPATIAL_SAMPLES;
	length->all_of_ns[at] = taken->all_ns;
	length->wait_of_ns[at] = taken->wait_ns;
	length->alone_ns = lower_quartile(length->all_of_ns, n);
	length->wait_ns = lower_quartile(length->wait_of_ns, n);
}

/* Predicts the time alone of the next request from the last ones. */
static void follow_alone(struct hb_spatial_high *high, const struct hb_spatial_length *length)
{
	if (!high->alone_ns)
		high->alone_ns = length->alone_ns;
	high->alone_ns += (length->alone_ns - high->alone_ns) / (1 << MEAN_SHIFT);
}

static void begin_batch(struct hb_spatial_guard *guard)
{
	guard->judged = 0;
	guard->excess_ns = guard->terms_ns = 0;
}

static void set_reserve(struct hb_spatial_high *high, uint32_t reserve)
{
	high->guard.tries = reserve < high->guard.reserve;
	high->guard.reserve = reserve;
	high->guard.calm = 0;
	tell_reserve(high);
}

static uint32_t double_up_to(uint32_t n, uint32_t most)
{
	return n < most / 2 ? 2 * n : most;
}

void hb_spatial_high_set_learned(struct hb_spatial_high *high, uint32_t reserve_sms, uint32_t gaps)
{
	high->guard.reserve = reserve_sms;
	high->guard.gaps = gaps;
	tell_reserve(high);
}

static void set_gaps(struct hb_spatial_high *high, uint32_t gaps)
{
	high->guard.gaps = gaps;
	high->guard.gaps_calm = 0;
	tell_reserve(high);
}

/* Limits LP more: at once if HP suffers much, completely if no reserve was enough. */
static void protect_high(struct hb_spatial_high *high, bool much)
{
	struct hb_spatial_guard *guard = &high->guard;
	uint32_t step = high->sms / 16 ? high->sms / 16 : 1, most = high->sms / 2;
	guard->well = guard->gaps_calm = 0;
	if (guard->gaps) {
		guard->gaps_patience = double_up_to(guard->gaps_patience, PATIENCE_MOST);
		set_gaps(high, much ? 0 : guard->gaps - 1);
		return;
	}
	if (guard->reserve >= most) {
		guard->gated = guard->pause;
		guard->pause = double_up_to(guard->pause, PAUSE_MOST);
		guard->calm = 0;
		tell_reserve(high);
		return;
	}
	if (guard->tries)
		guard->patience = double_up_to(guard->patience, PATIENCE_MOST);
	set_reserve(high, guard->reserve + step < most && !much ? guard->reserve + step : most);
}

static void relax_limits(struct hb_spatial_high *high)
{
	uint32_t step = high->sms / 16 ? high->sms / 16 : 1, least = least_reserve(high);
	if (high->guard.reserve > least)
		set_reserve(high, high->guard.reserve > least + step ? high->guard.reserve - step : least);
}

static void forget_failures(struct hb_spatial_guard *guard)
{
	guard->well = 0;
	guard->patience = guard->gaps_patience = HB_SPATIAL_PATIENCE;
	guard->pause = HB_SPATIAL_PAUSE;
}

static void review_guard(struct hb_spatial_high *high, int64_t excess_ns, int64_t terms_ns)
{
	struct hb_spatial_guard *guard = &high->guard;
	int64_t spent_ns = guard->excess_ns + excess_ns;
	guard->excess_ns = spent_ns;
	guard->terms_ns += terms_ns;
	guard->judged++;
	terms_ns = guard->terms_ns / guard->judged * HB_SPATIAL_BATCH;
	/* The last step costs LP most, so it needs twice the excess. */
	int64_t most_ns = guard->reserve < high->sms / 2 ? terms_ns / 2 : 2 * terms_ns;
	if (++guard->well >= WELL)
		forget_failures(guard);
	if (guard->judged >= JUDGED_LEAST && spent_ns > most_ns) {
		begin_batch(guard);
		protect_high(high, spent_ns > 2 * terms_ns);
	} else if (guard->judged >= HB_SPATIAL_BATCH) {
		guard->calm = spent_ns < terms_ns / 8 ? guard->calm + guard->judged : 0;
		guard->gaps_calm += guard->judged;
		begin_batch(guard);
		if (guard->gaps < HB_SPATIAL_GAPS_MOST && guard->gaps_calm >= guard->gaps_patience)
			set_gaps(high, guard->gaps + 1);
		if (guard->calm >= guard->patience)
			relax_limits(high);
	}
}

static void pass_gated(struct hb_spatial_high *high)
{
	if (high->guard.gated && --high->guard.gated == 0)
		tell_reserve(high);
}

static int64_t excess_of(const struct hb_spatial_length *length, const struct taken *taken)
{
	int64_t all_ns = taken->all_ns - length->alone_ns, wait_ns = taken->wait_ns - length->wait_ns;
	bool own_pace = length->wait_ns < length->alone_ns >> OWN_PACE_SHIFT;
	return taken->reported && (own_pace || wait_ns < all_ns) ? wait_ns : all_ns;
}

static void tell_excess(struct hb_spatial_high *high, const struct hb_spatial_length *length, const struct taken *taken)
{
	if (length->closed < CLOSED_LEAST)
		return;
	int64_t excess_ns = excess_of(length, taken), most_ns = STRAY * length->alone_ns;
	if (most_ns > INT32_MAX)
		most_ns = INT32_MAX;
	excess_ns = excess_ns > most_ns ? most_ns : excess_ns < -most_ns ? -most_ns : excess_ns;
	high->harm_ns = excess_ns > 0 ? excess_ns : 0;
	review_guard(high, excess_ns, terms_of(high, length->alone_ns));
	if (!high->beacon)
		return;
	atomic_store_explicit(&high->beacon->excess_ns, (int32_t)excess_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&high->beacon->outcome, 1, memory_order_relaxed);
}

void hb_spatial_high_end(struct hb_spatial_high *high, int64_t now_ns)
{
	struct hb_spatial_beacon *beacon = high->beacon;
	if (!high->serving)
		return;
	/* Lets LP continue first, then learns. */
	if (beacon) {
		uint32_t word = atomic_load_explicit(&beacon->word, memory_order_relaxed);
		atomic_store_explicit(&beacon->word, (word + 1) & ~UINT32_C(1), memory_order_release);
	}
	struct taken taken = taken_by(high, now_ns);
	high->serving = false;
	high->last_end_ns = now_ns;
	if (taken.all_ns < 0)
		return;
	high->harm_ns = high->closed ? 0 : -1;
	struct hb_spatial_length *length = length_of(high);
	learn_left(high, now_ns);
	pass_gated(high);
	if (!high->closed)
		tell_excess(high, length, &taken);
	else if (high->was_closed || !high->requests)
		learn_alone(length, &taken);
	if (length->closed)
		follow_alone(high, length);
	high->was_closed = high->closed;
	high->requests++;
	if (beacon)
		put32(&beacon->allow_ns, choose_allowance(high));
}
