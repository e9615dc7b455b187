/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gates, and turns of LP tenants. A tenant's gate is what the policy asked for. With
 * turns on, the gate of every LP tenant except the holder of the turn is closed
 * whatever the policy asked for. The tenants in the MPS server share one context, so
 * they have their turn together (the holder's party; one tenant represents it).
 *
 * When the holder loses the turn: another party wants the GPU, and the holder's
 * quantum (times the weights of its tenants) is used up, or the holder has been idle
 * for the grace time. The grace time keeps the microseconds between two launches of an
 * eager program from costing it its turn. The holder's gate closes, and the next
 * holder's gate opens when the work has drained, so two LP contexts never have work at
 * the same time: with tiny time slices two of them stop each other. Only time with an
 * open gate counts, so a holder loses nothing while the policy closes its gate for HP.
 *
 * Order: users first. The next turn belongs to the user that has used the least time
 * among those that want the GPU, whatever the number and weights of their tenants. A
 * user that wanted nothing for a while gets no credit for that: it counts as having
 * used as much as the user whose turn it was (start-time fair queueing: Goyal et al.,
 * 1996). Among the tenants of one user the order is by id, starting after the last
 * holder. Of n users that always want the GPU each gets an nth of the time. A holder
 * keeps its gate open while no other party wants the GPU; time beyond its quantum is
 * then not charged to its user.
 *
 * By weight (HB_TURNS_BY_WEIGHT): the same, but each tenant is a party of its own and has
 * an account of its own, which is charged the time divided by its weight. So a tenant of
 * weight 3 gets three times the time of one of weight 1, in turns of one quantum.
 */
#include "core/core_priv.h"

static bool is_shared(const struct hb_core *core, const struct hb_tenant *tenant)
{
	return tenant->shared && core->turns.order != HB_TURNS_BY_WEIGHT;
}

static bool in_one_party(const struct hb_core *core, const struct hb_tenant *a, const struct hb_tenant *b)
{
	return a->id == b->id || (is_shared(core, a) && is_shared(core, b));
}

/* The next tenant of the party of `of`. Start with after = HB_TENANT_NONE; the same value ends the list. */
static uint32_t next_member(const struct hb_core *core, uint32_t of, uint32_t after)
{
	uint32_t id = after;
	if (!is_shared(core, &core->slots[of].tenant))
		return after == HB_TENANT_NONE ? of : HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE && !core->slots[id].tenant.shared)
		;
	return id;
}

static bool has_turn(const struct hb_core *core, const struct hb_slot *slot)
{
	const struct hb_turns *turns = &core->turns;
	if (!turns->order || slot->tenant.priority == HB_PRIORITY_HIGH)
		return true;
	return turns->holder != HB_TENANT_NONE && !turns->leaving &&
	       in_one_party(core, &core->slots[turns->holder].tenant, &slot->tenant);
}

static bool is_undrained(const struct hb_tenant *tenant)
{
	return tenant->undrained;
}

static bool has_open_gate(const struct hb_tenant *tenant)
{
	return tenant->gate != HB_GATE_CLOSED;
}

/* Whether `has` is true for some tenant of the holder's party. */
static bool holder_has(const struct hb_core *core, bool (*has)(const struct hb_tenant *))
{
	uint32_t holder = core->turns.holder, id = HB_TENANT_NONE;
	while ((id = next_member(core, holder, id)) != HB_TENANT_NONE)
		if (has(&core->slots[id].tenant))
			return true;
	return false;
}

static int64_t open_time_ns(const struct hb_core *core)
{
	return core->turns.open_since_ns == HB_TIME_NEVER ? 0 : core->now_ns - core->turns.open_since_ns;
}

int64_t hb_turns_used_ns(const struct hb_core *core)
{
	return core->turns.used_ns + open_time_ns(core);
}

/* Adds the time since the holder's gate opened to the turn. */
static void take_open_time(struct hb_core *core)
{
	struct hb_turns *turns = &core->turns;
	int64_t open_ns = open_time_ns(core);
	uint32_t id = HB_TENANT_NONE;
	while ((id = next_member(core, turns->holder, id)) != HB_TENANT_NONE)
		core->slots[id].tenant.counters.turn_time += (uint64_t)open_ns;
	turns->used_ns += open_ns;
	turns->open_since_ns = HB_TIME_NEVER;
}

/* The holder's quantum is used up only while a gate of its party is open. */
static void note_gates(struct hb_core *core)
{
	struct hb_turns *turns = &core->turns;
	if (!turns->order || turns->holder == HB_TENANT_NONE)
		return;
	bool open = holder_has(core, has_open_gate);
	if (open == (turns->open_since_ns != HB_TIME_NEVER))
		return;
	if (!open) {
		take_open_time(core);
		return;
	}
	turns->open_since_ns = core->now_ns;
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

	if (state == tenant->gate && depth == tenant->gate_depth) {
		note_gates(core);
		return;
	}
	if (state == HB_GATE_CLOSED)
		tenant->undrained = true;
	else if (tenant->gate == HB_GATE_CLOSED)
		note_reopened(core, slot);
	tenant->gate = state;
	tenant->gate_depth = depth;
	note_gates(core);
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

/* --- users ------------------------------------------------------------------------------ */

void hb_turns_init(struct hb_core *core, enum hb_turn_order order)
{
	struct hb_turn_user *users = core->turns.users;
	core->turns = (struct hb_turns){
		.order = order,
		.users = users,
		.holder = HB_TENANT_NONE,
		.last_user = HB_TENANT_NONE,
		.open_since_ns = HB_TIME_NEVER,
	};
	for (uint32_t i = 0; i < core->config.max_tenants; i++) {
		users[i].used_ns = 0;
		users[i].last = HB_TENANT_NONE;
		core->slots[i].turn_used_ns = 0;
	}
}

static struct hb_turn_user *user_of(const struct hb_core *core, uint32_t tenant)
{
	return &core->turns.users[core->slots[tenant].turn_user];
}

/* The time that counts against the tenant when the next turn is given. */
static int64_t *account_of(const struct hb_core *core, uint32_t tenant)
{
	return core->turns.order == HB_TURNS_BY_WEIGHT ? &core->slots[tenant].turn_used_ns
						       : &user_of(core, tenant)->used_ns;
}

static int64_t by_weight_ns(const struct hb_core *core, uint32_t tenant, int64_t ns)
{
	return core->turns.order == HB_TURNS_BY_WEIGHT ? ns / core->slots[tenant].tenant.weight : ns;
}

/* The record of a user whose tenants have all left is kept until another user needs it. */
void hb_turns_join(struct hb_core *core, struct hb_slot *slot, uint32_t user)
{
	struct hb_turn_user *users = core->turns.users;
	uint32_t at = HB_TENANT_NONE;
	if (slot->tenant.priority == HB_PRIORITY_HIGH)
		return;
	for (uint32_t i = 0; i < core->config.max_tenants && (at == HB_TENANT_NONE || users[at].number != user); i++)
		if (users[i].number == user || (at == HB_TENANT_NONE && !users[i].n_tenants))
			at = i;
	if (users[at].number != user)
		users[at] = (struct hb_turn_user){.number = user, .last = HB_TENANT_NONE};
	users[at].n_tenants++;
	slot->turn_user = at;
}

static int64_t quantum_ns(const struct hb_core *core)
{
	int64_t weights = 0;
	uint32_t id = HB_TENANT_NONE;
	if (core->turns.order == HB_TURNS_BY_WEIGHT)
		return core->config.quantum_ns;
	while ((id = next_member(core, core->turns.holder, id)) != HB_TENANT_NONE)
		weights += core->slots[id].tenant.weight;
	return core->config.quantum_ns * weights;
}

/* Charges the holder for the turn so far: its quantum at most, and the time in which its work drains. */
static void charge_holder(struct hb_core *core)
{
	struct hb_turns *turns = &core->turns;
	int64_t used_ns = hb_turns_used_ns(core), most_ns = quantum_ns(core);
	int64_t charge_ns = used_ns < most_ns ? used_ns : most_ns;
	if (turns->leaving)
		charge_ns += core->now_ns - turns->leaving_since_ns;
	charge_ns = by_weight_ns(core, turns->holder, charge_ns);
	*account_of(core, turns->holder) += charge_ns - turns->charged_ns;
	turns->charged_ns = charge_ns;
}

/* Returns what a tenant's user (by weight: the tenant) has used, as it counts for the next turn. */
static int64_t counted_ns(const struct hb_core *core, uint32_t tenant)
{
	int64_t used_ns = *account_of(core, tenant);
	return used_ns > core->turns.least_ns ? used_ns : core->turns.least_ns;
}

/* --- turns ------------------------------------------------------------------------------ */

void hb_turns_switch(struct hb_core *core, enum hb_turn_order order)
{
	if (core->turns.order == order)
		return;
	if (core->turns.open_since_ns != HB_TIME_NEVER)
		take_open_time(core);
	hb_turns_init(core, order);
	hb_timers_cancel(&core->timers, hb_core_turn_timer(core));
	apply_all_low(core);
}

static void end_turn(struct hb_core *core)
{
	charge_holder(core);
	core->turns.holder = HB_TENANT_NONE;
	core->turns.leaving = false;
	core->turns.open_since_ns = HB_TIME_NEVER;
}

void hb_turns_forget(struct hb_core *core, uint32_t tenant)
{
	struct hb_turns *turns = &core->turns;
	if (core->slots[tenant].tenant.priority == HB_PRIORITY_HIGH)
		return;
	user_of(core, tenant)->n_tenants--;
	if (turns->holder != tenant)
		return;
	uint32_t other = next_member(core, tenant, HB_TENANT_NONE);
	if (other == tenant)
		other = next_member(core, tenant, tenant);
	if (other == HB_TENANT_NONE)
		end_turn(core);
	else
		turns->holder = other;
}

/* Places after `after` in a ring of n; HB_TENANT_NONE is before the first. */
static uint32_t count_places(uint32_t from, uint32_t after, uint32_t n)
{
	return after == HB_TENANT_NONE ? from : (from + n - after - 1) % n;
}

/* Whether a party gets its turn before another one. Both are named by one of their tenants. */
static bool precedes(const struct hb_core *core, uint32_t a, uint32_t b)
{
	uint32_t n = core->config.max_tenants;
	uint32_t user_a = core->slots[a].turn_user, user_b = core->slots[b].turn_user;
	bool by_weight = core->turns.order == HB_TURNS_BY_WEIGHT;
	if (user_a == user_b && (!by_weight || counted_ns(core, a) == counted_ns(core, b))) {
		uint32_t last = user_of(core, a)->last;
		return count_places(a, last, n) < count_places(b, last, n);
	}
	if (counted_ns(core, a) != counted_ns(core, b))
		return counted_ns(core, a) < counted_ns(core, b);
	return count_places(user_a, core->turns.last_user, n) < count_places(user_b, core->turns.last_user, n);
}

/*
 * The tenant whose party gets the next turn among those that, if `wanting`, want the GPU, and are not the party of `except`.
 * The MPS server's tenants count as the one with the lowest id.
 */
static uint32_t find_next(const struct hb_core *core, uint32_t except, bool wanting)
{
	uint32_t found = HB_TENANT_NONE, shared = HB_TENANT_NONE, id = HB_TENANT_NONE;
	bool shared_may = false;
	while ((id = hb_core_next_id(core, HB_PRIORITY_LOW, id)) != HB_TENANT_NONE) {
		const struct hb_tenant *tenant = &core->slots[id].tenant;
		bool is_member = is_shared(core, tenant);
		if (is_member && shared == HB_TENANT_NONE)
			shared = id;
		if ((except != HB_TENANT_NONE && in_one_party(core, &core->slots[except].tenant, tenant)) ||
		    (wanting && !hb_tenant_wants_gpu(tenant)))
			continue;
		shared_may |= is_member;
		if (!is_member && (found == HB_TENANT_NONE || precedes(core, id, found)))
			found = id;
	}
	return shared_may && (found == HB_TENANT_NONE || precedes(core, shared, found)) ? shared : found;
}

static void begin_turn(struct hb_core *core)
{
	struct hb_turns *turns = &core->turns;
	struct hb_turn_user *user = user_of(core, turns->holder);
	uint32_t id = HB_TENANT_NONE;
	turns->leaving = false;
	turns->used_ns = 0;
	turns->charged_ns = 0;
	turns->least_ns = counted_ns(core, turns->holder);
	turns->last_user = core->slots[turns->holder].turn_user;
	*account_of(core, turns->holder) = turns->least_ns;
	user->last = turns->holder;
	while ((id = next_member(core, turns->holder, id)) != HB_TENANT_NONE)
		core->slots[id].tenant.counters.turns++;
}

static void give_turn(struct hb_core *core, uint32_t id)
{
	uint32_t member = HB_TENANT_NONE;
	core->turns.holder = id;
	core->turns.open_since_ns = HB_TIME_NEVER;
	begin_turn(core);
	while ((member = next_member(core, id, member)) != HB_TENANT_NONE)
		hb_turns_apply(core, &core->slots[member]);
}

/* End of the grace time. It restarts when the gate opens, because a woken thread needs time to launch. */
static int64_t grace_end_ns(const struct hb_core *core)
{
	int64_t since_ns = core->turns.last_opened_ns;
	uint32_t id = HB_TENANT_NONE;
	while ((id = next_member(core, core->turns.holder, id)) != HB_TENANT_NONE)
		if (core->slots[id].tenant.idle_since_ns > since_ns)
			since_ns = core->slots[id].tenant.idle_since_ns;
	return since_ns + core->config.turn_grace_ns;
}

/* When the holder's turn can end without an event: at the end of its quantum or of its grace time. */
static int64_t turn_end_ns(const struct hb_core *core)
{
	int64_t end_ns = HB_TIME_NEVER;
	if (core->turns.open_since_ns != HB_TIME_NEVER)
		end_ns = core->now_ns + quantum_ns(core) - hb_turns_used_ns(core);
	int64_t grace_ns = grace_end_ns(core);
	return !holder_has(core, hb_tenant_wants_gpu) && grace_ns < end_ns ? grace_ns : end_ns;
}

/*
 * The holder's quantum is used up. True: it gets another turn. By user, because it will have used less than the others even
 * after that turn; by weight, because it has used less so far.
 */
static bool renew_turn(struct hb_core *core)
{
	struct hb_turns *turns = &core->turns;
	int64_t *used_ns = account_of(core, turns->holder);
	int64_t turn_ns = core->turns.order == HB_TURNS_BY_WEIGHT ? 0 : quantum_ns(core);
	charge_holder(core);
	*used_ns += turn_ns;
	uint32_t next = find_next(core, HB_TENANT_NONE, true);
	*used_ns -= turn_ns;
	if (next == HB_TENANT_NONE ||
	    !in_one_party(core, &core->slots[next].tenant, &core->slots[turns->holder].tenant))
		return false;
	bool open = turns->open_since_ns != HB_TIME_NEVER;
	if (open)
		take_open_time(core);
	begin_turn(core);
	turns->open_since_ns = open ? core->now_ns : HB_TIME_NEVER;
	return true;
}

static void close_gates(struct hb_core *core)
{
	uint32_t id = HB_TENANT_NONE;
	core->turns.leaving = true;
	core->turns.leaving_since_ns = core->now_ns;
	while ((id = next_member(core, core->turns.holder, id)) != HB_TENANT_NONE)
		hb_turns_apply(core, &core->slots[id]);
}

/* Ends the holder's turn if it is over and another party wants it; else sets the timer for its end. */
static void review_holder(struct hb_core *core)
{
	uint32_t timer = hb_core_turn_timer(core);
	hb_timers_cancel(&core->timers, timer);
	if (find_next(core, core->turns.holder, true) == HB_TENANT_NONE)
		return;
	bool idle_too_long = !holder_has(core, hb_tenant_wants_gpu) && core->now_ns >= grace_end_ns(core);
	bool over = hb_turns_used_ns(core) >= quantum_ns(core);
	if (idle_too_long || (over && !renew_turn(core))) {
		close_gates(core);
		return;
	}
	int64_t end_ns = turn_end_ns(core);
	if (end_ns != HB_TIME_NEVER)
		hb_timers_set(&core->timers, timer, end_ns);
}

void hb_turns_settle(struct hb_core *core)
{
	struct hb_turns *turns = &core->turns;
	if (!turns->order)
		return;
	if (turns->holder != HB_TENANT_NONE && !turns->leaving)
		review_holder(core);
	if (turns->leaving && !holder_has(core, is_undrained))
		end_turn(core);
	if (turns->holder != HB_TENANT_NONE || hb_core_low_undrained(core))
		return;
	uint32_t next = find_next(core, HB_TENANT_NONE, true);
	if (next == HB_TENANT_NONE)
		next = find_next(core, HB_TENANT_NONE, false);
	if (next == HB_TENANT_NONE)
		return;
	give_turn(core, next);
	review_holder(core);
}
