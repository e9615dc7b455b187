/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's state as JSON; see status_json.h. */
#include "daemon/status_json.h"

#include "base/json.h"
#include "base/uuid.h"
#include "daemon/daemon.h"
#include "daemon/gpu_elastic.h"
#include "daemon/gpu_events.h"
#include "daemon/gpu_processes.h"
#include "daemon/mps_faults.h"
#include "daemon/mps_server.h"
#include "daemon/placements.h"
#include "daemon/socket_server.h"
#include "daemon/status_measures.h"
#include "daemon/status_tenant.h"
#include "daemon/status_users.h"
#include "decide/spatial.h"
#include "gpu/provider.h"

#include <stdio.h>
#include <unistd.h>

/* Processes on the GPU that belong to no tenant. */
static json_t *uncovered_json(const struct hb_daemon *daemon, const struct hb_gpu_use *use)
{
	json_t *array = json_array();
	for (uint32_t i = 0; array && use && i < use->n_users; i++) {
		const struct hb_gpu_user *user = &use->users[i];
		char name[32];
		if (!hb_gpu_process_is_outside(daemon, user->pid, name))
			continue;
		hb_status_append(array, json_pack("{s:i, s:s, s:o}", "pid", (int)user->pid, "name", name, "memory",
						  user->bytes == HB_GPU_BYTES_UNKNOWN
							  ? json_null()
							  : json_integer((json_int_t)user->bytes)));
	}
	return array;
}

static void add_gpu_use(json_t *object, const struct hb_daemon *daemon, const struct hb_gpu_use *use)
{
	bool measured = use && use->total_bytes;
	hb_status_set(object, "memory_total", measured ? json_integer((json_int_t)use->total_bytes) : json_null());
	hb_status_set(object, "memory_used", measured ? json_integer((json_int_t)use->used_bytes) : json_null());
	hb_status_set(object, "uncovered", uncovered_json(daemon, use));
	hb_status_set(object, "uncovered_why", json_string(use ? use->why : "the driver has not been asked yet"));
}

/* One HP process in the spatial engine, as it publishes itself for LP; see decide/spatial.h. */
static json_t *beacon_json(const struct hb_gpu *gpu, const struct hb_gpu_board *board)
{
	const struct hb_spatial_beacon *beacon = board->beacon;
	return json_pack("{s:i, s:b, s:I, s:i, s:i, s:i, s:I, s:i, s:I}", "pid",
			 (int)board->tenancy->members[board->slot].pid, "serving", (int)(beacon->word & 1), "allow_ns",
			 (json_int_t)beacon->allow_ns, "allowance_ppm",
			 (int)gpu->tenants[board->tenancy->index].allowance_ppm, "reserve_sms",
			 (int)(beacon->reserve & HB_SPATIAL_RESERVE_MASK), "gaps",
			 (int)(beacon->reserve >> HB_SPATIAL_GAPS_SHIFT), "gap_ns", (json_int_t)beacon->gap_ns,
			 "excess_ns", (int)beacon->excess_ns, "judged", (json_int_t)beacon->outcome);
}

static json_t *beacons_json(const struct hb_gpu *gpu)
{
	json_t *array = json_array();
	for (uint32_t i = 0; i < HB_PAGE_BOARDS; i++)
		if (gpu->boards[i].number && gpu->boards[i].beacon->owner)
			json_array_append_new(array, beacon_json(gpu, &gpu->boards[i]));
	return array;
}

static json_t *gpu_json(const struct hb_daemon *daemon, const struct hb_gpu *gpu, int64_t now_ns)
{
	char uuid[HB_UUID_TEXT_SIZE];
	const struct hb_ejection *ejection = hb_core_ejection(gpu->core);
	hb_uuid_format(gpu->uuid, uuid);
	json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:s}", "uuid", uuid, "name",
				   gpu->measures->name, "engine", hb_status_engine(gpu->engine), "policy",
				   hb_core_policy(gpu->core), "high", (int)gpu->n_high, "low", (int)gpu->n_low,
				   "reserve", (json_int_t)gpu->page->reserve_bytes, "low_memory",
				   (json_int_t)gpu->page->low_used_bytes, "ejected",
				   ejection->reason == HB_EJECT_NONE ? "" : ejection->message);
	if (!object)
		return NULL;
	add_gpu_use(object, daemon, gpu->use);
	hb_status_set(object, "busy_outside", json_boolean(gpu->is_busy_outside));
	hb_status_set(object, "health", hb_gpu_health_json(gpu, now_ns));
	hb_status_set(object, "elastic", hb_gpu_elastic_json(gpu, now_ns));
	hb_status_set(object, "beacons", beacons_json(gpu));
	bool estimated;
	uint32_t low_ppm = hb_gpu_usage_low_active(gpu, &estimated);
	hb_status_set(object, "low_active_ppm", low_ppm == HB_USAGE_UNKNOWN ? json_null() : json_integer(low_ppm));
	hb_status_set(object, "low_active_estimated", json_boolean(estimated));
	hb_status_set(object, "history", hb_gpu_usage_json(gpu, now_ns));
	hb_status_set(object, "preemption", hb_status_hist(&gpu->measures->preemption));
	hb_status_set(object, "turn_switch", hb_status_hist(&gpu->measures->turn));
	return object;
}

static json_t *daemon_json(struct hb_daemon *daemon, int64_t now_ns)
{
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:i, s:{s:s, s:s, s:s}, s:{s:s, s:s}}", "pid", (int)getpid(),
			 "mode", daemon->options.system_mode ? "system" : "user", "gpus",
			 hb_provider_of(daemon->options.simulated)->name, "socket", daemon->options.socket, "uptime_ns",
			 (json_int_t)(now_ns - daemon->started_ns), "closing", (int)hb_server_closing(daemon->server),
			 "mps", "state", hb_mps_state_text(daemon->mps), "why", hb_mps_why(daemon->mps), "pipe",
			 hb_mps_pipe_dir(daemon->mps), "metrics", "address", daemon->metrics_address, "why",
			 daemon->metrics_why);
}

static json_t *record_json(const struct hb_engine_auto_record *record)
{
	return json_pack("{s:i, s:i, s:i}", "runs", (int)record->runs, "attainment_ppm", (int)record->attainment_ppm,
			 "low_ppm", (int)record->low_ppm);
}

/* The results of each engine for each pair of programs, as `engine: auto` knows them. */
static json_t *engines_json(const struct hb_engine_history *history)
{
	json_t *array = json_array();
	for (uint32_t i = 0; array && i < HB_ENGINE_PAIRS; i++) {
		const struct hb_engine_pair *pair = &history->pairs[i];
		if (pair->high.key)
			hb_status_append(array, json_pack("{s:s, s:s, s:o, s:o}", "high", pair->high.text, "low",
							  pair->low.text, "temporal",
							  record_json(&pair->choose.records[HB_ENGINE_AUTO_TEMPORAL]),
							  "spatial",
							  record_json(&pair->choose.records[HB_ENGINE_AUTO_SPATIAL])));
	}
	return array;
}

/* Lists the tenants as they came. The daemon's table has another order, because a new tenant takes the first free place. */
static uint32_t list_tenants(const struct hb_daemon *daemon, struct hb_tenancy *list[HB_TENANCIES_MAX])
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = daemon->tenancies[i];
		if (!tenancy)
			continue;
		uint32_t at = n++;
		for (; at > 0 && list[at - 1]->number > tenancy->number; at--)
			list[at] = list[at - 1];
		list[at] = tenancy;
	}
	return n;
}

json_t *hb_status_json(struct hb_daemon *daemon, int64_t now_ns)
{
	struct hb_tenancy *list[HB_TENANCIES_MAX];
	uint32_t n = list_tenants(daemon, list);
	json_t *gpus = json_array(), *tenants = json_array();
	json_t *root = json_pack("{s:i, s:o, s:o, s:o, s:o}", "version", 1, "daemon", daemon_json(daemon, now_ns),
				 "gpus", gpus, "tenants", tenants, "engines", engines_json(&daemon->history));
	if (!root)
		return NULL;
	hb_status_set(json_object_get(json_object_get(root, "daemon"), "mps"), "fault",
		      hb_mps_faults_json(daemon->faults));
	hb_status_set(root, "placements", hb_placements_json(daemon->placements, now_ns));
	hb_status_set(root, "users", hb_status_users(&daemon->users));
	hb_status_set(root, "places", hb_status_places(&daemon->users));
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		hb_status_append(gpus, gpu_json(daemon, daemon->gpus[i], now_ns));
	for (uint32_t i = 0; i < n; i++)
		hb_status_append(tenants, hb_status_tenant(list[i], now_ns));
	return root;
}

static json_t *tenant_history_json(const struct hb_tenancy *tenancy)
{
	json_t *gpus = json_array();
	for (uint32_t i = 0; i < tenancy->n_gpus; i++) {
		char uuid[HB_UUID_TEXT_SIZE];
		hb_uuid_format(tenancy->gpus[i]->uuid, uuid);
		hb_status_append(gpus, json_pack("{s:s, s:o}", "gpu", uuid, "history",
						 hb_tenant_usage_json(tenancy->gpus[i], tenancy->index)));
	}
	return json_pack("{s:i, s:o}", "id", (int)tenancy->number, "gpus", gpus);
}

json_t *hb_status_history(const struct hb_daemon *daemon, int64_t now_ns)
{
	struct hb_tenancy *list[HB_TENANCIES_MAX];
	uint32_t n = list_tenants(daemon, list);
	json_t *gpus = json_array(), *tenants = json_array();
	for (uint32_t i = 0; i < daemon->n_gpus; i++) {
		char uuid[HB_UUID_TEXT_SIZE];
		hb_uuid_format(daemon->gpus[i]->uuid, uuid);
		hb_status_append(gpus, json_pack("{s:s, s:o}", "uuid", uuid, "history",
						 hb_gpu_usage_json(daemon->gpus[i], now_ns)));
	}
	for (uint32_t i = 0; i < n; i++)
		if (!hb_tenancy_is_server(list[i]))
			hb_status_append(tenants, tenant_history_json(list[i]));
	return json_pack("{s:o, s:o}", "gpus", gpus, "tenants", tenants);
}

char *hb_status_text(struct hb_daemon *daemon, int64_t now_ns)
{
	json_t *root = hb_status_json(daemon, now_ns);
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}
