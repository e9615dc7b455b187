/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between the scheduler and a back end, which runs batches: a table
 * of functions. Implemented by the back ends of the server
 * (src/server/backends/backend_*.c) and by recorded programs on the GPU model
 * (src/simserving/serving_gpu.c). The owner of a scheduler calls these functions
 * to carry out actions, and passes the reported events to the scheduler. One
 * caller at a time.
 *
 * A back end reports events only by poll(), in order of time. Every batch enters
 * its stages in order (a stage without work may be skipped) and ends exactly
 * once, with results or without.
 */
#ifndef HB_SCHEDULER_PROVIDER_H
#define HB_SCHEDULER_PROVIDER_H

#include "server/scheduler/scheduler.h"

/* Whether a batch ended without results because what executed it was lost: another replica of the model can run it. */
enum hb_batch_loss {
	HB_BATCH_NOT_LOST,
	HB_BATCH_LOST_WAITING, /* it had not begun */
	HB_BATCH_LOST_RUNNING, /* it had begun, so it may be the cause */
};

struct hb_scheduler_provider_event {
	int64_t at_ns;
	uint32_t slot;
	enum hb_scheduler_stage stage; /* the stage that was entered; HB_STAGES = the batch has ended */
	bool complete;                 /* the batch has ended with results */
	enum hb_batch_loss loss;
};

struct hb_scheduler_provider_ops {
	const char *name;
	/*
	 * `models` returns the number of models that the back end can serve; `model` stores the properties of one and
	 * returns 0 or -EINVAL.
	 */
	uint32_t (*models)(void *self);
	int (*model)(void *self, uint32_t model, struct hb_scheduler_model *out);
	/*
	 * Computes the time of each stage of a batch alone, without running the batch. Returns 0, -EINVAL or -ENOMEM.
	 * NULL = not possible.
	 */
	int (*profile)(void *self, uint32_t model, uint32_t items, double stage_ns[HB_STAGES]);
	/*
	 * Starts a batch (copy in, run, copy out). `slot` identifies it in events; `model` is the back end's number, while
	 * batch->model is the scheduler's. *batch is valid during the call only. Returns 0, -EBUSY, -EINVAL or -ENOMEM.
	 */
	int (*start)(void *self, int64_t now_ns, uint32_t slot, uint32_t model, const struct hb_scheduler_batch *batch);
	/* Notifies the back end that a request begins to arrive, so a batch will probably start soon. May be NULL. */
	void (*expect)(void *self, int64_t now_ns);
	/*
	 * Ends a batch early. The batch ends with complete = false, or with true if it was too late to stop it. May be
	 * NULL.
	 */
	void (*cancel)(void *self, int64_t now_ns, uint32_t slot);
	/* Pauses a batch (with can_pause) before its next step, or resumes it. NULL = no model has a stop_share. */
	void (*pause)(void *self, int64_t now_ns, uint32_t slot, bool paused);
	/* Returns the next event up to now_ns; false = no more events. */
	bool (*poll)(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event);
	/*
	 * Returns when poll() may have an event; INT64_MAX = not before the next call of another function. May be NULL.
	 */
	int64_t (*next_ns)(void *self);
	int (*descriptor)(
		void *self); /* file descriptor that is readable when poll() may have an event; NULL or -1 = none */
	void (*close)(void *self);
};

#endif
