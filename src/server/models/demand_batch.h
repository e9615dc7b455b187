/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs batches of zeros on a back end and times their stages, for demand_trial.c. One batch at a time, under the dispatcher's
 * lock.
 */
#ifndef HB_SERVER_DEMAND_BATCH_H
#define HB_SERVER_DEMAND_BATCH_H

#include "server/backends/backend.h"

struct hb_demand_batch {
	void *zeros; /* data of all inputs */
	uint64_t zero_bytes;
	struct hb_inference *infer; /* the request of the batch in flight; NULL = none */
	int64_t begun_ns, run_ns, out_ns;
};

/* How a batch ended. A stage that the back end does not report has the time 0. */
struct hb_demand_batch_result {
	bool complete;
	char why[256]; /* not complete: the reason */
	double stage_ns[HB_STAGES];
	bool copies[HB_STAGES]; /* whether the stage was reported; HB_STAGE_RUN is always true */
};

/* Makes the inputs of the largest batch. Returns 0, or -EFBIG or -ENOMEM with *error. */
int hb_demand_batch_init(struct hb_demand_batch *batch, const struct hb_model_config *model, struct hb_error *error);
/* Frees the memory. The back end has been closed before. */
void hb_demand_batch_fini(struct hb_demand_batch *batch);
/* Starts a batch. Returns 0, or negative errno with *error. */
int hb_demand_batch_start(struct hb_demand_batch *batch, const struct hb_model_config *model,
			  const struct hb_backend *backend, uint32_t items, int64_t now_ns, struct hb_error *error);
/* Handles the events of the back end, also without a batch. Returns whether the batch has ended, with *result. */
bool hb_demand_batch_poll(struct hb_demand_batch *batch, const struct hb_backend *backend, int64_t now_ns,
			  struct hb_demand_batch_result *result);
/* Asks the back end to end the batch in flight early, if there is one. */
void hb_demand_batch_cancel(struct hb_demand_batch *batch, const struct hb_backend *backend, int64_t now_ns);

#endif
