/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporal: HP and LP in separate contexts, and the hardware switches between
 * them. Slices are set when tenants come and go, never on the path of a launch;
 * hints start the switch before HP needs the GPU.
 *
 * Idea. A context with the smallest slice loses the GPU as soon as another one
 * has work, one with a long slice keeps it until it has none. So with LP at the
 * smallest slice and HP at a long one, HP waits for one context switch (190 us)
 * and never for LP, while LP pays nothing as long as it is the only one that
 * runs. What remains is the switch itself, and two hold kernels launched on
 * HP's context `hold_lead_ns` before its first kernel hide it (5 us left).
 *
 * Several LP tenants. Two contexts with tiny slices stop each other for good,
 * so at most one may be runnable: either all of LP lives in one MPS context
 * (low_shared), or they take turns through their gates (turns.c). Their copy
 * groups stay their own, also in one MPS server, and the slices of these are
 * weights: a round of COPY_ROUND over all of LP, shared by weight; a single LP
 * tenant gets the smallest.
 *
 * Several HP tenants. A round over all of them fits in half of the strictest
 * SLO, and each has a share of it proportional to its urgency, 1 / SLO: a
 * tenant waits for the slices of the others, so the loose ones must be short
 * and the strict one may be long. No slice is under 1 ms, five switches.
 * Example: A with 10 ms and B with 40 ms: the round is 5 ms, A gets 4 ms, B
 * 1 ms; A waits at most 1 ms for B, B at most 4 of its 40 ms for A. With an SLO
 * unknown everyone keeps the GPU's default.
 *
 * Hints. On a hint for time s the holds start at s - 400 us (at once where that
 * has passed) and end with HP's first work, or at s + grace, when the hint was
 * wrong.
 * Example: a request's bytes arrive at 0, its first kernel is expected at 1 ms.
 * Holds are launched at 0.6 ms, HP has the GPU at 0.79 ms, its kernel comes at
 * 1.02 ms and releases them: LP lost 0.42 ms, HP gained 185 us. A hint that
 * leads to nothing costs LP 1.4 ms and two switches.
 *
 * Bad at: the bubbles inside a request, which no LP tenant can use: an eager
 * resnet50 leaves two thirds of its request time unused. LP's latency under
 * turns: a turn is 50 ms.
 */
#include "core/costs.h"
#include "core/policy.h"

#define SLICE_LEAST_NS INT64_C(1000000)
#define COPY_ROUND_NS HB_H200_COPY_ROUND_NS

enum timer_tag { TIMER_START, TIMER_END };

enum hold_state { HOLD_NONE, HOLD_PLANNED, HOLD_RUNNING };

struct tenant_state {
	enum hold_state hold;
	int64_t expected_ns;
	int64_t began_ns;
};

static int init(struct hb_policy *policy)
{
	hb_policy_turns(policy, !hb_policy_config(policy)->low_shared);
	return 0;
}

/* --- slices --- */

static void slice_low(struct hb_policy *policy)
{
	const struct hb_core_config *config = hb_policy_config(policy);
	uint32_t id = HB_TENANT_NONE, n = 0;
	int64_t weights = 0;
	while ((id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE) {
		weights += hb_policy_tenant(policy, id)->weight;
		n++;
	}
	while ((id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE) {
		int64_t turn_ns = COPY_ROUND_NS * hb_policy_tenant(policy, id)->weight / weights;
		int64_t copy_ns = turn_ns - HB_H200_COPY_OVERRUN_NS;
		if (n == 1 || copy_ns < config->low_slice_ns)
			copy_ns = config->low_slice_ns;
		hb_policy_slice(policy, id, config->low_slice_ns, copy_ns);
	}
}

/* The strictest SLO and the sum of urgencies in units of its own (ppm); false = an SLO is not known. */
static bool sum_urgency(const struct hb_policy *policy, int64_t *strictest_ns, int64_t *urgency_ppm)
{
	uint32_t id = HB_TENANT_NONE;
	int64_t least_ns = HB_TIME_NEVER;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		int64_t slo_ns = hb_policy_tenant(policy, id)->slo_ns;
		if (!slo_ns)
			return false;
		if (slo_ns < least_ns)
			least_ns = slo_ns;
	}
	*strictest_ns = least_ns;
	*urgency_ppm = 0;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE)
		*urgency_ppm += (int64_t)((__int128)least_ns * 1000000 / hb_policy_tenant(policy, id)->slo_ns);
	return true;
}

static int64_t high_slice_ns(int64_t slo_ns, int64_t strictest_ns, int64_t urgency_ppm, int64_t longest_ns)
{
	int64_t own_ppm = (int64_t)((__int128)strictest_ns * 1000000 / slo_ns);
	int64_t slice_ns = (int64_t)((__int128)strictest_ns / 2 * own_ppm / urgency_ppm);
	if (slice_ns < SLICE_LEAST_NS)
		slice_ns = SLICE_LEAST_NS;
	return slice_ns < longest_ns ? slice_ns : longest_ns;
}

static void slice_high(struct hb_policy *policy)
{
	int64_t longest_ns = hb_policy_config(policy)->high_slice_ns;
	int64_t strictest_ns = 0, urgency_ppm = 0;
	uint32_t first = hb_policy_next(policy, HB_PRIORITY_HIGH, HB_TENANT_NONE);
	if (first == HB_TENANT_NONE)
		return;
	bool single = hb_policy_next(policy, HB_PRIORITY_HIGH, first) == HB_TENANT_NONE;
	bool known = sum_urgency(policy, &strictest_ns, &urgency_ppm);
	for (uint32_t id = first; id != HB_TENANT_NONE; id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) {
		int64_t slice_ns = HB_H200_DEFAULT_SLICE_NS;
		if (single)
			slice_ns = longest_ns;
		else if (known)
			slice_ns = high_slice_ns(hb_policy_tenant(policy, id)->slo_ns, strictest_ns, urgency_ppm,
						 longest_ns);
		hb_policy_slice(policy, id, slice_ns, slice_ns);
	}
}

static void slice_all(struct hb_policy *policy, uint32_t tenant)
{
	slice_low(policy);
	slice_high(policy);
}

/* --- hints --- */

/* The GPU is not LP's to take: there is no LP, or another HP tenant has it, whose slices a hold would cost. */
static bool hold_pointless(const struct hb_policy *policy)
{
	return hb_policy_next(policy, HB_PRIORITY_LOW, HB_TENANT_NONE) == HB_TENANT_NONE || hb_policy_high_busy(policy);
}

static void start_hold(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	int64_t now_ns = hb_policy_now_ns(policy);
	if (hold_pointless(policy)) {
		state->hold = HOLD_NONE;
		hb_policy_counters(policy, tenant)->hints_needless++;
		return;
	}
	int64_t ahead_ns = state->expected_ns > now_ns ? state->expected_ns - now_ns : 0;
	int64_t limit_ns = ahead_ns + hb_policy_config(policy)->hold_grace_ns;
	state->hold = HOLD_RUNNING;
	state->began_ns = now_ns;
	hb_policy_hold(policy, tenant, limit_ns);
	hb_policy_timer(policy, tenant, TIMER_END, now_ns + limit_ns);
}

static void plan_hold(struct hb_policy *policy, uint32_t tenant, int64_t expected_ns)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	int64_t start_ns = expected_ns - hb_policy_config(policy)->hold_lead_ns;
	state->hold = HOLD_PLANNED;
	state->expected_ns = expected_ns;
	if (start_ns > hb_policy_now_ns(policy)) {
		hb_policy_timer(policy, tenant, TIMER_START, start_ns);
		return;
	}
	hb_policy_cancel(policy, tenant, TIMER_START);
	start_hold(policy, tenant);
}

/* Of several hints the earliest counts; while holds run there is nothing to add. */
static void hint(struct hb_policy *policy, uint32_t tenant, int64_t expected_ns, enum hb_sign sign, uint64_t source)
{
	const struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	const struct hb_tenant *about = hb_policy_tenant(policy, tenant);
	bool planned_earlier = state->hold == HOLD_PLANNED && state->expected_ns <= expected_ns;
	if (about->priority == HB_PRIORITY_LOW || about->busy || state->hold == HOLD_RUNNING || planned_earlier)
		hb_policy_counters(policy, tenant)->hints_needless++;
	else
		plan_hold(policy, tenant, expected_ns);
}

static void timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	if (tag == TIMER_START) {
		start_hold(policy, tenant);
		return;
	}
	struct hb_tenant_counters *counters = hb_policy_counters(policy, tenant);
	counters->hints_wrong++;
	counters->wrong_hold_time += (uint64_t)(hb_policy_now_ns(policy) - state->began_ns);
	state->hold = HOLD_NONE;
	hb_policy_release(policy, tenant);
}

/* HP's first work: what was held for has come, or came before we held. */
static void busy(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	struct hb_tenant_counters *counters = hb_policy_counters(policy, tenant);
	if (state->hold == HOLD_NONE)
		return;
	int64_t held_ns = hb_policy_now_ns(policy) - state->began_ns;
	if (state->hold == HOLD_RUNNING && held_ns >= hb_policy_config(policy)->switch_ns)
		counters->hints_hidden++;
	else
		counters->hints_late++;
	state->hold = HOLD_NONE;
	hb_policy_cancel(policy, tenant, TIMER_START);
	hb_policy_cancel(policy, tenant, TIMER_END);
	hb_policy_release(policy, tenant);
}

static void dump(const struct hb_policy *policy, FILE *out)
{
	static const char *const names[] = {"none", "planned", "running"};
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		const struct tenant_state *state = hb_policy_tenant_state(policy, id);
		fprintf(out, "temporal %s hold=%s\n", hb_policy_tenant(policy, id)->name.text, names[state->hold]);
	}
}

const struct hb_policy_ops hb_policy_temporal_ops = {
	.name = "temporal",
	.summary = "hardware slices: LP's smallest, HP's long; hints hide the switch",
	.tenant_bytes = sizeof(struct tenant_state),
	.init = init,
	.tenant_added = slice_all,
	.tenant_changed = slice_all,
	.tenant_removed = slice_all,
	.busy = busy,
	.hint = hint,
	.timer = timer,
	.dump = dump,
};
