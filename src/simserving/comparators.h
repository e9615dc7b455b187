/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictors that others use, to compare with the predictor of the scheduler. Each predicts at the start of a batch how long it
 * takes, from the time alone and the batches that are in flight at that moment; none knows which batches come and go later.
 *
 *	static regression  as GPUlet (USENIX ATC 2022): slowdown = w . x, x = the demands for SMs and bandwidth of the batch and of
 *	                   the others, and 1. w by least squares over the first REGRESSION_SAMPLES batches beside others, then fixed
 *	SGD                the same x; w by one step of normalized gradient descent for each batch
 *	EWMA               the mean time of the model, batch size and number of other batches, with exponential weights
 *
 * Demands are those of the models. Used by serving_watch.c. Pure.
 */
#ifndef HB_SIMSERVING_COMPARATORS_H
#define HB_SIMSERVING_COMPARATORS_H

#include "server/scheduler/predictor.h"
#include "server/scheduler/scheduler_policy.h"

enum hb_comparator { HB_COMPARED_REGRESSION, HB_COMPARED_SGD, HB_COMPARED_EWMA, HB_COMPARATORS };
#define HB_COMPARATOR_FEATURES 5

struct hb_compared_flight {
	bool beside; /* other batches were in flight at the start */
	uint32_t model, items, row;
	int64_t begun_ns;
	double alone_ns, x[HB_COMPARATOR_FEATURES], predicted_ns[HB_COMPARATORS];
};

struct hb_comparators {
	struct hb_rls regression;
	double sgd[HB_COMPARATOR_FEATURES];
	double ewma_ns[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_BATCH_MAX + 1][HB_PREDICTOR_BESIDE_MAX]; /* 0 = none yet */
	struct hb_compared_flight flights[HB_SCHEDULER_FLIGHTS_MAX];
};

/* Initializes all comparators. The struct is large: do not put it on the stack. */
void hb_comparators_init(struct hb_comparators *comparators);
/* Forgets what belongs to a model whose number another model gets. */
void hb_comparators_replace(struct hb_comparators *comparators, uint32_t model);
/* Predicts the batch that `predictor` has just begun in this slot. The predictor knows times alone and batches in flight. */
void hb_comparators_begin(struct hb_comparators *comparators, const struct hb_predictor *predictor, int64_t now_ns,
			  uint32_t slot);
/* Learns from the batch, unless `pauses` made it longer. Returns the predictions, in ns from begin to end. */
const double *hb_comparators_end(struct hb_comparators *comparators, int64_t now_ns, uint32_t slot, bool pauses);

#endif
