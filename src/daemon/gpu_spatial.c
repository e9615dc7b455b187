/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's part of the spatial engine; see gpu_spatial.h. */
#include "daemon/gpu_spatial.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/gpc_layout.h"
#include "decide/spatial.h"

static struct hb_spatial_board *board_of(struct hb_gpu *gpu)
{
	return (struct hb_spatial_board *)gpu->page->board;
}

void hb_gpu_configure_spatial(struct hb_gpu *gpu)
{
	const struct hb_daemon_config *config = &gpu->daemon->config;
	gpu->page->reserve_bytes = config->reserve_bytes;
	gpu->page->window_us = (uint32_t)(config->window_ns / HB_NS_PER_US);
	gpu->page->masks_whole = config->masks == HB_CONFIG_MASKS_GPCS;
	if (config->masks == HB_CONFIG_MASKS_GPCS && gpu->engine == HB_ENGINE_SPATIAL)
		hb_gpc_layout_find(gpu);
}

static void set_allowance(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t allowance_ppm)
{
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		for (uint32_t i = 0; i < HB_SPATIAL_BEACONS; i++) {
			struct hb_spatial_beacon *beacon = &board_of(gpu)->beacons[i];
			if (beacon->owner == (uint32_t)tenancy->members[slot].pid)
				beacon->allowance_ppm = allowance_ppm;
		}
	}
}

void hb_gpu_publish_allowances(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX && gpu->engine == HB_ENGINE_SPATIAL; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy && hb_tenancy_is_high(tenancy))
			set_allowance(gpu, tenancy, gpu->tenants[i].allowance_ppm);
	}
}

void hb_gpu_clear_process(struct hb_gpu *gpu, pid_t pid)
{
	for (uint32_t i = 0; i < HB_SPATIAL_BEACONS; i++)
		if (board_of(gpu)->beacons[i].owner == (uint32_t)pid)
			hb_spatial_leave(&board_of(gpu)->beacons[i]);
}
