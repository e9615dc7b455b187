/* SPDX-License-Identifier: Apache-2.0 */
/* See slo_slices.h. */
#include "core/slo_slices.h"

#include "base/clock.h"
#include "core/policy.h"
#include "decide/defaults.h"
#include "decide/request_chain.h"
#include "decide/slo_budget.h"

#define LEARN 64
#define LEARN_AGAIN 4096
#define BATCH 64
#define NEAR_MOST 1
#define SHARE_ALL 16
#define PATIENCE_MOST 64
/* Longer slices of LP would gain nothing: two switches are 0.04 % of this. */
#define LOW_MOST_NS HB_NS_PER_S

static bool may_wait(const struct hb_slo_slices *slices)
{
	return !slices->paced && hb_chain_may_wait(slices->chained_ppm);
}

/* Returns how long the request probably waited for those before it. */
static int64_t note_chain(struct hb_slo_slices *slices, const struct hb_request *request)
{
	bool chained = slices->ended_ns && hb_chain_follows(request->begin_ns - slices->ended_ns);
	slices->of += slices->of < HB_CHAIN_OF;
	hb_chain_learn(&slices->chained_ppm, chained, slices->of);
	slices->ended_ns = request->end_ns;
	if (!chained)
		slices->chain_ns = request->begin_ns;
	return may_wait(slices) ? (request->begin_ns - slices->chain_ns) / 2 : 0;
}

static bool learn_alone(struct hb_slo_slices *slices, int64_t took_ns)
{
	if (took_ns > slices->longest_ns) {
		slices->second_ns = slices->longest_ns;
		slices->longest_ns = took_ns;
	} else if (took_ns > slices->second_ns) {
		slices->second_ns = took_ns;
	}
	if (!slices->seen || took_ns < slices->shortest_ns)
		slices->shortest_ns = took_ns;
	if (++slices->seen < LEARN)
		return false;
	slices->alone_ns = slices->paced ? slices->shortest_ns : slices->second_ns;
	slices->longest_ns = slices->second_ns = 0;
	slices->seen = slices->in_batch = slices->near = 0;
	slices->present_ns = 0;
	slices->batch_ns = slices->ended_ns;
	if (slices->paced && !hb_slo_budget_ns(slices->slo_ns, slices->alone_ns))
		return false;
	if (!slices->patience)
		slices->share = slices->patience = 1;
	slices->learned = true;
	return true;
}

static bool set_share(struct hb_slo_slices *slices, uint32_t share)
{
	bool changed = share != slices->share;
	slices->share = share;
	slices->calm = 0;
	return changed;
}

/* Whether requests of a service that does not wait for its own results may soon queue up. */
static bool may_queue(const struct hb_slo_slices *slices, int64_t now_ns)
{
	return may_wait(slices) && slices->present_ns > (now_ns - slices->batch_ns) / 10 * 7;
}

static bool end_batch(struct hb_slo_slices *slices, int64_t now_ns)
{
	bool suffers = slices->near > NEAR_MOST || may_queue(slices, now_ns), calm = !slices->near;
	slices->in_batch = slices->near = 0;
	slices->present_ns = 0;
	slices->batch_ns = now_ns;
	if (suffers) {
		if (slices->patience < PATIENCE_MOST)
			slices->patience *= 2;
		return set_share(slices, slices->share / 2);
	}
	slices->calm += calm;
	if (slices->calm < slices->patience || slices->share == SHARE_ALL)
		return false;
	return set_share(slices, slices->share + 1);
}

/* With another objective earlier failures say nothing. Times of single requests and of tokens are not compared. */
static void note_terms(struct hb_slo_slices *slices, int64_t slo_ns, bool paced)
{
	if (slo_ns != slices->slo_ns && slices->patience)
		slices->patience = 1;
	if (paced != slices->paced) {
		slices->learned = false;
		slices->seen = 0;
		slices->longest_ns = slices->second_ns = 0;
	}
	slices->slo_ns = slo_ns;
	slices->paced = paced;
}

/* HP's slice. */
static int64_t high_of(const struct hb_slo_slices *slices)
{
	return slices->alone_ns > HB_DEFAULT_HIGH_TURN_LEAST_NS ? slices->alone_ns : HB_DEFAULT_HIGH_TURN_LEAST_NS;
}

/* The slack in use: a slice of LP and two switches. */
static int64_t used_ns(const struct hb_slo_slices *slices, int64_t slack_ns)
{
	uint32_t share = slices->paced ? SHARE_ALL : slices->share;
	return slack_ns / 8 * 7 * share / SHARE_ALL;
}

bool hb_slo_slices_note(struct hb_slo_slices *slices, int64_t slo_ns, const struct hb_request *request)
{
	note_terms(slices, slo_ns, request->paced);
	int64_t waited_ns = note_chain(slices, request), took_ns = request->took_ns;
	bool opened_or_closed = request->credit_open != slices->credit_open;
	slices->credit_open = request->credit_open;
	if (!slices->learned)
		return learn_alone(slices, took_ns);
	if (++slices->seen >= LEARN_AGAIN) {
		slices->learned = false;
		slices->seen = 0;
		return true;
	}
	if (slices->paced)
		return opened_or_closed;
	slices->present_ns += took_ns;
	took_ns += waited_ns;
	int64_t over_ns = took_ns > slices->alone_ns ? took_ns - slices->alone_ns : 0;
	slices->near += hb_slo_budget_zone(slo_ns, slices->alone_ns, took_ns, over_ns) >= HB_SLO_NEAR;
	slices->in_batch++;
	return (slices->near > NEAR_MOST || slices->in_batch >= BATCH) && end_batch(slices, request->end_ns);
}

bool hb_slo_slices_get(const struct hb_slo_slices *slices, int64_t slo_ns, int64_t switch_ns, int64_t *low_ns,
		       int64_t *high_ns)
{
	bool is_open = slices->learned && (!slices->paced || slices->credit_open);
	int64_t slack_ns = is_open ? hb_slo_budget_ns(slo_ns, slices->alone_ns) : 0;
	*low_ns = used_ns(slices, slack_ns) - 2 * switch_ns;
	*high_ns = high_of(slices);
	if (*low_ns > LOW_MOST_NS)
		*low_ns = LOW_MOST_NS;
	return *low_ns >= HB_DEFAULT_LOW_TURN_LEAST_NS && *high_ns <= HB_SLICE_MAX_NS;
}
