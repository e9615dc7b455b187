/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of the policy `ours`: predicts deadline misses. A plan is a forecast of
 * the batches in flight, of a batch that may start now and of the queue. Its
 * cost is the expected number of requests that miss their deadline. The error
 * estimate of each predicted finish turns the distance to the deadline into a
 * probability. Used by pick_ours.c (which batch starts) and pick_pause.c (which
 * batch is paused).
 */
#ifndef HB_SCHEDULER_MISS_CHANCE_H
#define HB_SCHEDULER_MISS_CHANCE_H

#include "server/scheduler/scheduler_policy.h"

/* Costs that differ by less count as equal. */
#define HB_PLAN_SAME 0.01

struct hb_plan {
	struct hb_forecast forecast;
	int64_t deadline_ns[HB_FORECAST_MAX];
	double weight[HB_FORECAST_MAX]; /* number of requests, or the probability of an expected one */
	uint32_t expected;              /* index of a request that may arrive; HB_FORECAST_MAX = none */
};

/* Expected number of requests that miss their deadline. */
struct hb_plan_cost {
	double class[HB_SCHEDULER_PRIORITIES];
	double expected; /* misses of the request that may arrive, which are not counted in `class` */
};

/* The queued high-priority requests, as one batch for each model. */
struct hb_plan_queue {
	uint32_t n;
	struct hb_planned {
		uint32_t model, items;
		int64_t deadline_ns;
	} batch[HB_SCHEDULER_MODELS_MAX]; /* earliest deadline first */
};

/* Makes a plan with the batches in flight only. */
void hb_plan_flights(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan);
/* Copies a plan that was not run yet. */
void hb_plan_copy(struct hb_plan *to, const struct hb_plan *from);
/* Adds a batch like hb_forecast_add(), with its deadline and weight. Returns the index. */
uint32_t hb_plan_add(struct hb_scheduler *scheduler, struct hb_plan *plan, uint32_t model, uint32_t items,
		     enum hb_scheduler_priority class, bool waits, int64_t deadline_ns, double weight);
/* Collects the queued high-priority requests, without the first `skip_items` of one model (or HB_SCHEDULER_NONE). */
void hb_plan_collect_queue(struct hb_scheduler *scheduler, uint32_t skip_model, uint32_t skip_items,
			   struct hb_plan_queue *queue);
void hb_plan_add_queue(struct hb_scheduler *scheduler, struct hb_plan *plan, const struct hb_plan_queue *queue);
/* Runs the forecast and computes the cost. */
void hb_plan_run(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan, struct hb_plan_cost *cost);
/*
 * Runs a plan like hb_plan_run(), but stops and returns false as soon as the high-priority or the expected cost exceeds
 * *most.
 */
bool hb_plan_run_within(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan,
			const struct hb_plan_cost *most, struct hb_plan_cost *cost);

#endif
