/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orion-like: LP kernels run beside HP one by one, where they are expected not
 * to hurt. After Orion (Strati et al., EuroSys 2024).
 *
 * Rule. While no HP tenant has work on the GPU everything goes. While one has,
 * an LP launch is admitted only if
 *   - it needs few SMs: known, and at most `orion_sms` (default half the GPU);
 *   - it is of the other kind (compute or memory bound) than every HP kernel
 *     that runs, or one of the two is unknown;
 *   - the LP time admitted since HP was last idle stays within the budget
 *     (`orion_budget_ns`; default 2.5 % of the least alone_ns among HP tenants,
 *     Orion's own setting, and 100 us until that is learned).
 * A launch of unknown SMs or duration waits: never guess beside HP. Launches of
 * one tenant stay in order; LP tenants are asked in turn.
 *
 * Example: 132 SMs, HP alone takes 4 ms, so the budget is 100 us. HP runs a
 * compute-bound GEMM. LP asks for an element-wise kernel (memory, 40 SMs,
 * 60 us): admitted, 40 us of budget left. Its next one (memory, 40 SMs, 50 us)
 * waits, since 110 > 100. HP becomes idle: the gate opens, the budget is full
 * again.
 *
 * Bad at: it needs every launch's duration, size and kind (Orion: an offline
 * profile), asks the core for every LP launch while HP is busy, and does not
 * know how much a pair really slows each other. An eager HP program is idle
 * between its kernels, so LP starts kernels of any size there.
 */
#include "core/policy.h"
#include "decide/orion_rule.h"

struct state {
	int64_t used_ns; /* LP time admitted beside HP since it was idle */
	uint32_t last;   /* LP tenant admitted last */
};

static int init(struct hb_policy *policy)
{
	struct state *state = hb_policy_state(policy);
	state->last = HB_TENANT_NONE;
	return 0;
}

static int64_t budget_ns(const struct hb_policy *policy)
{
	int64_t least_ns = hb_policy_config(policy)->orion_budget_ns;
	uint32_t id = HB_TENANT_NONE;
	if (least_ns)
		return least_ns;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		int64_t alone_ns = hb_policy_tenant(policy, id)->alone_ns;
		if (alone_ns && (!least_ns || alone_ns < least_ns))
			least_ns = alone_ns;
	}
	return hb_orion_budget_ns(least_ns);
}

/* No running HP kernel is known to be of the same kind. */
static bool kinds_differ(const struct hb_policy *policy, enum hb_class class)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		const struct hb_work *running = hb_tenant_launch(hb_policy_core(policy), id);
		if (running && class != HB_CLASS_UNKNOWN && running->class == class)
			return false;
	}
	return true;
}

static bool admissible(const struct hb_policy *policy, const struct hb_work *launch)
{
	const struct hb_core_config *config = hb_policy_config(policy);
	const struct state *state = hb_policy_state(policy);
	uint32_t limit = config->orion_sms ? config->orion_sms : config->sms / 2;

	const struct hb_orion_launch asked = {
		.sms = launch->sms, .duration_ns = launch->duration_ns, .class = launch->class};
	return hb_orion_fits(&asked, limit, budget_ns(policy) - state->used_ns, HB_CLASS_UNKNOWN) &&
	       kinds_differ(policy, launch->class);
}

static void consider(struct hb_policy *policy, uint32_t tenant)
{
	struct state *state = hb_policy_state(policy);
	const struct hb_work *launch = hb_tenant_pending(hb_policy_core(policy), tenant);
	if (!launch || !admissible(policy, launch))
		return;
	state->used_ns += launch->duration_ns;
	state->last = tenant;
	hb_policy_admit(policy, tenant, launch->id);
}

/* One launch of each LP tenant at most, starting after the one admitted last. */
static void consider_all(struct hb_policy *policy)
{
	const struct state *state = hb_policy_state(policy);
	uint32_t last = state->last, id = last;
	while (id != HB_TENANT_NONE && (id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE)
		consider(policy, id);
	id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE && id <= last)
		consider(policy, id);
}

static void review(struct hb_policy *policy)
{
	struct state *state = hb_policy_state(policy);
	uint32_t depth = hb_policy_config(policy)->gate_depth;
	if (hb_policy_high_busy(policy)) {
		hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_PER_LAUNCH, depth);
		consider_all(policy);
		return;
	}
	state->used_ns = 0;
	hb_policy_gate_all(policy, HB_PRIORITY_LOW, HB_GATE_OPEN, depth);
}

static void any_change(struct hb_policy *policy, uint32_t tenant)
{
	review(policy);
}

static void high_change(struct hb_policy *policy, uint32_t tenant)
{
	if (hb_policy_tenant(policy, tenant)->priority == HB_PRIORITY_HIGH)
		review(policy);
}

static void launched(struct hb_policy *policy, uint32_t tenant, const struct hb_work *launch, bool waits)
{
	if (waits)
		consider_all(policy);
	else
		high_change(policy, tenant);
}

static void completed(struct hb_policy *policy, uint32_t tenant, const struct hb_work *launch)
{
	high_change(policy, tenant);
}

static void dump(const struct hb_policy *policy, FILE *out)
{
	const struct state *state = hb_policy_state(policy);
	fprintf(out, "orion used=%lldns budget=%lldns\n", (long long)state->used_ns, (long long)budget_ns(policy));
}

const struct hb_policy_ops hb_policy_orion_ops = {
	.name = "orion",
	.summary = "LP kernels beside HP when small, of the other kind, and within a budget",
	.state_bytes = sizeof(struct state),
	.launches = true,
	.init = init,
	.tenant_added = any_change,
	.tenant_removed = any_change,
	.launched = launched,
	.completed = completed,
	.busy = high_change,
	.idle = high_change,
	.dump = dump,
};
