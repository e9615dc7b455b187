/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of the serving evaluation: batches of any size, derived from recorded
 * programs. Used by serving_gpu.c. The models are rows of serving_models.def.
 * docs/serving-scheduler.md explains how a kernel grows with the batch
 * (scale_kernel()).
 */
#ifndef HB_SIMSERVING_MODELS_H
#define HB_SIMSERVING_MODELS_H

#include "gpumodel/model.h"
#include "server/scheduler/predictor.h"
#include "trace/trace.h"

struct hb_serving_program {
	struct hb_gpu_model_work *works; /* the kernels of the graph */
	size_t n;
};

struct hb_serving_models {
	uint32_t n;
	struct hb_scheduler_model known[HB_SCHEDULER_MODELS_MAX];
	struct hb_serving_program program[HB_SCHEDULER_MODELS_MAX]
					 [HB_SCHEDULER_BATCH_MAX + 1]; /* index = items, from 1 */
};

/* A model to add. Values of 0 are taken from its row of serving_models.def. */
struct hb_serving_model_options {
	const char *name;
	const char *program; /* a row of serving_models.def, or a recorded program: one item = one iteration */
	uint32_t max_items;
	double in_bytes, out_bytes; /* bytes copied to and from the GPU for each item */
};

/*
 * Adds a model to `models`, which is zeroed or initialized. Returns its number, -EINVAL (no such program), -ENOSPC or
 * -ENOMEM.
 */
int hb_serving_models_add(struct hb_serving_models *models, const struct hb_serving_model_options *wanted,
			  const struct hb_trace_set *traces, const struct hb_gpu_spec *spec, struct hb_error *error);
/*
 * Replaces a model that does not run any more. Returns the errors of hb_serving_models_add(), after which nothing has
 * changed.
 */
int hb_serving_models_replace(struct hb_serving_models *models, uint32_t number,
			      const struct hb_serving_model_options *wanted, const struct hb_trace_set *traces,
			      const struct hb_gpu_spec *spec, struct hb_error *error);
/* Returns whether serving_models.def has the model. */
bool hb_serving_model_known(const char *name);
/*
 * Makes the models of serving_models.def in the list `only` ("a,b"), or the usual ones (NULL). Returns 0, -EINVAL (a
 * program is not in the traces), -ENOMEM. The traces must stay valid: kernel names point to them.
 */
int hb_serving_models_init(struct hb_serving_models *models, const char *only, const struct hb_trace_set *traces,
			   const struct hb_gpu_spec *spec, struct hb_error *error);
void hb_serving_models_fini(struct hb_serving_models *models);

#endif
