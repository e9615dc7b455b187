/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of an evaluation run; see serving_watch.h. */
#include "simserving/serving_watch.h"

#include "server/scheduler/fairness.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Relative errors are recorded as integers: error * MILLION. */
#define MILLION 1e6
#define ERROR_MOST (1e6 * MILLION)

int hb_serving_watch_init(struct hb_serving_watch *watch, bool errors)
{
	static const struct hb_predictor_parts parts[HB_SHADOWS] = {
		[HB_SHADOW_FULL] = {true, true},
		[HB_SHADOW_NO_TRANSFER] = {false, true},
		[HB_SHADOW_NO_INTERFERENCE] = {true, false},
		[HB_SHADOW_NEITHER] = {false, false},
	};
	*watch = (struct hb_serving_watch){.n_shadows = errors ? HB_SHADOWS : 0};
	watch->latency = calloc(HB_SCHEDULER_PRIORITIES, sizeof *watch->latency);
	watch->error = calloc(HB_ERROR_ROWS, sizeof *watch->error);
	watch->run_error = calloc(HB_ERROR_ROWS, sizeof *watch->run_error);
	watch->copy_error = calloc(HB_ERROR_ROWS, sizeof *watch->copy_error);
	watch->shadows = calloc(HB_SHADOWS, sizeof *watch->shadows);
	watch->comparators = malloc(sizeof *watch->comparators);
	if (!watch->latency || !watch->error || !watch->run_error || !watch->copy_error || !watch->shadows ||
	    !watch->comparators)
		return -ENOMEM;
	hb_comparators_init(watch->comparators);
	for (uint32_t i = 0; i < watch->n_shadows; i++)
		hb_predictor_init(&watch->shadows[i], parts[i]);
	return 0;
}

void hb_serving_watch_fini(struct hb_serving_watch *watch)
{
	free(watch->requests);
	free(watch->latency);
	free(watch->error);
	free(watch->run_error);
	free(watch->copy_error);
	free(watch->shadows);
	free(watch->comparators);
}

void hb_serving_watch_model(struct hb_serving_watch *watch, const struct hb_scheduler_model *model)
{
	watch->n_models++;
	for (uint32_t i = 0; i < watch->n_shadows; i++)
		hb_predictor_add_model(&watch->shadows[i], model);
}

int hb_serving_watch_replace(struct hb_serving_watch *watch, uint32_t number, const struct hb_scheduler_model *model)
{
	int result = 0;
	for (uint32_t i = 0; i < watch->n_shadows && result == 0; i++)
		result = hb_predictor_replace_model(&watch->shadows[i], number, model);
	if (result == 0)
		hb_comparators_replace(watch->comparators, number);
	return result;
}

int hb_serving_watch_set_demand(struct hb_serving_watch *watch, uint32_t number, const struct hb_demand *demand)
{
	int result = 0;
	for (uint32_t i = 0; i < watch->n_shadows && result == 0; i++)
		result = hb_predictor_set_demand(&watch->shadows[i], number, demand);
	return result;
}

void hb_serving_watch_profiled(struct hb_serving_watch *watch, uint32_t model, uint32_t items,
			       const double stage_ns[HB_STAGES])
{
	for (uint32_t i = 0; i < watch->n_shadows; i++)
		hb_predictor_profiled(&watch->shadows[i], model, items, stage_ns);
}

static bool is_counted(const struct hb_serving_watch *watch, const struct hb_serving_request *request)
{
	return request->arrival_ns >= watch->count_from_ns;
}

uint64_t hb_serving_watch_request(struct hb_serving_watch *watch, int64_t now_ns, uint32_t model,
				  enum hb_scheduler_priority priority, int64_t deadline_ns)
{
	struct hb_serving_request request = {now_ns, deadline_ns, model, priority};
	if (watch->n == watch->capacity) {
		size_t capacity = watch->capacity ? 2 * watch->capacity : 1024;
		struct hb_serving_request *requests = realloc(watch->requests, capacity * sizeof *requests);
		if (!requests) {
			watch->failure = -ENOMEM;
			return 0;
		}
		watch->requests = requests;
		watch->capacity = capacity;
	}
	watch->requests[watch->n] = request;
	watch->arrived[model][priority] += is_counted(watch, &request);
	return watch->n++;
}

void hb_serving_watch_refused(struct hb_serving_watch *watch, const struct hb_scheduler_action *action)
{
	const struct hb_serving_request *request = &watch->requests[action->cookie];
	if (is_counted(watch, request))
		(action->reason == HB_SCHEDULER_TIMEOUT ? watch->timeouts : watch->refused)[request->priority]++;
}

void hb_serving_watch_start(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot,
			    const struct hb_scheduler_batch *batch)
{
	watch->batches++;
	watch->items += batch->items;
	for (uint32_t i = 0; i < watch->n_shadows; i++)
		hb_predictor_begin(&watch->shadows[i], now_ns, slot, batch->model, batch->items, batch->priority);
	if (watch->n_shadows)
		hb_comparators_begin(watch->comparators, &watch->shadows[HB_SHADOW_FULL], now_ns, slot);
}

/* A prediction that is no number counts as the largest error. */
static void record_relative(struct hb_hist *hist, double error)
{
	error *= MILLION;
	hb_hist_record(hist, (int64_t)(error < ERROR_MOST ? error : ERROR_MOST));
}

/* Records the error of an ended stage: with exact progress rates its accounted work would equal its total work. */
static void record_stage(struct hb_serving_watch *watch, uint32_t shadow, const struct hb_flight *flight,
			 enum hb_scheduler_stage stage)
{
	double total_ns = flight->total_ns[stage];
	struct hb_hist *errors = stage == HB_STAGE_RUN ? watch->run_error : watch->copy_error;
	bool foreseeable = stage != HB_STAGE_RUN || !flight->was_paused;
	if (flight->begun_ns >= watch->count_from_ns && total_ns > 0 && foreseeable)
		record_relative(&errors[shadow], fabs(flight->done_ns[stage] / total_ns - 1));
}

void hb_serving_watch_stage(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot,
			    enum hb_scheduler_stage stage)
{
	for (uint32_t i = 0; i < watch->n_shadows; i++) {
		const struct hb_flight *flight = &watch->shadows[i].flights[slot];
		enum hb_scheduler_stage before = flight->flow.stage;
		hb_predictor_stage(&watch->shadows[i], now_ns, slot, stage);
		if (stage == before + 1)
			record_stage(watch, i, flight, before);
	}
}

void hb_serving_watch_pause(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot, bool paused)
{
	for (uint32_t i = 0; i < watch->n_shadows; i++)
		hb_predictor_pause(&watch->shadows[i], now_ns, slot, paused);
}

static void record_error(struct hb_serving_watch *watch, uint32_t row, double predicted_ns, double took_ns)
{
	record_relative(&watch->error[row], fabs(predicted_ns - took_ns) / took_ns);
}

static void record_comparators(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot)
{
	const struct hb_flight *flight = &watch->shadows[HB_SHADOW_FULL].flights[slot];
	double took_ns = (double)(now_ns - flight->begun_ns);
	bool counts = flight->begun_ns >= watch->count_from_ns && took_ns > 0 && !flight->was_paused;
	const double *predicted_ns = hb_comparators_end(watch->comparators, now_ns, slot, flight->was_paused);
	for (uint32_t i = 0; i < HB_COMPARATORS && counts; i++)
		record_error(watch, HB_SHADOWS + i, predicted_ns[i], took_ns);
}

static void record_errors(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot)
{
	if (watch->n_shadows)
		record_comparators(watch, now_ns, slot);
	for (uint32_t i = 0; i < watch->n_shadows; i++) {
		const struct hb_flight *flight = &watch->shadows[i].flights[slot];
		double took_ns = (double)(now_ns - flight->begun_ns);
		if (flight->begun_ns >= watch->count_from_ns && took_ns > 0 && !flight->was_paused)
			record_error(watch, i, flight->predicted_ns, took_ns);
		hb_predictor_end(&watch->shadows[i], now_ns, slot, true);
		if (flight->flow.stage == HB_STAGE_OUT)
			record_stage(watch, i, flight, HB_STAGE_OUT);
	}
}

void hb_serving_watch_end(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot,
			  const struct hb_scheduler_batch *batch)
{
	record_errors(watch, now_ns, slot);
	for (uint32_t i = 0; i < batch->n_requests && watch->n; i++) {
		const struct hb_serving_request *request = &watch->requests[batch->cookies[i]];
		if (!is_counted(watch, request))
			continue;
		hb_hist_record(&watch->latency[request->priority], now_ns - request->arrival_ns);
		if (now_ns <= request->deadline_ns)
			watch->in_time[request->model][request->priority]++;
		else
			watch->late[request->priority]++;
	}
}

static void fill_class_result(const struct hb_serving_watch *watch, enum hb_scheduler_priority priority,
			      struct hb_serving_run_result *result)
{
	struct hb_serving_class_result *class = &result->class[priority];
	double share[HB_SCHEDULER_MODELS_MAX];
	for (uint32_t model = 0; model < watch->n_models; model++) {
		uint64_t arrived = watch->arrived[model][priority], in_time = watch->in_time[model][priority];
		class->requests += arrived;
		class->in_time += in_time;
		share[model] = arrived ? (double)in_time / (double)arrived : 1;
		result->model_in_time[model][priority] = share[model];
	}
	class->late = watch->late[priority];
	class->refused = watch->refused[priority];
	class->timeouts = watch->timeouts[priority];
	class->violations = class->requests ? 1 - (double)class->in_time / (double)class->requests : 0;
	class->fairness = hb_jain_index(share, watch->n_models);
	class->p50_ns = hb_hist_percentile(&watch->latency[priority], 0.5);
	class->p99_ns = hb_hist_percentile(&watch->latency[priority], 0.99);
}

void hb_serving_watch_result(const struct hb_serving_watch *watch, struct hb_serving_run_result *result)
{
	for (int priority = 0; priority < HB_SCHEDULER_PRIORITIES; priority++)
		fill_class_result(watch, priority, result);
	for (uint32_t i = 0; i < HB_ERROR_ROWS && watch->n_shadows; i++)
		result->error[i] = (struct hb_serving_error_result){
			.batches = watch->error[i].count,
			.median = (double)hb_hist_percentile(&watch->error[i], 0.5) / MILLION,
			.p95 = (double)hb_hist_percentile(&watch->error[i], 0.95) / MILLION,
			.run_median = (double)hb_hist_percentile(&watch->run_error[i], 0.5) / MILLION,
			.run_p95 = (double)hb_hist_percentile(&watch->run_error[i], 0.95) / MILLION,
			.copy_median = (double)hb_hist_percentile(&watch->copy_error[i], 0.5) / MILLION,
			.copy_p95 = (double)hb_hist_percentile(&watch->copy_error[i], 0.95) / MILLION,
		};
	result->items_a_batch = watch->batches ? (double)watch->items / (double)watch->batches : 0;
}
