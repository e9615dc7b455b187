/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the memory of LP tenants that do not run moves away, and returns before they
 * run. Only with hb_core_config.memory_idle_ns, because the host memory for it has to
 * be there. Independent of the policy.
 *
 * Rules
 *  1. A tenant without work for memory_idle_ns moves out: to the host, in steps of
 *     STEP_BYTES, one tenant at a time; of several, the one that was idle first.
 *  2. No step begins while HP needs memory or other memory moves. A need that comes
 *     during a step waits for its end.
 *  3. A tenant that moves less than it was asked for, or does not answer within
 *     HB_MEMORY_STEP_LIMIT_NS, is skipped for SKIP_NS.
 *  4. While the tenant has no work, nothing of its memory returns.
 *  5. A tenant that wants to run waits for its memory. All of it for which there is
 *     room returns in one step; then the tenant runs, however much returned.
 *  6. If HP needs memory or other memory moves, the tenant runs at once, with its
 *     memory where it is. The rest returns by the rules of memory_returns.c.
 *
 * Example. Tenant a has 2.5 GiB and is idle for memory_idle_ns: it moves 1 GiB, 1 GiB
 * and 0.5 GiB. An hour later it wants to run, and 2 GiB are free: 2 GiB return, a runs,
 * and the rest returns when there has been room for some time.
 */
#include "base/units.h"
#include "core/core_priv.h"

#include <errno.h>

#define STEP_BYTES (UINT64_C(1) << 30) /* some 40 ms, for which a need of HP waits */
#define SKIP_NS INT64_C(10000000000)

static int64_t latest(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* When the tenant will have been without work for long enough; HB_TIME_NEVER: it works, or nothing is paused. */
static int64_t pause_at_ns(const struct hb_core *core, const struct hb_slot *slot)
{
	if (!core->config.memory_idle_ns || slot->tenant.busy || slot->memory.wakes)
		return HB_TIME_NEVER;
	return latest(slot->tenant.idle_since_ns, slot->memory.quiet_since_ns) + core->config.memory_idle_ns;
}

bool hb_pauses_keep_away(const struct hb_core *core, const struct hb_slot *slot)
{
	return pause_at_ns(core, slot) <= core->now_ns;
}

/* When the tenant moves out; HB_TIME_NEVER: not before the next event. */
static int64_t move_out_at_ns(const struct hb_core *core, const struct hb_slot *slot)
{
	int64_t at_ns = pause_at_ns(core, slot);
	if (at_ns == HB_TIME_NEVER || !slot->memory.movable_bytes)
		return HB_TIME_NEVER;
	return latest(at_ns, slot->memory.skip_until_ns);
}

static bool may_pause(const struct hb_core *core)
{
	const struct hb_memory_moves *memory = &core->memory;
	return core->config.memory_idle_ns && !memory->n_needs && !memory->n_orders &&
	       memory->returner == HB_TENANT_NONE;
}

int64_t hb_pauses_next_ns(const struct hb_core *core)
{
	int64_t next_ns = HB_TIME_NEVER;
	if (!may_pause(core))
		return next_ns;
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (move_out_at_ns(core, slot) < next_ns)
			next_ns = move_out_at_ns(core, slot);
	return next_ns;
}

static void begin_step(struct hb_core *core, struct hb_slot *slot, int64_t limit_ns)
{
	slot->memory.answer_by_ns = core->now_ns + limit_ns;
	core->memory.returner = slot->tenant.id;
}

static void move_out(struct hb_core *core)
{
	struct hb_slot *first = NULL;
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (move_out_at_ns(core, slot) <= core->now_ns &&
		    (!first || pause_at_ns(core, slot) < pause_at_ns(core, first)))
			first = slot;
	if (!first)
		return;
	first->memory.pausing_bytes = hb_bytes_least(first->memory.movable_bytes, STEP_BYTES);
	begin_step(core, first, HB_MEMORY_STEP_LIMIT_NS);
	struct hb_action *action = hb_core_emit(core, HB_ACTION_MEMORY_MOVE, first->tenant.id);
	action->memory_move.host_bytes = first->memory.pausing_bytes;
	action->memory_move.pause = true;
}

/* ---- tenants that want to run ---- */

static bool is_moving(const struct hb_core *core, const struct hb_slot *slot)
{
	return slot->memory.ordered_bytes || core->memory.returner == slot->tenant.id;
}

static void wake(struct hb_core *core, struct hb_slot *slot)
{
	bool alone = may_pause(core);
	uint64_t bytes = alone ? hb_bytes_least(slot->memory.away_bytes, core->memory.room_bytes) : 0;
	slot->memory.wakes = false;
	slot->memory.quiet_since_ns = core->now_ns;
	slot->memory.returning_bytes = bytes;
	if (bytes)
		begin_step(core, slot, HB_MEMORY_STEP_LIMIT_NS);
	struct hb_action *action = hb_core_emit(core, HB_ACTION_MEMORY_RETURN, slot->tenant.id);
	action->memory_return.return_bytes = bytes;
	action->memory_return.wake = true;
}

void hb_pauses_settle(struct hb_core *core)
{
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (slot->memory.wakes && !is_moving(core, slot))
			wake(core, slot);
	if (may_pause(core))
		move_out(core);
}

/* ---- events ---- */

int hb_pauses_post_wake(struct hb_core *core, struct hb_slot *slot)
{
	if (slot->tenant.priority != HB_PRIORITY_LOW || !core->config.memory_idle_ns)
		return -EINVAL;
	slot->memory.wakes = true;
	return 0;
}

void hb_pauses_end_step(struct hb_core *core, struct hb_slot *slot, uint64_t bytes)
{
	struct hb_memory_moves *memory = &core->memory;
	if (bytes < slot->memory.pausing_bytes)
		slot->memory.skip_until_ns = core->now_ns + SKIP_NS;
	slot->memory.pausing_bytes = 0;
	slot->memory.movable_bytes -= hb_bytes_least(slot->memory.movable_bytes, bytes);
	slot->memory.away_bytes += bytes;
	memory->returner = HB_TENANT_NONE;
	if (memory->asker == HB_TENANT_NONE)
		return;
	memory->short_bytes -= hb_bytes_least(memory->short_bytes, bytes);
	memory->moved_bytes += bytes;
}
