/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's part of the spatial engine: the settings on the page of a GPU,
 * the terms of each HP tenant (what LP may cost its requests: by the policy, or
 * fixed by the configuration), and the beacons of processes that have died. All
 * else on the board is the processes' own business (decide/spatial.h). Called by
 * device.c, tenancy.c and daemon.c.
 */
#include "base/clock.h"
#include "daemon/daemon.h"
#include "decide/spatial.h"

static struct hb_spatial_board *board_of(struct hb_device *device)
{
	return (struct hb_spatial_board *)device->page->board;
}

void hb_board_configure(struct hb_device *device)
{
	const struct hb_daemon_config *config = &device->daemon->config;
	device->page->reserve_bytes = config->reserve_bytes;
	device->page->window_us = (uint32_t)(config->window_ns / HB_NS_PER_US);
	device->page->low_sms = (uint32_t)config->low_sms;
	device->page->masks_whole = config->masks == HB_CONFIG_MASKS_GPCS;
	if (config->masks == HB_CONFIG_MASKS_GPCS && device->engine == HB_ENGINE_SPATIAL)
		hb_gpcs_look(device);
}

static void set_terms(struct hb_device *device, const struct hb_tenancy *tenancy, uint32_t terms_ppm)
{
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		for (uint32_t i = 0; i < HB_SPATIAL_BEACONS; i++) {
			struct hb_spatial_beacon *beacon = &board_of(device)->beacons[i];
			if (beacon->owner == (uint32_t)tenancy->members[slot].pid)
				beacon->terms_ppm = terms_ppm;
		}
	}
}

static uint32_t terms_of(const struct hb_device *device, uint32_t seat)
{
	const struct hb_daemon_config *config = &device->daemon->config;
	return config->harm_percent >= 0 ? (uint32_t)config->harm_percent * (HB_SPATIAL_PPM / 100)
					 : device->seats[seat].terms_ppm;
}

void hb_board_beat(struct hb_device *device)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX && device->engine == HB_ENGINE_SPATIAL; i++) {
		const struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (tenancy && !hb_tenancy_is_low(tenancy) && !hb_tenancy_is_server(tenancy))
			set_terms(device, tenancy, terms_of(device, i));
	}
}

void hb_board_forget(struct hb_device *device, pid_t pid)
{
	for (uint32_t i = 0; i < HB_SPATIAL_BEACONS; i++)
		if (board_of(device)->beacons[i].owner == (uint32_t)pid)
			hb_spatial_leave(&board_of(device)->beacons[i]);
}
