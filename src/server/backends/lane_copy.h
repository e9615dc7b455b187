/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the inputs of a batch from its requests to a lane, or the outputs from the lane to the requests. Used by
 * backend_worker.c, with one object for each lane. Large data are copied on a thread, without the dispatcher's lock.
 * Meanwhile the requests belong to the batch, and their inputs do not change. A request may be answered early during
 * the copy, so the copy stores its outputs and results, but does not change its answer.
 */
#ifndef HB_SERVER_LANE_COPY_H
#define HB_SERVER_LANE_COPY_H

#include "server/backends/worker_memory.h"
#include "server/kserve/job_thread.h"
#include "server/scheduler/scheduler_provider.h"

#include <stdbool.h>

/* Smaller data are copied at once: that takes less than 0.2 ms. */
#define HB_LANE_COPY_AT_ONCE_BYTES (1 << 20)

struct hb_lane_copy {
	struct hb_job job;
	const struct hb_model_config *config;
	const struct hb_worker_memory *memory;
	struct hb_worker_lane *lane;
	int doorbell; /* eventfd that the thread rings when the copy is complete */
	const struct hb_scheduler_batch *batch;
	bool outputs;     /* the outputs are copied; false: the inputs */
	uint32_t dropped; /* the lane's field */
	/* The worker can change the shared places at any time, so these are copies that were checked. */
	struct hb_worker_tensor tensors[HB_TENSORS_MAX];
	int results[HB_SCHEDULER_BATCH_MAX];    /* of hb_worker_outputs_copy() for each request */
	uint32_t wrong[HB_SCHEDULER_BATCH_MAX]; /* number of the wrong output */
	atomic_bool done;
};

void hb_lane_copy_init(struct hb_lane_copy *copy, const struct hb_model_config *config,
		       const struct hb_worker_memory *memory, uint32_t lane, int doorbell);
/*
 * Places the inputs of a batch one behind the other in the lane. Returns the number of the first input that does not fit, or
 * n_inputs.
 */
uint32_t hb_lane_copy_place_inputs(struct hb_lane_copy *copy, const struct hb_scheduler_batch *batch);
/*
 * Reads the places to which the worker wrote the outputs of `items` items. Returns the number of the first output that does
 * not have the model's shape, or n_outputs.
 */
uint32_t hb_lane_copy_place_outputs(struct hb_lane_copy *copy, uint32_t items);
/*
 * Copies what was placed last, at once, or on the thread if the data are large. NULL = at once. `done` becomes true.
 * *batch must stay until then.
 */
void hb_lane_copy_begin(struct hb_lane_copy *copy, const struct hb_scheduler_batch *batch,
			struct hb_job_thread *thread);
/* Fails the requests whose outputs could not be copied, under the dispatcher's lock. */
void hb_lane_copy_note_failures(const struct hb_lane_copy *copy);

#endif
