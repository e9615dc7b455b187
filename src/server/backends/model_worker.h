/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one worker and its lanes. For backend_worker.c only, under the dispatcher's lock. */
#ifndef HB_SERVER_MODEL_WORKER_H
#define HB_SERVER_MODEL_WORKER_H

#include "server/backends/backend.h"
#include "server/backends/lane_copy.h"
#include "server/backends/restart_pause.h"
#include "server/backends/worker_memory.h"
#include "server/backends/worker_process.h"

enum worker_lane_state { LANE_FREE, LANE_COPIES_IN, LANE_WAITS, LANE_SUBMITTED, LANE_COPIES_OUT };

/* The server's own record of a lane; the shared part is struct hb_worker_lane. */
struct worker_lane {
	enum worker_lane_state state;
	uint32_t stage; /* enum hb_worker_stage: the last one reported to the dispatcher */
	uint32_t slot;
	int64_t submitted_ns;
	bool unwanted; /* the batch ends when its inputs are copied */
	enum hb_batch_loss loss;
	struct hb_scheduler_batch batch;
};

struct model_worker {
	struct hb_model_config config;
	struct hb_worker_place place;
	struct hb_worker_process process;
	struct hb_worker_memory memory;
	int submitted_doorbell, completed_doorbell, epoll; /* doorbells of the two rings */
	uint32_t taken;                                    /* entries of `completed` read so far */
	struct worker_lane lanes[HB_WORKER_LANES];
	struct hb_lane_copy copies[HB_WORKER_LANES];
	struct hb_job_thread *copier; /* NULL: batches are too small for a thread */
	struct hb_restart_pause pause;
	int64_t restart_ns; /* when to start a process; 0 = first start, INT64_MAX = one runs */
	const char *killed; /* reason, until the killed process has ended; NULL = not killed */
	int64_t killed_ns;
	int64_t expected_ns; /* when the worker was last notified of an arriving request */
	bool ready;
	int state; /* enum hb_served_model_state */
	char why_failed[256];
	uint32_t n_events, given;
	struct hb_scheduler_provider_event events[HB_WORKER_LANES * (HB_STAGES + 1)]; /* not reported yet */
};

#endif
