/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU and the tenants that use it; see gpu.h. */
#include "daemon/gpu.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/engine_choice.h"
#include "daemon/engine_runs.h"
#include "daemon/gpu_boards.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_elastic.h"
#include "daemon/gpu_gates.h"
#include "daemon/gpu_measures.h"
#include "daemon/gpu_memory.h"
#include "daemon/gpu_minimum.h"
#include "daemon/gpu_peers.h"
#include "daemon/gpu_poll.h"
#include "daemon/gpu_processes.h"
#include "daemon/gpu_slices.h"
#include "daemon/gpu_spatial.h"
#include "daemon/gpu_trial.h"
#include "daemon/mps_server.h"
#include "daemon/page_memory.h"
#include "daemon/previous_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An HP tenant without a launch for this long has no request running. */
#define ACTIVE_NS HB_NS_PER_S

_Static_assert((int)HB_PAGE_LOW == (int)HB_PRIORITY_LOW && (int)HB_PAGE_HIGH == (int)HB_PRIORITY_HIGH,
	       "page and core use the same numbers for priorities");

/* --- serving ---------------------------------------------------------------------------- */

void hb_gpu_poll(struct hb_gpu *gpu, int64_t now_ns)
{
	if (gpu->memory_changed)
		hb_gpu_memory_share(gpu, now_ns);
	hb_gpu_elastic_poll(gpu, now_ns);
	hb_gpu_poll_gates(gpu, now_ns);
}

void hb_gpu_decide(struct hb_gpu *gpu, int64_t now_ns)
{
	hb_gpu_step(gpu, now_ns);
	hb_gpu_apply(gpu);
	hb_gpu_post_empty(gpu, now_ns);
	hb_gpu_apply(gpu);
	hb_gpu_update_doorbell(gpu);
}

/*
 * The page says how many HP tenants launch work. Their processes divide the budget of takeovers, and keep the GPU after work only
 * if one tenant does.
 */
static void publish_active_high(struct hb_gpu *gpu, int64_t now_ns)
{
	uint32_t active = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		struct hb_tenant_state *state = &gpu->tenants[i];
		if (!tenancy || hb_tenancy_is_server(tenancy))
			continue;
		uint64_t launches = hb_gpu_count_launches(gpu, i);
		hb_gpu_measure_launches(gpu, i, launches, now_ns);
		if (hb_tenancy_is_low(tenancy))
			continue;
		if (launches != state->launches)
			state->launched_ns = now_ns;
		state->launches = launches;
		active += state->launched_ns && now_ns - state->launched_ns < ACTIVE_NS;
	}
	gpu->page->high_at_work = active;
}

void hb_gpu_tick(struct hb_gpu *gpu, int64_t now_ns)
{
	publish_active_high(gpu, now_ns);
	hb_gpu_memory_share(gpu, now_ns);
	hb_gpu_elastic_tick(gpu, now_ns);
	hb_engine_runs_update(gpu, now_ns);
	hb_gpu_minimum_tick(gpu, now_ns);
	hb_gpu_publish_allowances(gpu);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy)
			hb_gpu_set_slices(gpu, tenancy);
	}
	hb_previous_pages_update(gpu);
	hb_gpu_usage_tick(gpu, now_ns);
}

/* --- tenants are added and removed --------------------------------------------------------- */

/* An SLO that the core has learned is kept as long as the tenant wants a learned one. */
static int64_t slo_of(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	const struct hb_tenant *known = hb_core_tenant(gpu->core, tenancy->index);
	if (tenancy->rights.slo_ns >= 0)
		return tenancy->rights.slo_ns;
	return known && known->slo_auto ? known->slo_ns : tenancy->learned_slo_ns;
}

static int post_tenant_add(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_event event = {.kind = HB_EVENT_TENANT_ADD, .tenant = tenancy->index};
	snprintf(event.tenant_add.name.text, sizeof event.tenant_add.name.text, "%u", tenancy->number);
	event.tenant_add.priority = (enum hb_priority)tenancy->rights.priority;
	event.tenant_add.slo_auto = tenancy->rights.slo_ns < 0;
	event.tenant_add.slo_ns = slo_of(gpu, tenancy);
	event.tenant_add.slo_share_ppm = tenancy->attainment_ppm;
	event.tenant_add.weight = tenancy->weight;
	event.tenant_add.copy_weight = tenancy->pcie_weight;
	event.tenant_add.user = (uint32_t)tenancy->peer.uid;
	event.tenant_add.shared = hb_tenancy_is_low(tenancy) && hb_mps_has_tenant(tenancy);
	return hb_gpu_post(gpu, now_ns, &event);
}

/* The tenant begins with an open gate; the core may close it at once. */
static int enter_core(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	hb_gpu_elastic_forget(gpu, tenancy, now_ns);
	*state = (struct hb_tenant_state){
		.is_present = true, .gpu_index = state->gpu_index, .gate = HB_GATE_OPEN, .slices_changed = true};
	if (tenancy->index >= gpu->tenants_end)
		gpu->tenants_end = tenancy->index + 1;
	int result = 0;
	if (hb_tenancy_is_server(tenancy)) {
		state->compute_ns = state->copy_ns = hb_gpu_low_slice_ns(gpu);
	} else {
		state->gate_changed = true;
		hb_gpu_apply(gpu);
		result = post_tenant_add(gpu, tenancy, now_ns);
	}
	hb_gpu_apply(gpu);
	return result;
}

static void leave_core(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	if (!hb_tenancy_is_server(tenancy))
		hb_gpu_post_kind(gpu, now_ns, tenancy->index, HB_EVENT_TENANT_REMOVE);
}

static void count_tenants(struct hb_gpu *gpu)
{
	gpu->n_high = gpu->n_low = gpu->tenants_end = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (gpu->tenants[i].is_present)
			gpu->tenants_end = i + 1;
		if (tenancy && !hb_tenancy_is_server(tenancy))
			*(hb_tenancy_is_low(tenancy) ? &gpu->n_low : &gpu->n_high) += 1;
	}
	gpu->page->tenants_high = gpu->n_high;
	gpu->page->tenants_low = gpu->n_low;
	hb_gpu_update_doorbell(gpu);
}

int hb_gpu_add(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t gpu_index, int64_t now_ns)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	state->gpu_index = gpu_index;
	int result = enter_core(gpu, tenancy, now_ns);
	if (result < 0) {
		state->is_present = false;
		hb_gpu_measures_reset(gpu, tenancy->index);
	}
	gpu->leases[tenancy->index] = (struct hb_memory_lease){.bytes = 0};
	gpu->drain_most_ns[tenancy->index] = 0;
	gpu->memory_changed = true;
	if (!gpu->use)
		hb_gpu_processes_poll(gpu->daemon->processes); /* how much memory the GPU has, and who uses it */
	count_tenants(gpu);
	hb_gpu_choose_engine(gpu, now_ns);
	return result;
}

void hb_gpu_remove(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns)
{
	struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	if (!state->is_present)
		return;
	leave_core(gpu, tenancy, now_ns);
	hb_gpu_elastic_forget(gpu, tenancy, now_ns);
	hb_gpu_elastic_reset(gpu, tenancy->index);
	state->is_present = false;
	hb_gpu_close_doorbell(gpu, tenancy->index);
	hb_previous_page_free(gpu, tenancy->index);
	hb_gpu_drop_boards(gpu, tenancy, HB_PAGE_PROCESSES);
	hb_gpu_apply(gpu);
	hb_gpu_measures_reset(gpu, tenancy->index);
	gpu->memory_changed = true;
	count_tenants(gpu);
	hb_gpu_choose_engine(gpu, now_ns);
}

void hb_gpu_change(struct hb_gpu *gpu, struct hb_tenancy *tenancy, bool new_priority, int64_t now_ns)
{
	if (new_priority) {
		hb_gpu_drop_boards(gpu, tenancy, HB_PAGE_PROCESSES); /* LP has none; HP hands its boards over again */
		leave_core(gpu, tenancy, now_ns);
		enter_core(gpu, tenancy, now_ns);
		gpu->memory_changed = true; /* the tenant's memory begins or ceases to count as LP's */
		count_tenants(gpu);
		hb_gpu_choose_engine(gpu, now_ns);
		return;
	}
	struct hb_event event = {.kind = HB_EVENT_TENANT_SET, .tenant = tenancy->index};
	event.tenant_set.slo_auto = tenancy->rights.slo_ns < 0;
	event.tenant_set.slo_ns = slo_of(gpu, tenancy);
	event.tenant_set.slo_share_ppm = tenancy->attainment_ppm;
	event.tenant_set.weight = tenancy->weight;
	event.tenant_set.copy_weight = tenancy->pcie_weight;
	if (!hb_tenancy_is_server(tenancy))
		hb_gpu_post(gpu, now_ns, &event);
	hb_gpu_apply(gpu);
}

void hb_gpu_join(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t slot)
{
	hb_gpu_set_gate_of_process(gpu, tenancy, slot);
	hb_gpu_set_slices(gpu, tenancy);
}

/* --- the engine ------------------------------------------------------------------------------ */

static void keep_learned_slos(const struct hb_gpu *gpu, const struct hb_core *old)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		const struct hb_tenant *known = hb_core_tenant(old, i);
		if (tenancy && known && known->slo_auto && known->slo_ns)
			tenancy->learned_slo_ns = known->slo_ns;
	}
}

static void publish_engine(struct hb_gpu *gpu)
{
	gpu->page->engine = gpu->engine;
	hb_gpu_configure_spatial(gpu);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy)
			tenancy->page->gpus[gpu->tenants[i].gpu_index].engine = gpu->engine;
	}
	hb_previous_pages_update(gpu);
}

void hb_gpu_choose_engine(struct hb_gpu *gpu, int64_t now_ns)
{
	enum hb_engine before = gpu->engine;
	struct hb_core *old = gpu->core;
	gpu->engine = hb_engine_of_gpu(gpu);
	if (gpu->engine == before)
		return;
	if (hb_gpu_make_core(gpu, now_ns) < 0) {
		gpu->engine = before;
		return;
	}
	keep_learned_slos(gpu, old);
	hb_core_free(old);
	publish_engine(gpu);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy)
			enter_core(gpu, tenancy, now_ns);
	}
	hb_gpu_update_doorbell(gpu);
}

/* --- making and freeing ------------------------------------------------------------------------ */

static int make_gpu(struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES], uint32_t number,
		    struct hb_gpu **gpu)
{
	struct hb_gpu *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->daemon = daemon;
	made->number = number;
	made->page_fd = -1;
	made->engine = hb_engine_default(daemon);
	memcpy(made->uuid, uuid, HB_UUID_BYTES);
	int result = hb_gpu_page_new(uuid, &made->page, &made->page_fd);
	if (result == 0)
		result = hb_gpu_make_core(made, hb_clock_now_ns());
	made->elastic = hb_gpu_elastic_new();
	if (result == 0 && !made->elastic)
		result = -ENOMEM;
	made->measures = result == 0 ? hb_gpu_measures_new(made) : NULL;
	if (result == 0 && !made->measures)
		result = -ENOMEM;
	if (result < 0) {
		hb_gpu_free(made);
		return result;
	}
	made->page->daemon_since_ns = daemon->started_ns;
	/* Numbers that the daemon before this one has not used lately. */
	made->last_board = (uint32_t)(made->page->daemon_since_ns / HB_NS_PER_US);
	made->page->boards_epoch = made->last_board;
	publish_engine(made);
	*gpu = made;
	return 0;
}

void hb_gpu_free(struct hb_gpu *gpu)
{
	if (!gpu)
		return;
	hb_core_free(gpu->core);
	hb_gpu_trial_cancel(gpu);
	hb_gpu_free_boards(gpu);
	hb_gpu_page_free(gpu->page, gpu->page_fd);
	free(gpu->use);
	free(gpu->fault);
	hb_gpu_measures_free(gpu->measures);
	hb_gpu_elastic_free(gpu->elastic);
	free(gpu);
}

static bool is_used(const struct hb_daemon *daemon, const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_uses(daemon->tenancies[i], gpu))
			return true;
	return false;
}

/* The first free place, or that of a GPU without tenants: programs report the UUIDs, so they may be invented. */
static uint32_t choose_place(const struct hb_daemon *daemon)
{
	uint32_t place = daemon->n_gpus;
	for (uint32_t i = 0; place == HB_GPUS_MAX && i < HB_GPUS_MAX; i++)
		if (!is_used(daemon, daemon->gpus[i]))
			return i;
	return place;
}

int hb_gpu_find_or_add(struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES], struct hb_gpu **gpu)
{
	struct hb_gpu *known = hb_gpu_find(daemon, uuid), *made;
	if (known) {
		*gpu = known;
		return 0;
	}
	uint32_t place = choose_place(daemon);
	if (place == HB_GPUS_MAX)
		return -ENOSPC;
	int result = make_gpu(daemon, uuid, place, &made);
	if (result < 0) {
		hb_log_error("a GPU cannot be added: %s", strerror(-result));
		return result;
	}
	if (place < daemon->n_gpus) {
		hb_peers_forget(daemon->gpus[place]);
		hb_gpu_free(daemon->gpus[place]);
	} else {
		daemon->n_gpus++;
	}
	daemon->gpus[place] = made;
	HB_FAULT(daemon_gpu_made);
	*gpu = made;
	return 0;
}
