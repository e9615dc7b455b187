/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each event does: check it, bring the core's books up to date, tell the
 * policy. One function an event, named as in events.def, which makes the
 * dispatch table. Called by hb_core_post() only. A function that returns an
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

static bool slo_valid(int64_t slo_ns, uint32_t share_ppm, uint32_t weight)
{
	return slo_ns >= 0 && slo_ns < HB_TIME_LIMIT_NS && share_ppm <= PPM && weight <= WEIGHT_MAX;
}

static void set_slo(struct hb_tenant *tenant, int64_t slo_ns, uint32_t share_ppm, bool automatic, uint32_t weight)
{
	tenant->slo_ns = slo_ns;
	tenant->slo_share_ppm = share_ppm ? share_ppm : HB_DEFAULT_ATTAINMENT_PPM;
	tenant->slo_auto = automatic;
	tenant->weight = weight ? weight : 1;
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
	hb_list_init(&slot->requests);
	hb_list_init(&slot->launches);
	hb_list_init(&slot->pending);
	slot->hist = HB_NODE_NONE;
	slot->denied_since_ns = HB_TIME_NEVER;
	slot->tenant.id = id;
	slot->tenant.present = true;
	slot->tenant.priority = priority;
	slot->tenant.idle_since_ns = -1; /* no work ever */
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
	    !slo_valid(event->tenant_add.slo_ns, event->tenant_add.slo_share_ppm, event->tenant_add.weight))
		return -EINVAL;
	if (hb_core_slot(core, id))
		return -EEXIST;
	if (priority == HB_PRIORITY_HIGH && !core->n_free_hists)
		return -ENOSPC;

	add_slot(core, id, priority);
	struct hb_slot *slot = &core->slots[id];
	strcpy(slot->tenant.name.text, name);
	set_slo(&slot->tenant, event->tenant_add.slo_ns, event->tenant_add.slo_share_ppm, event->tenant_add.slo_auto,
		event->tenant_add.weight);
	void *state = hb_policy_tenant_state(&core->policy, id);
	if (state)
		memset(state, 0, core->ops->tenant_bytes);
	/* A turn that is free goes to it before its gate is closed for want of one. */
	hb_turns_settle(core);
	HB_POLICY_CALL(core, tenant_added, id);
	hb_turns_apply(core, slot);
	return 0;
}

static void detach(struct hb_core *core, struct hb_slot *slot)
{
	uint32_t id = slot->tenant.id;
	int64_t idle_ns = slot->tenant.busy ? core->now_ns : slot->tenant.idle_since_ns;
	if (idle_ns > core->departed_idle_ns)
		core->departed_idle_ns = idle_ns;
	hb_list_clear(&core->requests, &slot->requests);
	hb_list_clear(&core->launches, &slot->launches);
	hb_list_clear(&core->launches, &slot->pending);
	for (uint32_t tag = 0; tag < HB_POLICY_TIMERS; tag++)
		hb_core_cancel_policy_timer(core, hb_core_policy_timer(core, id, tag));
	hb_timers_cancel(&core->timers, hb_core_infer_timer(core, id));
	hb_core_withdraw(core, id);
	core->present[slot->tenant.priority][id / 64] &= ~(UINT64_C(1) << id % 64);
	core->n_tenants--;
	if (slot->tenant.priority == HB_PRIORITY_HIGH)
		core->n_high--;
	hb_turns_forget(core, id);
	slot->tenant.present = false;
}

static int post_tenant_remove(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	detach(core, slot);
	core->leaving = event->tenant;
	HB_POLICY_CALL(core, tenant_removed, event->tenant);
	core->leaving = HB_TENANT_NONE;
	if (slot->hist != HB_NODE_NONE)
		core->free_hists[core->n_free_hists++] = slot->hist;
	return 0;
}

static int post_tenant_set(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (!slo_valid(event->tenant_set.slo_ns, event->tenant_set.slo_share_ppm, event->tenant_set.weight))
		return -EINVAL;
	set_slo(&slot->tenant, event->tenant_set.slo_ns, event->tenant_set.slo_share_ppm, event->tenant_set.slo_auto,
		event->tenant_set.weight);
	HB_POLICY_CALL(core, tenant_changed, event->tenant);
	return 0;
}

/* --- requests --- */

int hb_core_begin_request(struct hb_core *core, struct hb_slot *slot, uint64_t id, int64_t deadline_ns)
{
	int error = hb_account_begin(core, slot, id, deadline_ns);
	if (error)
		return error;
	struct hb_work request = core->requests.nodes[slot->requests.last].work;
	HB_POLICY_CALL(core, request_begun, slot->tenant.id, &request);
	return 0;
}

int hb_core_end_request(struct hb_core *core, struct hb_slot *slot, uint64_t id, int64_t end_ns, int64_t harm_ns)
{
	struct hb_work request;
	bool learned = false;
	int error = hb_account_end(core, slot, id, end_ns, &request, &learned);
	if (error)
		return error;
	request.measured = harm_ns >= 0;
	request.harm_ns = harm_ns >= 0 ? harm_ns : 0;
	HB_POLICY_CALL(core, request_ended, slot->tenant.id, &request);
	HB_POLICY_CALL(core, request_judged, slot->tenant.id, &request, end_ns);
	if (learned)
		HB_POLICY_CALL(core, tenant_changed, slot->tenant.id);
	return 0;
}

static int post_request_begin(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (!slot->infer.told)
		hb_infer_told(core, slot);
	return hb_core_begin_request(core, slot, event->request_begin.request, event->request_begin.deadline_ns);
}

static int post_request_end(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	int64_t harm_ns = event->request_end.measured ? event->request_end.harm_ns : -1;
	if (!slot)
		return -ENOENT;
	if (event->request_end.measured && (harm_ns < 0 || harm_ns >= HB_TIME_LIMIT_NS))
		return -EINVAL;
	return hb_core_end_request(core, slot, event->request_end.request, core->now_ns, harm_ns);
}

static int post_request_past(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	struct hb_work request;
	bool learned = false;
	if (!slot)
		return -ENOENT;
	int error = hb_account_past(core, slot, event, &request, &learned);
	if (error)
		return error;
	if (!slot->infer.told)
		hb_infer_told(core, slot);
	HB_POLICY_CALL(core, request_judged, event->tenant, &request, event->request_past.end_ns);
	if (learned)
		HB_POLICY_CALL(core, tenant_changed, event->tenant);
	return 0;
}

/* --- launches --- */

static bool launch_valid(const struct hb_slot *slot, const struct hb_event *event)
{
	return event->launch.duration_ns >= 0 && event->launch.duration_ns < HB_TIME_LIMIT_NS &&
	       event->launch.class <= HB_CLASS_MEMORY &&
	       (!slot->launched_any || event->launch.launch > slot->last_launch);
}

static int post_launch(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (!core->ops->launches)
		return 0;
	if (!launch_valid(slot, event))
		return -EINVAL;
	bool waits = slot->tenant.gate == HB_GATE_PER_LAUNCH;
	struct hb_work_list *list = waits ? &slot->pending : &slot->launches;
	struct hb_work *work = hb_list_append(&core->launches, list, event->launch.launch);
	if (!work)
		return -ENOSPC;
	work->begin_ns = core->now_ns;
	work->deadline_ns = HB_TIME_NEVER;
	work->duration_ns = event->launch.duration_ns;
	work->kernel = event->launch.kernel;
	work->sms = event->launch.sms;
	work->class = event->launch.class;
	slot->launched_any = true;
	slot->last_launch = event->launch.launch;
	slot->tenant.launches = slot->launches.count;
	slot->tenant.pending = slot->pending.count;
	struct hb_work copy = *work;
	HB_POLICY_CALL(core, launched, event->tenant, &copy, waits);
	return 0;
}

static int post_complete(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (!core->ops->launches)
		return 0;
	uint32_t node = hb_list_find(&core->launches, &slot->launches, event->complete.launch);
	if (node == HB_NODE_NONE)
		return -ENOENT;
	struct hb_work work = core->launches.nodes[node].work;
	hb_list_remove(&core->launches, &slot->launches, node);
	slot->tenant.launches = slot->launches.count;
	HB_POLICY_CALL(core, completed, event->tenant, &work);
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
	hb_infer_busy(core, slot);
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
	hb_infer_idle(core, slot);
	HB_POLICY_CALL(core, idle, event->tenant);
	return 0;
}

/* A thread that reports late, when its gate is open again, does not wait any more. */
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

/* Ignored where the gate was opened meanwhile: the report is about an earlier closing. */
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

static int post_hint(struct hb_core *core, const struct hb_event *event)
{
	struct hb_slot *slot = hb_core_slot(core, event->tenant);
	if (!slot)
		return -ENOENT;
	if (event->hint.expected_start_ns < 0 || event->hint.expected_start_ns >= HB_TIME_LIMIT_NS ||
	    event->hint.sign >= HB_SIGNS)
		return -EINVAL;
	slot->tenant.counters.hints++;
	HB_POLICY_CALL(core, hint, event->tenant, event->hint.expected_start_ns, event->hint.sign, event->hint.source);
	return 0;
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
