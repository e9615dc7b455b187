/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants by id, the queue of actions, and the ids of timers; see core_priv.h. Knows neither policies nor turns. */
#include "core/core_priv.h"

#include <string.h>

/*
 * The worst case: two callbacks of a policy at their limit (a request ended and
 * changed the SLO), a change of turns over all tenants, an ejection that undoes
 * everything (its record, and gate, slice and allowance of each tenant), and a move of
 * memory or an answer for each tenant.
 */
uint32_t hb_core_most_actions(uint32_t tenants)
{
	return 2 * HB_POLICY_ASKS(tenants) + 6 * tenants + 8;
}

/* --- tenants --- */

struct hb_slot *hb_core_slot(const struct hb_core *core, uint32_t tenant)
{
	if (tenant >= core->config.max_tenants || !core->slots[tenant].tenant.present)
		return NULL;
	return &core->slots[tenant];
}

const struct hb_tenant *hb_core_tenant(const struct hb_core *core, uint32_t tenant)
{
	const struct hb_slot *slot = hb_core_slot(core, tenant);
	return slot ? &slot->tenant : NULL;
}

uint32_t hb_core_next_id(const struct hb_core *core, enum hb_priority priority, uint32_t after)
{
	uint32_t from = after == HB_TENANT_NONE ? 0 : after + 1;
	for (uint32_t word = from / 64; word < core->n_words; word++) {
		uint64_t bits = core->present[priority][word];
		if (word == from / 64)
			bits &= ~UINT64_C(0) << from % 64;
		if (bits)
			return word * 64 + (uint32_t)__builtin_ctzll(bits);
	}
	return HB_TENANT_NONE;
}

struct hb_slot *hb_core_next_low(const struct hb_core *core, const struct hb_slot *after)
{
	uint32_t id = hb_core_next_id(core, HB_PRIORITY_LOW, after ? after->tenant.id : HB_TENANT_NONE);
	return id == HB_TENANT_NONE ? NULL : &core->slots[id];
}

bool hb_core_any(const struct hb_core *core, enum hb_priority priority, bool (*has)(const struct hb_tenant *))
{
	uint32_t id = HB_TENANT_NONE;
	while ((id = hb_core_next_id(core, priority, id)) != HB_TENANT_NONE)
		if (has(&core->slots[id].tenant))
			return true;
	return false;
}

static bool wants_gpu(const struct hb_tenant *tenant)
{
	return hb_tenant_wants_gpu(tenant);
}

static bool is_undrained(const struct hb_tenant *tenant)
{
	return tenant->undrained;
}

bool hb_core_high_wants_gpu(const struct hb_core *core)
{
	return hb_core_any(core, HB_PRIORITY_HIGH, wants_gpu);
}

bool hb_core_low_undrained(const struct hb_core *core)
{
	return hb_core_any(core, HB_PRIORITY_LOW, is_undrained);
}

/* --- actions --- */

bool hb_core_room(const struct hb_core *core)
{
	return core->actions_size - core->actions_count >= hb_core_most_actions(core->n_tenants + 1);
}

struct hb_action *hb_core_emit(struct hb_core *core, enum hb_action_kind kind, uint32_t tenant)
{
	uint32_t place = (core->actions_first + core->actions_count++) % core->actions_size;
	/* Zeroed so that equal decisions are equal bytes. */
	memset(&core->actions[place], 0, sizeof core->actions[place]);
	core->actions[place].kind = kind;
	core->actions[place].tenant = tenant;
	return &core->actions[place];
}

bool hb_core_next_action(struct hb_core *core, struct hb_action *action)
{
	if (!core->actions_count)
		return false;
	*action = core->actions[core->actions_first];
	core->actions_first = (core->actions_first + 1) % core->actions_size;
	core->actions_count--;
	return true;
}

/* A new tenant with the same id must not get actions of the old one. */
void hb_core_withdraw(struct hb_core *core, uint32_t tenant)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < core->actions_count; i++) {
		const struct hb_action *action = &core->actions[(core->actions_first + i) % core->actions_size];
		if (action->tenant != tenant)
			core->actions[(core->actions_first + kept++) % core->actions_size] = *action;
	}
	core->actions_count = kept;
}

/* --- timers --- */

uint32_t hb_core_policy_timer(const struct hb_core *core, uint32_t tenant, uint32_t tag)
{
	uint32_t group = tenant == HB_TENANT_NONE ? core->config.max_tenants : tenant;
	return group * HB_POLICY_TIMERS + tag;
}

uint32_t hb_core_turn_timer(const struct hb_core *core)
{
	return (core->config.max_tenants + 1) * HB_POLICY_TIMERS;
}

uint32_t hb_core_memory_timer(const struct hb_core *core)
{
	return hb_core_turn_timer(core) + 1;
}

void hb_core_cancel_policy_timer(struct hb_core *core, uint32_t timer)
{
	if (hb_timers_pending(&core->timers, timer))
		core->n_policy_timers--;
	hb_timers_cancel(&core->timers, timer);
}
