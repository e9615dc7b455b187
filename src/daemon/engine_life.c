/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lives of HP tenants, measured for `engine: auto`: at each beat, what became of
 * the requests of each HP tenant at work, and of the launches of LP beside it;
 * when a tenant ends, what its engine showed. Called by device.c (beats),
 * tenancy.c (ends) and engine_choice.c (choices); changes nothing else.
 */
#include "base/clock.h"
#include "base/log.h"
#include "core/core.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/meters.h"

#include <stdio.h>

/* Without a launch for so long a tenant is not at work. */
#define AT_WORK_NS HB_NS_PER_S

static void name(struct hb_engine_program *program, const struct hb_tenancy *tenancy)
{
	hb_engine_program(program, (uint32_t)tenancy->peer.uid, tenancy->command);
}

/* LP's launches since the last beat; *who: one that launched, or stands at its gate; NULL = LP wants nothing. */
static uint64_t launches_of_low(struct hb_device *device, struct hb_tenancy **who)
{
	uint64_t launches = 0;
	*who = NULL;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (!tenancy || !hb_tenancy_is_low(tenancy))
			continue;
		launches += device->meters->seats[i].beat_launches;
		if (device->meters->seats[i].beat_launches || device->seats[i].waiting)
			*who = tenancy;
	}
	return launches;
}

static void tally(struct hb_device *device, struct hb_tenancy *high, const struct hb_tenancy *low, uint64_t launches,
		  int64_t passed_ns, int64_t now_ns)
{
	struct hb_seat *seat = &device->seats[high->index];
	const struct hb_tenant *tenant = hb_core_tenant(device->core, high->index);
	if (!tenant)
		return;
	uint64_t judged = tenant->counters.requests_judged - seat->life_judged;
	uint64_t met = tenant->counters.requests_met - seat->life_met;
	seat->life_judged += judged;
	seat->life_met += met;
	/* Taking turns is neither of the two engines. */
	bool counts = low && device->engine != HB_ENGINE_TURNS && seat->launched_ns &&
		      now_ns - seat->launched_ns < AT_WORK_NS;
	if (!counts)
		return;
	name(&high->life.low, low);
	high->life.judged += judged;
	high->life.met += met;
	high->life.low_launches += launches;
	high->life.beside_ns += passed_ns;
}

void hb_life_beat(struct hb_device *device, int64_t now_ns)
{
	struct hb_tenancy *low;
	uint64_t launches = launches_of_low(device, &low);
	int64_t passed_ns = device->life_beat_ns ? now_ns - device->life_beat_ns : 0;
	device->life_beat_ns = now_ns;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_device_tenancy(device, i);
		if (tenancy && !hb_tenancy_is_low(tenancy) && !hb_tenancy_is_server(tenancy))
			tally(device, tenancy, low, launches, passed_ns, now_ns);
	}
}

void hb_life_end(struct hb_tenancy *tenancy)
{
	struct hb_engine_program high;
	char text[200];
	if (hb_tenancy_is_low(tenancy) || hb_tenancy_is_server(tenancy))
		return;
	name(&high, tenancy);
	bool inside = tenancy->flags & HB_REGISTER_MPS;
	const struct hb_engine_pair *pair = hb_engine_memory_note(&tenancy->daemon->engines, &high, &tenancy->life,
								  inside ? HB_CHOOSE_SPATIAL : HB_CHOOSE_TEMPORAL,
								  tenancy->attainment_ppm);
	if (!pair) {
		hb_log_info("the life of '%s' told nothing of its engine: %llu requests, %lld ms beside low priority",
			    tenancy->command, (unsigned long long)tenancy->life.judged,
			    (long long)(tenancy->life.beside_ns / HB_NS_PER_MS));
		return;
	}
	hb_engine_pair_text(pair, text, sizeof text);
	hb_log_info("engines for '%s' beside '%s': %s", pair->high.text, pair->low.text, text);
}

bool hb_life_prefers_space(struct hb_tenancy *tenancy, bool is_possible)
{
	struct hb_daemon *daemon = tenancy->daemon;
	struct hb_engine_program high, low = {0};
	char text[200];
	name(&high, tenancy);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_is_low(daemon->tenancies[i]))
			name(&low, daemon->tenancies[i]);
	struct hb_engine_pair *pair = hb_engine_memory_find(&daemon->engines, &high, &low);
	if (!pair)
		return false;
	bool space = hb_choose_next(&pair->choose, tenancy->attainment_ppm, is_possible) == HB_CHOOSE_SPATIAL;
	hb_engine_pair_text(pair, text, sizeof text);
	snprintf(tenancy->engine_why, sizeof tenancy->engine_why, "%s: beside %.60s: %s%s",
		 space ? "spatial" : "temporal", pair->low.text, text,
		 is_possible ? "" : "; spatial cannot be tried now");
	return space;
}
