/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to hold the GPU, given the outcomes of a sign: the arithmetic of
 * foresight.h's header comment, without state. Called by foresight.c; a file of
 * its own so that it can be checked against a search over all plans.
 */
#ifndef HB_CORE_FORESIGHT_PLAN_H
#define HB_CORE_FORESIGHT_PLAN_H

#include "decide/foresight.h"

enum hb_foresight_shape {
	HB_SHAPE_SIGN, /* outcomes count from the sign: a hold cannot start before */
	HB_SHAPE_TIME, /* ... from the time it named: it can */
	HB_SHAPE_IDLE, /* ... from the end of HP's last kernel: the GPU is HP's already */
};

/* What LP loses by a hold that was right and began ahead_ns before the launch, beyond the switches that it pays without
 * one: to HP, and for a hold at the end of HP's work also back from it. */
int64_t hb_foresight_loss_ns(const struct hb_foresight_costs *costs, bool lingering, int64_t ahead_ns);
/* What holding from start_ns to end_ns costs, summed over the outcomes: HP's delay in ns * 10^6 + weight * LP's loss.
 * end_ns <= start_ns: not holding. */
int64_t hb_foresight_plan_cost(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape,
			       const int32_t *outcomes_ns, uint32_t n, int64_t start_ns, int64_t end_ns);
/* The best plan. n <= HB_FORESIGHT_WINDOW, in any order. */
struct hb_foresight_plan hb_foresight_plan_make(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape,
						const int32_t *outcomes_ns, uint32_t n);

#endif
