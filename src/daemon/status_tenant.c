/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tenant as JSON; see status_tenant.h. Tenants can write anything to their
 * pages: every value from a page is checked before it is used as an index or as
 * text.
 */
#include "daemon/status_tenant.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "base/uuid.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/engine_advice.h"
#include "daemon/gpu_elastic.h"
#include "daemon/gpu_minimum.h"
#include "daemon/gpu_peers.h"
#include "daemon/gpu_processes.h"
#include "daemon/placements.h"
#include "daemon/request_rings.h"
#include "daemon/status_measures.h"
#include "gpu/provider.h"
#include "nvidia/gpc_states.h"
#include "nvidia/mask_states.h"

#include <stdio.h>
#include <string.h>

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

void hb_status_append(json_t *array, json_t *entry)
{
	if (entry)
		json_array_append_new(array, entry);
}

void hb_status_set(json_t *object, const char *key, json_t *value)
{
	if (value)
		json_object_set_new(object, key, value);
}

/* --- channel groups and their time slices --------------------------------------------------------- */

struct group_counts {
	uint32_t seen, set, failed;
	uint32_t rm_status;
	enum hb_group_state why; /* state of the last group that failed */
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

static struct group_counts count_groups(struct hb_tenancy *tenancy, uint32_t gpu_index, enum hb_group_class group_class)
{
	struct group_counts counts = {0};
	uint32_t wanted_us = tenancy->page->gpus[gpu_index].slice_us[group_class];
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		for (size_t i = 0; tenancy->members[slot].watch && i < HB_PAGE_GROUPS; i++) {
			struct hb_page_group *group = &tenancy->page->processes[slot].groups[i];
			bool mine = group->state != HB_GROUP_EMPTY && group->group_class == group_class &&
				    (group->gpu == gpu_index || group->gpu >= HB_PAGE_GPUS);
			if (mine)
				count_group(group, wanted_us, &counts);
		}
	}
	return counts;
}

static json_t *mechanism_json(const char *name, bool enforced, const char *why)
{
	return json_pack("{s:s, s:b, s:s}", "mechanism", name, "enforced", (int)enforced, "why", why);
}

/* Finds the MPS server, whose page has the channel group that all LP tenants share. NULL: the server has not registered. */
static struct hb_tenancy *find_server(const struct hb_daemon *daemon)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_is_server(daemon->tenancies[i]))
			return daemon->tenancies[i];
	return NULL;
}

static uint32_t find_gpu_index(const struct hb_tenancy *tenancy, const struct hb_gpu *gpu)
{
	uint32_t gpu_index = 0;
	while (gpu_index < HB_PAGE_GPUS && tenancy->gpus[gpu_index] != gpu)
		gpu_index++;
	return gpu_index;
}

/* The time slice of a tenant inside the MPS server, where the tenant has no groups of its own. */
static json_t *server_mechanism(struct hb_tenancy *tenancy, uint32_t gpu_index, enum hb_group_class group_class,
				const char *name)
{
	char why[200];
	struct hb_tenancy *server = find_server(tenancy->daemon);
	uint32_t index = server ? find_gpu_index(server, tenancy->gpus[gpu_index]) : HB_PAGE_GPUS;
	if (index == HB_PAGE_GPUS)
		return mechanism_json(
			name, false, "the tenant runs in the MPS server, which has not registered with the daemon yet");
	struct group_counts counts = count_groups(server, index, group_class);
	uint32_t wanted_us = server->page->gpus[index].slice_us[group_class];
	bool is_set = counts.seen && counts.set == counts.seen;
	if (counts.failed)
		snprintf(why, sizeof why, "the MPS server's channel group: %s (driver status 0x%x)",
			 group_texts[counts.why], counts.rm_status);
	else if (is_set)
		snprintf(why, sizeof why, "%u us on the channel group of the MPS server, in which the tenant runs",
			 wanted_us);
	else
		snprintf(why, sizeof why, "%u of %u channel groups of the MPS server have been set to %u us so far",
			 counts.set, counts.seen, wanted_us);
	return mechanism_json(name, is_set, why);
}

static json_t *slice_mechanism(struct hb_tenancy *tenancy, uint32_t gpu_index, enum hb_group_class group_class)
{
	static const char *const names[] = {[HB_GROUP_COMPUTE] = "compute slice", [HB_GROUP_COPY] = "copy slice"};
	struct hb_page_gpu *page = &tenancy->page->gpus[gpu_index];
	uint32_t wanted_us = page->slice_us[group_class];
	struct group_counts counts = count_groups(tenancy, gpu_index, group_class);
	char why[200];
	bool inside = !hb_tenancy_is_server(tenancy) && tenancy->flags & HB_REGISTER_MPS;
	bool enforced = wanted_us && counts.seen && counts.set == counts.seen;
	if (inside && !counts.seen)
		return server_mechanism(tenancy, gpu_index, group_class, names[group_class]);
	if (counts.failed)
		snprintf(why, sizeof why, "%u of %u channel groups: %s (driver status 0x%x)", counts.failed,
			 counts.seen, group_texts[counts.why], counts.rm_status);
	else if (!wanted_us && tenancy->gpus[gpu_index]->engine == HB_ENGINE_TEMPORAL && hb_tenancy_is_low(tenancy) &&
		 !inside)
		snprintf(
			why, sizeof why,
			"the tenant runs outside the MPS server, where a tiny time slice could stop it and the server for good; "
			"start it with hb run --priority low");
	else if (!wanted_us)
		snprintf(why, sizeof why, "the driver's own time slice is wanted");
	else if (!counts.seen)
		snprintf(why, sizeof why, "there is no channel group yet: the program has not made a CUDA context");
	else if (!enforced)
		snprintf(why, sizeof why, "%u of %u groups set to %u us so far", counts.set, counts.seen, wanted_us);
	else
		snprintf(why, sizeof why, "%u us on %u groups", wanted_us, counts.set);
	return mechanism_json(names[group_class], enforced, why);
}

uint64_t hb_status_count(const struct hb_tenancy *tenancy, enum hb_page_counter counter)
{
	uint64_t sum = tenancy->past[counter];
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++)
		if (tenancy->members[slot].watch)
			sum += tenancy->page->processes[slot].counters[counter];
	return sum;
}

/* How many long kernels beside HP were split, and why others were not. */
static json_t *split_mechanism(const struct hb_tenancy *tenancy)
{
	char why[240];
	unsigned long long split = hb_status_count(tenancy, HB_COUNT_split);
	if (!split && !hb_status_count(tenancy, HB_COUNT_unsplit))
		return mechanism_json("kernel splitting", false,
				      "no kernel beside high priority has been long enough so far");
	snprintf(why, sizeof why,
		 "%llu launches in %llu parts; not split: %llu by their code, %llu not seen or refused, "
		 "%llu by their launch, %llu without gain",
		 split, (unsigned long long)hb_status_count(tenancy, HB_COUNT_parts),
		 (unsigned long long)hb_status_count(tenancy, HB_COUNT_unsplit_code),
		 (unsigned long long)hb_status_count(tenancy, HB_COUNT_unsplit_image),
		 (unsigned long long)hb_status_count(tenancy, HB_COUNT_unsplit_launch),
		 (unsigned long long)hb_status_count(tenancy, HB_COUNT_unsplit_gain));
	return mechanism_json("kernel splitting", split > 0, why);
}

/* Whether the tenant's launches leave SMs free for HP. Shows the worst of its processes, since one is enough to delay HP. */
static json_t *mask_mechanism(struct hb_tenancy *tenancy)
{
	char why[200];
	uint32_t worst = HB_MASK_UNTRIED, worst_gpcs = HB_GPC_UNTRIED;
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		uint32_t state = tenancy->page->processes[slot].mask_state;
		if (tenancy->members[slot].watch && state < HB_N_MASK_STATES && state > worst)
			worst = state;
		uint32_t gpcs = tenancy->page->processes[slot].gpc_state;
		if (tenancy->members[slot].watch && gpcs < HB_N_GPC_STATES && gpcs > HB_GPC_UNTRIED)
			worst_gpcs = gpcs;
	}
	snprintf(why, sizeof why, "%s%s%s", hb_mask_state_text(worst),
		 worst == HB_MASK_WORKS && worst_gpcs ? "; complete GPCs: " : "",
		 worst == HB_MASK_WORKS && worst_gpcs ? hb_gpc_state_text(worst_gpcs) : "");
	return mechanism_json("SM masks", worst == HB_MASK_WORKS, why);
}

static json_t *memory_mechanism(const struct hb_tenancy *tenancy)
{
	uint64_t limit = tenancy->rights.memory_bytes;
	char why[120];
	if (!limit)
		return mechanism_json("memory limit", false, "no limit was requested");
	if (!tenancy->n_members)
		return mechanism_json("memory limit", false, "no process of the tenant has used CUDA yet");
	snprintf(why, sizeof why, "%llu bytes on each GPU", (unsigned long long)limit);
	return mechanism_json("memory limit", true, why);
}

/* --- one tenant ------------------------------------------------------------------------------ */

static json_t *counters_json(struct hb_tenancy *tenancy)
{
	json_t *object = json_object();
	for (size_t i = 0; object && i < HB_N_COUNTS; i++)
		hb_status_set(object, counter_names[i],
			      json_integer((json_int_t)hb_status_count(tenancy, (enum hb_page_counter)i)));
	return object;
}

/* Why the process no longer takes the GPU over for its requests; null = it does. */
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
		hb_status_append(array, json_pack("{s:i, s:i, s:o}", "pid", (int)tenancy->members[slot].pid,
						  "driver_version", (int)process->driver_version, "takeover_fault",
						  takeover_fault_json(process)));
	}
	return array;
}

static const char *gate_text(enum hb_gate_state state)
{
	return state == HB_GATE_OPEN ? "open" : "closed";
}

/* GPU memory of the tenant's processes beyond their allocations: CUDA contexts and modules. */
struct overhead {
	uint64_t bytes;
	uint32_t known, unknown; /* processes for which the driver gives a size, and others */
};

static struct overhead measure_overhead(struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	struct overhead sum = {0};
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++) {
		const struct hb_member *member = &tenancy->members[slot];
		if (!member->watch)
			continue;
		uint64_t taken = hb_gpu_process_bytes(tenancy->gpus[gpu_index], member->pid);
		uint64_t held = tenancy->page->processes[slot].memory[gpu_index].used_bytes;
		held -= hb_bytes_least(held, hb_elastic_away(tenancy, slot, gpu_index));
		held += hb_peers_count_process(tenancy->gpus[gpu_index], tenancy, slot);
		if (taken == HB_GPU_BYTES_UNKNOWN) {
			sum.unknown++;
			continue;
		}
		sum.known++;
		sum.bytes += taken > held ? taken - held : 0;
	}
	return sum;
}

static void add_overhead(json_t *object, struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	struct overhead sum = measure_overhead(tenancy, gpu_index);
	const struct hb_gpu_use *use = tenancy->gpus[gpu_index]->use;
	char why[200] = "";
	if (sum.unknown && (!use || use->why[0]))
		snprintf(why, sizeof why, "%s", use ? use->why : "the driver has not been asked yet");
	else if (sum.unknown)
		snprintf(why, sizeof why, "the driver gives no size for %u of %u processes%s", sum.unknown,
			 sum.known + sum.unknown,
			 tenancy->flags & HB_REGISTER_MPS ? " (clients of an MPS server)" : "");
	hb_status_set(object, "memory_overhead",
		      sum.known || !sum.unknown ? json_integer((json_int_t)sum.bytes) : json_null());
	hb_status_set(object, "memory_overhead_why", json_string(why));
}

static void add_core_state(json_t *object, const struct hb_tenant *tenant)
{
	if (!tenant)
		return;
	hb_status_set(object, "slo_ns", json_integer(tenant->slo_ns));
	hb_status_set(object, "requests", json_integer((json_int_t)tenant->counters.requests_ended));
	hb_status_set(object, "attainment_ppm",
		      tenant->counters.requests_judged ? json_integer(hb_tenant_attainment_ppm(tenant)) : json_null());
	hb_status_set(object, "turns", json_integer((json_int_t)tenant->counters.turns));
	json_t *counts = json_object();
#define HB_COUNTER(name, unit, what) hb_status_set(counts, #name, json_integer((json_int_t)tenant->counters.name));
#include "core/tenant_counters.def"
	hb_status_set(object, "scheduling", counts);
}

/* Adds running_ns and slack_ns of the running request; null if no request runs, or if it has no deadline. */
static void add_running(json_t *object, const struct hb_tenancy *tenancy, const struct hb_tenant *tenant)
{
	int64_t now_ns = hb_clock_now_ns();
	if (!tenant)
		return;
	struct hb_request_running running = hb_request_running(tenancy, tenant, now_ns);
	hb_status_set(object, "running_ns",
		      running.since_ns ? json_integer((json_int_t)(now_ns - running.since_ns)) : json_null());
	hb_status_set(object, "slack_ns",
		      running.slack_ns < HB_TIME_NEVER ? json_integer((json_int_t)running.slack_ns) : json_null());
}

/* Returns false if the mechanism does not concern the tenant. */
typedef bool describe_function(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, bool *works, char *why,
			       size_t size);

/* Returns NULL if the mechanism does not concern the tenant. */
static json_t *described_mechanism(const struct hb_tenancy *tenancy, uint32_t gpu_index, const char *name,
				   describe_function *describe)
{
	char why[800];
	bool works;
	return describe(tenancy->gpus[gpu_index], tenancy, &works, why, sizeof why) ? mechanism_json(name, works, why)
										    : NULL;
}

json_t *hb_status_mechanisms(struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	json_t *mechanisms = json_array();
	hb_status_append(mechanisms, slice_mechanism(tenancy, gpu_index, HB_GROUP_COMPUTE));
	hb_status_append(mechanisms, slice_mechanism(tenancy, gpu_index, HB_GROUP_COPY));
	if (tenancy->gpus[gpu_index]->engine == HB_ENGINE_SPATIAL && hb_tenancy_is_low(tenancy)) {
		hb_status_append(mechanisms, mask_mechanism(tenancy));
		hb_status_append(mechanisms, split_mechanism(tenancy));
	}
	hb_status_append(mechanisms, described_mechanism(tenancy, gpu_index, "low minimum", hb_gpu_minimum_describe));
	hb_status_append(mechanisms,
			 described_mechanism(tenancy, gpu_index, "elastic memory", hb_gpu_elastic_describe));
	return mechanisms;
}

static json_t *gpu_use_json(struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	const struct hb_gpu *gpu = tenancy->gpus[gpu_index];
	const struct hb_tenant_state *state = &gpu->tenants[tenancy->index];
	struct hb_page_gpu *page = &tenancy->page->gpus[gpu_index];
	char uuid[HB_UUID_TEXT_SIZE];
	hb_uuid_format(gpu->uuid, uuid);
	json_t *mechanisms = hb_status_mechanisms(tenancy, gpu_index);
	json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "gpu", uuid, "gate", gate_text(state->gate),
				   "memory_used", (json_int_t)page->used_bytes, "slice_us",
				   (json_int_t)page->slice_us[HB_GROUP_COMPUTE], "copy_slice_us",
				   (json_int_t)page->slice_us[HB_GROUP_COPY], "mechanisms", mechanisms);
	if (!object)
		return NULL;
	char advice[256];
	hb_engine_advice_text(gpu, tenancy, advice, sizeof advice);
	hb_status_set(object, "engine_advice", json_string(advice));
	hb_status_set(object, "elastic", hb_tenant_elastic_json(gpu, tenancy, hb_clock_now_ns()));
	add_overhead(object, tenancy, gpu_index);
	add_core_state(object, hb_core_tenant(gpu->core, tenancy->index));
	add_running(object, tenancy, hb_core_tenant(gpu->core, tenancy->index));
	hb_status_add_measures(object, gpu, tenancy->index);
	return object;
}

const char *hb_status_role(const struct hb_tenancy *tenancy)
{
	if (hb_tenancy_is_server(tenancy))
		return "mps server";
	return tenancy->rights.priority == HB_PAGE_HIGH ? "high" : "low";
}

/* Returns where the tenant runs, as the path of its cgroup shows it; a field is "" if the path does not say. */
static json_t *place_json(const struct hb_cgroup_place *place)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "container", place->container, "pod", place->pod, "namespace",
			 place->container_space, "slurm_job", place->slurm_job);
}

json_t *hb_status_tenant(struct hb_tenancy *tenancy, int64_t now_ns)
{
	json_t *gpus = json_array();
	json_t *object = json_pack(
		"{s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:b, s:I, s:o, s:o, s:o, s:o}", "id",
		(int)tenancy->number, "pid", (int)tenancy->peer.pid, "user", tenancy->peer.user, "priority",
		hb_status_role(tenancy), "reduced", tenancy->reduced, "engine_why", tenancy->engine_why, "command",
		tenancy->command, "slo_asked_ns", (json_int_t)tenancy->rights.slo_ns, "attainment_asked_ppm",
		(json_int_t)tenancy->attainment_ppm, "memory_limit", (json_int_t)tenancy->rights.memory_bytes, "weight",
		(int)tenancy->weight, "pcie_weight",
		(int)(tenancy->pcie_weight ? tenancy->pcie_weight : tenancy->weight), "mps",
		(int)((tenancy->flags & HB_REGISTER_MPS) != 0), "age_ns", (json_int_t)(now_ns - tenancy->since_ns),
		"memory", memory_mechanism(tenancy), "processes", processes_json(tenancy), "counters",
		counters_json(tenancy), "gpus", gpus);
	hb_status_set(object, "place", place_json(&tenancy->peer.place));
	hb_status_set(object, "placement", hb_placements_tenant_json(tenancy->daemon->placements, tenancy));
	for (uint32_t i = 0; object && i < tenancy->n_gpus; i++)
		hb_status_append(gpus, gpu_use_json(tenancy, i));
	return object;
}
