/* SPDX-License-Identifier: Apache-2.0 */
/* Measures runs of HP tenants for `engine: auto`; see engine_runs.h. */
#include "daemon/engine_runs.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/engine_file.h"
#include "daemon/gpu_measures.h"

#include <stdio.h>

/* A tenant without a launch for this long is not active. */
#define ACTIVE_NS HB_NS_PER_S

static void fill_program(struct hb_engine_program *program, const struct hb_tenancy *tenancy)
{
	hb_engine_program(program, (uint32_t)tenancy->peer.uid, tenancy->command);
}

/* Returns LP's launches since the last tick. *active = an LP tenant that launched or waited at its gate; NULL = none. */
static uint64_t count_low_launches(struct hb_gpu *gpu, struct hb_tenancy **active)
{
	uint64_t launches = 0;
	*active = NULL;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (!tenancy || !hb_tenancy_is_low(tenancy))
			continue;
		launches += gpu->measures->tenants[i].tick_launches;
		if (gpu->measures->tenants[i].tick_launches || gpu->tenants[i].waiting)
			*active = tenancy;
	}
	return launches;
}

/* Records what the run has shown so far, and begins its next part. False: it was too short to judge. */
static bool note_run(struct hb_tenancy *tenancy)
{
	struct hb_daemon *daemon = tenancy->daemon;
	struct hb_engine_program high;
	char text[200];
	fill_program(&high, tenancy);
	bool inside = tenancy->flags & HB_REGISTER_MPS;
	const struct hb_engine_pair *pair = hb_engine_history_note(
		&daemon->history, &high, &tenancy->run, inside ? HB_ENGINE_AUTO_SPATIAL : HB_ENGINE_AUTO_TEMPORAL,
		tenancy->attainment_ppm);
	if (!pair)
		return false;
	hb_engine_pair_text(pair, text, sizeof text);
	hb_log_info("engine auto: '%s' beside '%s': %s", pair->high.text, pair->low.text, text);
	tenancy->run = (struct hb_engine_run){.is_noted = true};
	hb_engine_file_save(daemon->engine_file, &daemon->history);
	return true;
}

static void count_run(struct hb_gpu *gpu, struct hb_tenancy *high, const struct hb_tenancy *low, uint64_t launches,
		      int64_t passed_ns, int64_t now_ns)
{
	struct hb_tenant_state *state = &gpu->tenants[high->index];
	const struct hb_tenant *tenant = hb_core_tenant(gpu->core, high->index);
	if (!tenant)
		return;
	uint64_t judged = tenant->counters.requests_judged - state->run_judged;
	uint64_t met = tenant->counters.requests_met - state->run_met;
	state->run_judged += judged;
	state->run_met += met;
	/* `auto` chooses between temporal and spatial only, so runs that take turns do not count. */
	bool counts = low && gpu->engine != HB_ENGINE_TURNS && state->launched_ns &&
		      now_ns - state->launched_ns < ACTIVE_NS;
	if (!counts)
		return;
	fill_program(&high->run.low, low);
	high->run.judged += judged;
	high->run.met += met;
	high->run.low_launches += launches;
	high->run.beside_ns += passed_ns;
	if (high->run.beside_ns >= HB_ENGINE_RUN_PART_NS)
		note_run(high);
}

void hb_engine_runs_update(struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_tenancy *low;
	uint64_t launches = count_low_launches(gpu, &low);
	int64_t passed_ns = gpu->run_tick_ns ? now_ns - gpu->run_tick_ns : 0;
	gpu->run_tick_ns = now_ns;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (tenancy && hb_tenancy_is_high(tenancy))
			count_run(gpu, tenancy, low, launches, passed_ns, now_ns);
	}
}

void hb_engine_runs_end(struct hb_tenancy *tenancy)
{
	if (hb_tenancy_is_high(tenancy) && !note_run(tenancy) && !tenancy->run.is_noted)
		hb_log_info(
			"engine auto: this run of '%s' was too short to judge its engine: %llu requests, %lld ms beside "
			"low priority",
			tenancy->command, (unsigned long long)tenancy->run.judged,
			(long long)(tenancy->run.beside_ns / HB_NS_PER_MS));
}

bool hb_engine_prefers_spatial(struct hb_tenancy *tenancy, bool is_possible)
{
	struct hb_daemon *daemon = tenancy->daemon;
	struct hb_engine_program high, low = {0};
	char text[200];
	fill_program(&high, tenancy);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_is_low(daemon->tenancies[i]))
			fill_program(&low, daemon->tenancies[i]);
	struct hb_engine_pair *pair = hb_engine_history_find(&daemon->history, &high, &low);
	bool is_strict = daemon->config.isolation == HB_CONFIG_ISOLATION_STRICT;
	if (!pair)
		return false;
	bool spatial = hb_engine_auto_next(&pair->choose, tenancy->attainment_ppm, is_possible && !is_strict) ==
		       HB_ENGINE_AUTO_SPATIAL;
	hb_engine_pair_text(pair, text, sizeof text);
	snprintf(tenancy->engine_why, sizeof tenancy->engine_why, "%s: beside %.60s: %s%s",
		 spatial ? "spatial" : "temporal", pair->low.text, text,
		 is_strict     ? "; `isolation: strict` keeps high priority out of the MPS server"
		 : is_possible ? ""
			       : "; spatial is not possible now");
	return spatial;
}
