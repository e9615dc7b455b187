/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One evaluation run of the serving scheduler in virtual time: requests of two
 * priorities for several models, one policy, the simulated GPU. A run depends on
 * its options only: same options, same result. Callers: `hb sim-serve` (src/cli),
 * tests.
 *
 * Load is relative to the capacity: the requests per second of this mix that the
 * GPU completes without batching when queues are never empty
 * (hb_serving_capacity()). Each model gets the same share of GPU time. The
 * deadline of a request is its arrival plus a factor times the latency of such a
 * request alone.
 */
#ifndef HB_SIMSERVING_RUN_H
#define HB_SIMSERVING_RUN_H

#include "base/hist.h"
#include "server/scheduler/scheduler.h"
#include "simserving/comparators.h"
#include "simserving/serving_demand.h"
#include "trace/trace.h"

struct hb_serving_run_options {
	const struct hb_trace_set *traces;
	const char *gpu;
	const char *models;      /* rows of serving_models.def, "a,b"; NULL = the usual ones */
	double link_bytes_per_s; /* speed of the host link in each direction; 0 = as in the GPU's file */
	struct hb_scheduler_config config;
	double load;           /* 1 = the capacity */
	double capacity_per_s; /* requests per second; 0 = measure it first */
	enum hb_demand_source demand;
	const char *traffic; /* poisson, bursts, or trace:FILE (sim/arrivals.h) */
	double high_share;   /* share of high-priority requests, 0..1 */
	double deadline_factor[HB_SCHEDULER_PRIORITIES];
	double seconds;
	uint64_t seed;
	bool errors; /* the run also measures the errors of predictors with parts switched off */
};

/* Results of one priority. */
struct hb_serving_class_result {
	uint64_t requests, in_time, late, refused, timeouts;
	double violations;      /* share of requests that were not completed in time */
	double fairness;        /* Jain's index of the models' shares of requests in time */
	int64_t p50_ns, p99_ns; /* latency of completed requests */
};

/* Predictors that run side by side: the complete one, and ones with parts switched off. */
enum hb_serving_shadow {
	HB_SHADOW_FULL,
	HB_SHADOW_NO_TRANSFER,
	HB_SHADOW_NO_INTERFERENCE,
	HB_SHADOW_NEITHER,
	HB_SHADOWS
};
/* Rows of errors: the predictors above, then those of comparators.h. */
#define HB_ERROR_ROWS (HB_SHADOWS + HB_COMPARATORS)

struct hb_serving_error_result {
	uint64_t batches;
	double median, p95; /* |predicted - actual| / actual of batches, predicted at their start */
	/*
	 * Errors of the predicted progress, given the batches that really ran beside it: |accounted work - work| / work of
	 * each run, and of each copy. Comparators have none.
	 */
	double run_median, run_p95;
	double copy_median, copy_p95;
};

struct hb_serving_run_result {
	double capacity_per_s, offered_per_s;
	uint32_t n_models;
	struct hb_serving_class_result class[HB_SCHEDULER_PRIORITIES];
	struct hb_scheduler_counts counts;
	double gpu_busy, items_a_batch;
	struct hb_serving_error_result error[HB_ERROR_ROWS];
	double model_in_time[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	double model_alone_ns[HB_SCHEDULER_MODELS_MAX];
	char model_name[HB_SCHEDULER_MODELS_MAX][64];
};

void hb_serving_run_options_init(struct hb_serving_run_options *options);
/* Executes a run. Returns 0, -EINVAL, -ENOENT or -ENOMEM. *result is written on success only. */
int hb_serving_run(const struct hb_serving_run_options *options, struct hb_serving_run_result *result,
		   struct hb_error *error);
/* Measures the capacity: requests per second of the mix when queues are never empty. */
int hb_serving_capacity(const struct hb_serving_run_options *options, double *per_s, struct hb_error *error);

#endif
