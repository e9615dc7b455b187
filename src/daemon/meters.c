/* SPDX-License-Identifier: Apache-2.0 */
/* See meters.h. */
#include "daemon/meters.h"

#include "gpu/provider.h"

#include <stdio.h>
#include <stdlib.h>

struct hb_meters *hb_meters_new(const struct hb_device *device)
{
	const struct hb_provider *provider = hb_provider_of(device->daemon->options.simulated);
	struct hb_meters *made = calloc(1, sizeof *made);
	if (!made)
		return NULL;
	provider->gpu_name(device->uuid, made->name, sizeof made->name);
	int index = provider->gpu_index(device->uuid);
	if (index >= 0)
		snprintf(made->index, sizeof made->index, "%d", index);
	return made;
}

void hb_meters_free(struct hb_meters *meters)
{
	for (uint32_t i = 0; meters && i < HB_TENANCIES_MAX; i++)
		free(meters->seats[i].wait);
	free(meters);
}

void hb_meters_reset(struct hb_device *device, uint32_t tenancy)
{
	struct hb_seat_meter *meter = &device->meters->seats[tenancy];
	free(meter->wait);
	*meter = (struct hb_seat_meter){.closed_ns = 0};
}

static void end_wait(struct hb_seat_meter *meter, int64_t now_ns)
{
	if (!meter->waiting_ns)
		return;
	if (!meter->wait)
		meter->wait = calloc(1, sizeof *meter->wait);
	if (meter->wait)
		hb_hist_record(meter->wait, now_ns - meter->waiting_ns);
	meter->waiting_ns = 0;
}

void hb_meters_gate_set(struct hb_device *device, uint32_t tenancy, bool in_flight, int64_t now_ns)
{
	struct hb_seat_meter *meter = &device->meters->seats[tenancy];
	enum hb_gate_state gate = device->seats[tenancy].gate;
	if (gate == HB_GATE_OPEN) {
		end_wait(meter, now_ns);
		meter->closed_ns = 0;
	} else if (gate == HB_GATE_CLOSED && in_flight && !meter->closed_ns) {
		meter->closed_ns = now_ns;
		meter->preemptions++;
	}
}

void hb_meters_seen(struct hb_device *device, uint32_t tenancy, bool waiting, bool drained, int64_t now_ns)
{
	struct hb_seat_meter *meter = &device->meters->seats[tenancy];
	if (waiting && !meter->waiting_ns && device->seats[tenancy].gate != HB_GATE_OPEN)
		meter->waiting_ns = now_ns;
	if (!waiting)
		end_wait(meter, now_ns);
	if (!drained || !meter->closed_ns)
		return;
	bool turn = device->engine == HB_ENGINE_TURNS;
	hb_hist_record(turn ? &device->meters->turn : &device->meters->preemption, now_ns - meter->closed_ns);
	meter->closed_ns = 0;
}

void hb_meters_beat(struct hb_device *device, uint32_t tenancy, uint64_t launches, int64_t now_ns)
{
	struct hb_seat_meter *meter = &device->meters->seats[tenancy];
	if (meter->beat_ns && launches != meter->launches)
		meter->active_ns += (uint64_t)(now_ns - meter->beat_ns);
	meter->beat_launches = meter->beat_ns && launches > meter->launches ? launches - meter->launches : 0;
	meter->launches = launches;
	meter->beat_ns = now_ns;
}
