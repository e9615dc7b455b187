/* SPDX-License-Identifier: Apache-2.0 */
/* The last minutes of one GPU; see usage_history.h. */
#include "daemon/usage_history.h"

#include "base/units.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/gpu_measures.h"
#include "daemon/gpu_processes.h"
#include "daemon/status_tenant.h"
#include "gpu/provider.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PPM 1000000u
#define BOUNDS_FIRST 10 /* 2^10 ns */
#define BOUNDS_PER_DOUBLING 16

#define BYTES_MOST (UINT64_C(1) << 50) /* tenants write their sizes themselves */
#define BYTES_UNKNOWN UINT64_MAX

static const char *const counter_names[HB_USAGE_COUNTERS] = {
	[HB_USAGE_TAKEOVERS] = "takeovers",
	[HB_USAGE_PREEMPTIONS] = "preemptions",
	[HB_USAGE_LAUNCHES] = "launches",
#define HB_MISS_CAUSE(counter, text) counter,
#include "core/miss_causes.def"
#undef HB_MISS_CAUSE
};

struct gpu_step {
	uint32_t high_ppm, low_ppm, not_managed_ppm;
	bool has_low, is_estimated; /* there was an LP tenant; low_ppm is estimated */
	uint32_t takeovers, high_preemptions, low_preemptions, low_launches;
	uint64_t high_bytes, low_bytes, low_peer_bytes, low_host_bytes, not_managed_bytes, used_bytes; /* at the end */
};

struct hb_gpu_usage {
	int64_t step_end_ns; /* 0 = none yet */
	uint32_t n, next;
	uint64_t high_ns, low_ns; /* time that each priority had the GPU so far */
	struct gpu_step steps[HB_USAGE_STEPS];
	struct hb_tenant_usage *tenants[HB_TENANCIES_MAX]; /* by index of hb_daemon.tenancies; NULL = none yet */
};

/* --- one tenant -------------------------------------------------------------------------- */

static const int64_t *list_bounds(void)
{
	static int64_t bounds[HB_USAGE_BOUNDS];
	for (int i = 0; !bounds[HB_USAGE_BOUNDS - 1] && i < HB_USAGE_BOUNDS; i++)
		bounds[i] = (int64_t)exp2(BOUNDS_FIRST + (double)i / BOUNDS_PER_DOUBLING);
	return bounds;
}

static uint64_t count_since(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

/* The value of the sample of rank ceil(share * count) of this step's samples: the upper bound of its interval. */
static int64_t find_percentile(const uint64_t *at_most, uint64_t count, double share, const struct hb_hist *latency)
{
	const int64_t *bounds = list_bounds();
	uint64_t rank = (uint64_t)ceil(share * (double)count);
	int i = 0;
	while (i < HB_USAGE_BOUNDS && at_most[i] < rank)
		i++;
	return i < HB_USAGE_BOUNDS && bounds[i] < latency->max_ns ? bounds[i] : latency->max_ns;
}

static void measure_latency(struct hb_tenant_usage *usage, const struct hb_hist *latency, struct hb_usage_step *step)
{
	uint64_t now[HB_USAGE_BOUNDS], since[HB_USAGE_BOUNDS];
	if (!latency || latency->count == usage->at_most[HB_USAGE_BOUNDS - 1])
		return;
	hb_hist_cumulate(latency, list_bounds(), HB_USAGE_BOUNDS, now);
	now[HB_USAGE_BOUNDS - 1] = latency->count; /* the last bound stands for all samples */
	bool anew = latency->count < usage->at_most[HB_USAGE_BOUNDS - 1];
	for (int i = 0; i < HB_USAGE_BOUNDS; i++) {
		since[i] = anew ? now[i] : now[i] - usage->at_most[i];
		usage->at_most[i] = now[i];
	}
	step->requests = since[HB_USAGE_BOUNDS - 1];
	step->p50_ns = find_percentile(since, step->requests, 0.5, latency);
	step->p99_ns = find_percentile(since, step->requests, 0.99, latency);
}

void hb_tenant_usage_add(struct hb_tenant_usage *usage, const struct hb_usage_counts *counts, int64_t step_ns)
{
	struct hb_usage_step step = {.is_exact = counts->exact_ns > 0};
	uint64_t used_ns = step.is_exact ? count_since(counts->exact_ns, usage->exact_ns)
					 : count_since(counts->active_ns, usage->active_ns);
	step.share_ppm = used_ns < (uint64_t)step_ns ? (uint32_t)((double)used_ns * PPM / (double)step_ns) : PPM;
	measure_latency(usage, counts->latency, &step);
	for (int i = 0; i < HB_USAGE_COUNTERS; i++) {
		uint64_t change = count_since(counts->counters[i], usage->counters[i]);
		step.counters[i] = change < UINT32_MAX ? (uint32_t)change : UINT32_MAX;
		usage->counters[i] = counts->counters[i];
	}
	step.memory_bytes = counts->memory_bytes;
	step.peer_bytes = counts->peer_bytes;
	step.host_bytes = counts->host_bytes;
	usage->exact_ns = counts->exact_ns;
	usage->active_ns = counts->active_ns;
	usage->steps[usage->next] = step;
	usage->next = (usage->next + 1) % HB_USAGE_STEPS;
	usage->n += usage->n < HB_USAGE_STEPS;
}

const struct hb_usage_step *hb_tenant_usage_step(const struct hb_tenant_usage *usage, uint32_t back)
{
	return back < usage->n ? &usage->steps[(usage->next + HB_USAGE_STEPS - 1 - back) % HB_USAGE_STEPS] : NULL;
}

/* --- shares of a GPU --------------------------------------------------------------------- */

static uint32_t limit_ppm(uint64_t ppm)
{
	return ppm < PPM ? (uint32_t)ppm : PPM;
}

void hb_usage_shares_add(struct hb_usage_shares *shares, bool is_low, const struct hb_usage_step *step)
{
	if (!is_low) {
		shares->high_ppm += step->is_exact ? step->share_ppm : 0;
		return;
	}
	shares->has_low = true;
	shares->is_estimated |= !step->is_exact;
	shares->turns_ppm += step->share_ppm;
	shares->active_ppm = step->share_ppm > shares->active_ppm ? step->share_ppm : shares->active_ppm;
}

uint32_t hb_usage_shares_high(const struct hb_usage_shares *shares)
{
	return limit_ppm(shares->high_ppm);
}

uint32_t hb_usage_shares_low(const struct hb_usage_shares *shares)
{
	if (shares->is_estimated)
		return (uint32_t)((uint64_t)shares->active_ppm * (PPM - hb_usage_shares_high(shares)) / PPM);
	return limit_ppm(shares->turns_ppm);
}

/* --- a GPU ------------------------------------------------------------------------------- */

struct hb_gpu_usage *hb_gpu_usage_new(void)
{
	return calloc(1, sizeof(struct hb_gpu_usage));
}

void hb_gpu_usage_forget(struct hb_gpu_usage *usage, uint32_t tenancy)
{
	free(usage->tenants[tenancy]);
	usage->tenants[tenancy] = NULL;
}

void hb_gpu_usage_free(struct hb_gpu_usage *usage)
{
	for (uint32_t i = 0; usage && i < HB_TENANCIES_MAX; i++)
		hb_gpu_usage_forget(usage, i);
	free(usage);
}

static uint64_t read_core_counter(const struct hb_tenant *tenant, const char *name)
{
	static const struct {
		const char *name;
		size_t offset;
	} known[] = {
#define HB_COUNTER(name, unit, what) {#name, offsetof(struct hb_tenant_counters, name)},
#include "core/tenant_counters.def"
	};
	uint64_t value = 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i].name, name) == 0)
			memcpy(&value, (const char *)&tenant->counters + known[i].offset, sizeof value);
	return value;
}

static void read_core_counters(struct hb_usage_counts *counts, const struct hb_tenant *tenant, bool is_low)
{
	counts->latency = tenant->latency;
	counts->exact_ns = tenant->latency ? tenant->latency->sum_ns : (uint64_t)tenant->counters.turn_time;
	if (!is_low)
		counts->counters[HB_USAGE_PREEMPTIONS] = (uint64_t)(tenant->counters.requests_ended -
								    tenant->counters.requests_alone);
	for (int i = HB_USAGE_MISSED; i < HB_USAGE_COUNTERS; i++)
		counts->counters[i] = read_core_counter(tenant, counter_names[i]);
}

static uint64_t limit_bytes(uint64_t bytes)
{
	return bytes < BYTES_MOST ? bytes : BYTES_MOST;
}

static void read_memory(struct hb_usage_counts *counts, const struct hb_tenancy *tenancy, uint32_t gpu_index)
{
	struct hb_elastic_bytes elastic = hb_elastic_count(tenancy, gpu_index);
	uint64_t allocated = limit_bytes(tenancy->page->gpus[gpu_index].used_bytes);
	counts->peer_bytes = limit_bytes(elastic.peer);
	counts->host_bytes = limit_bytes(elastic.away - hb_bytes_least(elastic.away, elastic.peer));
	uint64_t away = counts->peer_bytes + counts->host_bytes;
	counts->memory_bytes = allocated > away ? allocated - away : 0;
}

struct hb_usage_counts hb_gpu_usage_counts(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	const struct hb_tenant *tenant = hb_core_tenant(gpu->core, tenancy->index);
	const struct hb_tenant_measures *measures = &gpu->measures->tenants[tenancy->index];
	struct hb_usage_counts counts = {.active_ns = measures->active_ns};
	read_memory(&counts, tenancy, gpu->tenants[tenancy->index].gpu_index);
	counts.counters[HB_USAGE_LAUNCHES] = measures->launched;
	if (hb_tenancy_is_low(tenancy))
		counts.counters[HB_USAGE_PREEMPTIONS] = measures->preemptions;
	if (tenancy->gpus[0] == gpu)
		counts.counters[HB_USAGE_TAKEOVERS] = hb_status_count(tenancy, HB_COUNT_takeovers);
	if (tenant)
		read_core_counters(&counts, tenant, hb_tenancy_is_low(tenancy));
	return counts;
}

static void add_tenant(struct gpu_step *sum, bool is_low, const struct hb_usage_step *step)
{
	sum->takeovers += step->counters[HB_USAGE_TAKEOVERS];
	if (is_low) {
		sum->low_preemptions += step->counters[HB_USAGE_PREEMPTIONS];
		sum->low_launches += step->counters[HB_USAGE_LAUNCHES];
		sum->low_bytes += step->memory_bytes;
		sum->low_peer_bytes += step->peer_bytes;
		sum->low_host_bytes += step->host_bytes;
	} else {
		sum->high_preemptions += step->counters[HB_USAGE_PREEMPTIONS];
		sum->high_bytes += step->memory_bytes;
	}
}

/* Processes on the GPU that belong to no tenant. */
static void add_not_managed(struct gpu_step *step, const struct hb_gpu *gpu)
{
	uint64_t ppm = 0, bytes = 0;
	bool busy_known = gpu->use && !gpu->use->why[0], bytes_known = busy_known;
	for (uint32_t i = 0; gpu->use && i < gpu->use->n_users; i++) {
		const struct hb_gpu_user *user = &gpu->use->users[i];
		if (hb_gpu_process_is_covered(gpu->daemon, user->pid))
			continue;
		busy_known &= user->busy_ppm != HB_GPU_BUSY_UNKNOWN;
		bytes_known &= user->bytes != HB_GPU_BYTES_UNKNOWN;
		ppm += user->busy_ppm;
		bytes += user->bytes;
	}
	step->not_managed_ppm = busy_known ? limit_ppm(ppm) : HB_USAGE_UNKNOWN;
	step->not_managed_bytes = bytes_known ? bytes : BYTES_UNKNOWN;
	step->used_bytes = gpu->use && gpu->use->total_bytes ? gpu->use->used_bytes : BYTES_UNKNOWN;
}

static void add_step(struct hb_gpu_usage *usage, const struct gpu_step *step)
{
	usage->steps[usage->next] = *step;
	usage->next = (usage->next + 1) % HB_USAGE_STEPS;
	usage->n += usage->n < HB_USAGE_STEPS;
}

void hb_gpu_usage_tick(struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_gpu_usage *usage = gpu->measures->usage;
	struct hb_usage_shares shares = {0};
	struct gpu_step step = {0};
	int64_t step_ns = now_ns - usage->step_end_ns;
	if (!usage->step_end_ns)
		usage->step_end_ns = now_ns;
	if (step_ns < HB_USAGE_STEP_NS || usage->step_end_ns == now_ns)
		return;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		if (!tenancy || hb_tenancy_is_server(tenancy))
			continue;
		if (!usage->tenants[i])
			usage->tenants[i] = calloc(1, sizeof *usage->tenants[i]);
		if (!usage->tenants[i])
			continue;
		struct hb_usage_counts counts = hb_gpu_usage_counts(gpu, tenancy);
		hb_tenant_usage_add(usage->tenants[i], &counts, step_ns);
		const struct hb_usage_step *own = hb_tenant_usage_step(usage->tenants[i], 0);
		hb_usage_shares_add(&shares, hb_tenancy_is_low(tenancy), own);
		add_tenant(&step, hb_tenancy_is_low(tenancy), own);
	}
	step.high_ppm = hb_usage_shares_high(&shares);
	step.low_ppm = hb_usage_shares_low(&shares);
	step.has_low = shares.has_low;
	step.is_estimated = shares.is_estimated;
	add_not_managed(&step, gpu);
	add_step(usage, &step);
	usage->high_ns += (uint64_t)((double)step_ns * step.high_ppm / PPM);
	usage->low_ns += (uint64_t)((double)step_ns * step.low_ppm / PPM);
	usage->step_end_ns = now_ns;
}

static const struct gpu_step *find_step(const struct hb_gpu_usage *usage, uint32_t back)
{
	return &usage->steps[(usage->next + HB_USAGE_STEPS - 1 - back) % HB_USAGE_STEPS];
}

uint32_t hb_gpu_usage_low_active(const struct hb_gpu *gpu, bool *estimated)
{
	const struct hb_gpu_usage *usage = gpu->measures->usage;
	const struct gpu_step *step = find_step(usage, 0);
	bool is_known = usage->n && step->has_low;
	*estimated = is_known && step->is_estimated;
	return is_known ? step->low_ppm : HB_USAGE_UNKNOWN;
}

uint64_t hb_gpu_usage_time(const struct hb_gpu *gpu, bool is_low)
{
	return is_low ? gpu->measures->usage->low_ns : gpu->measures->usage->high_ns;
}

uint32_t hb_gpu_usage_high_ppm(const struct hb_gpu *gpu, uint32_t steps)
{
	const struct hb_gpu_usage *usage = gpu->measures->usage;
	uint32_t n = steps < usage->n ? steps : usage->n;
	uint64_t sum = 0;
	for (uint32_t i = 0; i < n; i++)
		sum += find_step(usage, i)->high_ppm;
	return n ? (uint32_t)(sum / n) : 0;
}

/* --- JSON -------------------------------------------------------------------------------- */

static json_t *share_json(uint32_t ppm)
{
	return ppm == HB_USAGE_UNKNOWN ? json_null() : json_integer(ppm);
}

static json_t *bytes_json(uint64_t bytes)
{
	return bytes == BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)bytes);
}

/* Appends `value` to the list with this name. */
static void append_value(json_t *lists, const char *name, json_t *value)
{
	json_t *list = json_object_get(lists, name);
	if (!list)
		json_object_set_new(lists, name, list = json_array());
	json_array_append_new(list, value);
}

static void append_gpu_step(json_t *lists, const struct gpu_step *step)
{
	append_value(lists, "high_ppm", share_json(step->high_ppm));
	append_value(lists, "low_ppm", share_json(step->low_ppm));
	append_value(lists, "not_managed_ppm", share_json(step->not_managed_ppm));
	append_value(lists, "takeovers", json_integer(step->takeovers));
	append_value(lists, "high_preemptions", json_integer(step->high_preemptions));
	append_value(lists, "low_preemptions", json_integer(step->low_preemptions));
	append_value(lists, "low_launches", json_integer(step->low_launches));
	append_value(lists, "high_bytes", bytes_json(step->high_bytes));
	append_value(lists, "low_bytes", bytes_json(step->low_bytes));
	append_value(lists, "low_peer_bytes", bytes_json(step->low_peer_bytes));
	append_value(lists, "low_host_bytes", bytes_json(step->low_host_bytes));
	append_value(lists, "not_managed_bytes", bytes_json(step->not_managed_bytes));
	append_value(lists, "used_bytes", bytes_json(step->used_bytes));
}

json_t *hb_gpu_usage_json(const struct hb_gpu *gpu, int64_t now_ns)
{
	const struct hb_gpu_usage *usage = gpu->measures->usage;
	int64_t age_ns = usage->step_end_ns ? now_ns - usage->step_end_ns : 0;
	json_t *lists = json_pack("{s:I, s:I}", "step_ns", (json_int_t)HB_USAGE_STEP_NS, "age_ns", (json_int_t)age_ns);
	for (uint32_t i = usage->n; lists && i > 0; i--)
		append_gpu_step(lists, find_step(usage, i - 1));
	return lists;
}

static json_t *latency_json(int64_t ns)
{
	return ns ? json_integer(ns) : json_null();
}

/* Lists that would have nothing but zeros are left out, because most tenants have several of them. */
struct lists_needed {
	bool latency, counters[HB_USAGE_COUNTERS];
};

static struct lists_needed find_lists(const struct hb_tenant_usage *usage)
{
	struct lists_needed needed = {0};
	for (uint32_t step = 0; step < usage->n; step++) {
		needed.latency |= usage->steps[step].requests > 0;
		for (int i = 0; i < HB_USAGE_COUNTERS; i++)
			needed.counters[i] |= usage->steps[step].counters[i] > 0;
	}
	return needed;
}

static void append_tenant_step(json_t *lists, const struct hb_usage_step *step, const struct lists_needed *needed)
{
	append_value(lists, "share_ppm", share_json(step->share_ppm));
	append_value(lists, "memory_bytes", bytes_json(step->memory_bytes));
	if (needed->latency) {
		append_value(lists, "requests", json_integer((json_int_t)step->requests));
		append_value(lists, "p50_ns", latency_json(step->p50_ns));
		append_value(lists, "p99_ns", latency_json(step->p99_ns));
	}
	for (int i = 0; i < HB_USAGE_COUNTERS; i++)
		if (needed->counters[i])
			append_value(lists, counter_names[i], json_integer(step->counters[i]));
}

json_t *hb_tenant_usage_json(const struct hb_gpu *gpu, uint32_t tenancy)
{
	static const struct hb_tenant_usage none;
	const struct hb_tenant_usage *usage = gpu->measures->usage->tenants[tenancy];
	if (!usage)
		usage = &none;
	struct lists_needed needed = find_lists(usage);
	json_t *lists = json_pack("{s:I}", "step_ns", (json_int_t)HB_USAGE_STEP_NS);
	bool estimated = usage->n && !hb_tenant_usage_step(usage, 0)->is_exact;
	json_object_set_new(lists, "estimated", json_boolean(estimated));
	for (uint32_t i = usage->n; i > 0; i--)
		append_tenant_step(lists, hb_tenant_usage_step(usage, i - 1), &needed);
	return lists;
}
