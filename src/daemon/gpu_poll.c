/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses when to poll a GPU's gates; see gpu_poll.h. While LP tenants take
 * turns, the daemon must notice who waits, whose work has ended and who has
 * drained. Polling twenty tenants every HB_POLL_NS costs 1.5 % of a CPU core,
 * so the tenants' shims ring their doorbells (hb_page_gpu.doorbell). Polling remains
 * for what no shim reports: that an idle holder of the turn has begun to launch
 * again, and everything about a tenant whose shim is too old to ring.
 */
#include "daemon/gpu_poll.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/doorbell_listener.h"
#include "daemon/gpu_elastic.h"

/* Polling interval during a drain that will be reported by the doorbell: bounds the delay if the report is lost. */
#define DRAIN_POLL_NS (20 * HB_NS_PER_MS)

/* --- the doorbell ------------------------------------------------------------------------ */

/* State of the LP tenants at the last poll. */
struct turns_view {
	bool idle;     /* the holder of the turn looks idle */
	bool waiting;  /* a tenant waits for its turn */
	bool draining; /* a tenant drains */
};

static bool takes_turns(const struct hb_gpu *gpu)
{
	return gpu->n_low > 1 && hb_core_takes_turns(gpu->core);
}

static struct turns_view view_turns(const struct hb_gpu *gpu)
{
	struct turns_view view = {.idle = false};
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		const struct hb_tenant_state *state = &gpu->tenants[i];
		if (!tenancy || !hb_tenancy_is_low(tenancy))
			continue;
		view.idle |= state->gate == HB_GATE_OPEN && !state->busy;
		view.waiting |= state->waiting;
		view.draining |= state->draining;
	}
	return view;
}

/* A second waiting tenant changes nothing, and the end of work matters only while a tenant waits for it. */
static uint32_t choose_news(const struct hb_gpu *gpu)
{
	struct turns_view view = view_turns(gpu);
	return (view.waiting ? 0 : HB_NEWS_WAITING) | (view.waiting || view.draining ? HB_NEWS_ENDED : 0);
}

void hb_gpu_close_doorbell(struct hb_gpu *gpu, uint32_t index)
{
	hb_doorbell_listener_free(gpu->doorbells[index]);
	gpu->doorbells[index] = NULL;
}

/* Each LP tenant has its own doorbell, so that no tenant can hide another's ring. */
static void open_doorbells(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy && hb_tenancy_is_low(tenancy) && !gpu->doorbells[i])
			gpu->doorbells[i] = hb_doorbell_listener_new(
				&tenancy->page->gpus[gpu->tenants[i].gpu_index].doorbell, gpu->daemon->called_fd);
	}
}

void hb_gpu_update_doorbell(struct hb_gpu *gpu)
{
	bool moving = hb_gpu_elastic_is_waiting(gpu), parked = hb_gpu_elastic_is_any_parked(gpu);
	uint32_t wanted = (takes_turns(gpu) ? choose_news(gpu) : 0) | (moving ? HB_NEWS_MOVED : 0) |
			  (parked ? HB_NEWS_WAKES : 0);
	if (takes_turns(gpu) || moving || parked)
		open_doorbells(gpu);
	gpu->poll_again = wanted & ~gpu->wanted_news;
	gpu->wanted_news = wanted;
	gpu->page->listening = wanted;
}

/* --- polling --------------------------------------------------------------------------------- */

/* Whether the shims of all processes of the tenant ring the doorbell for what it does next. */
static bool rings_doorbell(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	const struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	if (!gpu->doorbells[tenancy->index] || (state->draining && state->was_empty))
		return false;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++)
		if (tenancy->members[slot].watch && tenancy->page->processes[slot].rings != HB_PAGE_RINGS)
			return false;
	return true;
}

/* A tenant has to be polled while its gate is closed or it takes turns, unless its shims ring the doorbell. */
static bool needs_polling(const struct hb_gpu *gpu, uint32_t index)
{
	const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, index);
	const struct hb_tenant_state *state = &gpu->tenants[index];
	if (!tenancy || (!takes_turns(gpu) && !state->draining && state->gate == HB_GATE_OPEN))
		return false;
	return !takes_turns(gpu) || (hb_tenancy_is_low(tenancy) && !rings_doorbell(gpu, tenancy));
}

/* Returns the longest interval until the next poll; HB_TIME_NEVER: the tick is enough. */
static int64_t choose_interval_ns(const struct hb_gpu *gpu)
{
	struct turns_view view = view_turns(gpu);
	if (gpu->poll_again)
		return HB_POLL_NS;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		if (needs_polling(gpu, i))
			return HB_POLL_NS;
	if (!takes_turns(gpu))
		return HB_TIME_NEVER;
	/* The policy acts on HP's launches, which no shim reports. */
	if (gpu->n_high && !hb_core_high_by_requests(gpu->core))
		return HB_POLL_NS;
	/* An idle holder loses its turn to a waiting tenant after a grace period: notice in time that it works again. */
	if (view.idle && view.waiting)
		return HB_POLL_NS;
	return view.draining ? DRAIN_POLL_NS : HB_TIME_NEVER;
}

int64_t hb_gpu_next_poll_ns(const struct hb_gpu *gpu, int64_t now_ns)
{
	int64_t next_ns = hb_core_next_wake(gpu->core), interval_ns = choose_interval_ns(gpu);
	return interval_ns != HB_TIME_NEVER && next_ns > now_ns + interval_ns ? now_ns + interval_ns : next_ns;
}
