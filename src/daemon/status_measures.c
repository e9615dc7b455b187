/* SPDX-License-Identifier: Apache-2.0 */
/* See status_measures.h. */
#include "daemon/status_measures.h"

#include "core/tenant.h"
#include "daemon/daemon.h"

#include <jansson.h>
#include <math.h>

#define BARS 40

/* Returns [[upper bound in ns, samples], ...]: BARS steps, equal on a logarithmic scale, from the smallest sample to the largest. */
static json_t *bars_json(const struct hb_hist *hist)
{
	int64_t bounds[BARS];
	uint64_t at_most[BARS], before = 0;
	json_t *array = json_array();
	double low = hist->min_ns > 1 ? (double)hist->min_ns : 1;
	double step = pow((double)(hist->max_ns > 1 ? hist->max_ns : 1) / low, 1.0 / BARS);
	for (int i = 0; i < BARS; i++)
		bounds[i] = i == BARS - 1 ? INT64_MAX : (int64_t)(low * pow(step, i + 1));
	hb_hist_cumulate(hist, bounds, BARS, at_most);
	for (int i = 0; array && i < BARS; i++) {
		int64_t bound = i == BARS - 1 ? hist->max_ns : bounds[i];
		json_array_append_new(array, json_pack("[I, I]", (json_int_t)bound, (json_int_t)(at_most[i] - before)));
		before = at_most[i];
	}
	return array;
}

json_t *hb_status_hist(const struct hb_hist *hist)
{
	if (!hist || !hist->count)
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "count", (json_int_t)hist->count, "sum_ns",
			 (json_int_t)hist->sum_ns, "p50_ns", (json_int_t)hb_hist_percentile(hist, 0.5), "p99_ns",
			 (json_int_t)hb_hist_percentile(hist, 0.99), "max_ns", (json_int_t)hist->max_ns, "buckets",
			 bars_json(hist));
}

void hb_status_add_measures(json_t *object, const struct hb_gpu *gpu, uint32_t tenancy)
{
	const struct hb_tenant *tenant = hb_core_tenant(gpu->core, tenancy);
	const struct hb_tenant_measures *measures = &gpu->measures->tenants[tenancy];
	const struct hb_tenancy *owner = hb_gpu_tenancy(gpu, tenancy);
	if (owner && !hb_tenancy_is_server(owner)) {
		struct hb_usage_counts counts = hb_gpu_usage_counts(gpu, owner);
		uint64_t used_ns = counts.exact_ns ? counts.exact_ns : counts.active_ns;
		json_object_set_new(object, "used_ns", json_integer((json_int_t)used_ns));
		json_object_set_new(object, "used_estimated", json_boolean(!counts.exact_ns));
		json_object_set_new(object, "preemptions",
				    json_integer((json_int_t)counts.counters[HB_USAGE_PREEMPTIONS]));
	}
	json_object_set_new(object, "latency", hb_status_hist(tenant ? tenant->latency : NULL));
	json_object_set_new(object, "wait", hb_status_hist(measures->wait));
	json_object_set_new(object, "preempted", json_integer((json_int_t)measures->preemptions));
	json_object_set_new(object, "history", hb_tenant_usage_json(gpu, tenancy));
	json_object_set_new(object, "active_ns", json_integer((json_int_t)measures->active_ns));
}
