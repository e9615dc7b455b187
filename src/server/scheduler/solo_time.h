/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Execution time of one model alone on the GPU by batch size, learned from
 * batches that ran (nearly) alone: a quantile ring for each size seen. Sizes
 * not seen are interpolated between the nearest ones that were:
 *
 *	below the smallest seen s    its time: a batch never gets slower by being smaller
 *	between                      linear
 *	above the largest            along the last two sizes, at least flat and at most
 *	                             in proportion; with one size in proportion
 *	nothing seen                 the guess it was given
 *
 * Each answer says how wrong it may be: the spread of the samples, and more
 * where it was not measured. Fixed size, no allocation. Times are ns.
 */
#ifndef HB_SCHEDULER_SOLO_TIME_H
#define HB_SCHEDULER_SOLO_TIME_H

#include "server/scheduler/quantile_ring.h"

#define HB_SCHEDULER_BATCH_MAX 32

struct hb_estimate {
	double ns;
	double error; /* relative: 0.1 = 10 % later is to be expected now and then (one in ten) */
};

struct hb_solo_time {
	double guess_ns;
	uint32_t smallest, largest;                              /* seen; 0 = none */
	struct hb_estimate measured[HB_SCHEDULER_BATCH_MAX + 1]; /* of sizes that were seen: the ring's quantiles */
	struct hb_quantile_ring size[HB_SCHEDULER_BATCH_MAX + 1];
};

void hb_solo_time_init(struct hb_solo_time *solo, double guess_ns);
/* False: not a batch size or time that can be. */
bool hb_solo_time_learn(struct hb_solo_time *solo, uint32_t batch, double ns);
struct hb_estimate hb_solo_time_get(const struct hb_solo_time *solo, uint32_t batch);

#endif
