/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's state as JSON: what `hb status` shows and `hb status --json`
 * prints. The schema is in docs/daemon.md. Pages are other people's memory:
 * every value from them is bounded before it is used as an index or a text.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/uuid.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/meters.h"
#include "daemon/metrics.h"
#include "decide/spatial.h"
#include "gpu/provider.h"
#include "nvidia/gpc_states.h"
#include "nvidia/mask_states.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const engine_names[] = {
	[HB_ENGINE_NONE] = "none",
	[HB_ENGINE_TEMPORAL] = "temporal",
	[HB_ENGINE_TURNS] = "turns",
	[HB_ENGINE_SPATIAL] = "spatial",
};

const char *hb_status_engine(enum hb_engine engine)
{
	return engine_names[engine];
}

static const char *const group_texts[] = {
#define HB_GROUP_STATE(name, text) [HB_GROUP_##name] = text,
#include "hummingbird/group_states.def"
#undef HB_GROUP_STATE
};

static const char *const counter_names[] = {
#define HB_COUNTER(name, unit, what) #name,
#include "hummingbird/counters.def"
};

static const char *const takeover_faults[] = {
#define HB_TAKEOVER_FAULT(name, text) text,
#include "hummingbird/takeover_faults.def"
#undef HB_TAKEOVER_FAULT
};

/* Appends and takes the reference; a NULL (out of memory) is left out, and shows as a missing entry. */
static void append(json_t *array, json_t *entry)
{
	if (entry)
		json_array_append_new(array, entry);
}

static void set(json_t *object, const char *key, json_t *value)
{
	if (value)
		json_object_set_new(object, key, value);
}

/* --- groups and what they prove --------------------------------------------------------- */

struct group_counts {
	uint32_t seen, set, failed;
	uint32_t rm_status;
	enum hb_group_state why; /* of the last that failed */
};

static void count_group(struct hb_page_group *group, uint32_t wanted_us, struct group_counts *counts)
{
	uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);
	counts->seen++;
	if (state == HB_GROUP_SET && group->asked_us == wanted_us) {
		counts->set++;
	} else if (state > HB_GROUP_SET && state < HB_N_GROUP_STATES) {
		counts->failed++;
		counts->why = (enum hb_group_state)state;
		counts->rm_status = group->rm_status;
	}
}

static struct group_counts count_groups(struct hb_tenancy *tenancy, uint32_t gpu, enum hb_group_class group_class)
{
	struct group_counts counts = {0};
	uint32_t wanted_us = tenancy->page->gpus[gpu].slice_us[group_class];
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		for (size_t i = 0; tenancy->members[slot].watch && i < HB_PAGE_GROUPS; i++) {
			struct hb_page_group *group = &tenancy->page->processes[slot].groups[i];
			bool mine = group->state != HB_GROUP_EMPTY && group->group_class == group_class &&
				    (group->gpu == gpu || group->gpu >= HB_PAGE_GPUS);
			if (mine)
				count_group(group, wanted_us, &counts);
		}
	}
	return counts;
}

static json_t *mechanism(const char *name, bool enforced, const char *why)
{
	return json_pack("{s:s, s:b, s:s}", "mechanism", name, "enforced", (int)enforced, "why", why);
}

/* The MPS server as a member: its page says what became of the group that all of LP shares. NULL: it has not registered. */
static struct hb_tenancy *find_server(const struct hb_daemon *daemon)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_is_server(daemon->tenancies[i]))
			return daemon->tenancies[i];
	return NULL;
}

static uint32_t gpu_index(const struct hb_tenancy *tenancy, const struct hb_device *device)
{
	uint32_t gpu = 0;
	while (gpu < HB_PAGE_GPUS && tenancy->devices[gpu] != device)
		gpu++;
	return gpu;
}

/* The slices of an LP tenant that lives in the MPS server, where it has no groups of its own. */
static json_t *server_mechanism(struct hb_tenancy *tenancy, uint32_t gpu, enum hb_group_class group_class,
				const char *name)
{
	char why[200];
	struct hb_tenancy *server = find_server(tenancy->daemon);
	uint32_t index = server ? gpu_index(server, tenancy->devices[gpu]) : HB_PAGE_GPUS;
	if (index == HB_PAGE_GPUS)
		return mechanism(name, false, "runs in the MPS server, which has not registered with the daemon (yet)");
	struct group_counts counts = count_groups(server, index, group_class);
	uint32_t wanted_us = server->page->gpus[index].slice_us[group_class];
	bool set = counts.seen && counts.set == counts.seen;
	if (counts.failed)
		snprintf(why, sizeof why, "the MPS server's group: %s (driver status 0x%x)", group_texts[counts.why],
			 counts.rm_status);
	else if (set)
		snprintf(why, sizeof why, "%u us on the group of the MPS server it runs in", wanted_us);
	else
		snprintf(why, sizeof why, "%u of %u groups of the MPS server set to %u us so far", counts.set,
			 counts.seen, wanted_us);
	return mechanism(name, set, why);
}

static json_t *slice_mechanism(struct hb_tenancy *tenancy, uint32_t gpu, enum hb_group_class group_class)
{
	static const char *const names[] = {[HB_GROUP_COMPUTE] = "compute slice", [HB_GROUP_COPY] = "copy slice"};
	struct hb_page_gpu *page = &tenancy->page->gpus[gpu];
	uint32_t wanted_us = page->slice_us[group_class];
	struct group_counts counts = count_groups(tenancy, gpu, group_class);
	char why[200];
	bool inside = !hb_tenancy_is_server(tenancy) && tenancy->flags & HB_REGISTER_MPS;
	bool enforced = wanted_us && counts.seen && counts.set == counts.seen;
	if (inside && !counts.seen)
		return server_mechanism(tenancy, gpu, group_class, names[group_class]);
	if (counts.failed)
		snprintf(why, sizeof why, "%u of %u groups: %s (driver status 0x%x)", counts.failed, counts.seen,
			 group_texts[counts.why], counts.rm_status);
	else if (!wanted_us && tenancy->devices[gpu]->engine == HB_ENGINE_TEMPORAL && hb_tenancy_is_low(tenancy) &&
		 !inside)
		snprintf(why, sizeof why,
			 "outside the MPS server: a tiny slice beside it would stop both; "
			 "start it with hb run --priority low");
	else if (!wanted_us)
		snprintf(why, sizeof why, "the driver's own slice is wanted");
	else if (!counts.seen)
		snprintf(why, sizeof why, "no channel group yet: the program has not made a CUDA context");
	else if (!enforced)
		snprintf(why, sizeof why, "%u of %u groups set to %u us so far", counts.set, counts.seen, wanted_us);
	else
		snprintf(why, sizeof why, "%u us on %u groups", wanted_us, counts.set);
	return mechanism(names[group_class], enforced, why);
}

/* Over the tenant's processes, those that have ended too. */
static uint64_t sum_of(const struct hb_tenancy *tenancy, enum hb_page_counter counter)
{
	uint64_t sum = tenancy->past[counter];
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++)
		if (tenancy->members[slot].watch)
			sum += tenancy->page->processes[slot].counters[counter];
	return sum;
}

/* Long kernels beside high priority: how many were split, and why others were not. */
static json_t *split_mechanism(const struct hb_tenancy *tenancy)
{
	char why[240];
	unsigned long long sliced = sum_of(tenancy, HB_COUNT_split), whole = sum_of(tenancy, HB_COUNT_unsplit);
	if (!sliced && !whole)
		return mechanism("kernel parts", false, "no kernel was long enough yet beside high priority");
	snprintf(why, sizeof why,
		 "%llu launches in %llu parts; not split: %llu by their code, %llu not seen or refused, "
		 "%llu by their launch, %llu without gain",
		 sliced, (unsigned long long)sum_of(tenancy, HB_COUNT_parts),
		 (unsigned long long)sum_of(tenancy, HB_COUNT_unsplit_code),
		 (unsigned long long)sum_of(tenancy, HB_COUNT_unsplit_image),
		 (unsigned long long)sum_of(tenancy, HB_COUNT_unsplit_launch),
		 (unsigned long long)sum_of(tenancy, HB_COUNT_unsplit_gain));
	return mechanism("kernel parts", sliced > 0, why);
}

/* Whether its launches leave SMs to high priority: the worst of its processes, since one is enough to be in the way. */
static json_t *mask_mechanism(struct hb_tenancy *tenancy)
{
	char why[200];
	uint32_t worst = HB_MASK_UNTRIED, whole = HB_GPC_UNTRIED;
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		uint32_t state = tenancy->page->processes[slot].mask_state;
		if (tenancy->members[slot].watch && state < HB_N_MASK_STATES && state > worst)
			worst = state;
		uint32_t gpcs = tenancy->page->processes[slot].gpc_state;
		if (tenancy->members[slot].watch && gpcs < HB_N_GPC_STATES && gpcs > HB_GPC_UNTRIED)
			whole = gpcs;
	}
	snprintf(why, sizeof why, "%s%s%s", hb_mask_state_text(worst),
		 worst == HB_MASK_WORKS && whole ? "; whole GPCs: " : "",
		 worst == HB_MASK_WORKS && whole ? hb_gpc_state_text(whole) : "");
	return mechanism("SM masks", worst == HB_MASK_WORKS, why);
}

static json_t *memory_mechanism(const struct hb_tenancy *tenancy)
{
	uint64_t limit = tenancy->terms.memory_bytes;
	char why[120];
	if (!limit)
		return mechanism("memory limit", false, "none was asked for");
	if (!tenancy->n_members)
		return mechanism("memory limit", false, "no process of the tenant has loaded the shim yet");
	snprintf(why, sizeof why, "%llu bytes on each GPU", (unsigned long long)limit);
	return mechanism("memory limit", true, why);
}

/* --- one tenant ------------------------------------------------------------------------------ */

static json_t *counters_json(struct hb_tenancy *tenancy)
{
	json_t *object = json_object();
	for (size_t i = 0; object && i < HB_N_COUNTS; i++)
		set(object, counter_names[i], json_integer((json_int_t)sum_of(tenancy, (enum hb_page_counter)i)));
	return object;
}

/* Why the process holds the GPU for its requests no more; null = it does where that is of use. */
static json_t *takeover_fault_json(struct hb_page_process *process)
{
	uint32_t fault = process->requests.takeover_fault;
	if (!fault)
		return json_null();
	return json_string(fault < sizeof takeover_faults / sizeof takeover_faults[0] ? takeover_faults[fault]
										      : "not known");
}

static json_t *processes_json(struct hb_tenancy *tenancy)
{
	json_t *array = json_array();
	for (uint32_t slot = 0; array && slot < HB_PAGE_PROCESSES; slot++) {
		struct hb_page_process *process = &tenancy->page->processes[slot];
		if (!tenancy->members[slot].watch)
			continue;
		append(array, json_pack("{s:i, s:i, s:o}", "pid", (int)tenancy->members[slot].pid, "driver_version",
					(int)process->driver_version, "takeover_fault", takeover_fault_json(process)));
	}
	return array;
}

static const char *gate_text(enum hb_gate_state state)
{
	return state == HB_GATE_OPEN ? "open" : state == HB_GATE_CLOSED ? "closed" : "per launch";
}

/* What the driver says that the tenant's processes take, less what their accounts hold: contexts and modules. */
struct overhead {
	uint64_t bytes;
	uint32_t known, unknown; /* processes with a figure and without */
};

static struct overhead measure_overhead(struct hb_tenancy *tenancy, uint32_t gpu)
{
	struct overhead sum = {0};
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		const struct hb_member *member = &tenancy->members[slot];
		if (!member->watch)
			continue;
		uint64_t taken = hb_users_bytes(tenancy->devices[gpu], member->pid);
		uint64_t held = tenancy->page->processes[slot].memory[gpu].used_bytes;
		if (taken == HB_GPU_BYTES_UNKNOWN) {
			sum.unknown++;
			continue;
		}
		sum.known++;
		sum.bytes += taken > held ? taken - held : 0;
	}
	return sum;
}

static void add_overhead(json_t *object, struct hb_tenancy *tenancy, uint32_t gpu)
{
	struct overhead sum = measure_overhead(tenancy, gpu);
	const struct hb_gpu_use *use = tenancy->devices[gpu]->use;
	char why[200] = "";
	if (sum.unknown && (!use || use->why[0]))
		snprintf(why, sizeof why, "%s", use ? use->why : "the GPU has not been looked at yet");
	else if (sum.unknown)
		snprintf(why, sizeof why, "the driver gives no figure for %u of %u processes%s", sum.unknown,
			 sum.known + sum.unknown,
			 tenancy->flags & HB_REGISTER_MPS ? " (clients of an MPS server)" : "");
	set(object, "memory_overhead", sum.known || !sum.unknown ? json_integer((json_int_t)sum.bytes) : json_null());
	set(object, "memory_overhead_why", json_string(why));
}

static void add_core_view(json_t *object, const struct hb_tenant *tenant)
{
	if (!tenant)
		return;
	set(object, "slo_ns", json_integer(tenant->slo_ns));
	set(object, "requests", json_integer((json_int_t)tenant->counters.requests_ended));
	set(object, "attainment_ppm",
	    tenant->counters.requests_judged ? json_integer(hb_tenant_attainment_ppm(tenant)) : json_null());
	set(object, "turns", json_integer((json_int_t)tenant->counters.turns));
	json_t *counts = json_object();
#define HB_COUNTER(name, unit, what) set(counts, #name, json_integer((json_int_t)tenant->counters.name));
#include "core/tenant_counters.def"
	set(object, "scheduling", counts);
}

/* Of a request that runs now; null where none does, or where it has no deadline. */
static void add_running(json_t *object, const struct hb_tenancy *tenancy, const struct hb_tenant *tenant)
{
	int64_t now_ns = hb_clock_now_ns();
	if (!tenant)
		return;
	struct hb_request_running running = hb_request_running(tenancy, tenant, now_ns);
	set(object, "running_ns",
	    running.since_ns ? json_integer((json_int_t)(now_ns - running.since_ns)) : json_null());
	set(object, "slack_ns",
	    running.slack_ns < HB_TIME_NEVER ? json_integer((json_int_t)running.slack_ns) : json_null());
}

json_t *hb_status_mechanisms(struct hb_tenancy *tenancy, uint32_t gpu)
{
	json_t *mechanisms = json_array();
	append(mechanisms, slice_mechanism(tenancy, gpu, HB_GROUP_COMPUTE));
	append(mechanisms, slice_mechanism(tenancy, gpu, HB_GROUP_COPY));
	if (tenancy->devices[gpu]->engine == HB_ENGINE_SPATIAL && hb_tenancy_is_low(tenancy)) {
		append(mechanisms, mask_mechanism(tenancy));
		append(mechanisms, split_mechanism(tenancy));
	}
	return mechanisms;
}

static json_t *use_json(struct hb_tenancy *tenancy, uint32_t gpu)
{
	const struct hb_device *device = tenancy->devices[gpu];
	const struct hb_seat *seat = &device->seats[tenancy->index];
	struct hb_page_gpu *page = &tenancy->page->gpus[gpu];
	char uuid[HB_UUID_TEXT_SIZE];
	hb_uuid_format(device->uuid, uuid);
	json_t *mechanisms = hb_status_mechanisms(tenancy, gpu);
	json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "gpu", uuid, "gate", gate_text(seat->gate),
				   "memory_used", (json_int_t)page->used_bytes, "slice_us",
				   (json_int_t)page->slice_us[HB_GROUP_COMPUTE], "copy_slice_us",
				   (json_int_t)page->slice_us[HB_GROUP_COPY], "mechanisms", mechanisms);
	if (!object)
		return NULL;
	add_overhead(object, tenancy, gpu);
	add_core_view(object, hb_core_tenant(device->core, tenancy->index));
	add_running(object, tenancy, hb_core_tenant(device->core, tenancy->index));
	hb_status_add_meters(object, device, tenancy->index);
	return object;
}

const char *hb_status_role(const struct hb_tenancy *tenancy)
{
	if (hb_tenancy_is_server(tenancy))
		return "mps server";
	return tenancy->terms.priority == HB_PAGE_HIGH ? "high" : "low";
}

static json_t *tenancy_json(struct hb_tenancy *tenancy, int64_t now_ns)
{
	json_t *gpus = json_array();
	json_t *object = json_pack(
		"{s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:b, s:I, s:o, s:o, s:o, s:o}", "id",
		(int)tenancy->number, "pid", (int)tenancy->peer.pid, "user", tenancy->peer.user, "priority",
		hb_status_role(tenancy), "reduced", tenancy->reduced, "engine_why", tenancy->engine_why, "command",
		tenancy->command, "slo_asked_ns", (json_int_t)tenancy->terms.slo_ns, "attainment_asked_ppm",
		(json_int_t)tenancy->attainment_ppm, "memory_limit", (json_int_t)tenancy->terms.memory_bytes,
		"pcie_weight", (int)tenancy->weight, "mps", (int)((tenancy->flags & HB_REGISTER_MPS) != 0), "age_ns",
		(json_int_t)(now_ns - tenancy->since_ns), "memory", memory_mechanism(tenancy), "processes",
		processes_json(tenancy), "counters", counters_json(tenancy), "gpus", gpus);
	for (uint32_t i = 0; object && i < tenancy->n_devices; i++)
		append(gpus, use_json(tenancy, i));
	return object;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Processes on the GPU that are no tenants. */
static json_t *uncovered_json(const struct hb_daemon *daemon, const struct hb_gpu_use *use)
{
	json_t *array = json_array();
	for (uint32_t i = 0; array && use && i < use->n_users; i++) {
		const struct hb_gpu_user *user = &use->users[i];
		char name[32];
		if (hb_users_cover(daemon, user->pid) || !hb_users_name(user->pid, name))
			continue;
		append(array, json_pack("{s:i, s:s, s:o}", "pid", (int)user->pid, "name", name, "memory",
					user->bytes == HB_GPU_BYTES_UNKNOWN ? json_null()
									    : json_integer((json_int_t)user->bytes)));
	}
	return array;
}

static void add_use(json_t *object, const struct hb_daemon *daemon, const struct hb_gpu_use *use)
{
	bool measured = use && use->total_bytes;
	set(object, "memory_total", measured ? json_integer((json_int_t)use->total_bytes) : json_null());
	set(object, "memory_used", measured ? json_integer((json_int_t)use->used_bytes) : json_null());
	set(object, "uncovered", uncovered_json(daemon, use));
	set(object, "uncovered_why", json_string(use ? use->why : "the GPU has not been looked at yet"));
}

/* What HP's processes allow LP in the spatial engine; decide/spatial.h. */
static json_t *beacon_json(const struct hb_spatial_beacon *beacon)
{
	return json_pack("{s:i, s:b, s:I, s:i, s:i, s:i, s:I, s:i, s:I}", "pid", (int)beacon->owner, "serving",
			 (int)(beacon->word & 1), "allow_ns", (json_int_t)beacon->allow_ns, "terms_ppm",
			 (int)beacon->terms_ppm, "reserve_sms", (int)(beacon->reserve & HB_SPATIAL_RESERVE_MASK),
			 "gaps", (int)(beacon->reserve >> HB_SPATIAL_GAPS_SHIFT), "gap_ns", (json_int_t)beacon->gap_ns,
			 "excess_ns", (int)beacon->excess_ns, "judged", (json_int_t)beacon->outcome);
}

static json_t *beacons_json(const struct hb_device *device)
{
	const struct hb_spatial_board *board = (const struct hb_spatial_board *)device->page->board;
	json_t *array = json_array();
	for (uint32_t i = 0; i < HB_SPATIAL_BEACONS; i++)
		if (board->beacons[i].owner)
			json_array_append_new(array, beacon_json(&board->beacons[i]));
	return array;
}

static json_t *device_json(const struct hb_daemon *daemon, const struct hb_device *device)
{
	char uuid[HB_UUID_TEXT_SIZE], name[96] = "";
	const struct hb_ejection *ejection = hb_core_ejection(device->core);
	hb_uuid_format(device->uuid, uuid);
	hb_provider_of(daemon->options.simulated)->gpu_name(device->uuid, name, sizeof name);
	json_t *object = json_pack(
		"{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:s}", "uuid", uuid, "name", name, "engine",
		hb_status_engine(device->engine), "policy", hb_core_policy(device->core), "high", (int)device->n_high,
		"low", (int)device->n_low, "reserve", (json_int_t)device->page->reserve_bytes, "low_memory",
		(json_int_t)device->page->low_used_bytes, "not_carried_out", (json_int_t)device->not_carried_out,
		"ejected", ejection->reason == HB_EJECT_NONE ? "" : ejection->message);
	if (!object)
		return NULL;
	add_use(object, daemon, device->use);
	set(object, "beacons", beacons_json(device));
	set(object, "preemption", hb_status_hist(&device->meters->preemption));
	set(object, "turn_switch", hb_status_hist(&device->meters->turn));
	return object;
}

static json_t *daemon_json(struct hb_daemon *daemon, int64_t now_ns)
{
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:{s:s, s:s, s:s}, s:o}", "pid", (int)getpid(), "mode",
			 daemon->options.system_mode ? "system" : "user", "gpus",
			 hb_provider_of(daemon->options.simulated)->name, "socket", daemon->options.socket, "uptime_ns",
			 (json_int_t)(now_ns - daemon->started_ns), "mps", "state", hb_mps_state_text(daemon->mps),
			 "why", hb_mps_why(daemon->mps), "pipe", hb_mps_pipe_dir(daemon->mps), "metrics",
			 hb_metrics_json(daemon));
}

static json_t *record_json(const struct hb_choose_record *record)
{
	return json_pack("{s:i, s:i, s:i}", "lives", (int)record->lives, "attainment_ppm", (int)record->attainment_ppm,
			 "low_ppm", (int)record->low_ppm);
}

/* What `auto` knows: of each pair of programs, what the engines showed. */
static json_t *engines_json(const struct hb_engine_memory *memory)
{
	json_t *array = json_array();
	for (uint32_t i = 0; array && i < HB_ENGINE_PAIRS; i++) {
		const struct hb_engine_pair *pair = &memory->pairs[i];
		if (pair->high.key)
			append(array, json_pack("{s:s, s:s, s:o, s:o}", "high", pair->high.text, "low", pair->low.text,
						"temporal", record_json(&pair->choose.records[HB_CHOOSE_TEMPORAL]),
						"spatial", record_json(&pair->choose.records[HB_CHOOSE_SPATIAL])));
	}
	return array;
}

json_t *hb_status_json(struct hb_daemon *daemon, int64_t now_ns)
{
	json_t *gpus = json_array(), *tenants = json_array();
	json_t *root = json_pack("{s:i, s:o, s:o, s:o, s:o}", "version", 1, "daemon", daemon_json(daemon, now_ns),
				 "gpus", gpus, "tenants", tenants, "engines", engines_json(&daemon->engines));
	if (!root)
		return NULL;
	for (uint32_t i = 0; i < daemon->n_devices; i++)
		append(gpus, device_json(daemon, daemon->devices[i]));
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i])
			append(tenants, tenancy_json(daemon->tenancies[i], now_ns));
	return root;
}

char *hb_status_text(struct hb_daemon *daemon, int64_t now_ns)
{
	json_t *root = hb_status_json(daemon, now_ns);
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}
