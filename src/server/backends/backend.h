/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A back end runs the batches of one model. Each platform is a row of
 * platforms.def and a file backend_NAME.c. The functions of a back end are those
 * of server/scheduler/scheduler_provider.h, with these conventions:
 *
 * - its only model has number 0
 * - a batch's cookies are the addresses of its requests (struct hb_inference)
 * - it fills in the outputs of every request before it reports that a batch has
 *   ended with results
 * - it is called under the dispatcher's lock and must not block
 */
#ifndef HB_SERVER_BACKEND_H
#define HB_SERVER_BACKEND_H

#include "server/kserve/inference.h"
#include "server/models/model_config.h"
#include "server/scheduler/scheduler_provider.h"

struct hb_backend {
	const struct hb_scheduler_provider_ops *ops;
	void *self;
	const int *state;       /* enum hb_served_model_state, updated by poll(); NULL = always ready */
	const char *why_failed; /* text for states HB_SERVED_MODEL_FAILED and _RESTARTING */
	const bool *runs; /* updated by poll(): batches are executed now; false while a worker starts. NULL = always */
	const uint64_t *restarts; /* how often a worker was started again; NULL = there is none */
};

/* State that the back ends of one GPU share. */
struct hb_backend_shared {
	const struct hb_backend_module *trace_module; /* NULL until a model of platform trace was opened */
	struct trace_gpu *trace_gpu; /* simulated GPU of the trace module, while a model of platform trace is open */
	double speed;                /* simulated GPU: seconds of GPU time per second */
	int gpu;                     /* enum hb_worker_gpu: how workers are started */
	uint32_t index, n_gpus;      /* number of this GPU, and GPUs of the server */
	uint32_t sm_percent; /* hb_worker_place.sm_percent of the workers that are opened; 0 except in a demand trial */
};

struct hb_platform {
	const char *name;
	/*
	 * Opens a model. Returns 0, or negative errno with *error. The model may become ready later (hb_backend.state).
	 */
	int (*open)(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		    struct hb_error *error);
};

#define HB_PLATFORM(name, symbol, what) extern const struct hb_platform symbol;
#include "server/models/platforms.def"
#undef HB_PLATFORM

static inline struct hb_inference *hb_backend_inference(uint64_t cookie)
{
	return (struct hb_inference *)(uintptr_t)cookie; /* NOLINT(performance-no-int-to-ptr) */
}

#endif
