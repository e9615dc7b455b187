/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When memory that LP tenants moved away (memory_moves.c) returns to the GPU.
 * Independent of the policy.
 *
 * Rules
 *  1. Memory returns when the GPU has had room for a step, beyond the reserve, for
 *     memory_room_ns without a break, so that it does not go back and forth.
 *  2. It returns in steps of STEP_BYTES, one tenant at a time, and never while HP needs
 *     memory. A need that comes during a step waits for its end, and ends the room.
 *  3. Tenants that have work come first; of several, the one with the smallest id.
 *  4. A tenant that returns less than it was asked for, or does not answer within
 *     HB_MEMORY_STEP_LIMIT_NS, is skipped for SKIP_NS.
 *  5. Nothing returns of a tenant that memory_pauses.c keeps away.
 *
 * Example. Tenant a has 160 MiB elsewhere. HP frees 10 GiB. Ten seconds later a returns
 * 64 MiB, then 64 MiB, then 32 MiB.
 */
#include "base/units.h"
#include "core/core_priv.h"

#include <errno.h>

#define STEP_BYTES (UINT64_C(64) << 20) /* a granule (decision 0025): calls are held back for some ms */
#define SKIP_NS INT64_C(10000000000)

/* Also after a move or a return, whose end changes the room. */
static void update_room(struct hb_core *core, uint64_t bytes)
{
	core->memory.room_bytes = bytes;
	if (bytes < STEP_BYTES)
		core->memory.room_since_ns = HB_TIME_NEVER;
	else if (core->memory.room_since_ns == HB_TIME_NEVER)
		core->memory.room_since_ns = core->now_ns;
}

static bool may_return(const struct hb_core *core)
{
	const struct hb_memory_moves *memory = &core->memory;
	return !memory->n_needs && !memory->n_orders && memory->returner == HB_TENANT_NONE &&
	       memory->room_since_ns != HB_TIME_NEVER;
}

static bool may_come_home(const struct hb_core *core, const struct hb_slot *slot)
{
	return slot->memory.away_bytes && !hb_pauses_keep_away(core, slot);
}

static struct hb_slot *choose_tenant(const struct hb_core *core)
{
	struct hb_slot *best = NULL;
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot)) {
		if (may_come_home(core, slot) && slot->memory.skip_return_ns <= core->now_ns &&
		    (!best || (hb_memory_is_quiet(core, &best->tenant) && !hb_memory_is_quiet(core, &slot->tenant))))
			best = slot;
	}
	return best;
}

bool hb_returns_are_over(const struct hb_core *core)
{
	return core->memory.returner == HB_TENANT_NONE && core->memory.room_since_ns == HB_TIME_NEVER;
}

static bool is_any_away(const struct hb_core *core)
{
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (slot->memory.away_bytes)
			return true;
	return false;
}

void hb_returns_settle(struct hb_core *core)
{
	struct hb_memory_moves *memory = &core->memory;
	if (may_return(core) && !is_any_away(core))
		memory->room_since_ns = HB_TIME_NEVER;
	if (!may_return(core) || core->now_ns - memory->room_since_ns < core->config.memory_room_ns)
		return;
	struct hb_slot *slot = choose_tenant(core);
	if (!slot)
		return;
	slot->memory.returning_bytes = hb_bytes_least(slot->memory.away_bytes, STEP_BYTES);
	slot->memory.answer_by_ns = core->now_ns + HB_MEMORY_STEP_LIMIT_NS;
	memory->returner = slot->tenant.id;
	hb_core_emit(core, HB_ACTION_MEMORY_RETURN, slot->tenant.id)->memory_return.return_bytes =
		slot->memory.returning_bytes;
}

/* HB_TIME_NEVER: nothing is due before the next event. */
int64_t hb_returns_next_ns(const struct hb_core *core)
{
	int64_t next_ns = HB_TIME_NEVER;
	if (core->memory.returner != HB_TENANT_NONE)
		return core->slots[core->memory.returner].memory.answer_by_ns;
	if (!may_return(core))
		return next_ns;
	for (struct hb_slot *slot = hb_core_next_low(core, NULL); slot; slot = hb_core_next_low(core, slot))
		if (may_come_home(core, slot) && slot->memory.skip_return_ns < next_ns)
			next_ns = slot->memory.skip_return_ns;
	int64_t room_ns = core->memory.room_since_ns + core->config.memory_room_ns;
	return next_ns == HB_TIME_NEVER || next_ns > room_ns ? next_ns : room_ns;
}

static void end_return(struct hb_core *core, struct hb_slot *slot, uint64_t bytes)
{
	if (bytes < slot->memory.returning_bytes)
		slot->memory.skip_return_ns = core->now_ns + SKIP_NS;
	slot->memory.returning_bytes = 0;
	slot->memory.away_bytes -= hb_bytes_least(slot->memory.away_bytes, bytes);
	core->memory.returner = HB_TENANT_NONE;
	update_room(core, core->memory.room_bytes - hb_bytes_least(core->memory.room_bytes, bytes));
}

int hb_returns_post_room(struct hb_core *core, uint64_t room_bytes)
{
	update_room(core, room_bytes);
	return 0;
}

/* Ignored if the tenant's time to answer is over. */
int hb_returns_post_returned(struct hb_core *core, struct hb_slot *slot, uint64_t bytes)
{
	if (slot->memory.returning_bytes)
		end_return(core, slot, bytes);
	return 0;
}

/* Of a tenant that did not answer. */
static void end_step(struct hb_core *core, struct hb_slot *slot)
{
	if (slot->memory.pausing_bytes)
		hb_pauses_end_step(core, slot, 0);
	else
		end_return(core, slot, 0);
}

void hb_returns_expire(struct hb_core *core)
{
	uint32_t id = core->memory.returner;
	if (id != HB_TENANT_NONE && core->slots[id].memory.answer_by_ns <= core->now_ns)
		end_step(core, &core->slots[id]);
}
