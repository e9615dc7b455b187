/* SPDX-License-Identifier: Apache-2.0 */
/* Computes plans, their chance of missed deadlines and their cost; see miss_chance.h. */
#include "server/scheduler/miss_chance.h"

#include <math.h>
#include <string.h>

/* No prediction is trusted to be more exact than this. */
#define ERROR_LEAST_NS 20e3

void hb_plan_flights(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan)
{
	plan->expected = HB_FORECAST_MAX;
	hb_forecast_begin(&scheduler->predictor, now_ns, &plan->forecast);
	for (uint32_t i = 0; i < plan->forecast.n; i++) {
		const struct hb_scheduler_batch *batch = &scheduler->batches[plan->forecast.slot[i]];
		plan->deadline_ns[i] = batch->deadline_ns;
		plan->weight[i] = batch->n_requests;
	}
}

void hb_plan_copy(struct hb_plan *to, const struct hb_plan *from)
{
	uint32_t n = to->forecast.n = from->forecast.n;
	memcpy(to->forecast.slot, from->forecast.slot, n * sizeof *to->forecast.slot);
	memcpy(to->forecast.flow, from->forecast.flow, n * sizeof *to->forecast.flow);
	memcpy(to->deadline_ns, from->deadline_ns, n * sizeof *to->deadline_ns);
	memcpy(to->weight, from->weight, n * sizeof *to->weight);
	to->forecast.turns = from->forecast.turns;
	to->expected = from->expected;
}

uint32_t hb_plan_add(struct hb_scheduler *scheduler, struct hb_plan *plan, uint32_t model, uint32_t items,
		     enum hb_scheduler_priority class, bool waits, int64_t deadline_ns, double weight)
{
	uint32_t index = hb_forecast_add(&scheduler->predictor, &plan->forecast, model, items, class, waits);
	if (index < HB_FORECAST_MAX) {
		plan->deadline_ns[index] = deadline_ns;
		plan->weight[index] = weight;
	}
	return index;
}

/* Makes one batch of a model's queue without its first `skip` items. False: nothing is left. */
static bool collect_queued_rest(struct hb_scheduler *scheduler, uint32_t model, uint32_t skip, struct hb_planned *batch)
{
	const struct hb_scheduler_queue *queue = &scheduler->queues[model][HB_SCHEDULER_HIGH];
	uint32_t items = 0, most = scheduler->predictor.models[model].max_items;
	if (queue->items <= skip)
		return false;
	for (uint32_t i = queue->first[HB_ORDER_URGENCY]; i != HB_SCHEDULER_NONE;) {
		const struct hb_waiting *request = hb_scheduler_waiting(scheduler, i);
		items += request->items;
		if (items > skip) {
			uint32_t left = queue->items - skip;
			*batch = (struct hb_planned){model, left < most ? left : most, request->deadline_ns};
			return true;
		}
		i = request->next[HB_ORDER_URGENCY];
	}
	return false;
}

void hb_plan_collect_queue(struct hb_scheduler *scheduler, uint32_t skip_model, uint32_t skip_items,
			   struct hb_plan_queue *queue)
{
	struct hb_planned one;
	queue->n = 0;
	if (!scheduler->queued[HB_SCHEDULER_HIGH])
		return;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		if (!collect_queued_rest(scheduler, model, model == skip_model ? skip_items : 0, &one))
			continue;
		uint32_t at = queue->n++;
		for (; at > 0 && queue->batch[at - 1].deadline_ns > one.deadline_ns; at--)
			queue->batch[at] = queue->batch[at - 1];
		queue->batch[at] = one;
	}
}

void hb_plan_add_queue(struct hb_scheduler *scheduler, struct hb_plan *plan, const struct hb_plan_queue *queue)
{
	for (uint32_t i = 0; i < queue->n; i++) {
		const struct hb_planned *batch = &queue->batch[i];
		hb_plan_add(scheduler, plan, batch->model, batch->items, HB_SCHEDULER_HIGH, true, batch->deadline_ns,
			    batch->items);
	}
}

/*
 * Returns the probability that batch i misses its deadline. With d = deadline - predicted
 * finish and e = error estimate: 0.5 exp(-d/e) for d > 0, 1 - 0.5 exp(d/e)
 * otherwise; so 50 % at the deadline, 18 % at e before it, 7 % at 2e.
 *
 * By the definition of e, 10 % would be later than e. But e was learned for the
 * batches known at the begin; batches that join later make the tail longer. The
 * tail never reaches 0, so that every additional batch has a cost.
 */
static double compute_miss_chance(const struct hb_scheduler *scheduler, const struct hb_plan *plan, int64_t now_ns,
				  uint32_t i)
{
	if (plan->deadline_ns[i] == INT64_MAX)
		return 0;
	double left_ns = (double)(plan->deadline_ns[i] - now_ns) - plan->forecast.flow[i].finish_ns;
	double error_ns = hb_forecast_error_ns(&scheduler->predictor, &plan->forecast, i);
	double far = left_ns / (error_ns > ERROR_LEAST_NS ? error_ns : ERROR_LEAST_NS);
	return far > 0 ? 0.5 * exp(-far) : 1 - 0.5 * exp(far);
}

static void sum_plan_cost(struct hb_scheduler *scheduler, struct hb_plan *plan, int64_t now_ns,
			  struct hb_plan_cost *cost)
{
	*cost = (struct hb_plan_cost){0};
	for (uint32_t i = 0; i < plan->forecast.n; i++) {
		double misses = plan->weight[i] * compute_miss_chance(scheduler, plan, now_ns, i);
		*(i == plan->expected ? &cost->expected : &cost->class[plan->forecast.flow[i].priority]) += misses;
	}
}

void hb_plan_run(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan, struct hb_plan_cost *cost)
{
	hb_forecast_run(&scheduler->predictor, &plan->forecast, NULL);
	sum_plan_cost(scheduler, plan, now_ns, cost);
}

/* The cost that a forecast may still accumulate before it is stopped. */
struct plan_limit {
	struct hb_scheduler *scheduler;
	const struct hb_plan *plan;
	int64_t now_ns;
	double high, expected;
};

static bool exceeds_limit(void *self, const struct hb_flow *finished)
{
	struct plan_limit *limit = self;
	uint32_t i = (uint32_t)(finished - limit->plan->forecast.flow);
	if (finished->priority != HB_SCHEDULER_HIGH)
		return false;
	double *left = i == limit->plan->expected ? &limit->expected : &limit->high;
	*left -= limit->plan->weight[i] * compute_miss_chance(limit->scheduler, limit->plan, limit->now_ns, i);
	return *left < 0;
}

bool hb_plan_run_within(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *plan,
			const struct hb_plan_cost *most, struct hb_plan_cost *cost)
{
	struct plan_limit limit = {.scheduler = scheduler, .plan = plan, .now_ns = now_ns};
	limit.high = most->class[HB_SCHEDULER_HIGH];
	limit.expected = most->expected;
	if (!hb_forecast_run(&scheduler->predictor, &plan->forecast,
			     &(struct hb_forecast_watch){exceeds_limit, &limit}))
		return false;
	sum_plan_cost(scheduler, plan, now_ns, cost);
	return true;
}
