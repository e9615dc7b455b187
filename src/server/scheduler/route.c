/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts where a request ends first; see route.h. */
#include "server/scheduler/route.h"

#include "server/scheduler/scheduler_policy.h"

/* Returns the time of a queue alone: full batches and a rest. */
static double compute_queue_ns(const struct hb_scheduler *scheduler, uint32_t model, uint32_t items, uint32_t most)
{
	const struct hb_predictor *predictor = &scheduler->predictor;
	uint32_t full = items / most, rest = items % most;
	double ns = full ? full * hb_predictor_alone(predictor, model, most).ns : 0;
	return ns + (rest ? hb_predictor_alone(predictor, model, rest).ns : 0);
}

/* Returns the largest batch of a model. */
static uint32_t find_most_items(const struct hb_scheduler *scheduler, uint32_t model)
{
	uint32_t most = scheduler->predictor.models[model].max_items;
	return scheduler->config.batch_most < most ? scheduler->config.batch_most : most;
}

/* Returns the time alone of all queued requests that run before one of `class`, and of `more` items of one model. */
static double compute_backlog_ns(const struct hb_scheduler *scheduler, enum hb_scheduler_priority class, uint32_t model,
				 uint32_t more)
{
	double ns = 0;
	for (uint32_t i = 0; i < scheduler->predictor.n_models; i++) {
		uint32_t items = scheduler->queues[i][HB_SCHEDULER_HIGH].items + (i == model ? more : 0);
		if (class == HB_SCHEDULER_LOW)
			items += scheduler->queues[i][HB_SCHEDULER_LOW].items;
		if (items)
			ns += compute_queue_ns(scheduler, i, items, find_most_items(scheduler, i));
	}
	return ns;
}

/* Returns when the batches in flight of the model have ended, in the forecast. */
static double find_model_free_ns(const struct hb_forecast *forecast, uint32_t model, uint32_t own)
{
	double free_ns = 0;
	for (uint32_t i = 0; i < forecast->n; i++)
		if (i != own && forecast->flow[i].model == model && forecast->flow[i].finish_ns > free_ns)
			free_ns = forecast->flow[i].finish_ns;
	return free_ns;
}

double hb_route_predict_ns(struct hb_scheduler *scheduler, int64_t now_ns, const struct hb_scheduler_request *request)
{
	const struct hb_predictor *predictor = &scheduler->predictor;
	enum hb_scheduler_priority class = scheduler->ops->priorities ? request->priority : HB_SCHEDULER_HIGH;
	uint32_t model = request->model, most = find_most_items(scheduler, model),
		 items = scheduler->queues[model][class].items + request->items;
	items = items < most ? items : most;
	struct hb_forecast forecast;
	hb_forecast_begin(predictor, now_ns, &forecast);
	uint32_t own = hb_forecast_add(predictor, &forecast, model, items, class,
				       scheduler->n_in_flight[HB_SCHEDULER_HIGH] > 0);
	hb_forecast_run(predictor, &forecast, NULL);
	double alone_ns = hb_predictor_alone(predictor, model, items).ns, end_ns = alone_ns;
	if (own < HB_FORECAST_MAX)
		end_ns = forecast.flow[own].finish_ns;
	if (!hb_scheduler_slot_free(scheduler, model, class)) {
		double waits_ns = find_model_free_ns(&forecast, model, own) + alone_ns;
		end_ns = waits_ns > end_ns ? waits_ns : end_ns;
	}
	double before_ns = compute_backlog_ns(scheduler, class, model, request->items) - alone_ns;
	return end_ns + (before_ns > 0 ? before_ns : 0);
}

uint32_t hb_route_choose(struct hb_scheduler *const *schedulers, uint32_t candidates, int64_t now_ns,
			 const struct hb_scheduler_request *request)
{
	uint32_t best = HB_ROUTE_GPUS_MAX;
	double best_ns = 0;
	for (uint32_t i = 0; i < HB_ROUTE_GPUS_MAX && candidates >> i; i++) {
		if (!(candidates >> i & 1))
			continue;
		if (candidates == 1u << i)
			return i; /* there is no choice */
		double ns = hb_route_predict_ns(schedulers[i], now_ns, request);
		if (best == HB_ROUTE_GPUS_MAX || ns < best_ns) {
			best = i;
			best_ns = ns;
		}
	}
	return best;
}

uint32_t hb_route_find_waiting(struct hb_scheduler *const *schedulers, uint32_t n, uint32_t thief, uint32_t model)
{
	const struct hb_scheduler *idle = schedulers[thief];
	uint32_t best = HB_ROUTE_GPUS_MAX, most = 0;
	if (hb_scheduler_busy(idle) || idle->queued[HB_SCHEDULER_HIGH] || idle->queued[HB_SCHEDULER_LOW])
		return best;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t waiting = hb_scheduler_waiting_of(schedulers[i], model);
		if (i == thief || !hb_scheduler_busy(schedulers[i]) || waiting <= most)
			continue;
		best = i;
		most = waiting;
	}
	return best;
}
