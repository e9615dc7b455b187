/* SPDX-License-Identifier: Apache-2.0 */
/* Polls and sets the gates of a GPU's tenants; see gpu_gates.h. */
#include "daemon/gpu_gates.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_measures.h"
#include "daemon/gpu_slices.h"
#include "daemon/process.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* LP's kernels take milliseconds, and the shim reports their end within a few more. */
#define DRAIN_LIMIT_NS HB_NS_PER_S
/*
 * Others wait at most this long for a tenant's work to end, whatever its page says; afterwards the work counts as a late launch.
 * The time is halved each time that it was not enough, and grows again slowly.
 */
#define DRAIN_MOST_NS (2 * HB_NS_PER_S)
#define DRAIN_LEAST_NS (HB_NS_PER_S / 8)
#define DRAIN_GROWTH_NS (10 * HB_NS_PER_MS)

static struct hb_gate *gate_of(struct hb_tenancy *tenancy, uint32_t slot, uint32_t gpu_index)
{
	return (struct hb_gate *)tenancy->page->processes[slot].gates[gpu_index];
}

/* --- decisions of the core to the pages ------------------------------------------------- */

/* A lost GPU ends no work, so its gates stay open. */
static void set_gate(const struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t slot)
{
	const struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	struct hb_gate *gate = gate_of(tenancy, slot, state->gpu_index);
	enum hb_gate_state wanted = tenancy->members[slot].is_held ? HB_GATE_CLOSED : state->gate;
	if (hb_gate_set(gate, gpu->is_lost ? HB_GATE_OPEN : wanted, state->depth))
		syscall(SYS_futex, &gate->wake_word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void apply_gate(struct hb_gpu *gpu, struct hb_tenancy *tenancy)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	state->gate_changed = false;
	state->draining = state->gate == HB_GATE_CLOSED;
	state->closed_ns = state->draining_since_ns = hb_clock_now_ns();
	state->waiting = false;
	bool in_flight = false;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		set_gate(gpu, tenancy, slot);
		in_flight |= hb_gate_in_flight(gate_of(tenancy, slot, state->gpu_index)) > 0;
	}
	state->was_empty = !in_flight;
	hb_gpu_measure_gate(gpu, tenancy->index, in_flight, state->draining_since_ns);
}

void hb_gpu_apply(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		struct hb_tenant_state *state = &gpu->tenants[i];
		if (tenancy && state->gate_changed)
			apply_gate(gpu, tenancy);
		if (tenancy && state->slices_changed)
			hb_gpu_set_slices(gpu, tenancy);
		state->slices_changed = false;
	}
}

void hb_gpu_set_gate_of_process(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t slot)
{
	set_gate(gpu, tenancy, slot);
}

/* --- what the gates show ---------------------------------------------------------------- */

/* The gates of all processes of one tenant, taken together. */
struct gates_view {
	bool busy, waiting, drained;
	uint64_t launches;
};

static struct gates_view read_gates(struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	struct gates_view view = {.drained = true};
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		struct hb_gate *gate = gate_of(tenancy, slot, gpu_index);
		view.busy |= hb_gate_in_flight(gate) > 0;
		view.waiting |= gate->waiters > 0;
		view.drained &= hb_gate_drained(gate);
		view.launches += gate->submitted;
	}
	return view;
}

uint64_t hb_gpu_count_launches(const struct hb_gpu *gpu, uint32_t index)
{
	struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, index);
	return tenancy ? read_gates(tenancy, gpu->tenants[index].gpu_index).launches : 0;
}

/*
 * A process that is stopped (Ctrl-Z, a debugger) cannot report that its work has ended, and other tenants must not wait
 * until it continues. Its launches have had DRAIN_LIMIT_NS to end, and its gate is closed for new ones.
 */
static void complete_for_stopped_processes(struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct hb_member *member = &tenancy->members[slot];
		struct hb_gate *gate = gate_of(tenancy, slot, gpu_index);
		uint64_t in_flight = hb_gate_in_flight(gate);
		if (!member->watch || !in_flight || !hb_process_is_stopped(member->pid))
			continue;
		hb_user_log(tenancy->user, hb_clock_now_ns(), HB_LOG_INFO,
			    "tenant %u: process %d is stopped, so its %llu launches in flight count as completed",
			    tenancy->number, (int)member->pid, (unsigned long long)in_flight);
		hb_gate_completed(gate, in_flight);
	}
}

static void check_slow_drain(struct hb_tenancy *tenancy, struct hb_tenant_state *state, int64_t now_ns)
{
	if (now_ns - state->draining_since_ns < DRAIN_LIMIT_NS)
		return;
	state->draining_since_ns = now_ns;
	complete_for_stopped_processes(tenancy, state->gpu_index);
}

/* A shim may find a launch that was on its way when the gate closed, after the tenant had drained (shim/drain.c). */
static void check_late_launch(struct hb_gpu *gpu, struct hb_tenancy *tenancy, bool busy)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	bool is_late = busy && state->gate == HB_GATE_CLOSED && !state->draining && !state->gate_changed;
	if (is_late == state->has_late_launch)
		return;
	state->has_late_launch = is_late;
	state->slices_changed = true;
}

/* Only processes of LP, and of tenants that take turns, report the end of their work (shim/drain.c). */
static bool reports_completion(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	return hb_tenancy_is_low(tenancy) || gpu->engine != HB_ENGINE_TEMPORAL;
}

/* Work that began and ended between two polls is posted, too: as busy and then idle. */
static void post_work(struct hb_gpu *gpu, struct hb_tenancy *tenancy, const struct gates_view *view, int64_t now_ns)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	bool launched = view->launches != state->polled_launches;
	if (launched)
		state->polled_launched_ns = now_ns;
	state->polled_launches = view->launches;
	bool recently = state->polled_launched_ns && now_ns - state->polled_launched_ns < HB_TICK_MS * HB_NS_PER_MS;
	bool busy = reports_completion(gpu, tenancy) ? view->busy : recently;
	if ((busy || launched) && !state->busy)
		hb_gpu_post_kind(gpu, now_ns, tenancy->index, HB_EVENT_BUSY);
	if (!busy && (state->busy || launched))
		hb_gpu_post_kind(gpu, now_ns, tenancy->index, HB_EVENT_IDLE);
	state->busy = busy;
}

static void post_drained(struct hb_gpu *gpu, uint32_t index, int64_t now_ns)
{
	gpu->tenants[index].draining = false;
	hb_gpu_post_kind(gpu, now_ns, index, HB_EVENT_DRAINED);
}

static void check_endless_drain(struct hb_gpu *gpu, struct hb_tenancy *tenancy, bool drained, int64_t now_ns)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	int64_t *most_ns = &gpu->drain_most_ns[tenancy->index];
	if (!*most_ns)
		*most_ns = DRAIN_MOST_NS;
	if (drained) {
		*most_ns = *most_ns < DRAIN_MOST_NS - DRAIN_GROWTH_NS ? *most_ns + DRAIN_GROWTH_NS : DRAIN_MOST_NS;
		return;
	}
	if (now_ns - state->closed_ns < *most_ns)
		return;
	if (*most_ns == DRAIN_MOST_NS)
		hb_user_log(tenancy->user, hb_clock_now_ns(), HB_LOG_INFO,
			    "tenant %u: its work has not ended %lld ms after its turn, so the others continue",
			    tenancy->number, (long long)(*most_ns / HB_NS_PER_MS));
	*most_ns = *most_ns / 2 > DRAIN_LEAST_NS ? *most_ns / 2 : DRAIN_LEAST_NS;
	post_drained(gpu, tenancy->index, now_ns);
}

static void poll_tenant(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	struct gates_view view = read_gates(tenancy, state->gpu_index);
	hb_gpu_measure_poll(gpu, tenancy->index, view.waiting, view.drained, now_ns);
	post_work(gpu, tenancy, &view, now_ns);
	if (state->draining)
		check_endless_drain(gpu, tenancy, view.drained, now_ns);
	if (state->draining && view.drained)
		post_drained(gpu, tenancy->index, now_ns);
	if (state->draining)
		check_slow_drain(tenancy, state, now_ns);
	check_late_launch(gpu, tenancy, view.busy);
	bool is_new = view.waiting && !state->waiting;
	state->waiting = view.waiting;
	if (is_new)
		hb_gpu_post_kind(gpu, now_ns, tenancy->index, HB_EVENT_WAITING);
}

void hb_gpu_poll_gates(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy && !hb_tenancy_is_server(tenancy))
			poll_tenant(gpu, tenancy, now_ns);
	}
}

void hb_gpu_post_empty(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		struct hb_tenant_state *state = &gpu->tenants[i];
		if (!tenancy || !state->draining || !state->was_empty)
			continue;
		struct gates_view view = read_gates(tenancy, state->gpu_index);
		hb_gpu_measure_poll(gpu, i, view.waiting, view.drained, now_ns);
		if (view.drained)
			post_drained(gpu, i, now_ns);
	}
}

bool hb_gpu_launched_since(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t since_ns)
{
	const struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	return state->is_present && state->polled_launched_ns >= since_ns;
}
