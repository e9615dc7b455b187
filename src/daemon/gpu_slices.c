/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses and publishes time slices; see gpu_slices.h. */
#include "daemon/gpu_slices.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/gpu_processes.h"
#include "decide/defaults.h"
#include "gpu/provider.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint32_t count_compute_groups(struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	uint32_t n = 0;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct hb_page_process *process = &tenancy->page->processes[slot];
		for (size_t i = 0; tenancy->members[slot].watch && i < HB_PAGE_GROUPS; i++)
			n += process->groups[i].state != HB_GROUP_EMPTY && process->groups[i].gpu == gpu_index &&
			     process->groups[i].group_class == HB_GROUP_COMPUTE;
	}
	return n;
}

static uint32_t to_us(int64_t ns)
{
	if (ns <= 0)
		return 0;
	return ns < HB_NS_PER_US ? 1 : (uint32_t)(ns / HB_NS_PER_US);
}

/* Whether a second LP context may have work on the GPU while this tenant has its turn. */
static bool may_overlap(struct hb_tenancy *tenancy, const struct hb_tenant_state *state)
{
	return state->has_late_launch || count_compute_groups(tenancy, state->gpu_index) > 1;
}

/*
 * Returns the slice in us; 0 = leave the driver's own. Two LP contexts with tiny
 * slices that have work at the same time stop each other for good (measured on
 * an H200). So only two kinds of tenants get a tiny slice: the MPS server, and
 * an LP tenant with a single compute group that takes turns with the others. A
 * launch that was on its way when its tenant's turn ended may reach the GPU in
 * the next tenant's turn; the driver's own slice lets that launch end.
 */
static uint32_t choose_slice_us(const struct hb_gpu *gpu, struct hb_tenancy *tenancy, enum hb_group_class group_class)
{
	const struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	int64_t decided_ns = group_class == HB_GROUP_COMPUTE ? state->compute_ns : state->copy_ns;
	/*
	 * The spatial engine has one context, the server's. It gets the driver's slices back if others were set before. Each
	 * process has copy groups of its own.
	 */
	if (gpu->engine == HB_ENGINE_SPATIAL && !hb_tenancy_is_server(tenancy))
		return group_class == HB_GROUP_COPY && hb_tenancy_is_low(tenancy) ? to_us(decided_ns) : 0;
	if (gpu->engine == HB_ENGINE_SPATIAL)
		return to_us(group_class == HB_GROUP_COMPUTE ? HB_DEFAULT_DRIVER_SLICE_NS
							     : HB_DEFAULT_DRIVER_COPY_SLICE_NS);
	bool is_server = hb_tenancy_is_server(tenancy);
	if ((!hb_tenancy_is_low(tenancy) && !is_server) || group_class == HB_GROUP_COPY)
		return to_us(decided_ns);
	if (gpu->engine == HB_ENGINE_TEMPORAL && !is_server) /* the slice of the MPS server's group applies */
		return 0;
	if (!is_server && decided_ns && decided_ns < HB_DEFAULT_DRIVER_SLICE_NS && may_overlap(tenancy, state))
		return to_us(HB_DEFAULT_DRIVER_SLICE_NS);
	if (decided_ns && decided_ns < HB_DEFAULT_OUTSIDE_SLICE_NS && gpu->is_busy_outside)
		return to_us(HB_DEFAULT_OUTSIDE_SLICE_NS);
	return to_us(decided_ns);
}

void hb_gpu_note_not_managed(struct hb_gpu *gpu)
{
	uint64_t busy_ppm = 0, limit_ppm = gpu->is_busy_outside ? HB_DEFAULT_OUTSIDE_END_PPM : HB_DEFAULT_OUTSIDE_PPM;
	for (uint32_t i = 0; i < gpu->use->n_users; i++) {
		const struct hb_gpu_user *user = &gpu->use->users[i];
		char name[32];
		if (user->busy_ppm != HB_GPU_BUSY_UNKNOWN && hb_gpu_process_is_outside(gpu->daemon, user->pid, name))
			busy_ppm += user->busy_ppm;
	}
	bool is_busy_outside = busy_ppm > limit_ppm;
	if (is_busy_outside && !gpu->is_busy_outside)
		hb_log_warning("GPU %u: programs that were started without hb run keep it busy; low priority gets time "
			       "slices of %d us meanwhile, and high priority waits longer",
			       gpu->number, HB_DEFAULT_OUTSIDE_SLICE_NS / (int)HB_NS_PER_US);
	gpu->is_busy_outside = is_busy_outside;
}

void hb_gpu_set_slices(struct hb_gpu *gpu, struct hb_tenancy *tenancy)
{
	struct hb_page_gpu *page_gpu = &tenancy->page->gpus[gpu->tenants[tenancy->index].gpu_index];
	uint32_t compute_us = choose_slice_us(gpu, tenancy, HB_GROUP_COMPUTE);
	uint32_t copy_us = choose_slice_us(gpu, tenancy, HB_GROUP_COPY);
	if (page_gpu->slice_us[HB_GROUP_COMPUTE] == compute_us && page_gpu->slice_us[HB_GROUP_COPY] == copy_us)
		return;
	page_gpu->slice_us[HB_GROUP_COMPUTE] = compute_us;
	page_gpu->slice_us[HB_GROUP_COPY] = copy_us;
	HB_FAULT(daemon_slice_changed);
	atomic_fetch_add_explicit(&tenancy->page->slice_sequence, 1, memory_order_release);
	if (hb_tenancy_is_server(tenancy)) /* see server_thread.h */
		syscall(SYS_futex, &tenancy->page->slice_sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
