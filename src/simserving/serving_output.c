/* SPDX-License-Identifier: Apache-2.0 */
/* Results of evaluation runs as a table and as JSON; see serving_output.h. */
#include "simserving/serving_output.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <string.h>

void hb_serving_table_write(FILE *out, const struct hb_serving_row *rows, size_t n)
{
	fprintf(out, "%-20s %5s %-7s %12s %12s %10s %10s %8s %8s %8s\n", "policy", "load", "traffic", "HP missed %",
		"LP missed %", "HP p99 ms", "LP p99 ms", "LP fair", "batch", "GPU");
	for (size_t i = 0; i < n; i++) {
		const struct hb_serving_run_result *result = &rows[i].result;
		const struct hb_serving_class_result *high = &result->class[HB_SCHEDULER_HIGH];
		const struct hb_serving_class_result *low = &result->class[HB_SCHEDULER_LOW];
		fprintf(out, "%-20s %4.0f%% %-7s %12.2f %12.2f %10.2f %10.2f %8.3f %8.2f %7.0f%%\n", rows[i].policy,
			100 * rows[i].load, strncmp(rows[i].traffic, "trace:", 6) == 0 ? "trace" : rows[i].traffic,
			100 * high->violations, 100 * low->violations, (double)high->p99_ns / 1e6,
			(double)low->p99_ns / 1e6, low->fairness, result->items_a_batch, 100 * result->gpu_busy);
	}
}

/* Rounds to millionths, so that no digit depends on the order of additions; null if not finite. */
static json_t *pack_number(double value)
{
	return isfinite(value) ? json_real(round(value * 1e6) / 1e6) : json_null();
}

/* Appends an element. If either is NULL, releases the list and returns NULL. */
static json_t *append_element(json_t *list, json_t *element)
{
	if (list && element && json_array_append_new(list, element) == 0)
		return list;
	json_decref(list);
	return NULL;
}

static json_t *pack_class(const struct hb_serving_class_result *class, struct hb_error *error)
{
	return hb_json_pack(error, "{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "requests",
			    (json_int_t) class->requests, "in_time", (json_int_t) class->in_time, "late",
			    (json_int_t) class->late, "refused", (json_int_t) class->refused, "timeouts",
			    (json_int_t) class->timeouts, "violations", pack_number(class->violations), "fairness",
			    pack_number(class->fairness), "p50_us", pack_number((double)class->p50_ns / 1e3), "p99_us",
			    pack_number((double)class->p99_ns / 1e3));
}

static json_t *pack_errors_of(const struct hb_serving_error_result *one, bool parts, struct hb_error *error)
{
	if (!parts)
		return hb_json_pack(error, "{s:I, s:o, s:o}", "batches", (json_int_t)one->batches, "median",
				    pack_number(one->median), "p95", pack_number(one->p95));
	return hb_json_pack(error, "{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "batches", (json_int_t)one->batches, "median",
			    pack_number(one->median), "p95", pack_number(one->p95), "run_median",
			    pack_number(one->run_median), "run_p95", pack_number(one->run_p95), "copy_median",
			    pack_number(one->copy_median), "copy_p95", pack_number(one->copy_p95));
}

json_t *hb_serving_errors_pack(const struct hb_serving_error_result *errors, struct hb_error *error)
{
	static const char *const names[HB_ERROR_ROWS] = {
		"all_parts", "no_transfer", "no_interference", "neither", "static_regression", "sgd", "ewma"};
	json_t *object = json_object();
	for (int i = 0; i < HB_ERROR_ROWS && object; i++) {
		json_t *value = pack_errors_of(&errors[i], i < HB_SHADOWS, error);
		if (!value || json_object_set_new(object, names[i], value)) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *pack_models(const struct hb_serving_run_result *result, struct hb_error *error)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < result->n_models && list; i++)
		list = append_element(
			list, hb_json_pack(error, "{s:s, s:o, s:o, s:o}", "model", result->model_name[i], "alone_us",
					   pack_number(result->model_alone_ns[i] / 1e3), "high_in_time",
					   pack_number(result->model_in_time[i][HB_SCHEDULER_HIGH]), "low_in_time",
					   pack_number(result->model_in_time[i][HB_SCHEDULER_LOW])));
	return list;
}

static json_t *pack_row(const struct hb_serving_row *row, bool errors, struct hb_error *error)
{
	const struct hb_serving_run_result *result = &row->result;
	return hb_json_pack(
		error, "{s:s, s:o, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "policy", row->policy,
		"load", pack_number(row->load), "traffic", row->traffic, "seed", (json_int_t)row->seed, "offered_per_s",
		pack_number(result->offered_per_s), "high", pack_class(&result->class[HB_SCHEDULER_HIGH], error), "low",
		pack_class(&result->class[HB_SCHEDULER_LOW], error), "models", pack_models(result, error), "gpu_busy",
		pack_number(result->gpu_busy), "items_a_batch", pack_number(result->items_a_batch), "aged_batches",
		(json_int_t)result->counts.aged, "pauses", (json_int_t)result->counts.pauses, "prediction_error",
		errors ? hb_serving_errors_pack(result->error, error) : json_null());
}

int hb_serving_json_write(FILE *out, const struct hb_serving_run_options *options, const struct hb_serving_row *rows,
			  size_t n, struct hb_error *error)
{
	json_t *runs = json_array();
	for (size_t i = 0; i < n && runs; i++)
		runs = append_element(runs, pack_row(&rows[i], options->errors, error));
	if (!runs)
		return -EINVAL;
	json_t *root = hb_json_pack(
		error, "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:o}", "gpu", options->gpu, "link_bytes_per_s",
		options->link_bytes_per_s > 0 ? pack_number(options->link_bytes_per_s) : json_null(), "capacity_per_s",
		pack_number(options->capacity_per_s), "seconds", pack_number(options->seconds), "high_share",
		pack_number(options->high_share), "high_deadline_factor",
		pack_number(options->deadline_factor[HB_SCHEDULER_HIGH]), "low_deadline_factor",
		pack_number(options->deadline_factor[HB_SCHEDULER_LOW]), "concurrency_of_baselines",
		(int)options->config.concurrency, "slots", (int)options->config.slots, "runs", runs);
	int rc = hb_json_write(root, out, error);
	json_decref(root);
	return rc;
}
