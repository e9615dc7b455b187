/* SPDX-License-Identifier: Apache-2.0 */
/* Signs, attempts, takeovers and their budget; see foresight.h. foresight_plan.c has the arithmetic of a plan. */
#include "decide/foresight.h"

#include "decide/defaults.h"
#include "decide/foresight_plan.h"

#include <string.h>

#define PPM 1000000
/* A plan is computed again after this many outcomes. */
#define STALE 4

void hb_foresight_costs_init(struct hb_foresight_costs *costs)
{
	*costs = (struct hb_foresight_costs){
		.switch_ns = HB_DEFAULT_SWITCH_NS,
		.ready_ns = HB_DEFAULT_TAKEOVER_READY_NS + HB_DEFAULT_TAKEOVER_WAKE_NS,
		.idle_seen_ns = HB_DEFAULT_IDLE_SEEN_NS,
		.soon_ns = HB_DEFAULT_TAKEOVER_SOON_NS,
		.yield_ns = HB_DEFAULT_YIELD_NS,
		.lead_ns = HB_DEFAULT_TAKEOVER_LEAD_NS,
		.grace_ns = HB_DEFAULT_TAKEOVER_GRACE_NS,
		.weight_ppm = HB_DEFAULT_TAKEOVER_WEIGHT_PPM,
		.kept_weight_ppm = HB_DEFAULT_TAKEOVER_KEPT_WEIGHT_PPM,
		.budget_ppm = HB_DEFAULT_TAKEOVER_BUDGET_PPM,
		.budget_cap_ns = HB_DEFAULT_TAKEOVER_BUDGET_CAP_NS,
	};
}

void hb_foresight_init(struct hb_foresight *foresight, const struct hb_foresight_costs *costs,
		       struct hb_foresight_budget *budget)
{
	memset(foresight, 0, sizeof *foresight);
	foresight->costs = *costs;
	foresight->budget = budget;
	foresight->idle_since_ns = -1;
	foresight->n_signs = HB_FORESIGHT_FIRST_SOURCE;
	foresight->signs[HB_FORESIGHT_PERIOD].kind = HB_SIGN_PERIOD;
}

/* --- budget --- */

static void settle_budget(const struct hb_foresight *foresight, int64_t now_ns)
{
	struct hb_foresight_budget *budget = foresight->budget;
	int64_t cap_ns = foresight->costs.budget_cap_ns, ppm = foresight->costs.budget_ppm;
	int64_t elapsed_ns = now_ns - budget->since_ns;
	budget->since_ns = now_ns;
	if (!budget->begun) {
		budget->begun = true;
		budget->tokens_ns = cap_ns;
		return;
	}
	if (budget->busy || !ppm)
		return;
	if (elapsed_ns / PPM >= cap_ns / ppm + 1) {
		budget->tokens_ns = cap_ns;
		return;
	}
	int64_t parts = budget->part_ppm + elapsed_ns * ppm;
	budget->tokens_ns += parts / PPM;
	budget->part_ppm = parts % PPM;
	if (budget->tokens_ns > cap_ns)
		budget->tokens_ns = cap_ns;
}

void hb_foresight_set_budget(struct hb_foresight *foresight, int64_t now_ns, uint32_t budget_ppm)
{
	if (foresight->budget->begun && budget_ppm != foresight->costs.budget_ppm)
		settle_budget(foresight, now_ns);
	foresight->costs.budget_ppm = budget_ppm;
}

/* Takes a price from the bucket, if it is full enough for a sign with this share of misses. */
static bool take_price(struct hb_foresight *foresight, int64_t now_ns, int64_t price_ns, uint32_t miss_ppm)
{
	settle_budget(foresight, now_ns);
	int64_t floor_ns = foresight->costs.budget_cap_ns * miss_ppm / PPM;
	if (foresight->budget->tokens_ns < floor_ns + price_ns &&
	    foresight->budget->tokens_ns < foresight->costs.budget_cap_ns)
		return false;
	if (foresight->budget->tokens_ns < price_ns)
		return false;
	foresight->budget->tokens_ns -= price_ns;
	foresight->reserved_ns += price_ns;
	return true;
}

static void credit_budget(struct hb_foresight *foresight, int64_t now_ns, int64_t credit_ns)
{
	settle_budget(foresight, now_ns);
	foresight->budget->tokens_ns += credit_ns;
	if (foresight->budget->tokens_ns > foresight->costs.budget_cap_ns)
		foresight->budget->tokens_ns = foresight->costs.budget_cap_ns;
}

/* The takeover ends and has cost spent_ns: gives the rest of its price back. */
static void give_back(struct hb_foresight *foresight, int64_t now_ns, int64_t spent_ns)
{
	credit_budget(foresight, now_ns, foresight->reserved_ns > spent_ns ? foresight->reserved_ns - spent_ns : 0);
	foresight->reserved_ns = 0;
}

/* --- takeovers --- */

static bool is_end_of_work(uint32_t slot)
{
	return slot >= HB_FORESIGHT_IDLE && slot < HB_FORESIGHT_FIRST_SOURCE;
}

/* A takeover for this sign keeps the GPU that HP still has, instead of taking it from LP. */
static bool keeps_gpu(const struct hb_foresight *foresight, uint32_t slot)
{
	return is_end_of_work(slot) && foresight->costs.idle_seen_ns <= foresight->costs.yield_ns;
}

static void end_takeover(struct hb_foresight *foresight, int64_t now_ns, int64_t spent_ns)
{
	give_back(foresight, now_ns, spent_ns);
	foresight->takeover_until_ns = 0;
	foresight->lingering = false;
}

static void end_wrong(struct hb_foresight *foresight, int64_t now_ns)
{
	foresight->counts.wrong++;
	foresight->counts.wrong_ns += (uint64_t)(foresight->takeover_until_ns - foresight->takeover_since_ns);
	end_takeover(foresight, now_ns, foresight->reserved_ns);
}

/*
 * A takeover that was right is charged by its weight relative to one in vain. To keep the GPU is free as long as LP loses less
 * than the switch that HP would have waited for: in such a gap the two switches cost more than LP gets.
 */
static int64_t right_price_ns(const struct hb_foresight *foresight, int64_t ahead_ns)
{
	const struct hb_foresight_costs *costs = &foresight->costs;
	int64_t loss_ns = hb_foresight_loss_ns(costs, foresight->lingering, ahead_ns);
	if (foresight->lingering)
		loss_ns = loss_ns > costs->switch_ns ? loss_ns - costs->switch_ns : 0;
	return costs->weight_ppm ? loss_ns * costs->kept_weight_ppm / costs->weight_ppm : loss_ns;
}

/* Begins a takeover, or makes the present one longer. `linger`: HP still has the GPU. */
static void begin_takeover(struct hb_foresight *foresight, int64_t now_ns, int64_t until_ns, uint32_t miss_ppm,
			   bool linger)
{
	bool runs = foresight->takeover_until_ns != 0;
	int64_t from_ns = runs ? foresight->takeover_until_ns : now_ns;
	if (until_ns <= from_ns)
		return;
	int64_t price_ns = until_ns - from_ns + (runs || linger ? 0 : 2 * foresight->costs.switch_ns);
	if (!take_price(foresight, now_ns, price_ns, miss_ppm)) {
		foresight->counts.throttled++;
		return;
	}
	foresight->takeover_until_ns = until_ns;
	if (runs)
		return;
	foresight->takeover_since_ns = now_ns;
	foresight->lingering = linger;
	foresight->counts.takeovers++;
	foresight->counts.lingers += linger;
}

static bool is_planned(const struct hb_foresight_sign *sign)
{
	return sign->end_ns && !sign->fired;
}

static void start_attempt(struct hb_foresight *foresight, int64_t now_ns, uint32_t slot)
{
	struct hb_foresight_sign *sign = &foresight->signs[slot];
	sign->fired = true;
	if (sign->end_ns <= now_ns)
		return;
	int64_t since_ns = foresight->takeover_until_ns ? foresight->takeover_since_ns : now_ns;
	bool too_long = sign->end_ns - since_ns > HB_DEFAULT_TAKEOVER_BESIDE_NS;
	if (foresight->allowed && (foresight->may_keep || (!is_end_of_work(slot) && !too_long)))
		begin_takeover(foresight, now_ns, sign->end_ns, sign->plan.miss_ppm, keeps_gpu(foresight, slot));
	else if (slot >= HB_FORESIGHT_FIRST_SOURCE)
		foresight->counts.needless++;
}

void hb_foresight_step(struct hb_foresight *foresight, int64_t now_ns)
{
	if (foresight->takeover_until_ns && foresight->takeover_until_ns <= now_ns)
		end_wrong(foresight, now_ns);
	if (foresight->busy)
		return;
	for (uint64_t left = foresight->pending; left; left &= left - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(left);
		if (is_planned(&foresight->signs[slot]) && foresight->signs[slot].start_ns <= now_ns)
			start_attempt(foresight, now_ns, slot);
	}
}

int64_t hb_foresight_next_ns(const struct hb_foresight *foresight)
{
	int64_t next_ns = foresight->takeover_until_ns ? foresight->takeover_until_ns : INT64_MAX;
	for (uint64_t left = foresight->busy ? 0 : foresight->pending; left; left &= left - 1) {
		const struct hb_foresight_sign *sign = &foresight->signs[__builtin_ctzll(left)];
		if (is_planned(sign) && sign->start_ns < next_ns)
			next_ns = sign->start_ns;
	}
	return next_ns;
}

/* The takeover ends at this time at the latest. */
static void shorten_takeover(struct hb_foresight *foresight, int64_t now_ns, int64_t until_ns)
{
	int64_t saved_ns = foresight->takeover_until_ns - until_ns;
	if (saved_ns <= 0)
		return;
	foresight->takeover_until_ns = until_ns;
	foresight->reserved_ns -= saved_ns;
	credit_budget(foresight, now_ns, saved_ns);
}

void hb_foresight_allow(struct hb_foresight *foresight, int64_t now_ns, bool allowed, bool may_keep)
{
	foresight->allowed = allowed;
	foresight->may_keep = allowed && may_keep;
	if (!foresight->takeover_until_ns || foresight->may_keep)
		return;
	hb_foresight_step(foresight, now_ns);
	if (!foresight->takeover_until_ns)
		return;
	if (allowed && !foresight->lingering) {
		shorten_takeover(foresight, now_ns, now_ns + HB_DEFAULT_TAKEOVER_BESIDE_NS);
		return;
	}
	foresight->counts.needless++;
	int64_t switches_ns = foresight->lingering ? 0 : 2 * foresight->costs.switch_ns;
	end_takeover(foresight, now_ns, now_ns - foresight->takeover_since_ns + switches_ns);
}

/* --- attempts --- */

static bool is_takeover(const struct hb_foresight_plan *plan)
{
	return plan->end_ns > plan->start_ns;
}

static void refresh_plan(struct hb_foresight *foresight, uint32_t slot)
{
	struct hb_foresight_sign *sign = &foresight->signs[slot];
	if (sign->seen < HB_FORESIGHT_LEAST || sign->stale < STALE)
		return;
	enum hb_foresight_shape shape = keeps_gpu(foresight, slot) ? HB_SHAPE_IDLE
					: sign->timed              ? HB_SHAPE_TIME
								   : HB_SHAPE_SIGN;
	sign->plan = hb_foresight_plan_make(&foresight->costs, shape, sign->outcome_ns, hb_foresight_known(sign));
	if (is_end_of_work(slot))
		foresight->keep[slot] = hb_foresight_plan_make(&foresight->costs, HB_SHAPE_IDLE, sign->outcome_ns,
							       hb_foresight_known(sign));
	sign->stale = 0;
}

static void begin_attempt(struct hb_foresight *foresight, uint32_t slot, int64_t base_ns)
{
	struct hb_foresight_sign *sign = &foresight->signs[slot];
	refresh_plan(foresight, slot);
	foresight->pending |= UINT64_C(1) << slot;
	sign->base_ns = base_ns;
	sign->fired = false;
	sign->start_ns = base_ns + sign->plan.start_ns;
	sign->end_ns = is_takeover(&sign->plan) ? base_ns + sign->plan.end_ns : 0;
	/* Launches this soon can only be covered by keeping the GPU: a takeover that begins now comes too late. */
	if (is_end_of_work(slot) && !keeps_gpu(foresight, slot) && sign->plan.end_ns < foresight->costs.ready_ns)
		sign->end_ns = 0;
}

static void end_attempt(struct hb_foresight *foresight, uint32_t slot, int64_t outcome_ns)
{
	struct hb_foresight_sign *sign = &foresight->signs[slot];
	foresight->pending &= ~(UINT64_C(1) << slot);
	if (outcome_ns > HB_FORESIGHT_HORIZON_NS)
		outcome_ns = HB_FORESIGHT_NONE;
	if (outcome_ns < -HB_FORESIGHT_HORIZON_NS)
		outcome_ns = -HB_FORESIGHT_HORIZON_NS;
	sign->outcome_ns[sign->seen % HB_FORESIGHT_WINDOW] = (int32_t)outcome_ns;
	/* At saturation the counter goes back by a multiple of the window, so that the ring stays in order. */
	sign->seen = sign->seen + 1 < UINT32_MAX ? sign->seen + 1 : sign->seen + 1 - 2 * HB_FORESIGHT_WINDOW;
	sign->stale++;
}

/* --- signs --- */

static uint32_t make_room(const struct hb_foresight *foresight)
{
	uint32_t oldest = HB_FORESIGHT_FIRST_SOURCE;
	for (uint32_t slot = HB_FORESIGHT_FIRST_SOURCE; slot < HB_FORESIGHT_SIGNS; slot++)
		if (foresight->signs[slot].used_ns < foresight->signs[oldest].used_ns)
			oldest = slot;
	return oldest;
}

static uint32_t find_slot(struct hb_foresight *foresight, enum hb_sign kind, uint64_t source, bool timed)
{
	for (uint32_t slot = HB_FORESIGHT_FIRST_SOURCE; slot < foresight->n_signs; slot++)
		if (foresight->sources[slot] == source && foresight->signs[slot].kind == kind &&
		    foresight->signs[slot].timed == timed)
			return slot;
	uint32_t slot = foresight->n_signs < HB_FORESIGHT_SIGNS ? foresight->n_signs++ : make_room(foresight);
	foresight->pending &= ~(UINT64_C(1) << slot);
	foresight->sources[slot] = source;
	memset(&foresight->signs[slot], 0, sizeof foresight->signs[slot]);
	foresight->signs[slot].kind = kind;
	foresight->signs[slot].timed = timed;
	/* A named time is trusted until its outcomes say otherwise. */
	if (timed) {
		foresight->signs[slot].plan.start_ns = (int32_t)-foresight->costs.lead_ns;
		foresight->signs[slot].plan.end_ns = (int32_t)foresight->costs.grace_ns;
	}
	return slot;
}

/* True: the pending attempt also covers this sign. False: the old sign had no launch, or names a later time. */
static bool merge_sign(struct hb_foresight *foresight, int64_t now_ns, uint32_t slot, int64_t base_ns)
{
	struct hb_foresight_sign *sign = &foresight->signs[slot];
	int64_t merge_until_ns = sign->base_ns + HB_FORESIGHT_MERGE_NS;
	if (now_ns > (sign->end_ns > merge_until_ns ? sign->end_ns : merge_until_ns)) {
		end_attempt(foresight, slot, INT64_MAX);
		return false;
	}
	return !(sign->timed && base_ns < sign->base_ns && !sign->fired);
}

/*
 * A sign worth a takeover announces a request. Of signs without a place, the first after
 * idle announces the request of the next launch; `at_least` is the number of requests
 * that a repeated one announces.
 */
static void note_waiting(struct hb_foresight *foresight, uint32_t slot, uint32_t who, uint32_t at_least)
{
	if (!is_takeover(&foresight->signs[slot].plan))
		return;
	if (who)
		foresight->heard_from |= UINT64_C(1) << who % 64;
	else if (foresight->heard < at_least)
		foresight->heard = at_least;
}

void hb_foresight_sign(struct hb_foresight *foresight, int64_t now_ns, enum hb_sign kind, uint64_t source, uint32_t who,
		       int64_t expected_ns)
{
	bool timed = expected_ns > 0;
	foresight->counts.signs++;
	hb_foresight_step(foresight, now_ns);
	uint32_t slot = find_slot(foresight, kind, source, timed);
	int64_t base_ns = timed ? expected_ns : now_ns;
	foresight->signs[slot].used_ns = now_ns;
	if (foresight->busy) {
		note_waiting(foresight, slot, who, 1);
		foresight->counts.needless++;
		return;
	}
	if (foresight->pending & UINT64_C(1) << slot && merge_sign(foresight, now_ns, slot, base_ns)) {
		note_waiting(foresight, slot, who, 2);
		foresight->counts.needless++;
		return;
	}
	begin_attempt(foresight, slot, base_ns);
	note_waiting(foresight, slot, who, 0);
	int64_t *start_ns = &foresight->signs[slot].start_ns;
	if (*start_ns > now_ns && *start_ns - now_ns <= foresight->costs.soon_ns)
		*start_ns = now_ns;
	hb_foresight_step(foresight, now_ns);
}

/* --- HP's work --- */

/* HP's launch ends all attempts; that of the period only if LP could have had the GPU since. True: it came too early. */
static bool end_attempts(struct hb_foresight *foresight, int64_t now_ns, bool start)
{
	bool late = false;
	uint64_t left = foresight->pending;
	if (!start)
		left &= ~(UINT64_C(1) << HB_FORESIGHT_PERIOD);
	for (; left; left &= left - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(left);
		late |= slot >= HB_FORESIGHT_FIRST_SOURCE && is_planned(&foresight->signs[slot]);
		end_attempt(foresight, slot, now_ns - foresight->signs[slot].base_ns);
	}
	return late;
}

/* A start serves one waiting request. Requests that waited for longer than any takeover were something else. */
static void serve_request(struct hb_foresight *foresight, int64_t now_ns)
{
	if (now_ns - foresight->idle_since_ns > HB_FORESIGHT_TAKEOVER_MAX_NS)
		foresight->waiting = 0;
	foresight->waiting += foresight->heard_from ? (uint32_t)__builtin_popcountll(foresight->heard_from)
						    : foresight->heard;
	if (foresight->waiting)
		foresight->waiting--;
	if (foresight->waiting > HB_FORESIGHT_WINDOW)
		foresight->waiting = HB_FORESIGHT_WINDOW;
	foresight->heard_from = 0;
	foresight->heard = 0;
}

void hb_foresight_busy(struct hb_foresight *foresight, int64_t now_ns)
{
	if (foresight->busy)
		return;
	if (foresight->takeover_until_ns && foresight->takeover_until_ns <= now_ns)
		end_wrong(foresight, now_ns);
	bool start = foresight->idle_since_ns < 0 ||
		     now_ns - foresight->idle_since_ns >= 2 * foresight->costs.switch_ns;
	bool late = end_attempts(foresight, now_ns, start);
	if (foresight->takeover_until_ns) {
		int64_t ahead_ns = now_ns - foresight->takeover_since_ns;
		late = !foresight->lingering && ahead_ns < foresight->costs.switch_ns;
		foresight->counts.hidden += !late;
		if (foresight->lingering)
			credit_budget(foresight, now_ns, foresight->costs.switch_ns);
		end_takeover(foresight, now_ns, right_price_ns(foresight, ahead_ns));
	}
	foresight->counts.late += late;
	settle_budget(foresight, now_ns);
	foresight->budget->busy++;
	foresight->busy = true;
	foresight->later = !start;
	if (start) {
		serve_request(foresight, now_ns);
		foresight->start_ns = now_ns;
	}
}

static uint32_t find_end_of_work(const struct hb_foresight *foresight)
{
	bool queued = foresight->waiting || foresight->heard_from || foresight->heard;
	uint32_t end = foresight->later ? (queued ? HB_FORESIGHT_LATER_QUEUED : HB_FORESIGHT_LATER_IDLE)
		       : queued         ? HB_FORESIGHT_QUEUED
					: HB_FORESIGHT_IDLE;
	return end + foresight->work * (HB_FORESIGHT_END_KINDS - HB_FORESIGHT_IDLE);
}

void hb_foresight_work(struct hb_foresight *foresight, uint32_t kind)
{
	foresight->work = kind < HB_FORESIGHT_WORKS ? kind : 0;
}

int64_t hb_foresight_keep_ns(struct hb_foresight *foresight, int64_t now_ns)
{
	const struct hb_foresight_plan *plan = &foresight->keep[find_end_of_work(foresight)];
	settle_budget(foresight, now_ns);
	if (!foresight->busy || !foresight->may_keep || !is_takeover(plan))
		return 0;
	return foresight->budget->tokens_ns >= plan->end_ns ? plan->end_ns : 0;
}

void hb_foresight_idle_kept(struct hb_foresight *foresight, int64_t now_ns, int64_t keep_ns)
{
	if (!foresight->busy)
		return;
	settle_budget(foresight, now_ns);
	foresight->budget->busy--;
	foresight->busy = false;
	foresight->idle_since_ns = now_ns;
	/* Not at the launch that began the period, because HP must not wait for a plan to be computed. */
	if (!(foresight->pending & UINT64_C(1) << HB_FORESIGHT_PERIOD))
		begin_attempt(foresight, HB_FORESIGHT_PERIOD, foresight->start_ns);
	uint32_t slot = find_end_of_work(foresight);
	begin_attempt(foresight, slot, now_ns);
	if (keep_ns > 0 && foresight->may_keep)
		begin_takeover(foresight, now_ns, now_ns + keep_ns, foresight->keep[slot].miss_ppm, true);
	hb_foresight_step(foresight, now_ns);
}

void hb_foresight_idle(struct hb_foresight *foresight, int64_t now_ns)
{
	hb_foresight_idle_kept(foresight, now_ns, 0);
}
