/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run time of one model alone on the GPU, by batch size. Learned from batches
 * that ran (nearly) alone, with one quantile ring for each measured size. Other
 * sizes are derived from the measured ones:
 *
 *	smaller than all      the time of the smallest: a smaller batch is never slower
 *	between two           linear interpolation
 *	larger than all       the line through the largest two, with a slope of at least
 *	                      0 and at most time / size; with one measured size, time
 *	                      in proportion to size
 *	nothing measured      the guess given at initialization
 *
 * Every estimate has an error: the spread of the samples, plus a constant for
 * sizes that were not measured. Fixed size, no allocation. Times are ns.
 */
#ifndef HB_SCHEDULER_SOLO_TIME_H
#define HB_SCHEDULER_SOLO_TIME_H

#include "server/scheduler/quantile_ring.h"

#define HB_SCHEDULER_BATCH_MAX 32

struct hb_estimate {
	double ns;
	double error; /* relative: 0.1 = one in ten takes at least 10 % longer */
};

struct hb_solo_time {
	double guess_ns;
	uint32_t smallest, largest;                              /* measured sizes; 0 = none */
	struct hb_estimate measured[HB_SCHEDULER_BATCH_MAX + 1]; /* quantiles of each measured size */
	struct hb_quantile_ring size[HB_SCHEDULER_BATCH_MAX + 1];
};

void hb_solo_time_init(struct hb_solo_time *solo, double guess_ns);
/* Learns one measured time. False: the batch size or the time is invalid, and nothing is learned. */
bool hb_solo_time_learn(struct hb_solo_time *solo, uint32_t batch, double ns);
struct hb_estimate hb_solo_time_get(const struct hb_solo_time *solo, uint32_t batch);

#endif
