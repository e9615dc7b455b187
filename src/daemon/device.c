/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GPU: feeds its core with what the gates of its tenants show, and carries
 * out what the core asks by writing gates and slices to their pages. It makes
 * no decision of its own but one: which slice is safe (device_slices.c).
 */
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/meters.h"
#include "daemon/page_memory.h"
#include "daemon/process.h"
#include "daemon/recorder.h"
#include "decide/defaults.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An HP tenant that launched nothing for so long has no request. */
#define AT_WORK_NS HB_NS_PER_S

/* The daemon sees that a holder of the turn is busy at its next poll at the earliest; the holder must not pass for idle before. */
_Static_assert(HB_DEFAULT_TURN_GRACE_NS >= 3 * HB_POLL_NS, "a turn outlasts the daemon's polling");

/* LP kernels take milliseconds, and the shim tells within some more. */
#define DRAIN_PATIENCE_NS HB_NS_PER_S

_Static_assert((int)HB_PAGE_LOW == (int)HB_PRIORITY_LOW && (int)HB_PAGE_HIGH == (int)HB_PRIORITY_HIGH,
	       "page and core number priorities alike");

static struct hb_gate *gate_of(struct hb_tenancy *tenancy, uint32_t slot, uint32_t gpu)
{
	return (struct hb_gate *)tenancy->page->processes[slot].gates[gpu];
}

static void wake(struct hb_gate *gate)
{
	syscall(SYS_futex, &gate->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int64_t low_slice_ns(const struct hb_daemon *daemon)
{
	return daemon->config.low_slice_ns ? daemon->config.low_slice_ns : HB_DEFAULT_LOW_SLICE_NS;
}

/* --- actions ----------------------------------------------------------------------- */

static void set_gates(struct hb_device *device, struct hb_tenancy *tenancy, enum hb_gate_state state, uint32_t depth)
{
	struct hb_seat *seat = &device->seats[tenancy->index];
	seat->gate = state;
	seat->depth = depth;
	seat->draining = state == HB_GATE_CLOSED;
	seat->draining_since_ns = hb_clock_now_ns();
	seat->waiting = false;
	bool in_flight = false;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		struct hb_gate *gate = gate_of(tenancy, slot, seat->gpu);
		if (hb_gate_set(gate, state, depth))
			wake(gate);
		in_flight |= hb_gate_in_flight(gate) > 0;
	}
	seat->empty = !in_flight;
	hb_meters_gate_set(device, tenancy->index, in_flight, seat->draining_since_ns);
}

static void ejected(struct hb_device *device, const struct hb_action *action)
{
	const struct hb_ejection *record = hb_core_ejection(device->core);
	hb_log_warning("policy %s was ejected (%s); the built-in one is in force", action->ejected.policy.text,
		       record->message);
}

static void carry_out(struct hb_device *device, const struct hb_action *action)
{
	struct hb_tenancy *tenancy = action->kind == HB_ACTION_EJECTED ? NULL
								       : hb_device_tenancy(device, action->tenant);
	if (action->kind == HB_ACTION_EJECTED) {
		ejected(device, action);
		return;
	}
	if (!tenancy)
		return;
	switch (action->kind) {
	case HB_ACTION_GATE:
		set_gates(device, tenancy, action->gate.state, action->gate.depth);
		break;
	case HB_ACTION_SLICE:
		device->seats[tenancy->index].compute_ns = action->slice.compute_ns;
		device->seats[tenancy->index].copy_ns = action->slice.copy_ns;
		hb_device_give_slices(device, tenancy);
		if (hb_tenancy_is_low(tenancy))
			hb_device_give_server_slices(device, action->slice.compute_ns, action->slice.copy_ns);
		break;
	case HB_ACTION_ALLOWANCE:
		device->seats[tenancy->index].terms_ppm = action->allowance.delay_ppm;
		break;
	default: /* holds, masks and admission need a mechanism in the tenant that this engine has not */
		device->not_carried_out++;
		break;
	}
}

static void take_actions(struct hb_device *device)
{
	struct hb_action action;
	while (hb_core_next_action(device->core, &action)) {
		hb_recorder_action(device, &action);
		carry_out(device, &action);
	}
}

int hb_device_post(struct hb_device *device, int64_t now_ns, const struct hb_event *event)
{
	take_actions(device);
	hb_recorder_event(device, now_ns, event);
	int result = hb_core_post(device->core, now_ns, event);
	if (result < 0)
		hb_log_debug("core refuses event %d of tenant %u: %s", (int)event->kind, event->tenant,
			     strerror(-result));
	take_actions(device);
	return result;
}

static int post_kind(struct hb_device *device, int64_t now_ns, uint32_t tenant, enum hb_event_kind kind)
{
	struct hb_event event = {.kind = kind, .tenant = tenant};
	return hb_device_post(device, now_ns, &event);
}

/* --- what the gates show ------------------------------------------------------------- */

struct sight {
	bool busy, waiting, drained;
	uint64_t launches;
};

static struct sight look_at(struct hb_tenancy *tenancy, uint32_t gpu)
{
	struct sight sight = {.drained = true};
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		struct hb_gate *gate = gate_of(tenancy, slot, gpu);
		sight.busy |= hb_gate_in_flight(gate) > 0;
		sight.waiting |= gate->waiters > 0;
		sight.drained &= hb_gate_drained(gate);
		sight.launches += gate->submitted;
	}
	return sight;
}

/*
 * A process that is stopped (Ctrl-Z, a debugger) cannot tell that its work is done, and must not keep the others
 * waiting until it goes on. What it had launched has had DRAIN_PATIENCE_NS to end, and its gate is closed for more.
 */
static void speak_for_the_stopped(struct hb_tenancy *tenancy, uint32_t gpu)
{
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct hb_member *member = &tenancy->members[slot];
		struct hb_gate *gate = gate_of(tenancy, slot, gpu);
		uint64_t in_flight = hb_gate_in_flight(gate);
		if (!member->watch || !in_flight || !hb_process_is_stopped(member->pid))
			continue;
		hb_log_info("process %d of tenant %u is stopped: its %llu launches count as done", (int)member->pid,
			    tenancy->number, (unsigned long long)in_flight);
		hb_gate_completed(gate, in_flight);
	}
}

static void ask_why_not_drained(struct hb_tenancy *tenancy, struct hb_seat *seat, int64_t now_ns)
{
	if (now_ns - seat->draining_since_ns < DRAIN_PATIENCE_NS)
		return;
	seat->draining_since_ns = now_ns;
	speak_for_the_stopped(tenancy, seat->gpu);
}

/* Drained, closed, and yet something is in flight: its shim found a launch that was late (shim/drain.c). */
static void look_for_straggler(struct hb_device *device, struct hb_tenancy *tenancy, bool busy)
{
	struct hb_seat *seat = &device->seats[tenancy->index];
	bool straggles = busy && seat->gate == HB_GATE_CLOSED && !seat->draining;
	if (straggles == seat->straggles)
		return;
	seat->straggles = straggles;
	hb_device_give_slices(device, tenancy);
}

/* Only low priority, and who takes turns, tells when its work is done (shim/drain.c): of the others launches are seen. */
static bool tells_when_done(const struct hb_device *device, const struct hb_tenancy *tenancy)
{
	return hb_tenancy_is_low(tenancy) || device->engine != HB_ENGINE_TEMPORAL;
}

/* Posts what became of its work since the last look; what began and ended in between, too. */
static void tell_work(struct hb_device *device, struct hb_tenancy *tenancy, const struct sight *sight, int64_t now_ns)
{
	struct hb_seat *seat = &device->seats[tenancy->index];
	bool launched = sight->launches != seat->seen_launches;
	if (launched)
		seat->seen_launching_ns = now_ns;
	seat->seen_launches = sight->launches;
	bool recently = seat->seen_launching_ns && now_ns - seat->seen_launching_ns < HB_TICK_MS * HB_NS_PER_MS;
	bool busy = tells_when_done(device, tenancy) ? sight->busy : recently;
	if ((busy || launched) && !seat->busy)
		post_kind(device, now_ns, tenancy->index, HB_EVENT_BUSY);
	if (!busy && (seat->busy || launched))
		post_kind(device, now_ns, tenancy->index, HB_EVENT_IDLE);
	seat->busy = busy;
}

bool hb_device_worked_since(const struct hb_device *device, const struct hb_tenancy *tenancy, int64_t since_ns)
{
	return device->seats[tenancy->index].taken && device->seats[tenancy->index].seen_launching_ns >= since_ns;
}

static void look(struct hb_device *device, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_seat *seat = &device->seats[tenancy->index];
	struct sight sight = look_at(tenancy, seat->gpu);
	hb_meters_seen(device, tenancy->index, sight.waiting, sight.drained, now_ns);
	tell_work(device, tenancy, &sight, now_ns);
	if (seat->draining && sight.drained) {
		seat->draining = false;
		post_kind(device, now_ns, tenancy->index, HB_EVENT_DRAINED);
	}
	if (seat->draining)
		ask_why_not_drained(tenancy, seat, now_ns);
	look_for_straggler(device, tenancy, sight.busy);
	if (sight.waiting && !seat->waiting) {
		seat->waiting = true;
		post_kind(device, now_ns, tenancy->index, HB_EVENT_WAITING);
	}
	if (!sight.waiting)
		seat->waiting = false;
}

/* What LP tenants hold together; false while one of them is repaired itself or in the middle of a claim. */
static bool sum_low(const struct hb_device *device, uint64_t *sum)
{
	*sum = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (!tenancy || !hb_tenancy_is_low(tenancy))
			continue;
		if (tenancy->repairs || !hb_page_memory_settled(tenancy->page))
			return false;
		*sum += tenancy->page->gpus[device->seats[i].gpu].used_bytes;
	}
	return true;
}

static void repair_low(struct hb_device *device)
{
	uint64_t before = device->page->low_used_bytes, sum, again;
	if (!sum_low(device, &sum) || !sum_low(device, &again) || sum != again)
		return;
	if (atomic_compare_exchange_strong(&device->page->low_used_bytes, &before, sum))
		device->repair_low = false;
}

void hb_device_run(struct hb_device *device, int64_t now_ns)
{
	if (device->repair_low)
		repair_low(device);
	for (uint32_t i = 0; i < device->seats_end; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (tenancy && !hb_tenancy_is_server(tenancy))
			look(device, tenancy, now_ns);
	}
	hb_recorder_step(device, now_ns);
	hb_core_step(device->core, now_ns);
	take_actions(device);
	hb_device_listen(device);
}

/* --- tenants come and go --------------------------------------------------------------- */

/* What was learned stays, for as long as it is to be learned. */
static int64_t slo_of(const struct hb_device *device, const struct hb_tenancy *tenancy)
{
	const struct hb_tenant *known = hb_core_tenant(device->core, tenancy->index);
	if (tenancy->terms.slo_ns >= 0)
		return tenancy->terms.slo_ns;
	return known && known->slo_auto ? known->slo_ns : tenancy->learned_slo_ns;
}

static int enter_core(struct hb_device *device, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_event event = {.kind = HB_EVENT_TENANT_ADD, .tenant = tenancy->index};
	struct hb_seat *seat = &device->seats[tenancy->index];
	uint32_t gpu = seat->gpu;
	*seat = (struct hb_seat){.taken = true, .gpu = gpu, .gate = HB_GATE_OPEN};
	if (hb_tenancy_is_server(tenancy)) {
		seat->compute_ns = seat->copy_ns = low_slice_ns(device->daemon);
		hb_device_give_slices(device, tenancy);
		return 0;
	}
	snprintf(event.tenant_add.name.text, sizeof event.tenant_add.name.text, "%u", tenancy->number);
	event.tenant_add.priority = (enum hb_priority)tenancy->terms.priority;
	event.tenant_add.slo_auto = tenancy->terms.slo_ns < 0;
	event.tenant_add.slo_ns = slo_of(device, tenancy);
	event.tenant_add.slo_share_ppm = tenancy->attainment_ppm;
	event.tenant_add.weight = tenancy->weight;
	set_gates(device, tenancy, HB_GATE_OPEN, 0);
	int result = hb_device_post(device, now_ns, &event);
	hb_device_give_slices(device, tenancy);
	return result;
}

static void leave_core(struct hb_device *device, struct hb_tenancy *tenancy, int64_t now_ns)
{
	if (!hb_tenancy_is_server(tenancy))
		post_kind(device, now_ns, tenancy->index, HB_EVENT_TENANT_REMOVE);
}

static void count_tenants(struct hb_device *device)
{
	device->n_high = device->n_low = device->seats_end = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (device->seats[i].taken)
			device->seats_end = i + 1;
		if (tenancy && !hb_tenancy_is_server(tenancy))
			*(hb_tenancy_is_low(tenancy) ? &device->n_low : &device->n_high) += 1;
	}
	device->page->tenants_high = device->n_high;
	device->page->tenants_low = device->n_low;
	hb_device_listen(device);
}

int hb_device_add(struct hb_device *device, struct hb_tenancy *tenancy, uint32_t gpu, int64_t now_ns)
{
	struct hb_seat *seat = &device->seats[tenancy->index];
	*seat = (struct hb_seat){.taken = true, .gpu = gpu, .gate = HB_GATE_OPEN};
	hb_meters_reset(device, tenancy->index);
	int result = enter_core(device, tenancy, now_ns);
	if (result < 0)
		seat->taken = false;
	device->repair_low = true; /* one that an earlier daemon knew brings its memory along */
	count_tenants(device);
	hb_device_choose_engine(device, now_ns);
	return result;
}

void hb_device_remove(struct hb_device *device, struct hb_tenancy *tenancy, int64_t now_ns)
{
	if (!device->seats[tenancy->index].taken)
		return;
	leave_core(device, tenancy, now_ns);
	device->seats[tenancy->index].taken = false;
	device->repair_low = true;
	count_tenants(device);
	hb_device_choose_engine(device, now_ns);
}

void hb_device_change(struct hb_device *device, struct hb_tenancy *tenancy, bool priority_too, int64_t now_ns)
{
	if (priority_too) {
		leave_core(device, tenancy, now_ns);
		enter_core(device, tenancy, now_ns);
		device->repair_low = true; /* what it holds counts with low priority from now on, or no longer */
		count_tenants(device);
		hb_device_choose_engine(device, now_ns);
		return;
	}
	struct hb_event event = {.kind = HB_EVENT_TENANT_SET, .tenant = tenancy->index};
	event.tenant_set.slo_auto = tenancy->terms.slo_ns < 0;
	event.tenant_set.slo_ns = slo_of(device, tenancy);
	event.tenant_set.slo_share_ppm = tenancy->attainment_ppm;
	event.tenant_set.weight = tenancy->weight;
	if (!hb_tenancy_is_server(tenancy))
		hb_device_post(device, now_ns, &event);
}

void hb_device_join(struct hb_device *device, struct hb_tenancy *tenancy, uint32_t slot)
{
	struct hb_seat *seat = &device->seats[tenancy->index];
	struct hb_gate *gate = gate_of(tenancy, slot, seat->gpu);
	if (hb_gate_set(gate, seat->gate, seat->depth))
		wake(gate);
	hb_device_give_slices(device, tenancy);
}

/* --- the device itself ------------------------------------------------------------------ */

void hb_device_core_config(const struct hb_device *device, struct hb_core_config *core)
{
	const struct hb_daemon_config *config = &device->daemon->config;
	hb_core_config_init(core);
	/* The default is the engine's own; another policy is what somebody chose. */
	bool chosen = strcmp(config->policy, HB_DEFAULT_POLICY) != 0;
	core->policy = device->engine == HB_ENGINE_SPATIAL && !chosen ? "spatial" : config->policy;
	core->max_tenants = HB_TENANCIES_MAX;
	core->quantum_ns = config->quantum_ns;
	core->low_shared = device->engine != HB_ENGINE_TURNS;
	if (config->low_slice_ns)
		core->low_slice_ns = config->low_slice_ns;
	if (config->high_slice_ns)
		core->high_slice_ns = config->high_slice_ns;
}

static int make_core(struct hb_device *device, int64_t now_ns)
{
	struct hb_core_config core;
	int error = 0;
	hb_device_core_config(device, &core);
	hb_recorder_core(device, now_ns, &core);
	device->core = hb_core_new(&core, now_ns, &error);
	return device->core ? 0 : error;
}

static void keep_learned_slos(const struct hb_device *device, const struct hb_core *old)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		const struct hb_tenant *known = hb_core_tenant(old, i);
		if (tenancy && known && known->slo_auto && known->slo_ns)
			tenancy->learned_slo_ns = known->slo_ns;
	}
}

void hb_device_choose_engine(struct hb_device *device, int64_t now_ns)
{
	enum hb_engine engine = hb_engine_of(device);
	if (device->engine == engine)
		return;
	struct hb_core *old = device->core;
	enum hb_engine before = device->engine;
	device->engine = engine;
	if (make_core(device, now_ns) < 0) {
		device->core = old;
		device->engine = before;
		return;
	}
	keep_learned_slos(device, old);
	hb_core_free(old);
	device->page->engine = engine;
	hb_board_configure(device);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (!tenancy)
			continue;
		enter_core(device, tenancy, now_ns);
		hb_tenancy_publish(tenancy);
	}
	hb_device_listen(device);
}

int hb_device_new(struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES], uint32_t number,
		  struct hb_device **device)
{
	struct hb_device *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->daemon = daemon;
	made->number = number;
	made->page_fd = -1;
	made->engine = hb_daemon_engine(daemon);
	memcpy(made->uuid, uuid, HB_UUID_BYTES);
	int result = hb_gpu_page_new(uuid, &made->page, &made->page_fd);
	if (result == 0)
		result = make_core(made, hb_clock_now_ns());
	made->meters = result == 0 ? hb_meters_new(made) : NULL;
	if (result == 0 && !made->meters)
		result = -ENOMEM;
	if (result < 0) {
		hb_device_free(made);
		return result;
	}
	made->page->engine = made->engine;
	made->page->daemon_since_ns = daemon->started_ns;
	hb_board_configure(made);
	*device = made;
	return 0;
}

void hb_device_free(struct hb_device *device)
{
	if (!device)
		return;
	hb_core_free(device->core);
	hb_device_listen_end(device);
	hb_gpcs_stop(device);
	hb_gpu_page_free(device->page, device->page_fd);
	free(device->use);
	hb_meters_free(device->meters);
	free(device);
}

/* Processes hold the GPU ahead of their requests only where no other HP tenant would pay for it. */
static void look_who_is_at_work(struct hb_device *device, int64_t now_ns)
{
	uint32_t at_work = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		struct hb_seat *seat = &device->seats[i];
		uint64_t launches = 0;
		if (!tenancy || hb_tenancy_is_server(tenancy))
			continue;
		for (uint32_t slot = 0; slot < tenancy->slots_end; slot++)
			if (tenancy->members[slot].watch)
				launches += gate_of(tenancy, slot, seat->gpu)->submitted;
		hb_meters_beat(device, i, launches, now_ns);
		if (hb_tenancy_is_low(tenancy))
			continue;
		if (launches != seat->launches)
			seat->launched_ns = now_ns;
		seat->launches = launches;
		at_work += seat->launched_ns && now_ns - seat->launched_ns < AT_WORK_NS;
	}
	device->page->high_at_work = at_work;
}

void hb_device_beat(struct hb_device *device, int64_t now_ns)
{
	look_who_is_at_work(device, now_ns);
	hb_life_beat(device, now_ns);
	hb_board_beat(device);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (tenancy)
			hb_device_give_slices(device, tenancy);
	}
}
