/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slack: HP and LP in one context at the same time, LP kept out of HP's way
 * launch by launch. After Hummingbird (Hu et al., 2026), for closed libraries.
 *
 * Idea. What happens within microseconds is decided where it happens: HP's
 * process raises a beacon with what it can spare (spatial_high.h), LP's process
 * reads it at each launch and goes, goes under a mask, or waits (spatial_low.h).
 * This policy is the slow loop around it. It sets the terms: the delay that LP
 * may cause each request, in ppm of the request's time alone; 0 is plain gating.
 *
 * Rule. A HP tenant starts at TERMS_START. For each request that is judged, a
 * debt grows by 1 if it missed its deadline (where it is known what LP cost it:
 * and would have met it without that, and without what LP cost those that it
 * queued behind) and shrinks by the share that may miss, plus half a point. So the debt of a tenant that keeps its SLO stays near
 * zero, and one that is a point worse gains half a miss in 100 requests.
 *	debt over the alarm     plain gating for TRIAL requests
 *	trial: no better        LP is not the cause (overload, a slow disk): the old
 *	                        terms again, and a higher alarm
 *	trial: better           LP was: half the terms; below TERMS_LEAST plain gating
 *	PATIENCE requests well  a quarter more, up to TERMS_MOST; from plain gating
 *	                        TERMS_LEAST again, after a pause that doubles each time
 * So HP never stays worse off than under plain gating: what it can lose is the
 * alarm's few misses each time, and the times grow apart.
 *
 * Example. 99 % must meet 10 ms. LP's kernels start to collide with HP's and 4 %
 * miss. The debt grows by 2.5 in 100 requests and reaches 6 after 240: gated for
 * 256 requests, 1 % miss: LP was the cause, 3 % become 1.5 %. Still 4 %: gated,
 * 0.75 %. Still: plain gating for 2048 requests, then again, then for 4096.
 *
 * Bad at: HP without an SLO or known deadline (terms stay at TERMS_START, and only
 * spatial_high.h keeps watch over what LP costs); SLOs so
 * tight that every microsecond counts (use the gate policy); HP processes that
 * raise no beacon, which LP cannot see; memory bandwidth, which masks do not share
 * out; and it needs hundreds of requests to notice a point.
 */
#include "core/policy.h"
#include "decide/defaults.h"
#include "decide/spatial.h"

#define TERMS_START HB_DEFAULT_ALLOWANCE_START_PPM
#define TERMS_LEAST HB_DEFAULT_ALLOWANCE_LEAST_PPM
#define TERMS_MOST HB_DEFAULT_ALLOWANCE_MOST_PPM
#define HALF_POINT_PPM 5000
#define ALARM INT64_C(6000000) /* debt in ppm of a miss */
#define ALARM_MOST INT64_C(64000000)
#define TRIAL 256
#define PATIENCE 1024
#define PAUSE_LEAST 2048
#define PAUSE_MOST 65536

enum phase { PHASE_OPEN, PHASE_TRIAL, PHASE_GATED };

struct tenant_state {
	enum phase phase;
	uint32_t terms_ppm; /* outside of trials */
	int64_t debt_ppm;
	int64_t alarm_ppm;
	uint32_t requests, misses; /* in this phase; misses for whatever reason */
	int64_t harm_ns;           /* what LP cost the last request and those that it queued behind */
	uint32_t pause;            /* of the last plain gating; 0 = there was none */
};

static void tenant_added(struct hb_policy *policy, uint32_t tenant)
{
	if (hb_policy_tenant(policy, tenant)->priority != HB_PRIORITY_HIGH) {
		hb_policy_gate(policy, tenant, HB_GATE_OPEN, hb_policy_config(policy)->gate_depth);
		return;
	}
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	*state = (struct tenant_state){.terms_ppm = TERMS_START, .alarm_ppm = ALARM};
	hb_policy_terms(policy, tenant, TERMS_START);
}

static void enter(struct hb_policy *policy, uint32_t tenant, enum phase phase, uint32_t terms_ppm)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	state->phase = phase;
	state->requests = state->misses = 0;
	state->debt_ppm = 0;
	if (phase != PHASE_TRIAL)
		state->terms_ppm = terms_ppm;
	hb_policy_terms(policy, tenant, terms_ppm);
}

static int64_t may_miss_ppm(const struct hb_policy *policy, uint32_t tenant)
{
	return HB_SPATIAL_PPM - hb_policy_tenant(policy, tenant)->slo_share_ppm + HALF_POINT_PPM;
}

static void blame_low(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	uint32_t terms_ppm = state->terms_ppm / 2;
	state->alarm_ppm = ALARM;
	if (terms_ppm >= TERMS_LEAST) {
		enter(policy, tenant, PHASE_OPEN, terms_ppm);
		return;
	}
	state->pause = !state->pause ? PAUSE_LEAST : state->pause < PAUSE_MOST ? 2 * state->pause : PAUSE_MOST;
	enter(policy, tenant, PHASE_GATED, 0);
}

static void end_trial(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	bool better = (int64_t)state->misses * HB_SPATIAL_PPM <= TRIAL * may_miss_ppm(policy, tenant);
	if (better) {
		blame_low(policy, tenant);
		return;
	}
	if (state->alarm_ppm < ALARM_MOST)
		state->alarm_ppm *= 2;
	enter(policy, tenant, PHASE_OPEN, state->terms_ppm);
}

static void judge_open(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	if (state->debt_ppm > state->alarm_ppm) {
		enter(policy, tenant, PHASE_TRIAL, 0);
	} else if (state->requests >= PATIENCE) {
		uint32_t more_ppm = state->terms_ppm + state->terms_ppm / 4;
		int64_t debt_ppm = state->debt_ppm;
		enter(policy, tenant, PHASE_OPEN, more_ppm < TERMS_MOST ? more_ppm : TERMS_MOST);
		state->debt_ppm = debt_ppm;
	}
}

/* A trial asks what happens without LP, so there every miss counts (misses); for the debt those that LP may have caused. */
static bool may_be_lows(struct tenant_state *state, const struct hb_work *request, int64_t end_ns)
{
	state->harm_ns = request->harm_ns + (request->queued ? state->harm_ns : 0);
	if (state->harm_ns >= HB_TIME_LIMIT_NS)
		state->harm_ns = HB_TIME_LIMIT_NS - 1;
	return end_ns > request->deadline_ns && (!request->measured || end_ns - state->harm_ns <= request->deadline_ns);
}

static void request_judged(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request, int64_t end_ns)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	if (hb_policy_tenant(policy, tenant)->priority != HB_PRIORITY_HIGH || request->deadline_ns == HB_TIME_NEVER)
		return;
	bool lows = may_be_lows(state, request, end_ns);
	state->requests++;
	state->misses += end_ns > request->deadline_ns;
	state->debt_ppm += (lows ? HB_SPATIAL_PPM : 0) - may_miss_ppm(policy, tenant);
	if (state->debt_ppm < 0)
		state->debt_ppm = 0;
	if (state->phase == PHASE_OPEN)
		judge_open(policy, tenant);
	else if (state->phase == PHASE_TRIAL && state->requests >= TRIAL)
		end_trial(policy, tenant);
	else if (state->phase == PHASE_GATED && state->requests >= state->pause)
		enter(policy, tenant, PHASE_OPEN, TERMS_LEAST);
}

static void dump(const struct hb_policy *policy, FILE *out)
{
	static const char *const phases[] = {"open", "trial", "gated"};
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		const struct tenant_state *state = hb_policy_tenant_state((struct hb_policy *)policy, id);
		fprintf(out, "slack %u %s terms=%uppm requests=%u misses=%u debt=%lldppm alarm=%lldppm pause=%u\n", id,
			phases[state->phase], state->terms_ppm, state->requests, state->misses,
			(long long)state->debt_ppm, (long long)state->alarm_ppm, state->pause);
	}
}

const struct hb_policy_ops hb_policy_slack_ops = {
	.name = "slack",
	.summary = "LP beside HP, launch by launch, for as much delay as HP's slack allows",
	.tenant_bytes = sizeof(struct tenant_state),
	.tenant_added = tenant_added,
	.request_judged = request_judged,
	.dump = dump,
};
