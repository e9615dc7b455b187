/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One evaluation run of `serve` in virtual time: requests of two priorities for
 * every model of serving_models.def against a policy, on the simulated GPU. The
 * struct of options is everything a run depends on: same options, same result.
 * Callers: `hb sim-serve` (src/cli), tests.
 *
 * Load is a share of capacity: the requests a second of this mix that get
 * through one by one, without batching, when queues never run dry
 * (hb_serving_capacity). Each model gets the same share of GPU time; a request's deadline is its arrival plus a factor times the
 * latency of one such request alone.
 */
#ifndef HB_SIM_SERVE_RUN_H
#define HB_SIM_SERVE_RUN_H

#include "base/hist.h"
#include "server/scheduler/scheduler.h"
#include "trace/trace.h"

struct hb_serving_run_options {
	const struct hb_trace_set *traces;
	const char *gpu;
	const char *models;      /* of serving_models.def, "a,b"; NULL = the usual ones */
	double link_bytes_per_s; /* between host and GPU, where that is not the GPU's own; 0 = it is */
	struct hb_scheduler_config config;
	double load;           /* of capacity */
	double capacity_per_s; /* requests a second; 0 = measure it first */
	bool bursts;
	double high_share; /* of requests */
	double deadline_factor[HB_SCHEDULER_PRIORITIES];
	double seconds;
	uint64_t seed;
	bool errors; /* also ask predictors with parts switched off */
};

struct hb_serving_class_result {
	uint64_t requests, in_time, late, refused, timeouts;
	double violations;      /* share of requests that were not done in time */
	double fairness;        /* Jain's index of the models' shares in time */
	int64_t p50_ns, p99_ns; /* of those done */
};

/* Predictors asked side by side: all parts, and parts switched off. */
enum hb_serving_shadow {
	HB_SHADOW_FULL,
	HB_SHADOW_NO_TRANSFER,
	HB_SHADOW_NO_INTERFERENCE,
	HB_SHADOW_NEITHER,
	HB_SHADOWS
};

struct hb_serving_error_result {
	uint64_t batches;
	double median, p95; /* of |predicted - actual| / actual, start to end, as predicted at the start */
	double run_median,
		run_p95; /* of the run, with the company it came to have: |work accounted for - work| / work */
	double copy_median, copy_p95; /* of its copies, likewise */
};

struct hb_serving_run_result {
	double capacity_per_s, offered_per_s;
	uint32_t n_models;
	struct hb_serving_class_result class[HB_SCHEDULER_PRIORITIES];
	struct hb_scheduler_counts counts;
	double gpu_busy, items_a_batch;
	struct hb_serving_error_result error[HB_SHADOWS];
	double model_in_time[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	double model_alone_ns[HB_SCHEDULER_MODELS_MAX];
	char model_name[HB_SCHEDULER_MODELS_MAX][64];
};

void hb_serving_run_options_init(struct hb_serving_run_options *options);
/* 0, -EINVAL, -ENOENT, -ENOMEM. *result written only on success. */
int hb_serving_run(const struct hb_serving_run_options *options, struct hb_serving_run_result *result,
		   struct hb_error *error);
/* Requests a second of the mix when queues never run dry. */
int hb_serving_capacity(const struct hb_serving_run_options *options, double *per_s, struct hb_error *error);

#endif
