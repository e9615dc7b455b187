/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engine a tenant runs under, and which a GPU has. An engine is chosen
 * when a tenant is made, because its processes get their context (inside the
 * MPS server or outside) with their environment and cannot move. Called by
 * registration.c and device.c; changes nothing but the tenant's `engine`, and why.
 *
 * High priority decides: outside the server a GPU is shared in time, inside it
 * in space. Both kinds at once would make the server one of two contexts that
 * the hardware switches between, and nobody's promise would hold, so the second
 * kind is refused. Which GPUs a tenant will use is not known yet when it is
 * made: the rule holds for the whole daemon.
 *
 * Who does not ask joins what is there. Where nothing is there, the configuration
 * decides, `engine: auto` by what each engine showed in earlier lives of the program
 * (engine_life.c); temporal if nothing is known, or space cannot be had.
 */
#include "daemon/daemon.h"

#include <errno.h>
#include <stdio.h>

static const char *const names[] = {
	[HB_ENGINE_NONE] = "no",
	[HB_ENGINE_TEMPORAL] = "temporal",
	[HB_ENGINE_TURNS] = "turns",
	[HB_ENGINE_SPATIAL] = "spatial",
};

static bool is_high(const struct hb_tenancy *tenancy)
{
	return !hb_tenancy_is_low(tenancy) && !hb_tenancy_is_server(tenancy);
}

/* By what it is to be, or by what it is: one from the time of an earlier daemon only has the flag. */
static bool is_in_space(const struct hb_tenancy *tenancy)
{
	return tenancy->engine == HB_ENGINE_SPATIAL || tenancy->flags & HB_REGISTER_MPS;
}

/* In the server as a tenant of high priority: only the spatial engine has such. */
static bool is_inside_high(const struct hb_tenancy *tenancy)
{
	return is_high(tenancy) && is_in_space(tenancy);
}

static bool is_outside_high(const struct hb_tenancy *tenancy)
{
	return is_high(tenancy) && !is_in_space(tenancy);
}

static bool is_outside_low(const struct hb_tenancy *tenancy)
{
	return hb_tenancy_is_low(tenancy) && tenancy->engine == HB_ENGINE_TURNS;
}

static bool insists_on_space(const struct hb_tenancy *tenancy)
{
	return !hb_tenancy_is_server(tenancy) && tenancy->engine == HB_ENGINE_SPATIAL;
}

static const struct hb_tenancy *find(const struct hb_daemon *daemon, const struct hb_tenancy *but,
				     bool (*is)(const struct hb_tenancy *))
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && daemon->tenancies[i] != but && is(daemon->tenancies[i]))
			return daemon->tenancies[i];
	return NULL;
}

static int refuse(const struct hb_tenancy *tenancy, const struct hb_tenancy *other, const char *why,
		  struct hb_error *error)
{
	return hb_error_set(error, -EBUSY,
			    "engine %s: tenant %u (%s priority: %.100s) runs under the engine %s, and %s; "
			    "wait until it has ended, or start this one without --engine",
			    names[tenancy->engine], other->number, hb_tenancy_is_low(other) ? "low" : "high",
			    other->command, names[other->engine ? other->engine : HB_ENGINE_TEMPORAL], why);
}

/* Whether a tenant of high priority could live in the MPS server now. */
static bool could_be_inside(const struct hb_daemon *daemon, const struct hb_tenancy *tenancy)
{
	enum hb_mps_state state = hb_mps_state(daemon->mps);
	return state != HB_MPS_OFF && state != HB_MPS_FAILED && !find(daemon, tenancy, is_outside_high) &&
	       !find(daemon, tenancy, is_outside_low);
}

static enum hb_engine settle(struct hb_daemon *daemon, struct hb_tenancy *tenancy)
{
	if (tenancy->engine != HB_ENGINE_NONE || hb_tenancy_is_server(tenancy))
		return tenancy->engine;
	/* Low priority lives in the server under either engine. */
	if (hb_tenancy_is_low(tenancy))
		return HB_ENGINE_NONE;
	if (find(daemon, tenancy, is_inside_high))
		return HB_ENGINE_SPATIAL;
	bool is_free = could_be_inside(daemon, tenancy);
	if (daemon->config.engine == HB_CONFIG_ENGINE_SPATIAL)
		return find(daemon, tenancy, is_outside_high) ? HB_ENGINE_TEMPORAL : HB_ENGINE_SPATIAL;
	if (daemon->config.engine != HB_CONFIG_ENGINE_AUTO)
		return HB_ENGINE_TEMPORAL;
	tenancy->engine_is_chosen = hb_life_prefers_space(tenancy, is_free);
	return tenancy->engine_is_chosen ? HB_ENGINE_SPATIAL : HB_ENGINE_TEMPORAL;
}

bool hb_engine_step_back(struct hb_tenancy *tenancy, const char *why)
{
	if (!tenancy->engine_is_chosen)
		return false;
	tenancy->engine_is_chosen = false;
	tenancy->engine = HB_ENGINE_TEMPORAL;
	snprintf(tenancy->engine_why, sizeof tenancy->engine_why, "temporal: spatial was to be tried, but %.200s", why);
	return true;
}

int hb_engine_admit(struct hb_daemon *daemon, struct hb_tenancy *tenancy, struct hb_error *error)
{
	const struct hb_tenancy *other;
	tenancy->engine = settle(daemon, tenancy);
	if (insists_on_space(tenancy)) {
		if (hb_mps_state(daemon->mps) == HB_MPS_OFF)
			return hb_error_set(error, -EOPNOTSUPP, "the spatial engine needs MPS, which is off: %s",
					    hb_mps_why(daemon->mps));
		if ((other = find(daemon, tenancy, is_outside_high)))
			return refuse(tenancy, other, "high priority is inside the MPS server or outside, not both",
				      error);
		if ((other = find(daemon, tenancy, is_outside_low)))
			return refuse(tenancy, other, "in the spatial engine all are inside the MPS server", error);
		return 0;
	}
	bool stays_outside = is_outside_high(tenancy) || is_outside_low(tenancy);
	bool asked = tenancy->engine == HB_ENGINE_TEMPORAL || tenancy->engine == HB_ENGINE_TURNS;
	if ((stays_outside || asked) && (other = find(daemon, tenancy, is_inside_high)))
		return refuse(tenancy, other, "in the spatial engine all are inside the MPS server", error);
	return 0;
}

bool hb_engine_is_inside(const struct hb_tenancy *tenancy)
{
	return hb_tenancy_is_low(tenancy) ? tenancy->engine != HB_ENGINE_TURNS : is_inside_high(tenancy);
}

/*
 * An LP tenant outside the MPS server (by `--engine turns`, or from a time when there was none) is a context of its
 * own. For as long as it is there all of LP takes turns, members of the server one by one, so that still only one LP
 * context is runnable and tiny slices are safe.
 */
enum hb_engine hb_engine_of(const struct hb_device *device)
{
	bool space = false, time = false, asked = false;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *tenancy = device->seats[i].taken ? device->daemon->tenancies[i] : NULL;
		if (!tenancy || hb_tenancy_is_server(tenancy))
			continue;
		bool inside = tenancy->flags & HB_REGISTER_MPS;
		if (hb_tenancy_is_low(tenancy) && !inside)
			return HB_ENGINE_TURNS;
		space |= !hb_tenancy_is_low(tenancy) && inside;
		time |= !hb_tenancy_is_low(tenancy) && !inside;
		asked |= tenancy->engine == HB_ENGINE_SPATIAL;
	}
	enum hb_engine engine = hb_daemon_engine(device->daemon);
	if (time && engine == HB_ENGINE_SPATIAL)
		return HB_ENGINE_TEMPORAL;
	return space || (asked && !time && engine != HB_ENGINE_TURNS) ? HB_ENGINE_SPATIAL : engine;
}
