/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How evenly models get their requests answered in time: Jain's index of the models' shares. Used by the metrics of `hb serve`
 * and by the evaluation (src/simserving). Pure.
 */
#ifndef HB_SCHEDULER_FAIRNESS_H
#define HB_SCHEDULER_FAIRNESS_H

#include <stdbool.h>
#include <stdint.h>

/* Share of recent requests that were answered in time. Half of the weight is on the last 44 requests. */
struct hb_in_time_share {
	double value;
	bool known; /* there was a request */
};

void hb_in_time_share_note(struct hb_in_time_share *share, bool in_time);
/* Jain's index (sum x)^2 / (n sum x^2): 1 = all equal, 1/n = one has everything. 1 without any x above 0. */
double hb_jain_index(const double *x, uint32_t n);

#endif
