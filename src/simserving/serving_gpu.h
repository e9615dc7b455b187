/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A back end (server/scheduler/scheduler_provider.h) that runs the models of
 * serving_models.h on the GPU model in virtual time. Each model has two worker
 * processes, one for each priority. All are clients of one MPS server; those of
 * high priority use streams of high priority. A batch is a copy in, a graph of
 * kernels and a copy out. Used by serving_run.c and trace_backend.c.
 */
#ifndef HB_SIMSERVING_GPU_H
#define HB_SIMSERVING_GPU_H

#include "server/scheduler/scheduler_provider.h"
#include "simserving/serving_demand.h"
#include "simserving/serving_models.h"
#include "trace/trace.h"

struct hb_serving_gpu_options {
	const struct hb_trace_set *traces;
	const char *gpu;
	double link_bytes_per_s; /* speed of the host link in each direction; 0 = as in the GPU's file */
	enum hb_demand_source demand;
	uint32_t lanes; /* batches in flight of one model and priority */
	const char
		*only; /* rows of serving_models.def, "a,b"; NULL = the usual ones, "" = none, models are added later */
};

/* Creates the object for the functions of hb_serving_gpu_ops. Returns 0, -EINVAL, -ENOENT or -ENOMEM. */
int hb_serving_gpu_new(const struct hb_serving_gpu_options *options, void **out, struct hb_error *error);
extern const struct hb_scheduler_provider_ops hb_serving_gpu_ops;
/* Adds a model and returns its number, like hb_serving_models_add(). */
int hb_serving_gpu_add_model(void *self, const struct hb_serving_model_options *wanted, struct hb_error *error);
/*
 * Gives the number to another model, like hb_serving_models_replace(). Also returns -EBUSY: batches of the old model
 * run.
 */
int hb_serving_gpu_replace_model(void *self, uint32_t model, const struct hb_serving_model_options *wanted,
				 struct hb_error *error);
/* Returns the time in ns until now in which at least one kernel ran. */
int64_t hb_serving_gpu_busy_ns(const void *self);

#endif
