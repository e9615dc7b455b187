/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine a tenant and a GPU get; see engine_choice.h. */
#include "daemon/engine_choice.h"

#include "daemon/daemon.h"
#include "daemon/engine_runs.h"
#include "daemon/mask_guard.h"
#include "daemon/mps_server.h"
#include "daemon/previous_page.h"

#include <errno.h>
#include <stdio.h>

static const char *const names[] = {
	[HB_ENGINE_NONE] = "no",
	[HB_ENGINE_TEMPORAL] = "temporal",
	[HB_ENGINE_TURNS] = "turns",
	[HB_ENGINE_SPATIAL] = "spatial",
};

/* Checks the flag, too: a tenant that registered with an earlier daemon has no engine set. */
static bool is_spatial(const struct hb_tenancy *tenancy)
{
	return tenancy->engine == HB_ENGINE_SPATIAL || tenancy->flags & HB_REGISTER_MPS;
}

/* HP inside the MPS server: only the spatial engine has such tenants. */
static bool is_spatial_high(const struct hb_tenancy *tenancy)
{
	return hb_tenancy_is_high(tenancy) && is_spatial(tenancy);
}

static bool is_temporal_high(const struct hb_tenancy *tenancy)
{
	return hb_tenancy_is_high(tenancy) && !is_spatial(tenancy);
}

/*
 * Also checks where its processes are: they may have joined without `hb run`, have their place from an earlier daemon, have
 * found no MPS server, or have a new priority.
 */
static bool is_low_outside_mps(const struct hb_tenancy *tenancy)
{
	bool runs_outside = tenancy->n_members && !(tenancy->flags & HB_REGISTER_MPS);
	return hb_tenancy_is_low(tenancy) && (tenancy->engine == HB_ENGINE_TURNS || runs_outside);
}

static bool requires_spatial(const struct hb_tenancy *tenancy)
{
	return !hb_tenancy_is_server(tenancy) && tenancy->engine == HB_ENGINE_SPATIAL;
}

static const struct hb_tenancy *find_other(const struct hb_daemon *daemon, const struct hb_tenancy *except,
					   bool (*is)(const struct hb_tenancy *))
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && daemon->tenancies[i] != except && is(daemon->tenancies[i]))
			return daemon->tenancies[i];
	return NULL;
}

static int refuse_engine(const struct hb_tenancy *tenancy, const struct hb_tenancy *other, const char *why,
			 struct hb_error *error)
{
	enum hb_engine engine = is_low_outside_mps(other) ? HB_ENGINE_TURNS
				: other->engine           ? other->engine
							  : HB_ENGINE_TEMPORAL;
	return hb_error_set(error, -EBUSY,
			    "engine %s: tenant %u (%s priority: %.100s) already uses the engine %s, and %s; "
			    "wait until that tenant has ended, or start this one without --engine",
			    names[tenancy->engine], other->number, hb_tenancy_is_low(other) ? "low" : "high",
			    other->command, names[engine], why);
}

/* Whether the spatial engine is refused because of the driver. */
static bool is_guarded(const struct hb_daemon *daemon)
{
	struct hb_error ignored;
	return hb_mask_guard_check(daemon, &ignored) < 0;
}

/* Whether an HP tenant could run inside the MPS server now. */
static bool can_be_spatial(const struct hb_daemon *daemon, const struct hb_tenancy *tenancy)
{
	enum hb_mps_state state = hb_mps_state(daemon->mps);
	return state != HB_MPS_OFF && state != HB_MPS_FAILED && !is_guarded(daemon) &&
	       !find_other(daemon, tenancy, is_temporal_high) && !find_other(daemon, tenancy, is_low_outside_mps);
}

static enum hb_engine choose_engine(struct hb_daemon *daemon, struct hb_tenancy *tenancy)
{
	if (tenancy->engine != HB_ENGINE_NONE || hb_tenancy_is_server(tenancy))
		return tenancy->engine;
	/* LP runs inside the MPS server under both engines. */
	if (hb_tenancy_is_low(tenancy))
		return HB_ENGINE_NONE;
	if (find_other(daemon, tenancy, is_spatial_high))
		return HB_ENGINE_SPATIAL;
	bool is_possible = can_be_spatial(daemon, tenancy);
	if (daemon->config.engine == HB_CONFIG_ENGINE_SPATIAL)
		return find_other(daemon, tenancy, is_temporal_high) ||
				       find_other(daemon, tenancy, is_low_outside_mps) || is_guarded(daemon)
			       ? HB_ENGINE_TEMPORAL
			       : HB_ENGINE_SPATIAL;
	if (daemon->config.engine != HB_CONFIG_ENGINE_AUTO)
		return HB_ENGINE_TEMPORAL;
	tenancy->engine_is_chosen = hb_engine_prefers_spatial(tenancy, is_possible);
	return tenancy->engine_is_chosen ? HB_ENGINE_SPATIAL : HB_ENGINE_TEMPORAL;
}

enum hb_engine hb_engine_default(const struct hb_daemon *daemon)
{
	switch (hb_mps_state(daemon->mps)) {
	case HB_MPS_OFF:
	case HB_MPS_FAILED:
		return HB_ENGINE_TURNS;
	default:
		return daemon->config.engine == HB_CONFIG_ENGINE_SPATIAL ? HB_ENGINE_SPATIAL : HB_ENGINE_TEMPORAL;
	}
}

bool hb_engine_fall_back(struct hb_tenancy *tenancy, const char *why)
{
	if (!tenancy->engine_is_chosen)
		return false;
	tenancy->engine_is_chosen = false;
	tenancy->engine = HB_ENGINE_TEMPORAL;
	snprintf(tenancy->engine_why, sizeof tenancy->engine_why, "temporal: the spatial engine was chosen, but %.200s",
		 why);
	return true;
}

int hb_engine_admit(struct hb_daemon *daemon, struct hb_tenancy *tenancy, struct hb_error *error)
{
	const struct hb_tenancy *other;
	tenancy->engine = choose_engine(daemon, tenancy);
	if (requires_spatial(tenancy)) {
		if (hb_mps_state(daemon->mps) == HB_MPS_OFF)
			return hb_error_set(
				error, -EOPNOTSUPP,
				"the spatial engine needs MPS, which is off: %s; correct that, or use another --engine",
				hb_mps_why(daemon->mps));
		if ((other = find_other(daemon, tenancy, is_temporal_high)))
			return refuse_engine(tenancy, other,
					     "high-priority programs are all inside the MPS server or all outside",
					     error);
		if (find_other(daemon, tenancy, is_spatial_high))
			return 0; /* one more program in the server makes no difference to those outside */
		if (hb_mask_guard_check(daemon, error) < 0)
			return -EOPNOTSUPP;
		if ((other = find_other(daemon, tenancy, is_low_outside_mps)))
			return refuse_engine(tenancy, other,
					     "the spatial engine needs all programs inside the MPS server", error);
		return 0;
	}
	bool stays_outside = is_temporal_high(tenancy) || is_low_outside_mps(tenancy);
	bool requested = tenancy->engine == HB_ENGINE_TEMPORAL || tenancy->engine == HB_ENGINE_TURNS;
	if ((stays_outside || requested) && (other = find_other(daemon, tenancy, is_spatial_high)))
		return refuse_engine(tenancy, other, "the spatial engine needs all programs inside the MPS server",
				     error);
	return 0;
}

bool hb_engine_uses_mps(const struct hb_tenancy *tenancy)
{
	return hb_tenancy_is_low(tenancy) ? tenancy->engine != HB_ENGINE_TURNS : is_spatial_high(tenancy);
}

/*
 * An LP tenant outside the MPS server (started with `--engine turns`, or before the server ran) has a context of its
 * own. While it is there all LP tenants take turns, including those inside the server, so that only one LP context has
 * work at a time and tiny time slices are safe. They also take turns instead of the spatial engine while a program of the
 * previous release uses the GPU, because it cannot see the boards of HP.
 */
enum hb_engine hb_engine_of_gpu(const struct hb_gpu *gpu)
{
	bool spatial = false, temporal = false, requested = false;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (!tenancy || hb_tenancy_is_server(tenancy))
			continue;
		bool inside = tenancy->flags & HB_REGISTER_MPS;
		if (hb_tenancy_is_low(tenancy) && !inside)
			return HB_ENGINE_TURNS;
		spatial |= !hb_tenancy_is_low(tenancy) && inside;
		temporal |= !hb_tenancy_is_low(tenancy) && !inside;
		requested |= tenancy->engine == HB_ENGINE_SPATIAL;
	}
	enum hb_engine engine = hb_engine_default(gpu->daemon);
	if (temporal && engine == HB_ENGINE_SPATIAL)
		return HB_ENGINE_TEMPORAL;
	if (!spatial && (!requested || temporal || engine == HB_ENGINE_TURNS))
		return engine;
	return hb_previous_pages_in_use(gpu) ? HB_ENGINE_TURNS : HB_ENGINE_SPATIAL;
}
