/* SPDX-License-Identifier: Apache-2.0 */
/* The runs of a study, and how they are written; see cluster_study.h. */
#include "cluster/cluster_study.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>

#define OURS (HB_CLUSTER_RULES - 1) /* the last row of hb_cluster_rules */

static const char *const arrivals_names[] = {"recorded", "at-once", "limited"};
static const char *const arrivals_titles[] = {
	"Pods come and go as recorded; there is always another GPU",
	"All pods are there at once and stay; there is always another GPU",
	"Pods come as recorded, and LP uses the GPUs that the other pods need",
};
static const char *const bound_names[] = {"any", "fleet", "each"};

static const char *const assumptions[] = {
	"All GPUs are equal; processors, memory and the network never limit a placement.",
	"The memory of a service and of a job fits together on one GPU.",
	"A service (LS) and a job (BE) that each ask for one GPU may share it; two services or two jobs never share.",
	"Pods on several GPUs, and Burstable and Guaranteed pods, have their GPUs to themselves.",
	"The trace does not say what a pod runs: each pod draws one of four measured services or two measured jobs, and a duty of the fleet.",
	"A service's duty does not change while it runs. The time in which its requests run is the GPU's duty divided by the share of a request in which the GPU works.",
	"A job moves to no other GPU while it runs; an evicted job begins again.",
	"Every GPU behaves like the H200 on which the pairs were measured.",
};

static int run_row(struct hb_cluster_study *study, struct hb_cluster_row row, uint32_t baseline_gpus,
		   struct hb_error *error)
{
	struct hb_cluster_setup setup = {.pods = study->pods,
					 .duty = study->duty,
					 .model = study->model,
					 .rule = row.rule,
					 .arrivals = row.arrivals,
					 .n_gpus = study->n_gpus,
					 .most_loss = row.most_loss,
					 .higher_loss = row.higher_loss,
					 .n_higher = row.n_higher,
					 .duty_factor = row.duty_factor,
					 .truth = row.truth};
	int rc = row.bound == HB_CLUSTER_FLEET && row.truth == 1
			 ? hb_cluster_fit(&setup, study->within, &row.result, error)
			 : hb_cluster_run(&setup, &row.result, error);
	if (rc)
		return rc;
	if (study->n_rows + study->n_sensitivity == HB_CLUSTER_ROWS_MAX)
		return hb_error_set(error, -E2BIG, "more than %d runs", HB_CLUSTER_ROWS_MAX);
	row.most_loss = setup.most_loss;
	row.higher_loss = setup.higher_loss;
	row.n_higher = setup.n_higher;
	row.gpus_saved = baseline_gpus ? 1 - (double)row.result.gpus / baseline_gpus : 0;
	study->rows[study->n_rows + study->n_sensitivity] = row;
	return 0;
}

/* The runs of one kind of arrivals. Without bound a rule that shares lets any pair share. */
static int run_arrivals(struct hb_cluster_study *study, enum hb_cluster_arrivals arrivals, struct hb_error *error)
{
	uint32_t baseline_gpus = 0;
	int rc = 0;
	for (uint32_t rule = 0; rule < HB_CLUSTER_RULES && !rc; rule++) {
		if (!(study->rules & (1u << rule)))
			continue;
		uint32_t bounds = hb_cluster_rules[rule].sharings ? HB_CLUSTER_BOUNDS : 1;
		for (uint32_t bound = 0; bound < bounds && !rc; bound++) {
			struct hb_cluster_row row = {.rule = &hb_cluster_rules[rule],
						     .arrivals = arrivals,
						     .bound = bound,
						     .most_loss = bound == HB_CLUSTER_EACH_PAIR ? study->within : 1,
						     .truth = 1,
						     .duty_factor = study->duty_factor};
			rc = run_row(study, row, baseline_gpus, error);
			if (!rc && rule == 0)
				baseline_gpus = study->rows[study->n_rows].result.gpus;
			study->n_rows += !rc;
		}
	}
	return rc;
}

/* "ours" where the model is wrong by a fifth, and where services are busier. It decides as it did when the model was right. */
static int run_sensitivity(struct hb_cluster_study *study, enum hb_cluster_arrivals arrivals, struct hb_error *error)
{
	static const double truths[] = {0.8, 1.2, 1, 1}, duties[] = {1, 1, 2, 4};
	const struct hb_cluster_row *base = NULL;
	uint32_t baseline_gpus = 0;
	for (uint32_t i = 0; i < study->n_rows; i++) {
		const struct hb_cluster_row *row = &study->rows[i];
		if (row->arrivals == arrivals && row->rule == &hb_cluster_rules[0])
			baseline_gpus = row->result.gpus;
		if (row->arrivals == arrivals && row->rule == &hb_cluster_rules[OURS] && row->bound == HB_CLUSTER_FLEET)
			base = row;
	}
	int rc = 0;
	for (uint32_t i = 0; base && i < sizeof truths / sizeof truths[0] && !rc; i++) {
		struct hb_cluster_row row = *base;
		row.truth = truths[i];
		row.duty_factor = study->duty_factor * duties[i];
		rc = run_row(study, row, baseline_gpus, error);
		study->n_sensitivity += !rc;
	}
	return rc;
}

/* The GPUs that pods need which are not LP, each on its own. */
static int size_limited(struct hb_cluster_study *study, struct hb_error *error)
{
	struct hb_pods pods = {.pods = study->pods->n ? malloc(study->pods->n * sizeof *pods.pods) : NULL};
	struct hb_cluster_result result;
	if (!pods.pods)
		return hb_error_set(error, -ENOMEM, "out of memory for %u pods", study->pods->n);
	for (uint32_t i = 0; i < study->pods->n; i++)
		if (study->pods->pods[i].class != HB_POD_LOW)
			pods.pods[pods.n++] = study->pods->pods[i];
	struct hb_cluster_setup setup = {.pods = &pods,
					 .duty = study->duty,
					 .model = study->model,
					 .rule = &hb_cluster_rules[0],
					 .arrivals = HB_CLUSTER_RECORDED,
					 .duty_factor = 1,
					 .truth = 1};
	int rc = hb_cluster_run(&setup, &result, error);
	free(pods.pods);
	study->n_gpus = rc ? 0 : result.gpus ? result.gpus : 1;
	return rc;
}

int hb_cluster_study_run(struct hb_cluster_study *study, struct hb_error *error)
{
	int rc = study->n_gpus ? 0 : size_limited(study, error);
	for (uint32_t i = 0; i < study->pods->n && !rc; i++)
		if (study->pods->pods[i].n_gpus > study->n_gpus && study->pods->pods[i].run_s >= 0)
			rc = hb_error_set(error, -EINVAL, "a pod asks for %u GPUs, but the limited cluster has %u",
					  study->pods->pods[i].n_gpus, study->n_gpus);
	study->n_rows = study->n_sensitivity = 0;
	for (uint32_t arrivals = 0; arrivals <= HB_CLUSTER_LIMITED && !rc; arrivals++)
		rc = run_arrivals(study, arrivals, error);
	for (uint32_t arrivals = 0; arrivals <= HB_CLUSTER_LIMITED && !rc; arrivals++)
		rc = run_sensitivity(study, arrivals, error);
	return rc;
}

/* --- table --------------------------------------------------------------------------------------------------------- */

static void write_head(FILE *out, enum hb_cluster_arrivals arrivals)
{
	fprintf(out, "\n%s\n%-11s %-6s %8s %7s %9s %7s %7s", arrivals_titles[arrivals], "rule", "bound", "GPUs",
		"saved", "harvested", "loss", "worst");
	if (arrivals != HB_CLUSTER_AT_ONCE)
		fprintf(out, " %10s %10s %9s", "LP wait", "LP time", "evictions");
	fputc('\n', out);
}

static void write_row(FILE *out, const struct hb_cluster_row *row)
{
	const struct hb_cluster_result *r = &row->result;
	fprintf(out, "%-11s %-6s %8u %6.1f%% %9.0f %7.2f %7.2f", row->rule->name, bound_names[row->bound], r->gpus,
		100 * row->gpus_saved, r->harvested_hours, 100 * r->loss, 100 * r->worst_loss);
	if (row->arrivals != HB_CLUSTER_AT_ONCE)
		fprintf(out, " %9.0fs %9.2fx %9u", r->wait_mean_s, r->completion_mean, r->evictions);
}

static void write_model(FILE *out, const struct hb_pair_model *model)
{
	fprintf(out,
		"\nError of the pair model for measured rows that it had not seen (mean absolute error)\n%-11s %6s %18s %12s\n",
		"sharing", "rows", "attainment, points", "LP speed, %");
	for (uint32_t sharing = 0; sharing < HB_PAIR_SHARINGS; sharing++) {
		struct hb_pair_error error = hb_pair_hold_out(model, sharing);
		fprintf(out, "%-11s %6u %18.1f %12.1f\n", hb_pair_sharing_names[sharing], error.rows, 100 * error.loss,
			100 * error.speed);
	}
}

void hb_cluster_study_write(FILE *out, const struct hb_cluster_study *study)
{
	fprintf(out,
		"%u pods that ask for GPUs; %u GPUs where they are limited; a bound of %.2f points of attainment\n",
		study->pods->n, study->n_gpus, 100 * study->within);
	for (uint32_t i = 0; i < study->n_rows; i++) {
		if (i == 0 || study->rows[i].arrivals != study->rows[i - 1].arrivals)
			write_head(out, study->rows[i].arrivals);
		write_row(out, &study->rows[i]);
		fputc('\n', out);
	}
	fputs("\nSensitivity of the last rule, with its choice of pairs from above for other losses and slowdowns\n",
	      out);
	for (uint32_t i = study->n_rows; i < study->n_rows + study->n_sensitivity; i++) {
		const struct hb_cluster_row *row = &study->rows[i];
		fprintf(out, "%-9s losses x %.1f, duty x %.1f: ", arrivals_names[row->arrivals], row->truth,
			row->duty_factor);
		write_row(out, row);
		fputc('\n', out);
	}
	write_model(out, study->model);
	fputs("\nAssumptions\n", out);
	for (uint32_t i = 0; i < sizeof assumptions / sizeof assumptions[0]; i++)
		fprintf(out, "- %s\n", assumptions[i]);
}

/* --- JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *pack_row(const struct hb_cluster_row *row)
{
	const struct hb_cluster_result *r = &row->result;
	json_t *at_once_has_none = row->arrivals == HB_CLUSTER_AT_ONCE ? json_null() : NULL;
	json_t *object = json_pack(
		"{s:s, s:s, s:s, s:f, s:f, s:f, s:i, s:i, s:i, s:f, s:i, s:f, s:f, s:f}", "arrivals",
		arrivals_names[row->arrivals], "rule", row->rule->name, "bound", bound_names[row->bound], "most_loss",
		row->most_loss, "truth", row->truth, "duty_factor", row->duty_factor, "pods", (int)r->pods, "skipped",
		(int)r->skipped, "gpus", (int)r->gpus, "gpus_saved", row->gpus_saved, "services_shared",
		(int)r->shared_high, "loss", r->loss, "worst_loss", r->worst_loss, "harvested", r->harvested_hours);
	json_t *times = at_once_has_none
				? at_once_has_none
				: json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:i}", "gpu_hours",
					    r->gpu_hours, "low_hours", r->low_hours, "lost_hours", r->lost_hours,
					    "wait_mean_s", r->wait_mean_s, "wait_p99_s", r->wait_p99_s,
					    "completion_mean", r->completion_mean, "completion_p99", r->completion_p99,
					    "completion_most", r->completion_most, "evictions", (int)r->evictions,
					    "unfinished", (int)r->unfinished, "high_waited", (int)r->high_waited);
	if (json_object_set_new(object, "times", times)) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static json_t *pack_rows(const struct hb_cluster_study *study, uint32_t from, uint32_t n)
{
	json_t *array = json_array();
	for (uint32_t i = from; i < from + n; i++)
		if (json_array_append_new(array, pack_row(&study->rows[i]))) {
			json_decref(array);
			return NULL;
		}
	return array;
}

static json_t *pack_model(const struct hb_pair_model *model)
{
	json_t *array = json_array();
	for (uint32_t sharing = 0; sharing < HB_PAIR_SHARINGS; sharing++) {
		struct hb_pair_error error = hb_pair_hold_out(model, sharing);
		json_array_append_new(array, json_pack("{s:s, s:i, s:f, s:f}", "sharing",
						       hb_pair_sharing_names[sharing], "rows", (int)error.rows,
						       "error_of_loss", error.loss, "error_of_speed", error.speed));
	}
	return array;
}

static json_t *pack_texts(void)
{
	json_t *array = json_array();
	for (uint32_t i = 0; i < sizeof assumptions / sizeof assumptions[0]; i++)
		json_array_append_new(array, json_string(assumptions[i]));
	return array;
}

static json_t *pack_rules(void)
{
	json_t *object = json_object();
	for (uint32_t i = 0; i < HB_CLUSTER_RULES; i++)
		json_object_set_new(object, hb_cluster_rules[i].name, json_string(hb_cluster_rules[i].about));
	return object;
}

int hb_cluster_study_pack(const struct hb_cluster_study *study, json_t **root, struct hb_error *error)
{
	*root = hb_json_pack(error, "{s:s, s:i, s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:o}", "kind", "cluster", "version",
			     1, "pods", (int)study->pods->n, "limited_gpus", (int)study->n_gpus, "within",
			     study->within, "rules", pack_rules(), "rows", pack_rows(study, 0, study->n_rows),
			     "sensitivity", pack_rows(study, study->n_rows, study->n_sensitivity), "model",
			     pack_model(study->model), "assumptions", pack_texts());
	return *root ? 0 : -ENOMEM;
}
