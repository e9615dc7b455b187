/* SPDX-License-Identifier: Apache-2.0 */
/* The best takeover for a set of outcomes; see foresight_plan.h. Called at a sign, so it makes at most CANDIDATES passes over
 * the outcomes. */
#include "decide/foresight_plan.h"

#include <string.h>

#define PPM 1000000
/* A plan covers at least this many launches. Covering only the longest outcome never misses, and says nothing about the next. */
#define HITS_LEAST 4
/* Start times that are tried: every fourth outcome of a full window. */
#define CANDIDATES 16

/* A takeover ends this long after the longest sign-to-launch time that it covers, so that a slightly later launch is covered, too. */
static int64_t slop_ns(const struct hb_foresight_costs *costs)
{
	return costs->switch_ns / 4;
}

/* HP's delay if a takeover began ahead_ns before the launch. */
static int64_t delay_ns(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape, int64_t ahead_ns)
{
	if (shape == HB_SHAPE_IDLE || ahead_ns >= costs->ready_ns)
		return 0;
	return costs->switch_ns * (costs->ready_ns - ahead_ns) / costs->ready_ns;
}

int64_t hb_foresight_loss_ns(const struct hb_foresight_costs *costs, bool lingering, int64_t ahead_ns)
{
	int64_t spared_ns = lingering ? 2 * costs->switch_ns : costs->switch_ns;
	return ahead_ns > spared_ns ? ahead_ns - spared_ns : 0;
}

/* LP's loss by a takeover in vain. After HP's work the GPU has to be switched to LP in any case. */
static int64_t vain_loss_ns(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape, int64_t length_ns)
{
	return shape == HB_SHAPE_IDLE ? length_ns : length_ns + 2 * costs->switch_ns;
}

/* HP's delay without a takeover. */
static int64_t bare_delay_ns(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape, int64_t outcome_ns)
{
	return shape == HB_SHAPE_IDLE && outcome_ns <= costs->yield_ns ? 0 : costs->switch_ns;
}

int64_t hb_foresight_plan_cost(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape,
			       const int32_t *outcomes_ns, uint32_t n, int64_t start_ns, int64_t end_ns)
{
	bool takes_over = end_ns > start_ns;
	int64_t delay = 0, kept = 0, vain = 0;
	for (uint32_t i = 0; i < n; i++) {
		int64_t at_ns = outcomes_ns[i];
		if (takes_over && at_ns >= start_ns && at_ns <= end_ns && at_ns != HB_FORESIGHT_NONE) {
			delay += delay_ns(costs, shape, at_ns - start_ns);
			kept += hb_foresight_loss_ns(costs, shape == HB_SHAPE_IDLE, at_ns - start_ns);
			continue;
		}
		if (at_ns != HB_FORESIGHT_NONE)
			delay += bare_delay_ns(costs, shape, at_ns);
		if (takes_over && at_ns > end_ns)
			vain += vain_loss_ns(costs, shape, end_ns - start_ns);
	}
	return delay * PPM + kept * costs->kept_weight_ppm + vain * costs->weight_ppm;
}

static void sort_outcomes(int32_t *values, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		int32_t value = values[i];
		uint32_t at = i;
		for (; at > 0 && values[at - 1] > value; at--)
			values[at] = values[at - 1];
		values[at] = value;
	}
}

struct plan_outcomes {
	const struct hb_foresight_costs *costs;
	enum hb_foresight_shape shape;
	int32_t sorted_ns[HB_FORESIGHT_WINDOW];
	uint32_t n, launches; /* outcomes with a launch are sorted first */
};

/* Finds the best end for one start in one pass. Outcomes before `covered` are settled, those behind it would be in vain. */
static void try_start(const struct plan_outcomes *outcomes, int64_t start_ns, int64_t *least,
		      struct hb_foresight_plan *best)
{
	const struct hb_foresight_costs *costs = outcomes->costs;
	enum hb_foresight_shape shape = outcomes->shape;
	int64_t delay = 0, kept = 0;
	uint32_t at = 0;
	for (; at < outcomes->launches && outcomes->sorted_ns[at] < start_ns; at++)
		delay += bare_delay_ns(costs, shape, outcomes->sorted_ns[at]);
	for (uint32_t first = at, covered = at; at < outcomes->launches; at++) {
		int64_t length_ns = outcomes->sorted_ns[at] - start_ns + slop_ns(costs);
		if (length_ns > HB_FORESIGHT_TAKEOVER_MAX_NS || start_ns + length_ns >= HB_FORESIGHT_NONE)
			return;
		for (; covered < outcomes->launches && outcomes->sorted_ns[covered] <= start_ns + length_ns;
		     covered++) {
			delay += delay_ns(costs, shape, outcomes->sorted_ns[covered] - start_ns);
			kept += hb_foresight_loss_ns(costs, shape == HB_SHAPE_IDLE,
						     outcomes->sorted_ns[covered] - start_ns);
		}
		int64_t later = outcomes->launches - covered, misses = outcomes->n - covered;
		int64_t cost = (delay + later * costs->switch_ns) * PPM + kept * costs->kept_weight_ppm +
			       misses * vain_loss_ns(costs, shape, length_ns) * costs->weight_ppm;
		if (cost >= *least || covered - first < HITS_LEAST)
			continue;
		*least = cost;
		best->start_ns = (int32_t)start_ns;
		best->end_ns = (int32_t)(start_ns + length_ns);
		best->miss_ppm = (uint32_t)(misses * PPM / outcomes->n);
	}
}

struct hb_foresight_plan hb_foresight_plan_make(const struct hb_foresight_costs *costs, enum hb_foresight_shape shape,
						const int32_t *outcomes_ns, uint32_t n)
{
	struct hb_foresight_plan best = {0};
	struct plan_outcomes outcomes = {.costs = costs, .shape = shape, .n = n};
	memcpy(outcomes.sorted_ns, outcomes_ns, n * sizeof *outcomes_ns);
	sort_outcomes(outcomes.sorted_ns, n);
	while (outcomes.launches < n && outcomes.sorted_ns[outcomes.launches] != HB_FORESIGHT_NONE)
		outcomes.launches++;
	int64_t least = hb_foresight_plan_cost(costs, shape, outcomes_ns, n, 0, 0);
	if (shape == HB_SHAPE_IDLE) {
		try_start(&outcomes, 0, &least, &best);
		return best;
	}
	uint32_t stride = (n + CANDIDATES - 1) / CANDIDATES;
	for (uint32_t i = 0; i < outcomes.launches; i += stride) {
		int64_t start_ns = (int64_t)outcomes.sorted_ns[i] - costs->ready_ns;
		bool at_sign = shape == HB_SHAPE_SIGN && start_ns <= 0;
		if (start_ns < INT32_MIN || (at_sign && i > 0 && outcomes.sorted_ns[i - stride] <= costs->ready_ns))
			continue;
		try_start(&outcomes, at_sign ? 0 : start_ns, &least, &best);
	}
	return best;
}
