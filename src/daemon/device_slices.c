/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which time slices a GPU's tenants get: what the core asked for, where that is
 * safe. Written to the tenants' pages; their processes put it into effect.
 * Called by device.c.
 */
#include "base/clock.h"
#include "base/fault_point.h"
#include "daemon/daemon.h"
#include "decide/defaults.h"

static uint32_t count_compute_groups(struct hb_tenancy *tenancy, uint32_t gpu)
{
	uint32_t n = 0;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct hb_page_process *process = &tenancy->page->processes[slot];
		for (size_t i = 0; tenancy->members[slot].watch && i < HB_PAGE_GROUPS; i++)
			n += process->groups[i].state != HB_GROUP_EMPTY && process->groups[i].gpu == gpu &&
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

/* Where a second LP context can be runnable beside a tiny slice. */
static bool is_not_alone(struct hb_tenancy *tenancy, const struct hb_seat *seat)
{
	return seat->straggles || count_compute_groups(tenancy, seat->gpu) > 1;
}

/*
 * Two LP contexts with tiny slices that are runnable at once stop each other
 * for good (measured on an H200), so a tiny slice is given only where one
 * context can be runnable: to the MPS server, or to an LP tenant with a single
 * compute group that takes turns with the others. A launch that was on its way
 * when its tenant's turn ended can come to the GPU in the next one's turn; the
 * driver's own slice lets it end there. 0 = leave the driver's own.
 */
static uint32_t slice_for(const struct hb_device *device, struct hb_tenancy *tenancy, enum hb_group_class group_class)
{
	const struct hb_seat *seat = &device->seats[tenancy->index];
	int64_t asked_ns = group_class == HB_GROUP_COMPUTE ? seat->compute_ns : seat->copy_ns;
	/* There is one context, the server's; its slices are the driver's own, also after others were set. */
	if (device->engine == HB_ENGINE_SPATIAL && !hb_tenancy_is_server(tenancy))
		return 0;
	if (device->engine == HB_ENGINE_SPATIAL)
		return to_us(group_class == HB_GROUP_COMPUTE ? HB_DEFAULT_DRIVER_SLICE_NS
							     : HB_DEFAULT_DRIVER_COPY_SLICE_NS);
	if (!hb_tenancy_is_low(tenancy) || group_class == HB_GROUP_COPY)
		return to_us(asked_ns);
	if (device->engine == HB_ENGINE_TEMPORAL) /* the server's group carries it */
		return 0;
	if (asked_ns && asked_ns < HB_DEFAULT_DRIVER_SLICE_NS && is_not_alone(tenancy, seat))
		return to_us(HB_DEFAULT_DRIVER_SLICE_NS);
	return to_us(asked_ns);
}

void hb_device_give_slices(struct hb_device *device, struct hb_tenancy *tenancy)
{
	struct hb_page_gpu *gpu = &tenancy->page->gpus[device->seats[tenancy->index].gpu];
	uint32_t compute_us = slice_for(device, tenancy, HB_GROUP_COMPUTE);
	uint32_t copy_us = slice_for(device, tenancy, HB_GROUP_COPY);
	if (gpu->slice_us[HB_GROUP_COMPUTE] == compute_us && gpu->slice_us[HB_GROUP_COPY] == copy_us)
		return;
	gpu->slice_us[HB_GROUP_COMPUTE] = compute_us;
	gpu->slice_us[HB_GROUP_COPY] = copy_us;
	HB_FAULT(daemon_slice_changed);
	atomic_fetch_add_explicit(&tenancy->page->slice_sequence, 1, memory_order_release);
}

void hb_device_give_server_slices(struct hb_device *device, int64_t compute_ns, int64_t copy_ns)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (!tenancy || !hb_tenancy_is_server(tenancy))
			continue;
		device->seats[i].compute_ns = compute_ns;
		device->seats[i].copy_ns = copy_ns;
		hb_device_give_slices(device, tenancy);
	}
}
