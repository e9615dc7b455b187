/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to look at the gates of a GPU's tenants (hb_device_run) beside the
 * moments that its core asks for. While LP tenants take turns somebody must see
 * who waits, whose work has ended and who has drained; with twenty of them a
 * look every HB_POLL_NS costs the daemon 1.5 % of a core. So their shims ring
 * (hb_gpu_page.bell), and it looks that often only where nobody would: a holder
 * that has begun to launch again does not, nor does an older shim.
 */
#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/doorbell_listener.h"

/* Somebody waits for a drain that will be told; should it not be, this is what that costs. */
#define DRAIN_LOOK_NS (20 * HB_NS_PER_MS)

/* --- the bell -------------------------------------------------------------------------- */

/* What low priority does now, as far as was seen: the holder of the turn passes for idle, somebody waits, or drains. */
struct turns {
	bool idle, waiting, draining;
};

static bool takes_turns(const struct hb_device *device)
{
	return device->engine == HB_ENGINE_TURNS && device->n_low > 1;
}

static struct turns look_at_turns(const struct hb_device *device)
{
	struct turns turns = {.idle = false};
	for (uint32_t i = 0; i < device->seats_end; i++) {
		const struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		const struct hb_seat *seat = &device->seats[i];
		if (!tenancy || !hb_tenancy_is_low(tenancy))
			continue;
		turns.idle |= seat->gate == HB_GATE_OPEN && !seat->busy;
		turns.waiting |= seat->waiting;
		turns.draining |= seat->draining;
	}
	return turns;
}

/* A second one that waits changes nothing, and that work has ended matters where somebody waits for that. */
static uint32_t wanted_news(const struct hb_device *device)
{
	struct turns turns = look_at_turns(device);
	return (turns.waiting ? 0 : HB_NEWS_WAITING) | (turns.waiting || turns.draining ? HB_NEWS_ENDED : 0);
}

void hb_device_listen(struct hb_device *device)
{
	if (takes_turns(device) && !device->bell)
		device->bell = hb_doorbell_listener_new(device->page, device->daemon->called_fd);
	uint32_t wanted = takes_turns(device) && device->bell ? wanted_news(device) : 0;
	device->look_again = wanted & ~device->listening;
	device->listening = wanted;
	device->page->listening = wanted; /* also where it has not changed: the page is others' to scribble on */
}

void hb_device_listen_end(struct hb_device *device)
{
	hb_doorbell_listener_free(device->bell);
	device->bell = NULL;
}

/* --- when to look ------------------------------------------------------------------------ */

/* What this tenant does next is told by its bell. */
static bool rings(const struct hb_device *device, const struct hb_tenancy *tenancy)
{
	const struct hb_seat *seat = &device->seats[tenancy->index];
	if (!device->bell || (seat->draining && seat->empty))
		return false;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++)
		if (tenancy->members[slot].watch && !tenancy->page->processes[slot].rings)
			return false;
	return true;
}

/* Whether all that is to be seen of a tenant is: its gate is closed and somebody may open it, or it takes turns. */
static bool is_told(const struct hb_device *device, uint32_t index)
{
	const struct hb_tenancy *tenancy = hb_device_tenancy(device, index);
	const struct hb_seat *seat = &device->seats[index];
	if (!tenancy || (!takes_turns(device) && !seat->draining && seat->gate == HB_GATE_OPEN))
		return true;
	return takes_turns(device) && (!hb_tenancy_is_low(tenancy) || rings(device, tenancy));
}

/* How long nobody need look; HB_TIME_NEVER: the tick will do. */
static int64_t pause_ns(const struct hb_device *device)
{
	struct turns turns = look_at_turns(device);
	if (device->look_again)
		return HB_POLL_NS;
	for (uint32_t i = 0; i < device->seats_end; i++)
		if (!is_told(device, i))
			return HB_POLL_NS;
	if (!takes_turns(device))
		return HB_TIME_NEVER;
	/* A policy that acts on what high priority has on the GPU: nobody rings for a launch. */
	if (device->n_high && !hb_core_high_by_requests(device->core))
		return HB_POLL_NS;
	/* One that waits gets the turn of one that passes for idle: that it is not must be seen before its grace is over. */
	if (turns.idle && turns.waiting)
		return HB_POLL_NS;
	return turns.draining ? DRAIN_LOOK_NS : HB_TIME_NEVER;
}

int64_t hb_device_next_ns(const struct hb_device *device, int64_t now_ns)
{
	int64_t next_ns = hb_core_next_wake(device->core), most_ns = pause_ns(device);
	return most_ns != HB_TIME_NEVER && next_ns > now_ns + most_ns ? now_ns + most_ns : next_ns;
}
