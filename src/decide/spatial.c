/* SPDX-License-Identifier: Apache-2.0 */
/* The board of beacons; see spatial.h. No lock, no allocation, no clock. */
#include "decide/spatial.h"

/* LP may use a quarter of the slack left, so that some remains for the rest of the request. */
#define SLACK_SHARE_SHIFT 2
/* HP's activity may be newer than LP's clock: LP may lose its CPU between reading the clock and the board. */
#define AHEAD_NS UINT64_C(1000000000)
/* HP pauses if its last request ended this many mean gaps ago. One in 3000 gaps of a Poisson process is that long. */
#define PAUSE_GAPS 32
/* While LP waits for HP it reads the board at least this often, to notice that HP is silent. */
#define LOOK_NS INT64_C(1000000)
/* How long LP assumes an HP process that it cannot see. */
#define UNKNOWN_MOST_NS INT64_C(2000000000)
#define UNKNOWN_EPOCH_BITS INT64_C(0xffff)

static uint32_t load32(const _Atomic uint32_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static int64_t load64(const _Atomic int64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

struct hb_spatial_beacon *hb_spatial_claim(struct hb_spatial_board *board, uint32_t owner)
{
	for (uint32_t i = 0; i < HB_SPATIAL_BEACONS; i++) {
		struct hb_spatial_beacon *beacon = &board->beacons[i];
		uint32_t free = 0;
		if (!atomic_compare_exchange_strong(&beacon->owner, &free, owner))
			continue;
		return beacon;
	}
	return 0;
}

/* Activity further in the future does not count. Unsigned arithmetic, because the field may have any value. */
static bool serves_request(const struct hb_spatial_beacon *beacon, int64_t now_ns)
{
	uint32_t word = atomic_load_explicit(&beacon->word, memory_order_acquire);
	uint64_t age_ns = (uint64_t)now_ns + AHEAD_NS - (uint64_t)load64(&beacon->seen_ns);
	return (word & 1) && age_ns < HB_DEFAULT_SILENT_NS + AHEAD_NS;
}

static const struct hb_spatial_beacon *beacon_at(const void *beacons, size_t stride, uint32_t i)
{
	return (const struct hb_spatial_beacon *)((const unsigned char *)beacons + i * stride);
}

bool hb_spatial_has_high(const void *beacons, size_t stride, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (load32(&beacon_at(beacons, stride, i)->owner))
			return true;
	return false;
}

bool hb_spatial_present(const void *beacons, size_t stride, uint32_t n, int64_t now_ns)
{
	for (uint32_t i = 0; i < n; i++)
		if (load32(&beacon_at(beacons, stride, i)->owner) &&
		    serves_request(beacon_at(beacons, stride, i), now_ns))
			return true;
	return false;
}

/* Delay that LP may still cause the request: its allowance, and at most a part of its slack. */
static int64_t allowance_ns(const struct hb_spatial_beacon *beacon, int64_t now_ns)
{
	int64_t allow_ns = load32(&beacon->allow_ns);
	if (allow_ns == HB_SPATIAL_ALLOW_ALL)
		return INT64_MAX;
	int64_t latest_ns = load64(&beacon->latest_ns), end_ns = load64(&beacon->end_ns);
	if (latest_ns == INT64_MAX || !end_ns)
		return allow_ns;
	if (end_ns < now_ns)
		end_ns = now_ns; /* the request takes longer than predicted */
	int64_t slack_ns = 0;
	if (latest_ns > end_ns)
		slack_ns = (int64_t)(((uint64_t)latest_ns - (uint64_t)end_ns) >> SLACK_SHARE_SHIFT);
	return slack_ns < allow_ns ? slack_ns : allow_ns;
}

/* Time since the last request ended; 0 = a request is served, or there was none. */
static uint64_t idle_ns(const struct hb_spatial_beacon *beacon, int64_t now_ns)
{
	int64_t ended_ns = load64(&beacon->seen_ns);
	return ended_ns > 0 && ended_ns < now_ns ? (uint64_t)now_ns - (uint64_t)ended_ns : 0;
}

/*
 * The gap to expect. While HP pauses, the next request can be expected after as long a time as the pause has lasted: gaps inside a burst
 * say nothing about pauses between bursts.
 */
static uint32_t expected_gap_ns(const struct hb_spatial_beacon *beacon, int64_t now_ns)
{
	uint64_t gap_ns = load32(&beacon->gap_ns), past_ns = idle_ns(beacon, now_ns);
	if (!gap_ns || past_ns <= PAUSE_GAPS * gap_ns)
		return (uint32_t)gap_ns;
	return past_ns < UINT32_MAX ? (uint32_t)past_ns : UINT32_MAX;
}

static void add_expected(const struct hb_spatial_beacon *beacon, int64_t now_ns, struct hb_spatial_view *view)
{
	int64_t until_ns = load64(&beacon->expect_ns), for_ns = (int64_t)load32(&beacon->expect_for_us) * 1000;
	if (until_ns <= now_ns)
		return;
	int64_t from_ns = until_ns - for_ns;
	view->expected |= from_ns <= now_ns;
	if (from_ns < view->expect_ns)
		view->expect_ns = from_ns;
}

/* Several HP processes: the reserve follows the launches of one of them only if it is the only one that serves a request. */
static void add_next(uint32_t packed, const struct hb_spatial_beacon *beacon, struct hb_spatial_view *view)
{
	uint32_t next = packed >> HB_SPATIAL_NEXT_SHIFT & HB_SPATIAL_NEXT_MOST;
	uint32_t units = packed >> HB_SPATIAL_NEXT_FOR_SHIFT & HB_SPATIAL_NEXT_MOST;
	bool only = !view->present && next && next < (packed & HB_SPATIAL_RESERVE_MASK);
	view->next = only ? next : 0;
	view->next_until_ns = only ? (int64_t)((uint64_t)load64(&beacon->seen_ns) +
					       (uint64_t)units * HB_SPATIAL_NEXT_UNIT_NS)
				   : 0;
}

static void add_beacon(const struct hb_spatial_beacon *beacon, int64_t now_ns, struct hb_spatial_view *view)
{
	uint32_t packed = load32(&beacon->reserve), reserve = packed & HB_SPATIAL_RESERVE_MASK;
	uint32_t gap_ns = expected_gap_ns(beacon, now_ns);
	uint32_t outcome = load32(&beacon->outcome), next_ns = load32(&beacon->allow_ns);
	bool idle = idle_ns(beacon, now_ns) >= HB_DEFAULT_SILENT_NS;
	view->tenants++;
	view->idle &= idle;
	view->free &= idle || next_ns == HB_SPATIAL_ALLOW_ALL;
	/* An idle process does not limit LP by what it allows its next request. */
	if (!idle && next_ns < view->entry_ns)
		view->entry_ns = next_ns;
	if (serves_request(beacon, now_ns)) {
		int64_t allow_ns = allowance_ns(beacon, now_ns);
		add_next(packed, beacon, view);
		view->present = true;
		view->allow_ns = allow_ns < view->allow_ns ? allow_ns : view->allow_ns;
	} else {
		add_expected(beacon, now_ns, view);
	}
	if (reserve > view->reserve)
		view->reserve = reserve;
	uint32_t gaps = packed >> HB_SPATIAL_GAPS_SHIFT;
	if (gaps < view->gaps)
		view->gaps = gaps;
	if (gap_ns && (!view->gap_ns || gap_ns < view->gap_ns))
		view->gap_ns = gap_ns;
	view->epoch += load32(&beacon->word);
	view->outcome += outcome;
	if (outcome)
		view->excess_ns = atomic_load_explicit(&beacon->excess_ns, memory_order_relaxed);
}

void hb_spatial_look_at(const void *beacons, size_t stride, uint32_t n, int64_t now_ns, struct hb_spatial_view *view)
{
	*view = (struct hb_spatial_view){.allow_ns = INT64_MAX,
					 .entry_ns = UINT32_MAX,
					 .expect_ns = INT64_MAX,
					 .idle = true,
					 .free = true,
					 .gaps = HB_SPATIAL_GAPS_MOST,
					 .look_at_ns = now_ns + LOOK_NS};
	for (uint32_t i = 0; i < n; i++)
		if (load32(&beacon_at(beacons, stride, i)->owner))
			add_beacon(beacon_at(beacons, stride, i), now_ns, view);
	view->granted = view->entry_ns > 0;
	view->idle &= view->tenants > 0 && !view->present;
	view->free &= view->tenants > 0 && !view->idle;
	if (view->present)
		view->expected = false;
}

void hb_spatial_look(const struct hb_spatial_board *board, int64_t now_ns, struct hb_spatial_view *view)
{
	hb_spatial_look_at(board->beacons, sizeof board->beacons[0], HB_SPATIAL_BEACONS, now_ns, view);
}

void hb_spatial_view_add_unknown(struct hb_spatial_view *view, uint32_t sms)
{
	uint32_t reserve = (uint32_t)((uint64_t)sms * HB_DEFAULT_RESERVE_PPM / HB_SPATIAL_PPM);
	view->tenants++;
	view->present = true;
	view->expected = view->idle = view->free = false;
	view->allow_ns = 0;
	view->next_until_ns = 0;
	view->gaps = 0;
	if (view->reserve < reserve)
		view->reserve = reserve;
}

/*
 * The lower bits of `since` are those of `known`: a thread that was interrupted here may write after the boards were mapped
 * again, and its time must not count for the next change of the list.
 */
bool hb_spatial_assumes_unknown(_Atomic int64_t *since, uint32_t known, uint32_t listed, int64_t now_ns)
{
	if (known == listed)
		return false;
	int64_t epoch = known & UNKNOWN_EPOCH_BITS, first = atomic_load_explicit(since, memory_order_relaxed);
	if (!first || (first & UNKNOWN_EPOCH_BITS) != epoch) {
		first = (now_ns & ~UNKNOWN_EPOCH_BITS) | epoch;
		atomic_store_explicit(since, first, memory_order_relaxed);
	}
	return now_ns - first < UNKNOWN_MOST_NS;
}
