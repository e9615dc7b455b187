/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The effect of each event: checks it, updates the tenant's state, and calls the
 * policy. There is one function post_NAME for each event of events.def, which makes
 * the table of functions. Called by hb_core_post() only. A function that returns an
 * error has changed nothing.
 */
#include "base/hist.h"
#include "core/core_priv.h"
#include "decide/defaults.h"

#include <errno.h>
#include <string.h>

#define WEIGHT_MAX 1000
#define PPM 1000000

/* --- tenants --- */

static bool is_slo_valid(int64_t slo_ns, uint32_t share_ppm)
{
	return slo_ns >= 0 && slo_ns < HB_TIME_LIMIT_NS && share_ppm <= PPM;
}

static bool are_weights_valid(uint32_t weight, uint32_t copy_weight)
{
	return weight <= WEIGHT_MAX && copy_weight <= WEIGHT_MAX;
}

static void set_slo(struct hb_tenant *tenant, int64_t slo_ns, uint32_t share_ppm, bool automatic)
{
	tenant->slo_ns = slo_ns;
	tenant->slo_share_ppm = share_ppm ? share_ppm : HB_DEFAULT_ATTAINMENT_PPM;
	tenant->slo_auto = automatic;
}

static void set_weights(struct hb_tenant *tenant, uint32_t weight, uint32_t copy_weight)
{
	tenant->weight = weight ? weight : 1;
	tenant->copy_weight = copy_weight ? copy_weight : tenant->weight;
}

static void attach_hists(struct hb_core *core, struct hb_slot *slot)
{
	slot->hist = core->free_hists[--core->n_free_hists];
	hb_hist_init(&core->hists[2 * slot->hist]);
	hb_hist_init(&core->hists[2 * slot->hist + 1]);
	slot->tenant.latency = &core->hists[2 * slot->hist];
	slot->tenant.latency_alone = &core->hists[2 * slot->hist + 1];
}

static void add_slot(struct hb_core *core, uint32_t id, enum hb_priority priority)
{
	struct hb_slot *slot = &core->slots[id];
	memset(slot, 0, sizeof *slot);
	slot->hist = HB_HIST_NONE;
	slot->denied_since_ns = HB_TIME_NEVER;
	slot->tenant.id = id;
	slot->tenant.present = true;
	slot->tenant.priority = priority;
	slot->tenant.idle_since_ns = -1;
	core->present[priority][id / 64] |= UINT64_C(1) << id % 64;
	core->n_tenants++;
	if (priority == HB_PRIORITY_HIGH) {
		core->n_high++;
		attach_hists(core, slot);
	}
}

static int post_tenant_add(struct hb_core *core, const struct hb_event *event)
{
	uint32_t id = event->tenant;
	enum hb_priority priority = event->tenant_add.priority;
	const char *name = event->tenant_add.name.text;

	if (id >= core->config.max_tenants)
		return -ENOSPC;
	if ((priority != HB_PRIORITY_LOW && priority != HB_PRIORITY_HIGH) || !*name ||
	    !memchr(name, 0, sizeof event->tenant_add.name.text) ||
	    !is_slo_valid(event->tenant_add.slo_ns, event->tenant_add.slo_share_ppm) ||
	    !are_weights_valid(event->tenant_add.weight, event->tenant_add.copy_weight))
		return -EINVAL;
	if (hb_core_slot(core, id))
		return -EEXIST;
	if (priority == HB_PRIORITY_HIGH && !core->n_free_hists)
		return -ENOSPC;

	add_slot(core, id, priority);
	struct hb_slot *slot = &core->slots[id];
	strcpy(slot->tenant.name.text, name);
	set_slo(&slot->tenant, event->tenant_add.slo_ns, event->tenant_add.slo_share_ppm, event->tenant_add.slo_auto);
	set_weights(&slot->tenant, event->tenant_add.weight, event->tenant_add.copy_weight);
	slot->tenant.user = event->tenant_add.user;
	slot->tenant.shared = event->tenant_add.shared;
	hb_turns_join(core, slot, event->tenant_add.user);
	void *state = hb_policy_tenant_state(&core->policy, id);
	if (state)
		memset(state, 0, core->ops->tenant_bytes);
	/* The new tenant may get a free turn; else turns_apply() would close its gate first. */
	hb_turns_settle(core);
	HB_POLICY_CALL(core, tenant_added, id);
	hb_turns_apply(core, slot);
	return 0;
}

static void detach_tenant(struct hb_core *core, struct hb_slot *slot)
{
	uint32_t id = slot->tenant.id;
	int64_t idle_ns = slot->tenant.busy ? core->now_ns : slot->tenant.idle_since_ns;
	if (idle_ns > core->departed_idle_ns)
		core->departed_idle_ns = idle_ns;
	for (uint32_t tag = 0; tag < HB_POLICY_TIMERS; tag++)
		hb_core_cancel_policy_timer(core, hb_core_policy_timer(core, id, tag));
	hb_core_withdraw(core, id);
	core->present[slot->tenant.priority][id / 64] &= ~(UINT64_C(1) << id % 64);
	core->n_tenants--;
	if (slot->tenant.priority == HB_PRIORITY_HIGH)
		core->n_high--;
	hb_turns_forget(core, id);
	hb_memory_forget(core, slot);
	slot->tenant.present = false;
}

static int post_tenant_remove(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	detach_tenant(core, slot);
	core->leaving = event->tenant;
	HB_POLICY_CALL(core, tenant_removed, event->tenant);
	core->leaving = HB_TENANT_NONE;
	if (slot->hist != HB_HIST_NONE)
		core->free_hists[core->n_free_hists++] = slot->hist;
	return 0;
}

static int post_tenant_set(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (!is_slo_valid(event->tenant_set.slo_ns, event->tenant_set.slo_share_ppm) ||
	    !are_weights_valid(event->tenant_set.weight, event->tenant_set.copy_weight))
		return -EINVAL;
	if (event->tenant_set.slo_ns != slot->tenant.slo_ns)
		slot->pace.credit = (struct hb_token_credit){0};
	set_slo(&slot->tenant, event->tenant_set.slo_ns, event->tenant_set.slo_share_ppm, event->tenant_set.slo_auto);
	set_weights(&slot->tenant, event->tenant_set.weight, event->tenant_set.copy_weight);
	HB_POLICY_CALL(core, tenant_changed, event->tenant);
	return 0;
}

/* --- requests --- */

static int post_request_past(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	struct hb_request request;
	bool learned = false;
	if (!slot)
		return -ENOENT;
	int error = hb_account_request(core, slot, event, &request, &learned);
	if (error)
		return error;
	HB_POLICY_CALL(core, request_ended, event->tenant, &request);
	if (learned)
		HB_POLICY_CALL(core, tenant_changed, event->tenant);
	return 0;
}

/* --- activity --- */

static int post_busy(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (slot->tenant.busy)
		return 0;
	slot->tenant.busy = true;
	slot->tenant.busy_since_ns = core->now_ns;
	HB_POLICY_CALL(core, busy, event->tenant);
	return 0;
}

static int post_idle(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (!slot->tenant.busy)
		return 0;
	slot->tenant.busy = false;
	slot->tenant.idle_since_ns = core->now_ns;
	HB_POLICY_CALL(core, idle, event->tenant);
	return 0;
}

static int post_progress(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (event->progress.work_ns < 0 || event->progress.work_ns >= HB_TIME_LIMIT_NS)
		return -EINVAL;
	slot->tenant.counters.work_time += (uint64_t)event->progress.work_ns;
	return 0;
}

/* Ignored if the gate is open: the thread reported late and is not blocked any more. */
static int post_waiting(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (slot->tenant.waiting || slot->tenant.gate != HB_GATE_CLOSED)
		return 0;
	slot->tenant.waiting = true;
	slot->tenant.waiting_since_ns = core->now_ns;
	slot->tenant.counters.gate_waits++;
	HB_POLICY_CALL(core, waiting, event->tenant);
	return 0;
}

/* Ignored if the gate was opened meanwhile: the report is about an earlier closing. */
static int post_drained(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (!slot->tenant.undrained)
		return 0;
	slot->tenant.undrained = false;
	HB_POLICY_CALL(core, drained, event->tenant);
	return 0;
}

/* --- memory --- */

static int post_memory_state(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	return slot ? hb_memory_post_state(core, slot, event->memory_state.movable_bytes,
					   event->memory_state.away_bytes)
		    : -ENOENT;
}

static int post_memory_need(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	return slot ? hb_memory_post_need(core, slot, event) : -ENOENT;
}

static int post_memory_moved(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	return slot ? hb_memory_post_moved(core, slot, event->memory_moved.moved_bytes) : -ENOENT;
}

static int post_memory_evicted(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	return slot ? hb_memory_post_evicted(core, slot, event->memory_evicted.evicted_bytes) : -ENOENT;
}

static int post_memory_wake(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	return slot ? hb_pauses_post_wake(core, slot) : -ENOENT;
}

static int post_memory_room(struct hb_core *core, const struct hb_event *event)
{
	if (event->memory_room.room_bytes >= HB_MEMORY_BYTES_LIMIT)
		return -EINVAL;
	return hb_core_slot(core, event->tenant) ? hb_returns_post_room(core, event->memory_room.room_bytes) : -ENOENT;
}

static int post_memory_returned(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (event->memory_returned.returned_bytes >= HB_MEMORY_BYTES_LIMIT)
		return -EINVAL;
	return slot ? hb_returns_post_returned(core, slot, event->memory_returned.returned_bytes) : -ENOENT;
}

int hb_core_apply_event(struct hb_core *core, const struct hb_event *event)
{
	static int (*const handlers[HB_EVENT_KINDS])(struct hb_core *, const struct hb_event *) = {
#define HB_EVENT(UPPER, lower) [HB_EVENT_##UPPER] = post_##lower,
#define HB_FIELD(TYPE, name, must, text)
#define HB_EVENT_END(UPPER, lower)
#include "core/events.def"
#undef HB_EVENT
#undef HB_FIELD
#undef HB_EVENT_END
	};
	if ((unsigned)event->kind >= HB_EVENT_KINDS)
		return -EINVAL;
	return handlers[event->kind](core, event);
}
