/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam between the scheduler and what runs batches: one table of functions
 * a back end. Implemented by recorded programs on the GPU model in virtual time
 * (src/simserving/serving_gpu.c) and by the back ends of the server (src/front/backend_*.c). Whoever owns the scheduler calls it to
 * carry out actions, and tells the scheduler what it reports. One caller at a time.
 *
 * A back end reports through `event`, from poll() only, in order of time: every
 * batch goes through the stages it has (a stage without work may be skipped) and
 * ends exactly once, whole or not.
 */
#ifndef HB_SCHEDULER_SERVE_PROVIDER_H
#define HB_SCHEDULER_SERVE_PROVIDER_H

#include "server/scheduler/scheduler.h"

struct hb_scheduler_provider_event {
	int64_t at_ns;
	uint32_t slot;
	enum hb_scheduler_stage stage; /* entered; HB_STAGES = the batch has ended */
	bool complete;                 /* at the end: with its results */
};

struct hb_scheduler_provider_ops {
	const char *name;
	/* How many models it can serve, and what is known of each. 0 or -EINVAL. */
	uint32_t (*models)(void *self);
	int (*model)(void *self, uint32_t model, struct hb_scheduler_model *out);
	/* How long each stage of a batch takes alone, where that is known without running it. 0, -EINVAL, -ENOMEM. NULL: cannot be done. */
	int (*profile)(void *self, uint32_t model, uint32_t items, double stage_ns[HB_STAGES]);
	/*
	 * Starts a batch: copies in, runs, copies out. `slot` is the caller's name for it, `model` the provider's number;
	 * *batch (its own `model` is the scheduler's) is valid during the call only. 0, -EBUSY, -EINVAL, -ENOMEM.
	 */
	int (*start)(void *self, int64_t now_ns, uint32_t slot, uint32_t model, const struct hb_scheduler_batch *batch);
	/* A request begins to arrive: something will be started soon, if all goes well. May be NULL. */
	void (*expect)(void *self, int64_t now_ns);
	/* Stops a batch as soon as that is possible; it ends with whole = false, or with true when it was too late. May be NULL. */
	void (*cancel)(void *self, int64_t now_ns, uint32_t slot);
	/* A batch that can stop (its can_pause) stops at the next kernel, or goes on. NULL: cannot be done, no model says it can. */
	void (*pause)(void *self, int64_t now_ns, uint32_t slot, bool paused);
	/* The next thing that happened up to now_ns; false = nothing more. */
	bool (*poll)(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event);
	/* When poll has something; INT64_MAX = not before the next call. Back ends in real time have a descriptor instead. */
	int64_t (*next_ns)(void *self);
	int (*descriptor)(void *self); /* readable when poll has something; NULL or -1 = virtual time */
	void (*close)(void *self);
};

#endif
