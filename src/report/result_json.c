/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes results as JSON; see output.h. The keys and their order are the interface of `hb sim --json`. A value that does not
 * exist is null: percentiles without requests, the rate of a closed loop, the SLO of a program without an SLO.
 */
#include "report/output.h"

#include "base/json.h"
#include "report/report_parts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *hb_text_pack(const char *text)
{
	json_t *packed = json_string(text);
	char *copy = packed ? NULL : strdup(text);
	if (!copy)
		return packed;
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	packed = json_string(copy);
	free(copy);
	return packed;
}

/* Packs a number rounded to `decimals`, so that its digits do not depend on the order of a sum; null when it is not finite. */
static json_t *pack_number(double value, int decimals)
{
	if (!isfinite(value))
		return json_null();
	double scale = pow(10, decimals);
	return json_real(round(value * scale) / scale);
}

static json_t *pack_microseconds(int64_t ns, bool known)
{
	return known ? pack_number((double)ns / 1e3, 3) : json_null();
}

static json_t *pack_times(const int64_t *times_ns, uint64_t n)
{
	json_t *list = json_array();
	for (uint64_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(times_ns[i]));
	return list;
}

static json_t *pack_high(const struct hb_sim_high *high, bool latencies, struct hb_error *error)
{
	bool known = high->requests > 0;
	json_t *packed = hb_json_pack(
		error, "{s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "workload", hb_text_pack(high->workload),
		"rate_per_s", high->rate_per_s > 0 ? pack_number(high->rate_per_s, 6) : json_null(), "requests",
		(json_int_t)high->requests, "p50_us", pack_microseconds(high->p50_ns, known), "p90_us",
		pack_microseconds(high->p90_ns, known), "p99_us", pack_microseconds(high->p99_ns, known), "max_us",
		pack_microseconds(high->max_ns, known), "slo_us", pack_microseconds(high->slo_ns, high->slo_ns > 0),
		"attainment", pack_number(high->attainment, 6));
	if (packed && latencies) {
		json_object_set_new(packed, "latency_ns", pack_times(high->latency_ns, high->requests));
		json_object_set_new(packed, "end_ns", pack_times(high->end_ns, high->requests));
	}
	return packed;
}

static json_t *pack_low(const struct hb_sim_low *low, struct hb_error *error)
{
	return hb_json_pack(error, "{s:o, s:o, s:o}", "workload", hb_text_pack(low->workload), "iterations_per_s",
			    pack_number(low->iterations_per_s, 6), "relative", pack_number(low->relative, 6));
}

/* Appends `element` and returns `list`. When `element` is NULL, releases `list` and returns NULL. */
static json_t *append_element(json_t *list, json_t *element)
{
	if (list && element && json_array_append_new(list, element) == 0)
		return list;
	json_decref(list);
	return NULL;
}

static json_t *pack_intervals(const struct hb_sim_result *result, struct hb_error *error)
{
	json_t *list = json_array();
	for (size_t i = 0; i < result->n_intervals && list; i++) {
		const struct hb_sim_interval *interval = &result->intervals[i];
		bool known = interval->requests > 0;
		list = append_element(list, hb_json_pack(error, "{s:I, s:o, s:o, s:o}", "requests",
							 (json_int_t)interval->requests, "p50_us",
							 pack_microseconds(interval->p50_ns, known), "p99_us",
							 pack_microseconds(interval->p99_ns, known), "low_relative",
							 pack_number(interval->low, 6)));
	}
	return list;
}

json_t *hb_result_json_pack(const struct hb_sim_result *result, bool latencies, struct hb_error *error)
{
	json_t *high = json_array();
	json_t *low = json_array();
	for (uint32_t i = 0; i < result->n_high && high; i++)
		high = append_element(high, pack_high(&result->high[i], latencies, error));
	for (uint32_t i = 0; i < result->n_low && low; i++)
		low = append_element(low, pack_low(&result->low[i], error));
	json_t *packed = hb_json_pack(error, "{s:s, s:s, s:o, s:I, s:o, s:o, s:o, s:o}", "gpu", result->gpu, "sharing",
				      result->sharing, "seconds", pack_number(result->seconds, 9), "seed",
				      (json_int_t)result->seed, "high", high, "low", low, "gpu_busy",
				      pack_number(result->gpu_busy, 6), "wall_s", pack_number(result->wall_s, 3));
	if (packed && result->n_intervals)
		json_object_set_new(packed, "intervals", pack_intervals(result, error));
	return packed;
}

int hb_result_json_write(FILE *out, const struct hb_sim_result *results, size_t n, bool array, bool latencies,
			 struct hb_error *error)
{
	json_t *root = array ? json_array() : NULL;
	for (size_t i = 0; i < n; i++) {
		json_t *object = hb_result_json_pack(&results[i], latencies, error);
		root = array ? append_element(root, object) : object;
		if (!root)
			return -EINVAL;
	}
	int rc = hb_json_write(root, out, error);
	json_decref(root);
	return rc;
}
