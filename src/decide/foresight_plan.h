/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to take the GPU over, given the outcomes of a sign: the arithmetic of the header
 * comment of foresight.h, without state. Called by foresight.c. In a file of its own so
 * that a test can compare it with a search over all plans.
 */
#ifndef HB_DECIDE_FORESIGHT_PLAN_H
#define HB_DECIDE_FORESIGHT_PLAN_H

#include "decide/foresight.h"

enum hb_foresight_shape {
	HB_SHAPE_SIGN, /* outcomes count from the sign: a takeover cannot start before it */
	HB_SHAPE_TIME, /* outcomes count from the time the sign named: a takeover can start before it */
	HB_SHAPE_IDLE, /* outcomes count from the end of HP's last kernel: HP has the GPU already */
};

/* LP's loss by a right takeover that began ahead_ns before the launch, beyond the switches that LP pays anyway: one to
 * HP, and for a takeover at the end of HP's work also the one back. */
int64_t hb_foresight_loss_ns(const struct hb_foresight_costs *costs, bool lingering, int64_t ahead_ns);
/* Cost of a takeover from start_ns to end_ns, summed over the outcomes: HP's delay in ns * 10^6 + weight * LP's loss. No
 * takeover if end_ns <= start_ns. */
int64_t hb_foresight_plan_cost(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape,
			       const int32_t *outcomes_ns, uint32_t n, int64_t start_ns, int64_t end_ns);
/* The best plan. n <= HB_FORESIGHT_WINDOW, in any order. */
struct hb_foresight_plan hb_foresight_plan_make(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape,
						const int32_t *outcomes_ns, uint32_t n);

#endif
