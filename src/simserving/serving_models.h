/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of the serving evaluation: recorded programs made into batches of
 * any size. Used by the trace back end (serving_gpu.c). The rows are in
 * serving_models.def; the rule by which a kernel grows with the batch is
 * scale_kernel() and explained in docs/serving-scheduler.md.
 */
#ifndef HB_SIM_SERVE_MODELS_H
#define HB_SIM_SERVE_MODELS_H

#include "gpumodel/model.h"
#include "server/scheduler/predictor.h"
#include "trace/trace.h"

struct hb_serving_program {
	struct hb_gpu_model_work *works; /* one graph */
	size_t n;
};

struct hb_serving_models {
	uint32_t n;
	struct hb_scheduler_model known[HB_SCHEDULER_MODELS_MAX];
	struct hb_serving_program program[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_BATCH_MAX + 1]; /* by items, from 1 */
};

/* A model to add. What is 0 is as its row of serving_models.def has it. */
struct hb_serving_model_options {
	const char *name;    /* what it is called */
	const char *program; /* a model of serving_models.def, or a recorded program: then an item is one iteration */
	uint32_t max_items;
	double in_bytes, out_bytes; /* an item's */
};

/* The model's number; -EINVAL (no such program), -ENOSPC, -ENOMEM. `models` was zeroed, or initialised. */
int hb_serving_models_add(struct hb_serving_models *models, const struct hb_serving_model_options *wish,
			  const struct hb_trace_set *traces, const struct hb_gpu_spec *spec, struct hb_error *error);
/* In place of another, which must not run any more. The same errors; then nothing has changed. */
int hb_serving_models_replace(struct hb_serving_models *models, uint32_t number,
			      const struct hb_serving_model_options *wish, const struct hb_trace_set *traces,
			      const struct hb_gpu_spec *spec, struct hb_error *error);
/* Of serving_models.def. */
bool hb_serving_model_known(const char *name);
/*
 * Those of serving_models.def in the list `only` ("a,b"), or the usual ones (NULL). 0, -EINVAL (a program is not in the
 * traces), -ENOMEM. The traces must outlive it: kernel names.
 */
int hb_serving_models_init(struct hb_serving_models *models, const char *only, const struct hb_trace_set *traces,
			   const struct hb_gpu_spec *spec, struct hb_error *error);
void hb_serving_models_fini(struct hb_serving_models *models);

#endif
