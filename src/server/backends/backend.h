/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs models: one row of platforms.def and one file backend_NAME.c each.
 * A back end is opened for one model; it runs batches through the functions of
 * server/scheduler/scheduler_provider.h (the model's number is always 0), where a batch's cookies are the addresses of its
 * requests (struct hb_inference). Before it reports that a batch has ended whole, it
 * has filled in the outputs of each. All calls come under the dispatcher's lock
 * and must not block.
 */
#ifndef HB_FRONT_BACKEND_H
#define HB_FRONT_BACKEND_H

#include "server/kserve/inference.h"
#include "server/scheduler/scheduler_provider.h"

struct hb_backend {
	const struct hb_scheduler_provider_ops *ops; /* of one model, number 0 */
	void *self;
	const int *state; /* enum hb_served_model_state, kept up to date by poll(); NULL = always ready */
	const char *why;  /* with it: why it has failed */
};

/* What the back ends of one dispatcher share. */
struct hb_backend_shared {
	struct trace_gpu *trace; /* backend_trace.c's, while one of its models is open */
	double speed;            /* of the simulated GPU: seconds of its time a second */
	int gpu;                 /* enum hb_worker_gpu: how workers are started */
};

struct hb_platform {
	const char *name;
	/* 0, or negative errno with *error. May return before it is ready (state). */
	int (*open)(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		    struct hb_error *error);
};

#define HB_PLATFORM(name, symbol, what) extern const struct hb_platform symbol;
#include "server/models/platforms.def"
#undef HB_PLATFORM

static inline struct hb_inference *hb_backend_request(uint64_t cookie)
{
	return (struct hb_inference *)(uintptr_t)cookie; /* NOLINT(performance-no-int-to-ptr) */
}

#endif
