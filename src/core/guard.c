/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the core sound whatever a policy does: counts the policy's calls, notes its
 * first fault, watches for tenants kept waiting without a reason, and ejects the
 * policy. Called before and after every callback (HB_POLICY_CALL), by policy_api.c
 * for each call, and when time passes. An ejection happens after the callback has
 * returned, never during it.
 */
#include "core/core_priv.h"

#include <stdarg.h>
#include <string.h>

static void undo_tenant(struct hb_core *core, struct hb_slot *slot)
{
	struct hb_tenant *tenant = &slot->tenant;
	if (tenant->slice_compute_ns || tenant->slice_copy_ns)
		hb_core_emit(core, HB_ACTION_SLICE, tenant->id);
	if (tenant->allowance_ppm)
		hb_core_emit(core, HB_ACTION_ALLOWANCE, tenant->id);
	tenant->slice_compute_ns = tenant->slice_copy_ns = 0;
	tenant->allowance_ppm = 0;
	tenant->asked_gate = HB_GATE_OPEN;
	tenant->asked_depth = 0;
	hb_turns_apply(core, slot);
	slot->denied_since_ns = HB_TIME_NEVER;
}

static void undo_everything(struct hb_core *core)
{
	uint32_t n_timers = (core->config.max_tenants + 1) * HB_POLICY_TIMERS;
	for (uint32_t timer = 0; timer < n_timers && core->n_policy_timers; timer++)
		hb_core_cancel_policy_timer(core, timer);
	hb_turns_switch(core, HB_TURNS_OFF);
	for (int priority = 0; priority < 2; priority++) {
		uint32_t id = HB_TENANT_NONE;
		while ((id = hb_core_next_id(core, (enum hb_priority)priority, id)) != HB_TENANT_NONE)
			undo_tenant(core, &core->slots[id]);
	}
}

/* The built-in policy sets nothing, so undoing everything is all that has to be done. */
static void eject_policy(struct hb_core *core)
{
	struct hb_ejection *ejection = &core->ejection;
	ejection->reason = core->fault;
	ejection->at_ns = core->now_ns;
	strcpy(ejection->policy.text, core->ops->name);
	if (core->ops->dump)
		core->ops->dump(&core->policy, core->note);
	fflush(core->note);
	ejection->dump[sizeof ejection->dump - 1] = 0;

	struct hb_action *action = hb_core_emit(core, HB_ACTION_EJECTED, HB_TENANT_NONE);
	action->ejected.policy = ejection->policy;
	action->ejected.reason = ejection->reason;
	core->ops = &hb_policy_builtin_ops;
	core->fault = HB_EJECT_NONE;
	undo_everything(core);
}

void hb_guard_enter(struct hb_core *core)
{
	core->asks = 0;
}

void hb_guard_leave(struct hb_core *core)
{
	if (core->fault != HB_EJECT_NONE)
		eject_policy(core);
}

/* Only the first fault is recorded; later ones may be its consequences. */
__attribute__((format(printf, 4, 0))) static void record_fault(struct hb_core *core, enum hb_eject_reason reason,
							       uint32_t tenant, const char *format, va_list arguments)
{
	if (core->fault != HB_EJECT_NONE)
		return;
	core->fault = reason;
	core->ejection.tenant = tenant;
	vsnprintf(core->ejection.message, sizeof core->ejection.message, format, arguments);
}

void hb_guard_fault(struct hb_core *core, enum hb_eject_reason reason, uint32_t tenant, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	record_fault(core, reason, tenant, format, arguments);
	va_end(arguments);
}

bool hb_guard_ask(struct hb_core *core)
{
	if (core->fault != HB_EJECT_NONE)
		return false;
	uint32_t limit = HB_POLICY_ASKS(core->n_tenants);
	if (++core->asks <= limit)
		return true;
	hb_guard_fault(core, HB_EJECT_TOO_MANY_ACTIONS, HB_TENANT_NONE, "asked for more than %u things in one call",
		       limit);
	return false;
}

bool hb_guard_timer(struct hb_core *core)
{
	if (core->now_ns - core->storm_since_ns > HB_TIMER_WINDOW_NS) {
		core->storm_since_ns = core->now_ns;
		core->storm_count = 0;
	}
	if (++core->storm_count <= HB_TIMER_STORM)
		return true;
	hb_guard_fault(core, HB_EJECT_TIMER_STORM, HB_TENANT_NONE, "more than %d timers fired within %lld ns",
		       HB_TIMER_STORM, (long long)HB_TIMER_WINDOW_NS);
	eject_policy(core);
	return false;
}

/* --- stalls --- */

/* A thread is blocked, and the policy is the cause, not the turns. */
static bool is_denied(const struct hb_tenant *tenant)
{
	return tenant->waiting && tenant->asked_gate == HB_GATE_CLOSED;
}

static void watch_priority(struct hb_core *core, enum hb_priority priority, bool excused)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, priority, id)) != HB_TENANT_NONE) {
		struct hb_slot *slot = &core->slots[id];
		if (excused || !is_denied(&slot->tenant))
			slot->denied_since_ns = HB_TIME_NEVER;
		else if (slot->denied_since_ns == HB_TIME_NEVER)
			slot->denied_since_ns = core->now_ns;
	}
}

void hb_guard_watch(struct hb_core *core)
{
	if (core->ops == &hb_policy_builtin_ops)
		return;
	bool timers = core->n_policy_timers != 0;
	watch_priority(core, HB_PRIORITY_LOW, timers || hb_core_high_wants_gpu(core));
	watch_priority(core, HB_PRIORITY_HIGH, timers || hb_core_low_undrained(core));
}

static uint32_t find_longest_denied(const struct hb_core *core)
{
	uint32_t longest = HB_TENANT_NONE;
	for (int priority = 0; priority < 2; priority++) {
		uint32_t id = HB_TENANT_NONE;
		while ((id = hb_core_next_id(core, (enum hb_priority)priority, id)) != HB_TENANT_NONE) {
			int64_t since_ns = core->slots[id].denied_since_ns;
			if (since_ns != HB_TIME_NEVER &&
			    (longest == HB_TENANT_NONE || since_ns < core->slots[longest].denied_since_ns))
				longest = id;
		}
	}
	return longest;
}

int64_t hb_guard_next_ns(const struct hb_core *core)
{
	uint32_t id = find_longest_denied(core);
	return id == HB_TENANT_NONE ? HB_TIME_NEVER : core->slots[id].denied_since_ns + core->config.stall_limit_ns;
}

void hb_guard_check(struct hb_core *core, int64_t now_ns)
{
	uint32_t id = find_longest_denied(core);
	if (id == HB_TENANT_NONE || core->slots[id].denied_since_ns + core->config.stall_limit_ns > now_ns)
		return;
	hb_guard_fault(core, HB_EJECT_STALL, id, "%s waited since %lld ns with nothing in its way",
		       core->slots[id].tenant.name.text, (long long)core->slots[id].denied_since_ns);
	eject_policy(core);
}
