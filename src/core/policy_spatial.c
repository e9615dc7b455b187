/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spatial: HP and LP run in one context at the same time. This policy is the slow
 * loop of the spatial engine; LP's processes decide about each launch themselves
 * (decide/spatial.h). After Hummingbird (Hu et al., 2026), for closed libraries.
 *
 * Idea. HP's process publishes how much delay it can accept (spatial_high.h). LP's
 * process reads that before each launch, and launches, launches with a mask, or waits
 * (spatial_low.h). The policy sets HP's allowance: the delay that LP may cause each
 * request, in ppm of the request's time alone. With an allowance of 0, LP waits while
 * HP serves a request.
 *
 * Rule. An HP tenant starts with ALLOWANCE_START. Each ended request changes a debt:
 *  - A miss adds 1. If the delay caused by LP was measured, a request counts as
 *    missed only if it would have met its deadline without this delay and without
 *    that of the requests it queued behind.
 *  - Every request subtracts the share that may miss, plus half a point.
 * So the debt of a tenant that keeps its SLO stays near zero, and a tenant that is
 * one point worse gains half a miss in 100 requests.
 *
 *	debt over the alarm       LP waits for TRIAL requests (a trial)
 *	trial is no better        more of its requests missed than may, so LP is not the
 *	                          cause (overload, a slow disk): the old allowance again,
 *	                          and a higher alarm
 *	trial is better           LP was the cause: half of the allowance, or none if
 *	                          that is below ALLOWANCE_LEAST
 *	PATIENCE requests well    a quarter more, up to ALLOWANCE_MOST; from none to
 *	                          ALLOWANCE_LEAST after a pause that doubles each time
 *
 * Tokens are judged by the mean of 16 (decide/token_pace.h). A mean changes the debt once, as a single request does. But it
 * counts as 16 requests, and as 16 misses if it misses, in TRIAL, PATIENCE and the pauses, so that these take as many
 * tokens as single requests. One missed mean in a trial therefore says that LP is not the cause. Outside of a trial a
 * missed mean adds to the debt only if the credit of the tokens (decide/token_credit.h) is more than three SLOs below 0:
 * until then even an answer of 64 tokens meets its SLO, because the tokens before it took less. HP's process has a credit of
 * its own, and LP waits while that is below -2 SLOs. The core's is at most one SLO and that of HP's process at most three, so
 * the core's can be two SLOs lower.
 *
 * All of this belongs to a kind of request (spatial_kind.h): the misses of one do not limit
 * LP beside another. The least allowance of the kinds served in the last second is in
 * force. A kind in a trial or a pause that returns later begins again with
 * ALLOWANCE_LEAST.
 *
 * So HP never stays worse off than with an allowance of 0: each time it can lose the
 * alarm's few misses, and the times between grow.
 *
 * Example. 99 % must meet 10 ms. LP's kernels start to collide with HP's, and 4 %
 * miss. The debt grows by 2.5 in 100 requests and reaches 6 after 240. In the trial of
 * 256 requests 1 % miss: LP was the cause, 3 % become 1.5 %. If still 4 % miss: a
 * trial, then 0.75 %. If still 4 % miss: 0 for 2048 requests, later for 4096.
 *
 * Bad at: HP without an SLO or deadline (the allowance stays at ALLOWANCE_START, and
 * only spatial_high.h limits the delay); SLOs so tight that every microsecond counts
 * (use the policy `gate`); HP processes that publish nothing, which LP cannot see;
 * memory bandwidth, which masks do not share out. It needs hundreds of requests to
 * notice one point.
 */
#include "core/policy.h"
#include "decide/defaults.h"
#include "decide/spatial.h"
#include "decide/token_pace.h"

#include <string.h>

#define ALLOWANCE_START HB_DEFAULT_ALLOWANCE_START_PPM
#define ALLOWANCE_LEAST HB_DEFAULT_ALLOWANCE_LEAST_PPM
#define ALLOWANCE_MOST HB_DEFAULT_ALLOWANCE_MOST_PPM
#define HALF_POINT_PPM 5000
#define ALARM INT64_C(6000000) /* debt in ppm of a miss */
#define ALARM_MOST INT64_C(64000000)
#define TRIAL 256
#define PATIENCE 1024
#define PAUSE_LEAST 2048
#define PAUSE_MOST 8192
/* A tenant serves the kinds of which a request has ended in this time. */
#define SERVED_NS INT64_C(1000000000)

enum spatial_phase { PHASE_OPEN, PHASE_TRIAL, PHASE_GATED };

/* Holds what is known of one kind of request. */
struct spatial_kind {
	bool seen;
	bool paced;      /* it was judged by the mean time of tokens */
	int64_t seen_ns; /* end of the last such request */
	enum spatial_phase phase;
	uint32_t allowance_ppm; /* the allowance outside of trials */
	int64_t debt_ppm;
	int64_t alarm_ppm;
	uint32_t requests, misses; /* in this phase; misses of any cause */
	uint32_t pause;            /* requests of the last phase with an allowance of 0; 0 = there was none */
};

struct spatial_tenant {
	struct spatial_kind kinds[HB_REQUEST_KINDS];
	int64_t slo_ns;  /* the objective that the kinds were judged by */
	int64_t harm_ns; /* delay caused by LP to the last request and to those it queued behind */
};

static void add_tenant(struct hb_policy *policy, uint32_t tenant)
{
	if (hb_policy_tenant(policy, tenant)->priority != HB_PRIORITY_HIGH) {
		hb_policy_share_low(policy, true);
		hb_policy_slice_low(policy, 0);
		hb_policy_gate(policy, tenant, HB_GATE_OPEN, hb_policy_config(policy)->gate_depth);
		return;
	}
	struct spatial_tenant *state = hb_policy_tenant_state(policy, tenant);
	*state = (struct spatial_tenant){.kinds[0] = {.allowance_ppm = ALLOWANCE_START, .alarm_ppm = ALARM}};
	hb_policy_allow(policy, tenant, ALLOWANCE_START);
}

static void note_tenants(struct hb_policy *policy, uint32_t tenant)
{
	hb_policy_share_low(policy, true);
	hb_policy_slice_low(policy, 0);
}

/* The least allowance of the kinds that the tenant serves now. */
static void apply_allowance(struct hb_policy *policy, uint32_t tenant)
{
	const struct spatial_tenant *state = hb_policy_tenant_state(policy, tenant);
	uint32_t least_ppm = UINT32_MAX;
	for (uint32_t i = 0; i < HB_REQUEST_KINDS; i++) {
		const struct spatial_kind *kind = &state->kinds[i];
		uint32_t ppm = kind->phase == PHASE_TRIAL ? 0 : kind->allowance_ppm;
		if (kind->seen && hb_policy_now_ns(policy) - kind->seen_ns <= SERVED_NS && ppm < least_ppm)
			least_ppm = ppm;
	}
	hb_policy_allow(policy, tenant, least_ppm);
}

/*
 * Finds the request's kind, which then counts as served. A new kind begins with ALLOWANCE_START, and so does, once, a kind
 * that turns out to be tokens: that single tokens missed the objective says nothing about their mean. A kind in a trial or
 * a pause that was not served for a second while another one was begins again with ALLOWANCE_LEAST.
 */
static struct spatial_kind *find_kind(struct hb_policy *policy, uint32_t tenant, const struct hb_request *request)
{
	struct spatial_tenant *state = hb_policy_tenant_state(policy, tenant);
	struct spatial_kind *kind = &state->kinds[request->kind];
	int64_t now_ns = hb_policy_now_ns(policy);
	bool others = false;
	for (uint32_t i = 0; i < HB_REQUEST_KINDS; i++)
		others |= state->kinds[i].seen && state->kinds[i].seen_ns > kind->seen_ns;
	bool paced = kind->paced || request->paced, is_new = !kind->seen || paced != kind->paced;
	if (is_new || (others && kind->phase != PHASE_OPEN && now_ns - kind->seen_ns > SERVED_NS))
		*kind = (struct spatial_kind){.allowance_ppm = is_new ? ALLOWANCE_START : ALLOWANCE_LEAST,
					      .alarm_ppm = ALARM};
	kind->seen = true;
	kind->paced = paced;
	kind->seen_ns = now_ns;
	return kind;
}

static void enter_phase(struct spatial_kind *kind, enum spatial_phase phase, uint32_t allowance_ppm)
{
	kind->phase = phase;
	kind->requests = kind->misses = 0;
	kind->debt_ppm = 0;
	if (phase != PHASE_TRIAL)
		kind->allowance_ppm = allowance_ppm;
}

static int64_t may_miss_ppm(const struct hb_policy *policy, uint32_t tenant)
{
	return HB_SPATIAL_PPM - hb_policy_tenant(policy, tenant)->slo_share_ppm + HALF_POINT_PPM;
}

static void blame_low(struct spatial_kind *kind)
{
	uint32_t allowance_ppm = kind->allowance_ppm / 2;
	kind->alarm_ppm = ALARM;
	if (allowance_ppm >= ALLOWANCE_LEAST) {
		enter_phase(kind, PHASE_OPEN, allowance_ppm);
		return;
	}
	kind->pause = !kind->pause ? PAUSE_LEAST : kind->pause < PAUSE_MOST ? 2 * kind->pause : PAUSE_MOST;
	enter_phase(kind, PHASE_GATED, 0);
}

static void end_trial(struct spatial_kind *kind, int64_t may_miss)
{
	bool better = (int64_t)kind->misses * HB_SPATIAL_PPM <= TRIAL * may_miss;
	if (better) {
		blame_low(kind);
		return;
	}
	if (kind->alarm_ppm < ALARM_MOST)
		kind->alarm_ppm *= 2;
	enter_phase(kind, PHASE_OPEN, kind->allowance_ppm);
}

static void judge_open(struct spatial_kind *kind)
{
	if (kind->debt_ppm > kind->alarm_ppm) {
		enter_phase(kind, PHASE_TRIAL, 0);
	} else if (kind->requests >= PATIENCE) {
		uint32_t more_ppm = kind->allowance_ppm + kind->allowance_ppm / 4;
		int64_t debt_ppm = kind->debt_ppm;
		enter_phase(kind, PHASE_OPEN, more_ppm < ALLOWANCE_MOST ? more_ppm : ALLOWANCE_MOST);
		kind->debt_ppm = debt_ppm;
	}
}

/* Whether LP may have caused a miss. Only such misses count for the debt; in a trial, which runs without LP, all count. */
static bool was_missed_by_low(struct spatial_tenant *state, const struct hb_request *request)
{
	state->harm_ns = request->harm_ns + (request->queued ? state->harm_ns : 0);
	if (state->harm_ns >= HB_TIME_LIMIT_NS)
		state->harm_ns = HB_TIME_LIMIT_NS - 1;
	return request->end_ns > request->deadline_ns && (!request->paced || request->overdrawn) &&
	       (!request->measured || request->end_ns - state->harm_ns <= request->deadline_ns);
}

/* Misses of another objective say nothing. One that is learned changes often, and by little. */
static void note_objective(struct spatial_tenant *state, const struct hb_tenant *tenant)
{
	if (tenant->slo_auto || tenant->slo_ns == state->slo_ns)
		return;
	if (state->slo_ns)
		memset(state->kinds, 0, sizeof state->kinds);
	state->slo_ns = tenant->slo_ns;
}

static void judge_request(struct hb_policy *policy, uint32_t tenant, const struct hb_request *request)
{
	struct spatial_tenant *state = hb_policy_tenant_state(policy, tenant);
	if (hb_policy_tenant(policy, tenant)->priority != HB_PRIORITY_HIGH || request->deadline_ns == HB_TIME_NEVER)
		return;
	note_objective(state, hb_policy_tenant(policy, tenant));
	bool by_low = was_missed_by_low(state, request);
	int64_t may_miss = may_miss_ppm(policy, tenant);
	struct spatial_kind *kind = find_kind(policy, tenant, request);
	uint32_t judged = request->paced ? HB_PACE_TOKENS : 1;
	kind->requests += judged;
	kind->misses += request->end_ns > request->deadline_ns ? judged : 0;
	kind->debt_ppm += (by_low ? HB_SPATIAL_PPM : 0) - may_miss;
	if (kind->debt_ppm < 0)
		kind->debt_ppm = 0;
	if (kind->phase == PHASE_OPEN)
		judge_open(kind);
	else if (kind->phase == PHASE_TRIAL && kind->requests >= TRIAL)
		end_trial(kind, may_miss);
	else if (kind->phase == PHASE_GATED && kind->requests >= kind->pause)
		enter_phase(kind, PHASE_OPEN, ALLOWANCE_LEAST);
	apply_allowance(policy, tenant);
}

static void dump_kind(uint32_t tenant, uint32_t number, const struct spatial_kind *kind, FILE *out)
{
	static const char *const phases[] = {"open", "trial", "gated"};
	fprintf(out, "spatial %u", tenant);
	if (number)
		fprintf(out, " kind=%u", number);
	fprintf(out, " %s allowance=%uppm requests=%u misses=%u debt=%lldppm alarm=%lldppm pause=%u\n",
		phases[kind->phase], kind->allowance_ppm, kind->requests, kind->misses, (long long)kind->debt_ppm,
		(long long)kind->alarm_ppm, kind->pause);
}

static void dump_tenants(const struct hb_policy *policy, FILE *out)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		const struct spatial_tenant *state = hb_policy_tenant_state(policy, id);
		bool any = false;
		for (uint32_t i = 0; i < HB_REQUEST_KINDS; i++) {
			any |= state->kinds[i].seen;
			if (state->kinds[i].seen)
				dump_kind(id, i, &state->kinds[i], out);
		}
		if (!any)
			dump_kind(id, 0, &state->kinds[0], out);
	}
}

const struct hb_policy_ops hb_policy_spatial_ops = {
	.name = "spatial",
	.summary = "LP runs beside HP within the delay that HP's SLO allows",
	.tenant_bytes = sizeof(struct spatial_tenant),
	.tenant_added = add_tenant,
	.tenant_changed = note_tenants,
	.tenant_removed = note_tenants,
	.request_ended = judge_request,
	.dump = dump_tenants,
};
