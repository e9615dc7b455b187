/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which LP tenants move how much memory away from the GPU when an allocation of HP
 * does not fit (docs/decisions/0025-elastic-memory.md). Independent of the policy.
 *
 * Rules
 *  1. Free memory comes first; only the rest moves. Then guests leave: LP memory of
 *     other GPUs, for which this GPU is a peer.
 *  2. The smallest tenant that covers the rest alone moves. If none does, the largest
 *     moves, and the rule is applied to what is still missing: fewer tenants stop.
 *  3. Tenants without work on the GPU for IDLE_NS come before all others.
 *  4. Peers take what they have room for, the host the rest.
 *  5. A tenant that moves less than 7/8 of what it was asked for, or does not answer
 *     within HB_MEMORY_MOVE_LIMIT_NS, is skipped for SKIP_NS. What is missing is asked for again,
 *     also from a tenant that moved nearly all of it: other programs may take a little
 *     of the room meanwhile, the driver for its page tables as well.
 *  6. If all that can move does not suffice, nothing moves.
 *  7. Every need is answered, at the latest after HB_MEMORY_NEED_LIMIT_NS. Needs are served in
 *     the order in which they came.
 *
 * Example. HP needs 20 GiB, 4 are free. LP tenants a, b, c can move 10, 30 and 60 GiB:
 * b moves 16. If b has had work a moment ago and c has not for two seconds, c moves.
 */
#include "base/units.h"
#include "core/core_priv.h"

#include <errno.h>

#define IDLE_NS INT64_C(1000000000)
#define SKIP_NS INT64_C(10000000000)

/* ---- which tenants move ---- */

static bool can_be_asked(const struct hb_core *core, const struct hb_slot *slot)
{
	return slot->memory.movable_bytes && !slot->memory.ordered_bytes && !slot->memory.returning_bytes &&
	       slot->memory.skip_until_ns <= core->now_ns;
}

bool hb_memory_is_quiet(const struct hb_core *core, const struct hb_tenant *tenant)
{
	return !tenant->busy && (tenant->idle_since_ns < 0 || core->now_ns - tenant->idle_since_ns >= IDLE_NS);
}

/* Whether `a` moves rather than `b` when `bytes` are needed. If they are equal, the one with the smaller id moves, which is `b`. */
static bool is_better(const struct hb_core *core, const struct hb_slot *a, const struct hb_slot *b, uint64_t bytes)
{
	bool quiet = hb_memory_is_quiet(core, &a->tenant), suffices = a->memory.movable_bytes >= bytes;
	if (!b)
		return true;
	if (quiet != hb_memory_is_quiet(core, &b->tenant))
		return quiet;
	if (suffices != (b->memory.movable_bytes >= bytes))
		return suffices;
	return suffices ? a->memory.movable_bytes < b->memory.movable_bytes
			: a->memory.movable_bytes > b->memory.movable_bytes;
}

static struct hb_slot *choose_tenant(const struct hb_core *core, uint64_t bytes)
{
	struct hb_slot *best = NULL;
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (can_be_asked(core, slot) && is_better(core, slot, best, bytes))
			best = slot;
	return best;
}

struct low_memory {
	uint64_t ordered_bytes; /* moves already */
	uint64_t movable_bytes; /* of tenants that can be asked */
	uint64_t skipped_bytes; /* of tenants that are skipped */
};

static struct low_memory count_low(const struct hb_core *core)
{
	struct low_memory low = {0};
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot)) {
		low.ordered_bytes += slot->memory.ordered_bytes;
		if (can_be_asked(core, slot))
			low.movable_bytes += slot->memory.movable_bytes;
		else if (!slot->memory.ordered_bytes)
			low.skipped_bytes += slot->memory.movable_bytes;
	}
	return low;
}

static uint64_t order_move(struct hb_core *core, struct hb_slot *slot, uint64_t bytes)
{
	struct hb_memory_moves *memory = &core->memory;
	bytes = hb_bytes_least(bytes, slot->memory.movable_bytes);
	uint64_t peer = hb_bytes_least(bytes, memory->peer_bytes);
	memory->peer_bytes -= peer;
	memory->host_bytes -= bytes - peer;
	slot->memory.ordered_bytes = bytes;
	memory->n_orders++;
	slot->memory.answer_by_ns = core->now_ns + HB_MEMORY_MOVE_LIMIT_NS;
	if (slot->memory.answer_by_ns > memory->answer_by_ns)
		slot->memory.answer_by_ns = memory->answer_by_ns;
	struct hb_action *action = hb_core_emit(core, HB_ACTION_MEMORY_MOVE, slot->tenant.id);
	action->memory_move.peer_bytes = peer;
	action->memory_move.host_bytes = bytes - peer;
	return bytes;
}

/* ---- needs ---- */

/* There is at least one need. */
static void start_need(struct hb_core *core)
{
	struct hb_slot *first = NULL;
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, HB_PRIORITY_HIGH, id)) != HB_TENANT_NONE) {
		struct hb_slot *slot = &core->slots[id];
		if (slot->memory.needs && (!first || slot->memory.need_sequence < first->memory.need_sequence))
			first = slot;
	}
	const struct hb_memory_slot *need = &first->memory;
	core->memory.asker = first->tenant.id;
	core->memory.short_bytes = need->need_bytes - hb_bytes_least(need->need_bytes, need->free_bytes);
	core->memory.moved_bytes = 0;
	core->memory.peer_bytes = need->peer_bytes;
	core->memory.host_bytes = need->host_bytes;
	core->memory.guest_bytes = need->guest_bytes;
	core->memory.evicting_bytes = 0;
	core->memory.answer_by_ns = core->now_ns + HB_MEMORY_NEED_LIMIT_NS;
	hb_returns_post_room(core, 0); /* HP uses the room; the owner posts what is left */
}

static void answer_need(struct hb_core *core, enum hb_memory_result result)
{
	struct hb_action *action = hb_core_emit(core, HB_ACTION_MEMORY_ANSWER, core->memory.asker);
	action->memory_answer.result = result;
	action->memory_answer.moved_bytes = core->memory.moved_bytes;
	core->slots[core->memory.asker].memory.needs = false;
	core->memory.n_needs--;
	core->memory.asker = HB_TENANT_NONE;
}

static void order_eviction(struct hb_core *core, uint64_t bytes)
{
	struct hb_memory_moves *memory = &core->memory;
	memory->evicting_bytes = hb_bytes_least(bytes, memory->guest_bytes);
	memory->guest_bytes = 0;
	memory->evicted_by_ns = core->now_ns + HB_MEMORY_MOVE_LIMIT_NS;
	if (memory->evicted_by_ns > memory->answer_by_ns)
		memory->evicted_by_ns = memory->answer_by_ns;
	hb_core_emit(core, HB_ACTION_MEMORY_EVICT, memory->asker)->memory_evict.evict_bytes = memory->evicting_bytes;
}

static void end_eviction(struct hb_core *core, uint64_t bytes)
{
	struct hb_memory_moves *memory = &core->memory;
	memory->evicting_bytes = 0;
	memory->short_bytes -= hb_bytes_least(memory->short_bytes, bytes);
	memory->moved_bytes += bytes;
}

/* Orders what is missing, or answers. */
static void serve_need(struct hb_core *core)
{
	struct hb_memory_moves *memory = &core->memory;
	struct low_memory low = count_low(core);
	uint64_t ordered = low.ordered_bytes + memory->evicting_bytes;
	uint64_t missing = memory->short_bytes - hb_bytes_least(memory->short_bytes, ordered);
	if (!memory->short_bytes)
		answer_need(core, HB_MEMORY_ENOUGH);
	else if (core->now_ns >= memory->answer_by_ns)
		answer_need(core, HB_MEMORY_NO_ANSWER);
	else if (missing && memory->returner != HB_TENANT_NONE)
		return;
	else if (missing && memory->guest_bytes && missing <= low.movable_bytes + memory->guest_bytes)
		order_eviction(core, missing);
	else if (missing && memory->evicting_bytes)
		return;
	else if (missing > low.movable_bytes)
		answer_need(core, missing > low.movable_bytes + low.skipped_bytes ? HB_MEMORY_NOTHING_MOVES
										  : HB_MEMORY_NO_ANSWER);
	else if (missing > memory->peer_bytes + memory->host_bytes)
		answer_need(core, HB_MEMORY_NO_ROOM);
	else
		while (missing)
			missing -= order_move(core, choose_tenant(core, missing), missing);
}

/* The timer is due when the next answer is. */
static void set_timer(struct hb_core *core)
{
	int64_t at_ns = hb_returns_next_ns(core), pause_ns = hb_pauses_next_ns(core);
	if (pause_ns < at_ns)
		at_ns = pause_ns;
	if (core->memory.asker != HB_TENANT_NONE && core->memory.answer_by_ns < at_ns)
		at_ns = core->memory.answer_by_ns;
	if (core->memory.asker != HB_TENANT_NONE && core->memory.evicting_bytes && core->memory.evicted_by_ns < at_ns)
		at_ns = core->memory.evicted_by_ns;
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (slot->memory.ordered_bytes && slot->memory.answer_by_ns < at_ns)
			at_ns = slot->memory.answer_by_ns;
	if (at_ns == HB_TIME_NEVER)
		hb_timers_cancel(&core->timers, hb_core_memory_timer(core));
	else
		hb_timers_set(&core->timers, hb_core_memory_timer(core), at_ns);
}

void hb_memory_settle(struct hb_core *core)
{
	struct hb_memory_moves *memory = &core->memory;
	if (!memory->n_needs && !memory->n_orders && hb_returns_are_over(core) && !core->config.memory_idle_ns &&
	    !hb_timers_pending(&core->timers, hb_core_memory_timer(core)))
		return;
	while (memory->n_needs) {
		if (memory->asker == HB_TENANT_NONE)
			start_need(core);
		serve_need(core);
		if (memory->asker != HB_TENANT_NONE)
			break;
	}
	hb_pauses_settle(core);
	hb_returns_settle(core);
	set_timer(core);
}

/* ---- events ---- */

int hb_memory_post_state(struct hb_core *core, struct hb_slot *slot, uint64_t movable_bytes, uint64_t away_bytes)
{
	if (slot->tenant.priority != HB_PRIORITY_LOW || movable_bytes >= HB_MEMORY_BYTES_LIMIT ||
	    away_bytes >= HB_MEMORY_BYTES_LIMIT)
		return -EINVAL;
	if (movable_bytes + away_bytes > slot->memory.movable_bytes + slot->memory.away_bytes)
		slot->memory.quiet_since_ns = core->now_ns;
	slot->memory.movable_bytes = movable_bytes;
	slot->memory.away_bytes = away_bytes;
	return 0;
}

int hb_memory_post_need(struct hb_core *core, struct hb_slot *slot, const struct hb_event *event)
{
	struct hb_memory_slot *memory = &slot->memory;
	if (slot->tenant.priority != HB_PRIORITY_HIGH || !event->memory_need.need_bytes ||
	    event->memory_need.need_bytes >= HB_MEMORY_BYTES_LIMIT ||
	    event->memory_need.free_bytes >= HB_MEMORY_BYTES_LIMIT ||
	    event->memory_need.peer_bytes >= HB_MEMORY_BYTES_LIMIT ||
	    event->memory_need.host_bytes >= HB_MEMORY_BYTES_LIMIT ||
	    event->memory_need.guest_bytes >= HB_MEMORY_BYTES_LIMIT)
		return -EINVAL;
	if (memory->needs)
		return -EEXIST;
	memory->needs = true;
	memory->need_sequence = core->memory.next_sequence++;
	memory->need_bytes = event->memory_need.need_bytes;
	memory->free_bytes = event->memory_need.free_bytes;
	memory->peer_bytes = event->memory_need.peer_bytes;
	memory->host_bytes = event->memory_need.host_bytes;
	memory->guest_bytes = event->memory_need.guest_bytes;
	core->memory.n_needs++;
	return 0;
}

static void end_order(struct hb_core *core, struct hb_slot *slot, uint64_t moved_bytes)
{
	struct hb_memory_moves *memory = &core->memory;
	if (moved_bytes < slot->memory.ordered_bytes - slot->memory.ordered_bytes / 8)
		slot->memory.skip_until_ns = core->now_ns + SKIP_NS;
	slot->memory.ordered_bytes = 0;
	memory->n_orders--;
	slot->memory.movable_bytes -= hb_bytes_least(slot->memory.movable_bytes, moved_bytes);
	slot->memory.away_bytes += moved_bytes;
	if (memory->asker == HB_TENANT_NONE)
		return;
	memory->short_bytes -= hb_bytes_least(memory->short_bytes, moved_bytes);
	memory->moved_bytes += moved_bytes;
}

/* Ignored if the tenant's time to answer is over: it counts as one that did not answer. */
int hb_memory_post_moved(struct hb_core *core, struct hb_slot *slot, uint64_t moved_bytes)
{
	if (moved_bytes >= HB_MEMORY_BYTES_LIMIT)
		return -EINVAL;
	if (slot->memory.ordered_bytes)
		end_order(core, slot, moved_bytes);
	else if (slot->memory.pausing_bytes)
		hb_pauses_end_step(core, slot, moved_bytes);
	return 0;
}

/* Ignored if the time for it is over, or if another need is served now. */
int hb_memory_post_evicted(struct hb_core *core, struct hb_slot *slot, uint64_t bytes)
{
	if (bytes >= HB_MEMORY_BYTES_LIMIT)
		return -EINVAL;
	if (core->memory.evicting_bytes && core->memory.asker == slot->tenant.id)
		end_eviction(core, bytes);
	return 0;
}

/* The memory of an LP tenant that leaves is free. */
void hb_memory_forget(struct hb_core *core, struct hb_slot *slot)
{
	struct hb_memory_moves *memory = &core->memory;
	memory->n_orders -= slot->memory.ordered_bytes != 0;
	memory->n_needs -= slot->memory.needs;
	if (memory->asker == slot->tenant.id)
		memory->asker = HB_TENANT_NONE;
	if (memory->asker == HB_TENANT_NONE)
		memory->evicting_bytes = 0;
	if (memory->asker != HB_TENANT_NONE)
		memory->short_bytes -= hb_bytes_least(memory->short_bytes, slot->memory.movable_bytes);
	if (memory->returner == slot->tenant.id)
		memory->returner = HB_TENANT_NONE;
	slot->memory = (struct hb_memory_slot){0};
}

void hb_memory_expire(struct hb_core *core)
{
	hb_returns_expire(core);
	if (core->memory.evicting_bytes && core->memory.evicted_by_ns <= core->now_ns)
		end_eviction(core, 0);
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (slot->memory.ordered_bytes && slot->memory.answer_by_ns <= core->now_ns)
			end_order(core, slot, 0);
}
