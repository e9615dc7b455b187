/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of an evaluation run: how every request ended, and the errors of
 * predictions. "Shadow" predictors with parts switched off receive the events of
 * the same batches, for comparison. Used by serving_run.c and bench/journal.
 */
#ifndef HB_SIMSERVING_WATCH_H
#define HB_SIMSERVING_WATCH_H

#include "base/hist.h"
#include "simserving/serving_run.h"

struct hb_serving_request {
	int64_t arrival_ns, deadline_ns;
	uint32_t model;
	enum hb_scheduler_priority priority;
};

struct hb_serving_watch {
	struct hb_serving_request *requests;
	size_t n, capacity;
	int64_t base_ns,
		count_from_ns; /* start of the arrivals; requests and batches before count_from_ns do not count */
	uint64_t arrived[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES],
		in_time[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	uint64_t late[HB_SCHEDULER_PRIORITIES], refused[HB_SCHEDULER_PRIORITIES], timeouts[HB_SCHEDULER_PRIORITIES];
	uint64_t batches, items;
	struct hb_hist *latency; /* HB_SCHEDULER_PRIORITIES histograms, ns */
	struct hb_hist *error, *run_error,
		*copy_error; /* HB_ERROR_ROWS histograms each, relative errors in millionths */
	struct hb_predictor *shadows;
	struct hb_comparators *comparators;
	uint32_t n_shadows, n_models;
	int failure;
};

/* Initializes the counts; with `errors` also the shadow predictors. Returns 0 or -ENOMEM. */
int hb_serving_watch_init(struct hb_serving_watch *watch, bool errors);
void hb_serving_watch_fini(struct hb_serving_watch *watch);
void hb_serving_watch_model(struct hb_serving_watch *watch, const struct hb_scheduler_model *model);
/* Replaces a model in all predictors, like hb_predictor_replace_model(). */
int hb_serving_watch_replace(struct hb_serving_watch *watch, uint32_t number, const struct hb_scheduler_model *model);
/* Changes the demand of a model in all predictors, like hb_predictor_set_demand(). */
int hb_serving_watch_set_demand(struct hb_serving_watch *watch, uint32_t number, const struct hb_demand *demand);
void hb_serving_watch_profiled(struct hb_serving_watch *watch, uint32_t model, uint32_t items,
			       const double stage_ns[HB_STAGES]);
/* Records a new request and returns its cookie. */
uint64_t hb_serving_watch_request(struct hb_serving_watch *watch, int64_t now_ns, uint32_t model,
				  enum hb_scheduler_priority priority, int64_t deadline_ns);
void hb_serving_watch_refused(struct hb_serving_watch *watch, const struct hb_scheduler_action *action);
void hb_serving_watch_start(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot,
			    const struct hb_scheduler_batch *batch);
void hb_serving_watch_stage(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot,
			    enum hb_scheduler_stage stage);
void hb_serving_watch_pause(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot, bool paused);
void hb_serving_watch_end(struct hb_serving_watch *watch, int64_t now_ns, uint32_t slot,
			  const struct hb_scheduler_batch *batch);
/* Computes the results so far. */
void hb_serving_watch_result(const struct hb_serving_watch *watch, struct hb_serving_run_result *result);

#endif
