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
 * Hints. What is known of a tenant's signs, when to hold for which, and what
 * wrong holds may cost are foresight's (foresight.h), one for each HP tenant and
 * one budget for all; this file tells it what happens and carries out what it
 * wants. A hint that names its time s is believed from the start: holds from
 * s - 400 us (at once where that has passed) to s + grace.
 * Example: a request's bytes arrive at 0, its first kernel is expected at 1 ms.
 * Holds are launched at 0.6 ms, HP has the GPU at 0.79 ms, its kernel comes at
 * 1.02 ms and releases them: LP lost 0.42 ms, HP gained 185 us. A hint that
 * leads to nothing costs LP 1.4 ms and two switches.
 *
 * Bad at: the bubbles inside a request, which no LP tenant can use: an eager
 * resnet50 leaves two thirds of its request time unused. LP's latency under
 * turns: a turn is 50 ms. Two HP tenants: nothing is held for one while the other
 * works, so its first kernel after that pays the switch between the two.
 */
#include "core/policy.h"
#include "decide/defaults.h"

#define SLICE_LEAST_NS INT64_C(1000000)
#define COPY_ROUND_NS HB_DEFAULT_COPY_ROUND_NS

enum timer_tag { TIMER_FORESIGHT };

struct policy_state {
	struct hb_foresight_budget budget;
};

struct tenant_state {
	struct hb_foresight foresight;
	int64_t held_until_ns; /* as asked for; 0 = nothing is held */
	int64_t wake_ns;       /* of the timer; HB_TIME_NEVER = not set */
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
		int64_t copy_ns = turn_ns - HB_DEFAULT_COPY_OVERRUN_NS;
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
		int64_t slice_ns = HB_DEFAULT_DRIVER_SLICE_NS;
		if (single)
			slice_ns = longest_ns;
		else if (known)
			slice_ns = high_slice_ns(hb_policy_tenant(policy, id)->slo_ns, strictest_ns, urgency_ppm,
						 longest_ns);
		hb_policy_slice(policy, id, slice_ns, slice_ns);
	}
}

static void slice_all(struct hb_policy *policy)
{
	slice_low(policy);
	slice_high(policy);
}

/* --- foresight --- */

static void begin_foresight(struct hb_policy *policy, uint32_t tenant)
{
	const struct hb_core_config *config = hb_policy_config(policy);
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	struct policy_state *shared = hb_policy_state(policy);
	struct hb_foresight_costs costs;
	hb_foresight_costs_init(&costs);
	costs.switch_ns = config->switch_ns;
	/* The core's owner sees the end of work at once, and no thread has to wake up. */
	costs.ready_ns = HB_DEFAULT_TAKEOVER_READY_NS;
	costs.idle_seen_ns = costs.soon_ns = 0;
	costs.kept_weight_ppm = costs.weight_ppm;
	costs.lead_ns = config->hold_lead_ns;
	costs.grace_ns = config->hold_grace_ns;
	costs.budget_ppm = config->hold_budget_ppm;
	/* Hints carried out as they are know no budget. */
	if (config->foresight_off)
		costs.budget_cap_ns = HB_TIME_LIMIT_NS;
	hb_foresight_init(&state->foresight, &costs, &shared->budget, !config->foresight_off);
	state->wake_ns = HB_TIME_NEVER;
}

/* A hold gains nothing without LP, and costs the slices of another HP tenant that has the GPU. */
static bool hold_useful(const struct hb_policy *policy, uint32_t tenant)
{
	uint32_t id = HB_TENANT_NONE;
	if (hb_policy_next(policy, HB_PRIORITY_LOW, id) == HB_TENANT_NONE)
		return false;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE)
		if (id != tenant && hb_policy_tenant(policy, id)->busy)
			return false;
	return true;
}

static void count(struct hb_policy *policy, uint32_t tenant, const struct hb_foresight_counts *counts)
{
	struct hb_tenant_counters *counters = hb_policy_counters(policy, tenant);
	counters->hints_needless = counts->needless;
	counters->hints_hidden = counts->hidden;
	counters->hints_late = counts->late;
	counters->hints_wrong = counts->wrong;
	counters->wrong_hold_time = counts->wrong_ns;
	counters->holds_throttled = counts->throttled;
	counters->lingers = counts->lingers;
}

/* Asks for what foresight wants of one tenant, where that has changed. */
static void follow(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	int64_t until_ns = hb_foresight_hold_until_ns(&state->foresight);
	int64_t wake_ns = hb_foresight_next_ns(&state->foresight);
	if (until_ns > state->held_until_ns)
		hb_policy_hold(policy, tenant, until_ns - hb_policy_now_ns(policy));
	else if (until_ns == 0 && state->held_until_ns)
		hb_policy_release(policy, tenant);
	state->held_until_ns = until_ns;
	if (wake_ns != state->wake_ns && wake_ns < HB_TIME_LIMIT_NS)
		hb_policy_timer(policy, tenant, TIMER_FORESIGHT, wake_ns);
	else if (wake_ns != state->wake_ns)
		hb_policy_cancel(policy, tenant, TIMER_FORESIGHT);
	state->wake_ns = wake_ns;
	count(policy, tenant, &state->foresight.counts);
}

/* Who may be held for depends on who else is there and at work. */
static void follow_all(struct hb_policy *policy)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		struct tenant_state *state = hb_policy_tenant_state(policy, id);
		hb_foresight_allow(&state->foresight, hb_policy_now_ns(policy), hold_useful(policy, id));
		follow(policy, id);
	}
}

static bool is_high(const struct hb_policy *policy, uint32_t tenant)
{
	return hb_policy_tenant(policy, tenant)->priority == HB_PRIORITY_HIGH;
}

static void hint(struct hb_policy *policy, uint32_t tenant, int64_t expected_ns, enum hb_sign sign, uint64_t source)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	if (!is_high(policy, tenant)) {
		hb_policy_counters(policy, tenant)->hints_needless++;
		return;
	}
	hb_foresight_sign(&state->foresight, hb_policy_now_ns(policy), sign, source, 0, expected_ns);
	follow(policy, tenant);
}

static void timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	state->wake_ns = HB_TIME_NEVER;
	hb_foresight_step(&state->foresight, hb_policy_now_ns(policy));
	follow(policy, tenant);
}

static void busy(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	if (!is_high(policy, tenant))
		return;
	hb_foresight_busy(&state->foresight, hb_policy_now_ns(policy));
	follow_all(policy);
}

static void idle(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	if (!is_high(policy, tenant))
		return;
	hb_foresight_idle(&state->foresight, hb_policy_now_ns(policy));
	follow_all(policy);
}

/* --- tenants --- */

static void added(struct hb_policy *policy, uint32_t tenant)
{
	slice_all(policy);
	if (is_high(policy, tenant))
		begin_foresight(policy, tenant);
	follow_all(policy);
}

static void changed(struct hb_policy *policy, uint32_t tenant)
{
	slice_all(policy);
}

static void removed(struct hb_policy *policy, uint32_t tenant)
{
	struct tenant_state *state = hb_policy_tenant_state(policy, tenant);
	slice_all(policy);
	if (is_high(policy, tenant))
		hb_foresight_fini(&state->foresight, hb_policy_now_ns(policy));
	follow_all(policy);
}

static void dump(const struct hb_policy *policy, FILE *out)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		const struct tenant_state *state = hb_policy_tenant_state(policy, id);
		const char *hold = state->held_until_ns             ? "running"
				   : state->wake_ns < HB_TIME_NEVER ? "planned"
								    : "none";
		fprintf(out, "temporal %s hold=%s\n", hb_policy_tenant(policy, id)->name.text, hold);
		hb_foresight_dump(&state->foresight, out);
	}
}

const struct hb_policy_ops hb_policy_temporal_ops = {
	.name = "temporal",
	.summary = "hardware slices: LP's smallest, HP's long; hints hide the switch",
	.state_bytes = sizeof(struct policy_state),
	.tenant_bytes = sizeof(struct tenant_state),
	.high_by_requests = true,
	.init = init,
	.tenant_added = added,
	.tenant_changed = changed,
	.tenant_removed = removed,
	.busy = busy,
	.idle = idle,
	.hint = hint,
	.timer = timer,
	.dump = dump,
};
