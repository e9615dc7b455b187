/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the GPU of a request among the GPUs of a node: the one on which it is predicted to end first. Every GPU, with its
 * link to the host, has a scheduler and thereby a predictor of its own. Pure, like the scheduler. Callers: the dispatcher of
 * hb serve (server/models) and the evaluation in virtual time (src/simserving).
 */
#ifndef HB_SCHEDULER_ROUTE_H
#define HB_SCHEDULER_ROUTE_H

#include "server/scheduler/scheduler.h"

/* GPUs of one node. */
#define HB_ROUTE_GPUS_MAX 16

/*
 * Predicts the time in ns from now until the request would end on the GPU of this scheduler. The batches in flight delay it
 * as in a forecast of the predictor; queued requests of its priority and of higher ones run before it, in full batches, one
 * after the other.
 */
double hb_route_predict_ns(struct hb_scheduler *scheduler, int64_t now_ns, const struct hb_scheduler_request *request);

/*
 * Returns the index of the scheduler with the earliest predicted end; of equal ones the first. Bit i of `candidates` is set
 * if scheduler i may get the request. Returns HB_ROUTE_GPUS_MAX if no bit is set.
 */
uint32_t hb_route_choose(struct hb_scheduler *const *schedulers, uint32_t candidates, int64_t now_ns,
			 const struct hb_scheduler_request *request);

/*
 * Returns the index of the scheduler from which an idle one should take a queued request of the model: the one with the most
 * queued requests of it, among those with batches in flight. Predictions can be wrong, and a replica may become ready after
 * the others. Returns HB_ROUTE_GPUS_MAX if the scheduler `thief` is not idle or there is no such request. An idle scheduler
 * has no batch in flight and no queued request. A scheduler without batches in flight keeps its requests: its policy lets
 * them wait on purpose.
 */
uint32_t hb_route_find_waiting(struct hb_scheduler *const *schedulers, uint32_t n, uint32_t thief, uint32_t model);

#endif
