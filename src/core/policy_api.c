/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy may see and ask (policy.h). Called by policies from inside
 * their callbacks. Every ask is checked here; what passes becomes an action or
 * a timer at once, what does not becomes the fault for which guard.c ejects.
 */
#include "core/core_priv.h"
#include "decide/spatial.h"

/* --- looking --- */

int64_t hb_policy_now_ns(const struct hb_policy *policy)
{
	return policy->core->now_ns;
}

const struct hb_core *hb_policy_core(const struct hb_policy *policy)
{
	return policy->core;
}

const struct hb_core_config *hb_policy_config(const struct hb_policy *policy)
{
	return &policy->core->config;
}

void *hb_policy_state(const struct hb_policy *policy)
{
	return policy->core->policy_state;
}

/* A tenant that is just leaving may still be looked at. */
static struct hb_slot *visible(const struct hb_policy *policy, uint32_t tenant)
{
	if (tenant != HB_TENANT_NONE && tenant == policy->core->leaving)
		return &policy->core->slots[tenant];
	return hb_core_slot(policy->core, tenant);
}

void *hb_policy_tenant_state(const struct hb_policy *policy, uint32_t tenant)
{
	const struct hb_core *core = policy->core;
	size_t bytes = core->ops->tenant_bytes;
	if (!bytes || !visible(policy, tenant))
		return NULL;
	return core->tenant_state + tenant * ((bytes + 15) & ~(size_t)15);
}

const struct hb_tenant *hb_policy_tenant(const struct hb_policy *policy, uint32_t tenant)
{
	const struct hb_slot *slot = visible(policy, tenant);
	return slot ? &slot->tenant : NULL;
}

uint32_t hb_policy_next(const struct hb_policy *policy, enum hb_priority priority, uint32_t after)
{
	return hb_core_next_id(policy->core, priority, after);
}

struct hb_tenant_counters *hb_policy_counters(struct hb_policy *policy, uint32_t tenant)
{
	struct hb_slot *slot = visible(policy, tenant);
	return slot ? &slot->tenant.counters : NULL;
}

const struct hb_work *hb_tenant_launch(const struct hb_core *core, uint32_t tenant)
{
	const struct hb_slot *slot = hb_core_slot(core, tenant);
	return slot && slot->launches.count ? &core->launches.nodes[slot->launches.first].work : NULL;
}

const struct hb_work *hb_tenant_pending(const struct hb_core *core, uint32_t tenant)
{
	const struct hb_slot *slot = hb_core_slot(core, tenant);
	return slot && slot->pending.count ? &core->launches.nodes[slot->pending.first].work : NULL;
}

/* --- asking --- */

/* The tenant of an ask that counts; NULL = not listened to, or faulted. */
static struct hb_slot *ask(struct hb_policy *policy, uint32_t tenant, const char *what)
{
	if (!hb_guard_ask(policy->core))
		return NULL;
	struct hb_slot *slot = hb_core_slot(policy->core, tenant);
	if (!slot)
		hb_guard_fault(policy->core, HB_EJECT_UNKNOWN_TENANT, tenant, "%s for tenant %u, which is not there",
			       what, tenant);
	return slot;
}

/* A length of time between 0 and max_ns; says what is wrong otherwise. */
static bool length_valid(struct hb_policy *policy, uint32_t tenant, const char *what, int64_t value_ns, int64_t max_ns)
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
	struct hb_slot *slot = ask(policy, tenant, "gate");
	if (!slot)
		return;
	if ((unsigned)state > HB_GATE_PER_LAUNCH || depth > HB_GATE_DEPTH_MAX) {
		hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "gate state %u depth %u", (unsigned)state,
			       depth);
		return;
	}
	if (state == HB_GATE_PER_LAUNCH && !policy->core->ops->launches) {
		hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant,
			       "gate per_launch without `launches` in the ops");
		return;
	}
	slot->tenant.wish = state;
	slot->tenant.wish_depth = depth;
	hb_turns_apply(policy->core, slot);
}

void hb_policy_gate_all(struct hb_policy *policy, enum hb_priority priority, enum hb_gate_state state, uint32_t depth)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_policy_next(policy, priority, id)) != HB_TENANT_NONE)
		hb_policy_gate(policy, id, state, depth);
}

void hb_policy_admit(struct hb_policy *policy, uint32_t tenant, uint64_t launch)
{
	struct hb_slot *slot = ask(policy, tenant, "admit");
	if (!slot)
		return;
	struct hb_core *core = policy->core;
	const struct hb_work *oldest = hb_list_first(&core->launches, &slot->pending);
	if (!oldest || oldest->id != launch) {
		hb_guard_fault(core, HB_EJECT_UNKNOWN_LAUNCH, tenant,
			       "admit of launch %llu, which is not the oldest waiting", (unsigned long long)launch);
		return;
	}
	hb_list_move_first(&core->launches, &slot->pending, &slot->launches);
	slot->tenant.pending = slot->pending.count;
	slot->tenant.launches = slot->launches.count;
	slot->tenant.counters.admitted++;
	slot->denied_since_ns = HB_TIME_NEVER;
	hb_core_emit(core, HB_ACTION_ADMIT, tenant)->admit.launch = launch;
}

void hb_policy_slice(struct hb_policy *policy, uint32_t tenant, int64_t compute_ns, int64_t copy_ns)
{
	struct hb_slot *slot = ask(policy, tenant, "slice");
	if (!slot || !length_valid(policy, tenant, "compute slice", compute_ns, HB_SPLIT_MAX_NS) ||
	    !length_valid(policy, tenant, "copy slice", copy_ns, HB_SPLIT_MAX_NS))
		return;
	if (slot->tenant.slice_compute_ns == compute_ns && slot->tenant.slice_copy_ns == copy_ns)
		return;
	slot->tenant.slice_compute_ns = compute_ns;
	slot->tenant.slice_copy_ns = copy_ns;
	struct hb_action *action = hb_core_emit(policy->core, HB_ACTION_SLICE, tenant);
	action->slice.compute_ns = compute_ns;
	action->slice.copy_ns = copy_ns;
}

void hb_policy_hold(struct hb_policy *policy, uint32_t tenant, int64_t limit_ns)
{
	struct hb_slot *slot = ask(policy, tenant, "hold");
	if (!slot || !length_valid(policy, tenant, "hold", limit_ns, HB_TAKEOVER_MAX_NS))
		return;
	slot->tenant.holding = true;
	slot->tenant.counters.holds++;
	hb_core_emit(policy->core, HB_ACTION_HOLD, tenant)->hold.limit_ns = limit_ns;
}

void hb_policy_release(struct hb_policy *policy, uint32_t tenant)
{
	struct hb_slot *slot = ask(policy, tenant, "release");
	if (!slot || !slot->tenant.holding)
		return;
	slot->tenant.holding = false;
	hb_core_emit(policy->core, HB_ACTION_RELEASE, tenant);
}

void hb_policy_mask(struct hb_policy *policy, uint32_t tenant, uint32_t sms)
{
	struct hb_slot *slot = ask(policy, tenant, "mask");
	if (!slot)
		return;
	if (sms > policy->core->config.sms) {
		hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "mask of %u SMs, the GPU has %u", sms,
			       policy->core->config.sms);
		return;
	}
	if (slot->tenant.mask_sms == sms)
		return;
	slot->tenant.mask_sms = sms;
	hb_core_emit(policy->core, HB_ACTION_MASK, tenant)->mask.sms = sms;
}

void hb_policy_terms(struct hb_policy *policy, uint32_t tenant, uint32_t delay_ppm)
{
	struct hb_slot *slot = ask(policy, tenant, "terms");
	if (!slot)
		return;
	if (delay_ppm > HB_SPATIAL_PPM || slot->tenant.priority != HB_PRIORITY_HIGH) {
		hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "terms of %u ppm for an %s tenant", delay_ppm,
			       slot->tenant.priority == HB_PRIORITY_HIGH ? "HP" : "LP");
		return;
	}
	if (slot->tenant.terms_ppm == delay_ppm)
		return;
	slot->tenant.terms_ppm = delay_ppm;
	hb_core_emit(policy->core, HB_ACTION_TERMS, tenant)->terms.delay_ppm = delay_ppm;
}

/* The tenant may be none; the tag must exist. */
static bool timer_valid(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	if (tenant != HB_TENANT_NONE ? !ask(policy, tenant, "timer") : !hb_guard_ask(policy->core))
		return false;
	if (tag < HB_POLICY_TIMERS)
		return true;
	hb_guard_fault(policy->core, HB_EJECT_BAD_VALUE, tenant, "timer tag %u, there are %u", tag, HB_POLICY_TIMERS);
	return false;
}

void hb_policy_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag, int64_t at_ns)
{
	struct hb_core *core = policy->core;
	if (!timer_valid(policy, tenant, tag) || !length_valid(policy, tenant, "timer", at_ns, HB_TIME_LIMIT_NS))
		return;
	uint32_t timer = hb_core_policy_timer(core, tenant, tag);
	if (!hb_timers_pending(&core->timers, timer))
		core->n_policy_timers++;
	hb_timers_set(&core->timers, timer, at_ns < core->now_ns ? core->now_ns : at_ns);
}

void hb_policy_cancel(struct hb_policy *policy, uint32_t tenant, uint32_t tag)
{
	if (timer_valid(policy, tenant, tag))
		hb_core_cancel_policy_timer(policy->core, hb_core_policy_timer(policy->core, tenant, tag));
}

/* Changes every LP gate, so it counts as one ask each. */
void hb_policy_turns(struct hb_policy *policy, bool on)
{
	struct hb_core *core = policy->core;
	if (core->turns.on == on)
		return;
	for (uint32_t i = 0; i <= core->n_tenants; i++)
		if (!hb_guard_ask(core))
			return;
	hb_turns_switch(core, on);
}
