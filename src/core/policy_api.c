/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that policy.h offers to policies. Every call that asks for something is
 * checked here. A valid one becomes an action or a timer at once; an invalid one
 * becomes the fault for which guard.c ejects the policy.
 */
#include "core/core_priv.h"
#include "decide/spatial.h"

/* --- reading --- */

int64_t hb_policy_now_ns(const struct hb_policy *policy)
{
	return policy->core->now_ns;
}

const struct hb_core_config *hb_policy_config(const struct hb_policy *policy)
{
	return &policy->core->config;
}

void *hb_policy_state(const struct hb_policy *policy)
{
	return policy->core->policy_state;
}

/* A tenant that is just leaving may still be read. */
static struct hb_slot *find_readable(const struct hb_policy *policy, uint32_t tenant)
{
	if (tenant != HB_TENANT_NONE && tenant == policy->core->leaving)
		return &policy->core->slots[tenant];
	return hb_core_slot(policy->core, tenant);
}

void *hb_policy_tenant_state(const struct hb_policy *policy, uint32_t tenant)
{
	const struct hb_core *core = policy->core;
	size_t bytes = core->ops->tenant_bytes;
	if (!bytes || !find_readable(policy, tenant))
		return NULL;
	return core->tenant_state + tenant * ((bytes + 15) & ~(size_t)15);
}

const struct hb_tenant *hb_policy_tenant(const struct hb_policy *policy, uint32_t tenant)
{
	const struct hb_slot *slot = find_readable(policy, tenant);
	return slot ? &slot->tenant : NULL;
}

uint32_t hb_policy_next(const struct hb_policy *policy, enum hb_priority priority, uint32_t after)
{
	return hb_core_next_id(policy->core, priority, after);
}

bool hb_policy_high_wants_gpu(const struct hb_policy *policy)
{
	return hb_core_high_wants_gpu(policy->core);
}

/* --- asking --- */

/* Counts a call for a tenant. NULL = the policy is at fault, and the call is ignored. */
static struct hb_slot *begin_ask(struct hb_policy *policy, uint32_t tenant, const char *what)
{
	if (!hb_guard_ask(policy->core))
		return NULL;
	struct hb_slot *slot = hb_core_slot(policy->core, tenant);
	if (!slot)
		hb_guard_fault(policy->core, HB_EJECT_UNKNOWN_TENANT, tenant, "%s for tenant %u, which does not exist",
			       what, tenant);
	return slot;
}

/* Whether a duration is between 0 and max_ns; records the fault if not. */
static bool check_duration(struct hb_policy *policy, uint32_t tenant, const char *what, int64_t value_ns,
			   int64_t max_ns)
{
	if (value_ns < 0)
		hb_guard_fault(policy->core, HB_EJECT_BAD_TIME, tenant, "%s of %lld ns", what, (long long)value_ns);
	else if (value_ns > max_ns)
		hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "%s of %lld ns, at most %lld", what,
			       (long long)value_ns, (long long)max_ns);
	return value_ns >= 0 && value_ns <= max_ns;
}

void hb_policy_gate(struct hb_policy *policy, uint32_t tenant, enum hb_gate_state state, uint32_t depth)
{
	struct hb_slot *slot = begin_ask(policy, tenant, "gate");
	if (!slot)
		return;
	if ((unsigned)state > HB_GATE_CLOSED || depth > HB_GATE_DEPTH_MAX) {
		hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "gate state %u depth %u", (unsigned)state,
			       depth);
		return;
	}
	slot->tenant.asked_gate = state;
	slot->tenant.asked_depth = depth;
	hb_turns_apply(policy->core, slot);
}

void hb_policy_gate_all(struct hb_policy *policy, enum hb_priority priority, enum hb_gate_state state, uint32_t depth)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, priority, id)) != HB_TENANT_NONE)
		hb_policy_gate(policy, id, state, depth);
}

void hb_policy_slice(struct hb_policy *policy, uint32_t tenant, int64_t compute_ns, int64_t copy_ns)
{
	struct hb_slot *slot = begin_ask(policy, tenant, "slice");
	if (!slot || !check_duration(policy, tenant, "compute slice", compute_ns, HB_SLICE_MAX_NS) ||
	    !check_duration(policy, tenant, "copy slice", copy_ns, HB_SLICE_MAX_NS))
		return;
	if (slot->tenant.slice_compute_ns == compute_ns && slot->tenant.slice_copy_ns == copy_ns)
		return;
	slot->tenant.slice_compute_ns = compute_ns;
	slot->tenant.slice_copy_ns = copy_ns;
	struct hb_action *action = hb_core_emit(policy->core, HB_ACTION_SLICE, tenant);
	action->slice.compute_ns = compute_ns;
	action->slice.copy_ns = copy_ns;
}

void hb_policy_allow(struct hb_policy *policy, uint32_t tenant, uint32_t delay_ppm)
{
	struct hb_slot *slot = begin_ask(policy, tenant, "allowance");
	if (!slot)
		return;
	if (delay_ppm > HB_SPATIAL_PPM || slot->tenant.priority != HB_PRIORITY_HIGH) {
		hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "allowance of %u ppm for an %s tenant",
			       delay_ppm, slot->tenant.priority == HB_PRIORITY_HIGH ? "HP" : "LP");
		return;
	}
	if (slot->tenant.allowance_ppm == delay_ppm)
		return;
	slot->tenant.allowance_ppm = delay_ppm;
	hb_core_emit(policy->core, HB_ACTION_ALLOWANCE, tenant)->allowance.delay_ppm = delay_ppm;
}

/* The tenant may be HB_TENANT_NONE; the tag must exist. */
static bool check_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	if (tenant != HB_TENANT_NONE ? !begin_ask(policy, tenant, "timer") : !hb_guard_ask(policy->core))
		return false;
	if (tag < HB_POLICY_TIMERS)
		return true;
	hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "timer tag %u, there are %u", tag, HB_POLICY_TIMERS);
	return false;
}

void hb_policy_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag, int64_t at_ns)
{
	struct hb_core *core = policy->core;
	if (!check_timer(policy, tenant, tag) || !check_duration(policy, tenant, "timer", at_ns, HB_TIME_LIMIT_NS))
		return;
	uint32_t timer = hb_core_policy_timer(core, tenant, tag);
	if (!hb_timers_pending(&core->timers, timer))
		core->n_policy_timers++;
	hb_timers_set(&core->timers, timer, at_ns < core->now_ns ? core->now_ns : at_ns);
}

void hb_policy_cancel(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	if (check_timer(policy, tenant, tag))
		hb_core_cancel_policy_timer(policy->core, hb_core_policy_timer(policy->core, tenant, tag));
}

/* Changes every LP gate, so it counts as one call for each. */
void hb_policy_turns(struct hb_policy *policy, enum hb_turn_order order)
{
	struct hb_core *core = policy->core;
	if (core->turns.order == order)
		return;
	for (uint32_t i = 0; i <= core->n_tenants; i++)
		if (!hb_guard_ask(core))
			return;
	hb_turns_switch(core, order);
}

void hb_policy_share_low(struct hb_policy *policy, bool one_context)
{
	uint32_t first = hb_policy_next(policy, HB_PRIORITY_LOW, HB_TENANT_NONE), id = first;
	enum hb_turn_order order = HB_TURNS_OFF;
	while (id != HB_TENANT_NONE) {
		if (hb_policy_tenant(policy, id)->weight != hb_policy_tenant(policy, first)->weight)
			order = HB_TURNS_BY_WEIGHT;
		id = hb_policy_next(policy, HB_PRIORITY_LOW, id);
	}
	hb_policy_turns(policy, one_context ? order : HB_TURNS_BY_USER);
}
