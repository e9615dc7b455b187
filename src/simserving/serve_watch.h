/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an evaluation run of `serve` keeps count of: every request's fate, and
 * how far predictions were off, also those of predictors with parts switched
 * off that watch the same batches. Used by serve_run.c.
 */
#ifndef HB_SIM_SERVE_WATCH_H
#define HB_SIM_SERVE_WATCH_H

#include "base/hist.h"
#include "simserving/serve_run.h"

struct hb_serve_fate {
	int64_t arrival_ns, deadline_ns;
	uint32_t model;
	enum hb_serve_priority priority;
};

struct hb_serve_watch {
	struct hb_serve_fate *requests;
	size_t n, capacity;
	int64_t base_ns, count_from_ns;
	uint64_t arrived[HB_SERVE_MODELS_MAX][HB_SERVE_PRIORITIES], in_time[HB_SERVE_MODELS_MAX][HB_SERVE_PRIORITIES];
	uint64_t late[HB_SERVE_PRIORITIES], refused[HB_SERVE_PRIORITIES], timeouts[HB_SERVE_PRIORITIES];
	uint64_t batches, items;
	struct hb_hist *latency; /* one a priority */
	struct hb_hist *error;   /* one a shadow, in millionths */
	struct hb_hist *run_error, *copy_error;
	struct hb_predictor *shadows;
	uint32_t n_shadows, n_models;
	int failure;
};

int hb_serve_watch_init(struct hb_serve_watch *watch, bool errors);
void hb_serve_watch_fini(struct hb_serve_watch *watch);
void hb_serve_watch_model(struct hb_serve_watch *watch, const struct hb_serve_model *model);
/* As hb_predictor_replace_model(). */
int hb_serve_watch_replace(struct hb_serve_watch *watch, uint32_t number, const struct hb_serve_model *model);
void hb_serve_watch_profiled(struct hb_serve_watch *watch, uint32_t model, uint32_t items,
			     const double stage_ns[HB_STAGES]);
/* The request's cookie. */
uint64_t hb_serve_watch_request(struct hb_serve_watch *watch, int64_t now_ns, uint32_t model,
				enum hb_serve_priority priority, int64_t deadline_ns);
void hb_serve_watch_refused(struct hb_serve_watch *watch, const struct hb_serve_action *action);
void hb_serve_watch_start(struct hb_serve_watch *watch, int64_t now_ns, uint32_t slot,
			  const struct hb_serve_batch *batch);
void hb_serve_watch_stage(struct hb_serve_watch *watch, int64_t now_ns, uint32_t slot, enum hb_serve_stage stage);
void hb_serve_watch_hold(struct hb_serve_watch *watch, int64_t now_ns, uint32_t slot, bool held);
void hb_serve_watch_end(struct hb_serve_watch *watch, int64_t now_ns, uint32_t slot,
			const struct hb_serve_batch *batch);
void hb_serve_watch_result(const struct hb_serve_watch *watch, struct hb_serve_run_result *result);

#endif
