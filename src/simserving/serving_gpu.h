/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace back end of `serve` (scheduler_provider.h): batches of the models of
 * serving_models.h on the simulated GPU, in virtual time. Each model has a worker
 * process for each priority; all are clients of one MPS server, those of high
 * priority on urgent streams. A batch is a copy in, one graph, a copy out.
 */
#ifndef HB_SIM_SERVE_GPU_H
#define HB_SIM_SERVE_GPU_H

#include "server/scheduler/scheduler_provider.h"
#include "simserving/serving_models.h"
#include "trace/trace.h"

struct hb_serving_gpu_options {
	const struct hb_trace_set *traces;
	const char *gpu;
	double link_bytes_per_s; /* host link, each direction; 0 = the GPU's own */
	uint32_t lanes;          /* batches of one model and priority at one time */
	const char *only; /* of serving_models.def, "a,b"; NULL = the usual ones, "" = none but those that are added */
};

/* The object that `hb_serving_gpu_ops` works on. 0, -EINVAL, -ENOENT, -ENOMEM. */
int hb_serving_gpu_new(const struct hb_serving_gpu_options *options, void **out, struct hb_error *error);
extern const struct hb_scheduler_provider_ops hb_serving_gpu_ops;
/* The number of one more model; as hb_serving_models_add(). */
int hb_serving_gpu_add_model(void *self, const struct hb_serving_model_options *wish, struct hb_error *error);
/* The number stands for another model; as hb_serving_models_replace(), or -EBUSY: batches of the one before run. */
int hb_serving_gpu_replace_model(void *self, uint32_t model, const struct hb_serving_model_options *wish,
				 struct hb_error *error);
/* Share of the time until now in which any kernel ran, in ns. */
int64_t hb_serving_gpu_busy_ns(const void *self);

#endif
