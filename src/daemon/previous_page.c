/* SPDX-License-Identifier: Apache-2.0 */
/* GPU pages for programs of the previous release; see previous_page.h. */
#include "daemon/previous_page.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/page_memory.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The previous layout has the same fields at the same places, except that the boards and the doorbell were on the page. */
static void copy_fields(struct hb_gpu_page *to, const struct hb_gpu_page *from)
{
	to->engine = from->engine;
	to->tenants_high = from->tenants_high;
	to->tenants_low = from->tenants_low;
	to->high_at_work = from->high_at_work;
	to->total_bytes = from->total_bytes;
	to->reserve_bytes = from->reserve_bytes;
	to->low_used_bytes = from->low_used_bytes;
	to->window_us = from->window_us;
	to->masks_whole = from->masks_whole;
	if (to->gpc_state != from->gpc_state) {
		memcpy(to->gpc_of, from->gpc_of, sizeof to->gpc_of);
		atomic_store_explicit(&to->gpc_state, from->gpc_state, memory_order_release);
	}
	/* A process that sees another value than on its tenant page registers again. */
	to->daemon_since_ns = from->daemon_since_ns;
}

int hb_previous_page_fd(struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	struct hb_previous_page *known = gpu->previous[tenancy->index];
	if (known)
		return known->fd;
	struct hb_previous_page *made = calloc(1, sizeof *made);
	int result = made ? hb_previous_gpu_page_new(gpu->uuid, &made->page, &made->fd) : -ENOMEM;
	if (result < 0) {
		free(made);
		return result;
	}
	hb_user_log(tenancy->user, hb_clock_now_ns(), HB_LOG_INFO,
		    "tenant %u was started with the previous release; it stays scheduled, without the spatial engine",
		    tenancy->number);
	gpu->previous[tenancy->index] = made;
	copy_fields(made->page, gpu->page);
	return made->fd;
}

void hb_previous_pages_update(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (gpu->previous[i])
			copy_fields(gpu->previous[i]->page, gpu->page);
}

void hb_previous_page_free(struct hb_gpu *gpu, uint32_t index)
{
	if (!gpu->previous[index])
		return;
	hb_gpu_page_free(gpu->previous[index]->page, gpu->previous[index]->fd);
	free(gpu->previous[index]);
	gpu->previous[index] = NULL;
}

bool hb_previous_pages_in_use(const struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (gpu->previous[i])
			return true;
	return false;
}
