/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gates, and turns of LP tenants. A tenant's gate is what the policy asked for. With
 * turns on, the gate of every LP tenant except the holder of the turn is closed
 * whatever the policy asked for.
 *
 * When the holder loses the turn: another tenant wants the GPU, and the holder's
 * quantum (times its weight) is used up, or the holder has been idle for the grace
 * time. The grace time keeps the microseconds between two launches of an eager
 * program from costing it its turn. The holder's gate closes, and the next holder's
 * gate opens when the work has drained, so two LP contexts never have work at the
 * same time: with tiny time slices two of them stop each other. Only time with an
 * open gate counts, so a holder loses nothing while the policy closes its gate for HP.
 *
 * Order: by id, starting after the last holder, among the tenants that want the
 * GPU. So each of n tenants gets a turn after at most n - 1 quanta (of open time) and
 * as many drains. A holder keeps its gate open while no other tenant wants the GPU.
 */
#include "core/core_priv.h"

static bool slot_wants_gpu(const struct hb_slot *slot)
{
	return hb_tenant_wants_gpu(&slot->tenant);
}

static bool has_turn(const struct hb_core *core, const struct hb_slot *slot)
{
	const struct hb_turns *turns = &core->turns;
	if (!turns->on || slot->tenant.priority == HB_PRIORITY_HIGH)
		return true;
	return turns->holder == slot->tenant.id && !turns->leaving;
}

static int64_t open_time_ns(const struct hb_core *core)
{
	return core->turns.open_since_ns == HB_TIME_NEVER ? 0 : core->now_ns - core->turns.open_since_ns;
}

int64_t hb_turns_used_ns(const struct hb_core *core)
{
	return core->turns.used_ns + open_time_ns(core);
}

/* The holder's quantum is used up only while its gate is open. */
static void note_gate(struct hb_core *core, struct hb_slot *slot, bool open)
{
	struct hb_turns *turns = &core->turns;
	if (!turns->on || turns->holder != slot->tenant.id || open == (turns->open_since_ns != HB_TIME_NEVER))
		return;
	if (!open) {
		slot->tenant.counters.turn_time += (uint64_t)open_time_ns(core);
		turns->used_ns += open_time_ns(core);
	}
	turns->open_since_ns = open ? core->now_ns : HB_TIME_NEVER;
	if (open)
		turns->last_opened_ns = core->now_ns;
}

static void note_reopened(struct hb_core *core, struct hb_slot *slot)
{
	struct hb_tenant *tenant = &slot->tenant;
	tenant->undrained = false;
	if (tenant->waiting)
		tenant->counters.gate_wait_time += (uint64_t)(core->now_ns - tenant->waiting_since_ns);
	tenant->waiting = false;
}

void hb_turns_apply(struct hb_core *core, struct hb_slot *slot)
{
	struct hb_tenant *tenant = &slot->tenant;
	enum hb_gate_state state = has_turn(core, slot) ? tenant->asked_gate : HB_GATE_CLOSED;
	uint32_t depth = state == HB_GATE_CLOSED ? 0 : tenant->asked_depth;

	note_gate(core, slot, state != HB_GATE_CLOSED);
	if (state == tenant->gate && depth == tenant->gate_depth)
		return;
	if (state == HB_GATE_CLOSED)
		tenant->undrained = true;
	else if (tenant->gate == HB_GATE_CLOSED)
		note_reopened(core, slot);
	tenant->gate = state;
	tenant->gate_depth = depth;
	struct hb_action *action = hb_core_emit(core, HB_ACTION_GATE, tenant->id);
	action->gate.state = state;
	action->gate.depth = depth;
}

static void apply_all_low(struct hb_core *core)
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE)
		hb_turns_apply(core, &core->slots[id]);
}

void hb_turns_switch(struct hb_core *core, bool on)
{
	struct hb_turns *turns = &core->turns;
	if (turns->on == on)
		return;
	if (!on && turns->holder != HB_TENANT_NONE)
		note_gate(core, &core->slots[turns->holder], false);
	*turns = (struct hb_turns){
		.on = on,
		.holder = HB_TENANT_NONE,
		.last = HB_TENANT_NONE,
		.open_since_ns = HB_TIME_NEVER,
	};
	hb_timers_cancel(&core->timers, hb_core_turn_timer(core));
	apply_all_low(core);
}

void hb_turns_forget(struct hb_core *core, uint32_t tenant)
{
	if (core->turns.holder != tenant)
		return;
	core->turns.holder = HB_TENANT_NONE;
	core->turns.last = tenant;
	core->turns.leaving = false;
	core->turns.open_since_ns = HB_TIME_NEVER;
}

/* The first LP tenant after `after`, in a ring of ids, that is not `except` and, if `wanting`, wants the GPU. */
static uint32_t find_next(const struct hb_core *core, uint32_t after, uint32_t except, bool wanting)
{
	uint32_t found = HB_TENANT_NONE, id = HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE) {
		if (id == except || (wanting && !slot_wants_gpu(&core->slots[id])))
			continue;
		bool past = after != HB_TENANT_NONE && id > after;
		if (found == HB_TENANT_NONE || past)
			found = id;
		if (past)
			break;
	}
	return found;
}

static void give_turn(struct hb_core *core, uint32_t id)
{
	struct hb_turns *turns = &core->turns;
	turns->holder = id;
	turns->leaving = false;
	turns->used_ns = 0;
	turns->open_since_ns = HB_TIME_NEVER;
	core->slots[id].tenant.counters.turns++;
	hb_turns_apply(core, &core->slots[id]);
}

static bool is_quantum_over(const struct hb_core *core, const struct hb_slot *holder)
{
	return hb_turns_used_ns(core) >= core->config.quantum_ns * holder->tenant.weight;
}

/* End of the grace time. It restarts when the gate opens, because a woken thread needs time to launch. */
static int64_t grace_end_ns(const struct hb_core *core, const struct hb_slot *holder)
{
	int64_t since_ns = holder->tenant.idle_since_ns;
	if (core->turns.last_opened_ns > since_ns)
		since_ns = core->turns.last_opened_ns;
	return since_ns + core->config.turn_grace_ns;
}

static bool is_idle_too_long(const struct hb_core *core, const struct hb_slot *holder)
{
	return !slot_wants_gpu(holder) && core->now_ns >= grace_end_ns(core, holder);
}

/* When the holder's turn can end without an event: at the end of its quantum or of its grace time. */
static int64_t turn_end_ns(const struct hb_core *core, const struct hb_slot *holder)
{
	int64_t end_ns = HB_TIME_NEVER;
	if (core->turns.open_since_ns != HB_TIME_NEVER)
		end_ns = core->now_ns + core->config.quantum_ns * holder->tenant.weight - hb_turns_used_ns(core);
	int64_t grace_ns = grace_end_ns(core, holder);
	return !slot_wants_gpu(holder) && grace_ns < end_ns ? grace_ns : end_ns;
}

/* Ends the holder's turn if it is over and another tenant wants it; else sets the timer for its end. */
static void review_holder(struct hb_core *core, struct hb_slot *holder)
{
	uint32_t timer = hb_core_turn_timer(core);
	hb_timers_cancel(&core->timers, timer);
	if (find_next(core, core->turns.holder, core->turns.holder, true) == HB_TENANT_NONE)
		return;
	if (is_quantum_over(core, holder) || is_idle_too_long(core, holder)) {
		core->turns.leaving = true;
		hb_turns_apply(core, holder);
		return;
	}
	int64_t end_ns = turn_end_ns(core, holder);
	if (end_ns != HB_TIME_NEVER)
		hb_timers_set(&core->timers, timer, end_ns);
}

void hb_turns_settle(struct hb_core *core)
{
	struct hb_turns *turns = &core->turns;
	if (!turns->on)
		return;
	if (turns->holder != HB_TENANT_NONE && !turns->leaving)
		review_holder(core, &core->slots[turns->holder]);
	if (turns->leaving && !core->slots[turns->holder].tenant.undrained) {
		turns->last = turns->holder;
		turns->holder = HB_TENANT_NONE;
		turns->leaving = false;
	}
	if (turns->holder != HB_TENANT_NONE || hb_core_low_undrained(core))
		return;
	uint32_t next = find_next(core, turns->last, HB_TENANT_NONE, true);
	if (next == HB_TENANT_NONE)
		next = find_next(core, turns->last, HB_TENANT_NONE, false);
	if (next == HB_TENANT_NONE)
		return;
	give_turn(core, next);
	review_holder(core, &core->slots[next]);
}
