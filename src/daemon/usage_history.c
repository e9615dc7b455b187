/* SPDX-License-Identifier: Apache-2.0 */
/* The last minutes of one GPU; see usage_history.h. */
#include "daemon/usage_history.h"

#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/gpu_measures.h"
#include "daemon/gpu_processes.h"
#include "gpu/provider.h"

#include <math.h>
#include <stdlib.h>

#define PPM 1000000u
#define BOUNDS_FIRST 10 /* 2^10 ns */
#define BOUNDS_PER_DOUBLING 16

struct gpu_step {
	uint32_t high_ppm, low_ppm, not_managed_ppm;
};

struct hb_gpu_usage {
	int64_t step_end_ns; /* 0 = none yet */
	uint32_t n, next;
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

static struct hb_usage_counts read_counts(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy)
{
	const struct hb_tenant *tenant = hb_core_tenant(gpu->core, tenancy->index);
	struct hb_usage_counts counts = {.active_ns = gpu->measures->tenants[tenancy->index].active_ns};
	counts.latency = tenant ? tenant->latency : NULL;
	if (counts.latency)
		counts.exact_ns = counts.latency->sum_ns;
	else if (tenant)
		counts.exact_ns = (uint64_t)tenant->counters.turn_time;
	return counts;
}

/* The shares of a step, as `hb top` adds them up: turns; or the time with LP launches less the time of HP's requests. */
struct sum_of_step {
	uint32_t high_ppm, turns_ppm, active_ppm;
	bool is_estimated;
};

static void add_tenant(struct sum_of_step *sum, const struct hb_tenancy *tenancy, const struct hb_usage_step *step)
{
	if (!hb_tenancy_is_low(tenancy)) {
		sum->high_ppm += step->is_exact ? step->share_ppm : 0;
		return;
	}
	sum->is_estimated |= !step->is_exact;
	sum->turns_ppm += step->share_ppm;
	sum->active_ppm = step->share_ppm > sum->active_ppm ? step->share_ppm : sum->active_ppm;
}

static uint32_t sum_not_managed(const struct hb_gpu *gpu)
{
	uint32_t sum = 0;
	for (uint32_t i = 0; gpu->use && i < gpu->use->n_users; i++) {
		const struct hb_gpu_user *user = &gpu->use->users[i];
		if (hb_gpu_process_is_covered(gpu->daemon, user->pid))
			continue;
		if (user->busy_ppm == HB_GPU_BUSY_UNKNOWN)
			return HB_USAGE_UNKNOWN;
		sum += user->busy_ppm;
	}
	return !gpu->use || gpu->use->why[0] ? HB_USAGE_UNKNOWN : sum < PPM ? sum : PPM;
}

static uint32_t limit_ppm(uint32_t ppm)
{
	return ppm < PPM ? ppm : PPM;
}

static void add_step(struct hb_gpu_usage *usage, const struct hb_gpu *gpu, const struct sum_of_step *sum)
{
	struct gpu_step step = {.high_ppm = limit_ppm(sum->high_ppm), .not_managed_ppm = sum_not_managed(gpu)};
	step.low_ppm = sum->is_estimated ? (uint32_t)((uint64_t)sum->active_ppm * (PPM - step.high_ppm) / PPM)
					 : limit_ppm(sum->turns_ppm);
	usage->steps[usage->next] = step;
	usage->next = (usage->next + 1) % HB_USAGE_STEPS;
	usage->n += usage->n < HB_USAGE_STEPS;
}

void hb_gpu_usage_tick(struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_gpu_usage *usage = gpu->measures->usage;
	struct sum_of_step sum = {0};
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
		struct hb_usage_counts counts = read_counts(gpu, tenancy);
		hb_tenant_usage_add(usage->tenants[i], &counts, step_ns);
		add_tenant(&sum, tenancy, hb_tenant_usage_step(usage->tenants[i], 0));
	}
	add_step(usage, gpu, &sum);
	usage->step_end_ns = now_ns;
}

/* --- JSON -------------------------------------------------------------------------------- */

static void append_ppm(json_t *list, uint32_t ppm)
{
	json_array_append_new(list, ppm == HB_USAGE_UNKNOWN ? json_null() : json_integer(ppm));
}

json_t *hb_gpu_usage_json(const struct hb_gpu *gpu, int64_t now_ns)
{
	const struct hb_gpu_usage *usage = gpu->measures->usage;
	json_t *high = json_array(), *low = json_array(), *other = json_array();
	for (uint32_t i = usage->n; i > 0; i--) {
		const struct gpu_step *step = &usage->steps[(usage->next + HB_USAGE_STEPS - i) % HB_USAGE_STEPS];
		append_ppm(high, step->high_ppm);
		append_ppm(low, step->low_ppm);
		append_ppm(other, step->not_managed_ppm);
	}
	return json_pack("{s:I, s:I, s:o, s:o, s:o}", "step_ns", (json_int_t)HB_USAGE_STEP_NS, "age_ns",
			 (json_int_t)(usage->step_end_ns ? now_ns - usage->step_end_ns : 0), "high_ppm", high,
			 "low_ppm", low, "not_managed_ppm", other);
}

static json_t *latency_json(int64_t ns)
{
	return ns ? json_integer(ns) : json_null();
}

json_t *hb_tenant_usage_json(const struct hb_gpu *gpu, uint32_t tenancy)
{
	const struct hb_tenant_usage *usage = gpu->measures->usage->tenants[tenancy];
	json_t *shares = json_array(), *requests = json_array(), *p50 = json_array(), *p99 = json_array();
	bool estimated = false;
	for (uint32_t i = usage ? usage->n : 0; i > 0; i--) {
		const struct hb_usage_step *step = hb_tenant_usage_step(usage, i - 1);
		append_ppm(shares, step->share_ppm);
		json_array_append_new(requests, json_integer((json_int_t)step->requests));
		json_array_append_new(p50, latency_json(step->p50_ns));
		json_array_append_new(p99, latency_json(step->p99_ns));
		estimated = !step->is_exact;
	}
	return json_pack("{s:b, s:o, s:o, s:o, s:o}", "estimated", (int)estimated, "share_ppm", shares, "requests",
			 requests, "p50_ns", p50, "p99_ns", p99);
}
