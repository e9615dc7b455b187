/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of our policy: what would become of everybody's deadline. A plan is a
 * forecast of what is in flight, what may start now and what waits; its cost is
 * the number of requests expected to miss. Each finish has an error estimate,
 * which turns the distance to its deadline into a probability. Part of the
 * scheduler: pick_ours.c (who starts) and pick_pause.c (who is held) use it.
 */
#ifndef HB_SCHEDULER_PLAN_H
#define HB_SCHEDULER_PLAN_H

#include "server/scheduler/scheduler_policy.h"

/* Costs that differ by less are the same. */
#define HB_PLAN_SAME 0.01

struct hb_plan {
	struct hb_forecast forecast;
	int64_t deadline_ns[HB_FORECAST_MAX];
	double weight[HB_FORECAST_MAX]; /* requests */
	uint32_t expected;              /* the one that may come; HB_FORECAST_MAX = none */
};

/* Requests expected to miss. */
struct hb_plan_cost {
	double class[HB_SCHEDULER_PRIORITIES];
	double expected; /* of the one that may come, not in `class` */
};

/* High priority's batches of the queue, one a model. */
struct hb_plan_queue {
	uint32_t n;
	struct hb_planned {
		uint32_t model, items;
		int64_t deadline_ns;
	} batch[HB_SCHEDULER_MODELS_MAX]; /* by deadline */
};

/* What is in flight, and nothing else. */
void hb_plan_flights(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan);
/* Before it was run. */
void hb_plan_copy(struct hb_plan *to, const struct hb_plan *from);
/* A batch more, as hb_forecast_add(); its place. */
uint32_t hb_plan_add(struct hb_scheduler *scheduler, struct hb_plan *plan, uint32_t model, uint32_t items,
		     enum hb_scheduler_priority class, bool waits, int64_t deadline_ns, double weight);
/* High priority that waits; of one model (or HB_SCHEDULER_NONE) the first items are taken as started. */
void hb_plan_queue_look(struct hb_scheduler *scheduler, uint32_t skip_model, uint32_t skip_items,
			struct hb_plan_queue *queue);
void hb_plan_add_queue(struct hb_scheduler *scheduler, struct hb_plan *plan, const struct hb_plan_queue *queue);
/* Runs the plan. */
void hb_plan_run(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan, struct hb_plan_cost *cost);
/* The same, no further than it takes to know that high priority's cost, or the expected one's, is above *most: then false. */
bool hb_plan_run_within(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan,
			const struct hb_plan_cost *most, struct hb_plan_cost *cost);

#endif
