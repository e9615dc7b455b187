/* SPDX-License-Identifier: Apache-2.0 */
/* See spatial_guard.h. */
#include "decide/spatial_guard.h"

#include <string.h>

/* Requests before a batch may be judged: a single outlier says nothing. */
#define JUDGED_LEAST 8
/* With an objective: requests of a batch that LP may bring near it. */
#define NEAR_MOST 1
/* With an objective patience counts this many times as fast. */
#define BUDGET_PACE 4
/* The same where at least this share of a batch was foreseen, in sixteenths, for what LP may do between requests. */
#define FORESEEN_PACE 4
#define FORESEEN_PARTS 15
/* Requests without excess after which earlier failures are forgotten. */
#define WELL 2048
#define LEAST_SMS 2

static uint32_t share_of(uint32_t sms, uint32_t ppm)
{
	return (uint32_t)((uint64_t)sms * ppm / HB_SPATIAL_PPM);
}

/* Not 0: without any mask LP's launches would count as not maskable. */
static uint32_t least_reserve(const struct hb_spatial_guard *guard, bool budget)
{
	uint32_t least = budget ? 0 : share_of(guard->sms, HB_DEFAULT_RESERVE_LEAST_PPM);
	return least > LEAST_SMS ? least : LEAST_SMS;
}

static uint32_t first_reserve(const struct hb_spatial_guard *guard)
{
	return share_of(guard->sms, HB_DEFAULT_RESERVE_PPM);
}

static void forget_failures(struct hb_spatial_guard *guard)
{
	guard->well = 0;
	guard->follows = true;
	guard->patience = guard->gaps_patience = HB_SPATIAL_PATIENCE;
	guard->pause = HB_SPATIAL_PAUSE;
}

void hb_spatial_guard_init(struct hb_spatial_guard *guard, uint32_t sms)
{
	*guard = (struct hb_spatial_guard){.sms = sms};
	guard->reserve = first_reserve(guard);
	forget_failures(guard);
}

void hb_spatial_guard_set_learned(struct hb_spatial_guard *guard, uint32_t reserve, uint32_t gaps)
{
	guard->reserve = reserve;
	guard->gaps = gaps;
}

uint32_t hb_spatial_guard_reserve(const struct hb_spatial_guard *guard)
{
	return guard->gated ? first_reserve(guard) : guard->reserve;
}

uint32_t hb_spatial_guard_ease_ppm(const struct hb_spatial_guard *guard)
{
	uint32_t most = guard->sms / 2;
	return guard->reserve < most ? (uint32_t)((uint64_t)(most - guard->reserve) * HB_SPATIAL_PPM / most) : 0;
}

static void begin_batch(struct hb_spatial_guard *guard)
{
	guard->judged = guard->foreseen = 0;
	guard->excess_ns = guard->terms_ns = 0;
	memset(guard->in_zone, 0, sizeof guard->in_zone);
}

static void set_reserve(struct hb_spatial_guard *guard, uint32_t reserve)
{
	guard->tries = reserve < guard->reserve;
	guard->reserve = reserve;
	guard->calm = 0;
}

static uint32_t double_up_to(uint32_t n, uint32_t most)
{
	return n < most / 2 ? 2 * n : most;
}

static void set_gaps(struct hb_spatial_guard *guard, uint32_t gaps)
{
	guard->gaps = gaps;
	guard->gaps_calm = 0;
}

static uint32_t step_of(const struct hb_spatial_guard *guard)
{
	return guard->sms / 16 ? guard->sms / 16 : 1;
}

static void wait_during_requests(struct hb_spatial_guard *guard)
{
	guard->gated = guard->pause;
	guard->pause = double_up_to(guard->pause, HB_SPATIAL_PAUSE_MOST);
	guard->calm = 0;
}

/* LP would lose more by leaving the reserve free all the time than by waiting during requests. */
static bool waits_are_cheaper(const struct hb_spatial_guard *guard, uint32_t present_ppm)
{
	return present_ppm && share_of(guard->sms, present_ppm) < guard->reserve;
}

/* Limits LP more: at once if HP suffers much, completely if no reserve was enough. */
static void protect_high(struct hb_spatial_guard *guard, bool much, uint32_t present_ppm)
{
	uint32_t step = step_of(guard), most = guard->sms / 2;
	guard->well = guard->gaps_calm = 0;
	if (guard->gaps) {
		guard->gaps_patience = double_up_to(guard->gaps_patience, HB_SPATIAL_PATIENCE_MOST);
		set_gaps(guard, much ? 0 : guard->gaps - 1);
		return;
	}
	if (guard->reserve >= most && guard->follows && guard->followed) {
		guard->follows = false;
		return;
	}
	if (guard->reserve >= most || waits_are_cheaper(guard, present_ppm)) {
		wait_during_requests(guard);
		return;
	}
	if (guard->tries)
		guard->patience = double_up_to(guard->patience, HB_SPATIAL_PATIENCE_MOST);
	set_reserve(guard, guard->reserve + step < most && !much ? guard->reserve + step : most);
}

static void relax_limits(struct hb_spatial_guard *guard, bool budget)
{
	uint32_t step = step_of(guard), least = least_reserve(guard, budget);
	if (guard->reserve > least)
		set_reserve(guard, guard->reserve > least + step ? guard->reserve - step : least);
}

/* Sums up what the batch shows so far. */
struct verdict {
	bool suffers, much, calm;
};

static struct verdict judge_by_excess(const struct hb_spatial_guard *guard)
{
	int64_t spent_ns = guard->excess_ns, terms_ns = guard->terms_ns / guard->judged * HB_SPATIAL_BATCH;
	/* The last step costs LP most, so it needs twice the excess. */
	int64_t most_ns = guard->reserve < guard->sms / 2 ? terms_ns / 2 : 2 * terms_ns;
	return (struct verdict){.suffers = guard->judged >= JUDGED_LEAST && spent_ns > most_ns,
				.much = spent_ns > 2 * terms_ns,
				.calm = spent_ns < terms_ns / 8};
}

/* With an objective HP suffers only if it is near, too; and a batch is calm if either says so. */
static struct verdict add_slack(const struct hb_spatial_guard *guard, struct verdict by_excess)
{
	uint32_t missed = guard->in_zone[HB_SLO_MISSED], near = missed + guard->in_zone[HB_SLO_NEAR];
	bool last = guard->reserve >= guard->sms / 2 && !guard->gaps;
	bool suffers = last ? missed > NEAR_MOST : near > NEAR_MOST;
	bool calm = !near && !guard->in_zone[HB_SLO_MIDDLE];
	return (struct verdict){.suffers = suffers && by_excess.suffers,
				.much = missed > NEAR_MOST && by_excess.much,
				.calm = calm || by_excess.calm};
}

static void relax_after_batch(struct hb_spatial_guard *guard, bool budget, bool foreseen)
{
	uint32_t pace = budget ? BUDGET_PACE : 1, gaps_pace = foreseen ? FORESEEN_PACE : pace;
	if (guard->gaps < HB_SPATIAL_GAPS_MOST && gaps_pace * guard->gaps_calm >= guard->gaps_patience)
		set_gaps(guard, guard->gaps + 1);
	if (pace * guard->calm >= guard->patience)
		relax_limits(guard, budget);
}

void hb_spatial_guard_note(struct hb_spatial_guard *guard, const struct hb_spatial_lesson *lesson)
{
	bool budget = lesson->zone != HB_SLO_NONE;
	guard->excess_ns += lesson->excess_ns;
	guard->terms_ns += lesson->terms_ns;
	guard->in_zone[lesson->zone] += lesson->zone_requests;
	guard->foreseen += lesson->foreseen;
	guard->judged++;
	struct verdict verdict = judge_by_excess(guard);
	if (budget)
		verdict = add_slack(guard, verdict);
	if (++guard->well >= WELL)
		forget_failures(guard);
	if (verdict.suffers) {
		begin_batch(guard);
		protect_high(guard, verdict.much, lesson->present_ppm);
	} else if (guard->judged >= HB_SPATIAL_BATCH) {
		guard->calm = verdict.calm ? guard->calm + guard->judged : 0;
		guard->gaps_calm += guard->judged;
		bool foreseen = 16 * guard->foreseen >= FORESEEN_PARTS * guard->judged;
		begin_batch(guard);
		relax_after_batch(guard, budget, foreseen);
	}
}

void hb_spatial_guard_pass(struct hb_spatial_guard *guard)
{
	if (guard->gated)
		guard->gated--;
}

void hb_spatial_guard_return(struct hb_spatial_guard *guard)
{
	guard->gated = 0;
	begin_batch(guard);
	forget_failures(guard);
}
