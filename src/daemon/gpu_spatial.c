/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's part of the spatial engine; see gpu_spatial.h. */
#include "daemon/gpu_spatial.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/gpc_layout.h"
#include "daemon/mask_guard.h"

void hb_gpu_configure_spatial(struct hb_gpu *gpu)
{
	const struct hb_daemon_config *config = &gpu->daemon->config;
	gpu->page->reserve_bytes = config->reserve_bytes;
	gpu->page->window_us = (uint32_t)(config->window_ns / HB_NS_PER_US);
	gpu->page->masks_whole = config->masks == HB_CONFIG_MASKS_GPCS;
	hb_mask_guard_apply(gpu);
	if (config->masks == HB_CONFIG_MASKS_GPCS && gpu->engine == HB_ENGINE_SPATIAL && !gpu->page->masks_refused)
		hb_gpc_layout_find(gpu);
}

void hb_gpu_publish_allowances(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end && gpu->engine == HB_ENGINE_SPATIAL; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy && hb_tenancy_is_high(tenancy))
			tenancy->page->gpus[gpu->tenants[i].gpu_index].allowance_ppm = gpu->tenants[i].allowance_ppm;
	}
}
