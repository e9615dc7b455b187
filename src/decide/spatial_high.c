/* SPDX-License-Identifier: Apache-2.0 */
/* HP's side of the spatial engine; see spatial_high.h. No lock, no allocation, no clock. */
#include "decide/spatial_high.h"

#include "decide/request_chain.h"

#include <string.h>

/* A process that waits for less than an eighth of its time alone sets its own pace. */
#define OWN_PACE_SHIFT 3
/* The excess of a request counts at most as this many times its time alone, so that outliers teach no prices. */
#define STRAY 1
/* The first rows of requests that allow nothing begin at powers of two, from this one on. */
#define EARLY_LEAST 16
/* Requests of one kind measured alone before an excess is published. */
#define CLOSED_LEAST 2
/* Requests that are closed because their kind is new: the first NEW_MOST, and later one in NEW_EVERY requests. */
#define NEW_MOST 64
#define NEW_EVERY 16
/* The time alone is smoothed with a weight of 1/8 for each request. */
#define MEAN_SHIFT 3
/* The credit of tokens is at most this many times the SLO, so that steps that read a prompt do not use it up at once. */
#define CREDIT_SLOS 3
/*
 * Tokens beside LP without a limit are judged by the mean of the last FREE_MEAN: roughly from token FREE_FIRST on, strictly
 * from FREE_LEAST on. If they take too long, LP has its limits for FREE_PAUSE requests, later for up to FREE_PAUSE_MOST.
 */
#define FREE_FIRST 2
#define FREE_LEAST 8
#define FREE_MEAN 16
#define FREE_PAUSE 4096
#define FREE_PAUSE_MOST 65536
/*
 * LP waits if tokens have taken this many times the SLO more than their share, but only for this many tokens: if that does
 * not help, LP is not the cause.
 */
#define OVERDRAWN 2
#define OVERDRAWN_WAIT 256
#define GAP_MAX_NS UINT32_C(4000000000)

static void put64(_Atomic int64_t *word, int64_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static void put32(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static struct hb_spatial_kind *kind_of(const struct hb_spatial_high *high)
{
	return high->kinds.last;
}

/* Returns what the next launches need, packed for the beacon; 0 = the whole reserve. */
static uint32_t next_launches(const struct hb_spatial_high *high, uint32_t reserve)
{
	int64_t for_ns;
	if (!high->serving || !kind_of(high)->guard.follows)
		return 0;
	uint32_t sms = hb_spatial_kind_next_need(kind_of(high), high->position, reserve, &for_ns);
	int64_t units = for_ns / HB_SPATIAL_NEXT_UNIT_NS;
	if (!sms || sms > HB_SPATIAL_NEXT_MOST || !units)
		return 0;
	units = units < HB_SPATIAL_NEXT_MOST ? units : HB_SPATIAL_NEXT_MOST;
	kind_of(high)->guard.followed = true;
	return sms << HB_SPATIAL_NEXT_SHIFT | (uint32_t)units << HB_SPATIAL_NEXT_FOR_SHIFT;
}

static void tell_reserve(struct hb_spatial_high *high)
{
	const struct hb_spatial_guard *guard = &kind_of(high)->guard;
	uint32_t reserve = hb_spatial_guard_reserve(guard);
	if (high->beacon)
		put32(&high->beacon->reserve,
		      reserve | next_launches(high, reserve) | guard->gaps << HB_SPATIAL_GAPS_SHIFT);
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
	hb_spatial_kinds_init(&high->kinds, sms);
	high->new_left = NEW_MOST;
	high->last_end_ns = -1;
	high->pace.credit_slos = CREDIT_SLOS;
	if (!beacon)
		return;
	put64(&beacon->end_ns, 0);
	put64(&beacon->expect_ns, 0);
	put32(&beacon->expect_for_us, 0);
	put32(&beacon->allow_ns, 0);
	put32(&beacon->gap_ns, 0);
	hb_spatial_high_tell(high);
}

void hb_spatial_high_set_slo(struct hb_spatial_high *high, int64_t slo_ns)
{
	slo_ns = slo_ns > 0 ? slo_ns : 0;
	if (slo_ns != high->slo_ns) {
		hb_spatial_kinds_return(&high->kinds);
		high->pace.credit = (struct hb_token_credit){0};
		high->free_tokens = (struct hb_spatial_free_tokens){0};
		high->n_overdrawn = 0;
	}
	high->slo_ns = slo_ns;
}

static uint32_t position_of(uint32_t launches)
{
	uint32_t position = launches / HB_SPATIAL_STRIDE;
	return position < HB_SPATIAL_POSITIONS ? position : HB_SPATIAL_POSITIONS - 1;
}

int64_t hb_spatial_high_left_ns(const struct hb_spatial_high *high)
{
	return high->serving ? kind_of(high)->left_ns[high->position] : 0;
}

static void tell_position(struct hb_spatial_high *high, int64_t now_ns)
{
	struct hb_spatial_beacon *beacon = high->beacon;
	if (!beacon)
		return;
	int64_t left_ns = kind_of(high)->left_ns[high->position];
	tell_reserve(high);
	put64(&beacon->seen_ns, now_ns);
	put64(&beacon->end_ns, left_ns ? now_ns + left_ns : 0);
}

void hb_spatial_high_expect(struct hb_spatial_high *high, int64_t from_ns, int64_t until_ns)
{
	if (!high->beacon || high->serving)
		return;
	high->expect_from_ns = from_ns;
	high->expect_until_ns = until_ns;
	int64_t for_us = until_ns > from_ns ? (until_ns - from_ns) / 1000 : 0;
	put32(&high->beacon->expect_for_us, for_us < UINT32_MAX ? (uint32_t)for_us : UINT32_MAX);
	put64(&high->beacon->expect_ns, until_ns);
}

/* --- begin --- */

static void tell_gap(const struct hb_spatial_high *high)
{
	int64_t gap_ns = kind_of(high)->gap_mean_ns;
	if (high->beacon)
		put32(&high->beacon->gap_ns, gap_ns < GAP_MAX_NS ? (uint32_t)gap_ns : GAP_MAX_NS);
}

static void learn_gap(struct hb_spatial_high *high, int64_t now_ns)
{
	if (high->last_end_ns < 0)
		return;
	int64_t gap_ns = now_ns - high->last_end_ns;
	hb_spatial_kind_learn_gap(kind_of(high), gap_ns);
	high->queue.chained = hb_chain_follows(gap_ns);
	hb_chain_learn(&kind_of(high)->chained_ppm, high->queue.chained, HB_CHAIN_OF);
	if (!high->queue.chained)
		high->queue = (struct hb_spatial_queue){0};
	tell_gap(high);
}

/* The first requests of a kind. A process whose kinds never end would close too many, so their number is limited. */
static bool is_new(const struct hb_spatial_high *high)
{
	return kind_of(high)->requests < HB_SPATIAL_FIRST_CLOSED && high->new_left > 0;
}

/* The request allows LP nothing, so that the time alone is measured. */
static bool measures_alone(const struct hb_spatial_high *high)
{
	uint32_t n = high->requests, row = n - n % HB_SPATIAL_CLOSED_RUN;
	bool early = n < HB_SPATIAL_CLOSED_EVERY && row >= EARLY_LEAST && !(row & (row - 1));
	return n < HB_SPATIAL_FIRST_CLOSED || n % HB_SPATIAL_CLOSED_EVERY < HB_SPATIAL_CLOSED_RUN || early ||
	       is_new(high);
}

static void count_new(struct hb_spatial_high *high)
{
	if (high->requests % NEW_EVERY == 0 && high->new_left < NEW_MOST)
		high->new_left++;
	if (kind_of(high)->requests < HB_SPATIAL_FIRST_CLOSED && high->new_left)
		high->new_left--;
}

/* The SLO; 0 = none, or the application named a deadline for the request that is served. */
static int64_t objective_ns(const struct hb_spatial_high *high)
{
	return high->serving && high->own_deadline ? 0 : high->slo_ns;
}

/*
 * Returns how long the present or the next request may take from its begin on by the SLO; 0 = there is no SLO. A token may
 * also use the time that earlier tokens saved. Its time counts from the end of the one before.
 */
static int64_t may_take_ns(const struct hb_spatial_high *high)
{
	int64_t objective = objective_ns(high);
	if (!objective || high->of_tokens == HB_PACE_NONE)
		return objective;
	int64_t gap_ns = high->serving ? high->begin_ns - high->last_end_ns : 0;
	int64_t most_ns = hb_token_credit_most_ns(&high->pace.credit, objective);
	if (gap_ns < HB_PACE_GAP_NS)
		most_ns -= gap_ns;
	return most_ns > 0 ? most_ns : 1;
}

/* Returns the delay that a request allows if it takes alone_ns alone and may take most_ns (0 = no SLO). A result of 0 means none. */
static int64_t terms_of(const struct hb_spatial_high *high, int64_t alone_ns, int64_t most_ns)
{
	uint32_t allowance_ppm = high->allowance_ppm;
	if (allowance_ppm > HB_SPATIAL_PPM)
		allowance_ppm = HB_SPATIAL_PPM;
	int64_t share_ns = (alone_ns < INT64_C(4000000000) ? alone_ns : INT64_C(4000000000)) * allowance_ppm /
			   HB_SPATIAL_PPM;
	int64_t budget_ns = share_ns ? hb_slo_budget_terms_ns(most_ns, alone_ns) : 0;
	if (budget_ns >= HB_SPATIAL_ALLOW_ALL)
		budget_ns = HB_SPATIAL_ALLOW_ALL - 1;
	budget_ns = budget_ns * hb_spatial_guard_ease_ppm(&kind_of(high)->guard) / HB_SPATIAL_PPM;
	return budget_ns > share_ns ? budget_ns : share_ns;
}

/* Whether the credit of tokens decides what LP may do beside the next one: there is an objective that leaves slack. */
static bool has_token_slack(const struct hb_spatial_high *high)
{
	return objective_ns(high) && high->of_tokens != HB_PACE_NONE &&
	       hb_slo_budget_ns(high->slo_ns, high->pace.best_ns) > 0;
}

static bool is_overdrawn(const struct hb_spatial_high *high)
{
	return has_token_slack(high) && high->pace.credit.credit_ns < -OVERDRAWN * high->slo_ns;
}

/* Tokens that take much longer than the SLO beside LP without a limit spend the credit better beside LP with one. */
static void learn_free_token(struct hb_spatial_free_tokens *free, int64_t slo_ns, int64_t took_ns)
{
	free->n += free->n < FREE_PAUSE;
	free->mean_ns += (took_ns - free->mean_ns) / (int64_t)(free->n < FREE_MEAN ? free->n : FREE_MEAN);
	int64_t most_ns = free->n < FREE_LEAST ? 3 * slo_ns : slo_ns + slo_ns / 4;
	if (free->n >= FREE_FIRST && free->mean_ns > most_ns) {
		uint32_t pause = !free->pause                    ? FREE_PAUSE
				 : free->pause < FREE_PAUSE_MOST ? 2 * free->pause
								 : FREE_PAUSE_MOST;
		*free = (struct hb_spatial_free_tokens){.pause = pause, .left = pause};
	} else if (free->n >= FREE_PAUSE) {
		free->pause = 0;
	}
}

static uint32_t allowed_ns(const struct hb_spatial_high *high)
{
	if (!high->allowance_ppm || measures_alone(high) || (is_overdrawn(high) && high->n_overdrawn < OVERDRAWN_WAIT))
		return 0;
	if (has_token_slack(high) && high->pace.credit.is_open && !high->free_tokens.left)
		return HB_SPATIAL_ALLOW_ALL;
	return kind_of(high)->guard.gated ? 0 : (uint32_t)terms_of(high, high->alone_ns, may_take_ns(high));
}

/* Computes the allowance of the next request. An allowance of 0 in the policy also closes it. */
static uint32_t choose_allowance(struct hb_spatial_high *high)
{
	uint32_t allow_ns = allowed_ns(high);
	high->closed = !allow_ns;
	high->free = allow_ns == HB_SPATIAL_ALLOW_ALL;
	return allow_ns;
}

void hb_spatial_high_begin(struct hb_spatial_high *high, int64_t now_ns, int64_t deadline_ns)
{
	struct hb_spatial_beacon *beacon = high->beacon;
	if (high->serving)
		return;
	learn_gap(high, now_ns);
	high->serving = true;
	high->foreseen = now_ns >= high->expect_from_ns && now_ns < high->expect_until_ns;
	high->expect_until_ns = 0;
	high->begin_ns = now_ns;
	high->launches = high->position = 0;
	high->wait_since_ns = -1;
	high->passed_ns[0] = now_ns;
	high->own_deadline = deadline_ns > 0;
	uint32_t allow_ns = choose_allowance(high);
	if (!beacon)
		return;
	if (!high->own_deadline)
		deadline_ns = high->slo_ns ? now_ns + may_take_ns(high) : INT64_MAX;
	put64(&beacon->latest_ns, deadline_ns);
	put32(&beacon->allow_ns, allow_ns);
	put64(&beacon->expect_ns, 0);
	tell_position(high, now_ns);
	uint32_t word = atomic_load_explicit(&beacon->word, memory_order_relaxed);
	atomic_store_explicit(&beacon->word, word | 1, memory_order_release);
}

void hb_spatial_high_need(struct hb_spatial_high *high, uint32_t sms)
{
	uint32_t position = position_of(high->launches);
	uint16_t *need = &high->need[position];
	if (!sms || sms > kind_of(high)->guard.sms)
		sms = kind_of(high)->guard.sms;
	if (!(high->launches % HB_SPATIAL_STRIDE) && high->launches < HB_SPATIAL_STRIDE * HB_SPATIAL_POSITIONS)
		*need = 0;
	if (sms > *need)
		*need = (uint16_t)sms;
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

uint32_t hb_spatial_high_kind(const struct hb_spatial_high *high)
{
	return hb_spatial_kind_class(kind_of(high));
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
		hb_spatial_kind_learn_left(kind_of(high), i, end_ns - high->passed_ns[i]);
		hb_spatial_kind_learn_need(kind_of(high), i, high->need[i]);
	}
}

void hb_spatial_high_set_learned(struct hb_spatial_high *high, uint32_t reserve_sms, uint32_t gaps)
{
	hb_spatial_guard_set_learned(&kind_of(high)->guard, reserve_sms, gaps);
	tell_reserve(high);
}

/* Predicts the time alone of the next request from the last ones. */
static void follow_alone(struct hb_spatial_high *high)
{
	struct hb_spatial_kind *kind = kind_of(high);
	if (!kind->closed)
		return;
	if (!kind->mean_alone_ns)
		kind->mean_alone_ns = kind->alone_ns;
	kind->mean_alone_ns += (kind->alone_ns - kind->mean_alone_ns) / (1 << MEAN_SHIFT);
	high->alone_ns = kind->mean_alone_ns;
}

static int64_t excess_of(const struct hb_spatial_kind *kind, const struct taken *taken)
{
	int64_t all_ns = taken->all_ns - kind->alone_ns, wait_ns = taken->wait_ns - kind->wait_ns;
	bool own_pace = kind->wait_ns < kind->alone_ns >> OWN_PACE_SHIFT;
	return taken->reported && (own_pace || wait_ns < all_ns) ? wait_ns : all_ns;
}

/*
 * Returns the zone of a request that has ended, or of the mean time of the last tokens. A request of a chain arrived at some time since the chain began. On average
 * it has waited for half of that time.
 */
static enum hb_slo_zone zone_of(const struct hb_spatial_high *high, const struct taken *taken, int64_t excess_ns,
				int64_t objective)
{
	const struct hb_spatial_kind *kind = kind_of(high);
	int64_t took_ns = taken->all_ns;
	if (high->of_tokens != HB_PACE_NONE) {
		enum hb_slo_zone zone = hb_slo_budget_zone(objective, high->tokens.alone_ns, high->tokens.took_ns,
							   high->tokens.excess_ns);
		return zone == HB_SLO_NONE || high->of_tokens == HB_PACE_WINDOW ? zone : HB_SLO_CALM;
	}
	if (hb_chain_may_wait(kind->chained_ppm)) {
		took_ns += high->queue.waited_ns / 2;
		excess_ns += high->queue.excess_ns / 2;
	}
	return hb_slo_budget_zone(objective, kind->alone_ns, took_ns, excess_ns);
}

/* `objective` is that of the request, which has ended. */
static void tell_excess(struct hb_spatial_high *high, const struct taken *taken, int64_t objective)
{
	struct hb_spatial_kind *kind = kind_of(high);
	if (kind->closed < CLOSED_LEAST)
		return;
	int64_t excess_ns = excess_of(kind, taken), most_ns = STRAY * kind->alone_ns;
	struct hb_spatial_lesson lesson = {
		.terms_ns = terms_of(high, kind->alone_ns, 0),
		.zone = zone_of(high, taken, excess_ns, objective),
		.zone_requests = high->of_tokens == HB_PACE_WINDOW ? HB_PACE_TOKENS : 1,
		.foreseen = high->foreseen,
		.present_ppm = hb_spatial_kind_present_ppm(kind),
	};
	if (most_ns > INT32_MAX)
		most_ns = INT32_MAX;
	excess_ns = excess_ns > most_ns ? most_ns : excess_ns < -most_ns ? -most_ns : excess_ns;
	high->harm_ns = excess_ns > 0 ? excess_ns : 0;
	lesson.excess_ns = excess_ns;
	/* The guard limits LP where tokens have no credit. The first token after those that had credit still meets their LP work. */
	if (!high->free && !high->was_free)
		hb_spatial_guard_note(&kind->guard, &lesson);
	if (!high->beacon)
		return;
	atomic_store_explicit(&high->beacon->excess_ns, (int32_t)excess_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&high->beacon->outcome, 1, memory_order_relaxed);
}

static void learn_pace(struct hb_spatial_high *high, const struct taken *taken, int64_t end_ns)
{
	const struct hb_spatial_kind *kind = kind_of(high);
	struct hb_token_times times = {.took_ns = taken->all_ns, .alone_ns = taken->all_ns};
	if (!high->closed && kind->closed >= CLOSED_LEAST) {
		int64_t excess_ns = excess_of(kind, taken);
		times.alone_ns = kind->alone_ns;
		times.excess_ns = excess_ns > 0 ? excess_ns : 0;
	}
	high->of_tokens = hb_token_pace_note(&high->pace, high->slo_ns, high->begin_ns, end_ns, &times);
	high->tokens = times;
}

/* The request belongs to this kind; what follows learns for it, and publishes its limits. */
static void enter_kind(struct hb_spatial_high *high, int64_t now_ns)
{
	if (!hb_spatial_kinds_note(&high->kinds, high->launches, now_ns))
		return;
	if (kind_of(high)
		    ->mean_alone_ns) /* until a new kind is measured, that of the kind before it is the best guess */
		high->alone_ns = kind_of(high)->mean_alone_ns;
	tell_gap(high);
}

static void learn_request(struct hb_spatial_high *high, const struct taken *taken, int64_t now_ns)
{
	int64_t objective = objective_ns(high);
	high->serving = false;
	high->last_end_ns = now_ns;
	if (taken->all_ns < 0)
		return;
	high->harm_ns = high->closed ? 0 : -1;
	enter_kind(high, now_ns);
	if (!high->free)
		learn_left(high, now_ns);
	learn_pace(high, taken, now_ns);
	hb_spatial_guard_pass(&kind_of(high)->guard);
	if (!high->closed)
		tell_excess(high, taken, objective);
	else if (high->was_closed || !high->requests)
		hb_spatial_kind_learn_alone(kind_of(high), taken->all_ns, taken->wait_ns);
	if (high->free && high->of_tokens != HB_PACE_NONE)
		learn_free_token(&high->free_tokens, high->slo_ns, hb_token_pace_last_ns(&high->pace));
	else if (high->free_tokens.left)
		high->free_tokens.left--;
	high->n_overdrawn = is_overdrawn(high) ? high->n_overdrawn + (high->n_overdrawn < OVERDRAWN_WAIT) : 0;
	follow_alone(high);
	high->queue.waited_ns += taken->all_ns;
	high->queue.excess_ns += high->harm_ns > 0 ? high->harm_ns : 0;
	high->was_closed = high->closed;
	high->was_free = high->free;
	count_new(high);
	high->requests++;
	kind_of(high)->requests++;
	tell_reserve(high);
	if (high->beacon)
		put32(&high->beacon->allow_ns, choose_allowance(high));
}

void hb_spatial_high_end(struct hb_spatial_high *high, int64_t now_ns)
{
	struct hb_spatial_beacon *beacon = high->beacon;
	if (!high->serving)
		return;
	/* Lets LP continue first, then learns. */
	if (beacon) {
		put64(&beacon->seen_ns, now_ns);
		uint32_t word = atomic_load_explicit(&beacon->word, memory_order_relaxed);
		atomic_store_explicit(&beacon->word, (word + 1) & ~UINT32_C(1), memory_order_release);
	}
	struct taken taken = taken_by(high, now_ns);
	learn_request(high, &taken, now_ns);
}
