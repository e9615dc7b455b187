/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline `clockwork`, after Clockwork (OSDI 2020): one batch runs at a
 * time, so that its time is predictable. Earliest deadline first, with the
 * largest batch that the first request's deadline allows. A request that cannot
 * be in time is refused before it begins. The input of the next batch is copied
 * during a run: that batch starts so that its copy is predicted to end together
 * with the run.
 *
 * Bad at: priorities, which it ignores; GPUs that one small batch does not fill.
 */
#include "server/scheduler/scheduler_policy.h"

/* Returns the time until all runs in flight have ended, one after another. */
static double compute_busy_ns(struct hb_scheduler *scheduler, int64_t now_ns)
{
	struct hb_forecast forecast;
	double end_ns = 0;
	hb_forecast_begin(&scheduler->predictor, now_ns, &forecast);
	for (uint32_t i = 0; i < forecast.n; i++)
		for (int stage = forecast.flow[i].stage; stage < HB_STAGE_OUT; stage++)
			end_ns += forecast.flow[i].left_ns[stage];
	return end_ns;
}

static struct hb_waiting *find_most_urgent(struct hb_scheduler *scheduler)
{
	struct hb_waiting *best = NULL;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		struct hb_waiting *first = hb_scheduler_first(scheduler, model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY);
		if (first && hb_scheduler_slot_free(scheduler, model, HB_SCHEDULER_HIGH) &&
		    (!best || first->deadline_ns < best->deadline_ns))
			best = first;
	}
	return best;
}

/*
 * Returns the number of items of the largest batch that ends within left_ns; 0 = not even the first request alone does.
 */
static uint32_t find_items_in_time(struct hb_scheduler *scheduler, const struct hb_waiting *first, double left_ns)
{
	uint32_t items = hb_scheduler_batch_items(scheduler, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY,
						  HB_SCHEDULER_BATCH_MAX);
	for (; items >= first->items; items--)
		if (hb_predictor_alone(&scheduler->predictor, first->model, items).ns <= left_ns)
			return items;
	return 0;
}

static bool decide_clockwork(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	struct hb_waiting *first;
	while ((first = find_most_urgent(scheduler))) {
		const struct hb_scheduler_model *model = &scheduler->predictor.models[first->model];
		double busy_ns = compute_busy_ns(scheduler, now_ns);
		double left_ns = first->deadline_ns == INT64_MAX ? 1e18 : (double)(first->deadline_ns - now_ns);
		double copy_ns = hb_predictor_transfer_ns(&scheduler->predictor, HB_STAGE_IN,
							  model->in_bytes * first->items);
		double delay_ns = busy_ns > copy_ns ? busy_ns - copy_ns : 0;
		uint32_t items = find_items_in_time(scheduler, first, left_ns - delay_ns);
		if (!items) {
			double takes_ns = hb_predictor_alone(&scheduler->predictor, first->model, first->items).ns;
			int64_t finish_ns = now_ns + (int64_t)(delay_ns + takes_ns);
			if (hb_scheduler_refuse(scheduler, now_ns, first, HB_SCHEDULER_LATE, finish_ns, action))
				return true;
			continue;
		}
		if (delay_ns < 1)
			return hb_scheduler_start(scheduler, now_ns, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY,
						  items, action);
		scheduler->policy_wake_ns = now_ns + (int64_t)delay_ns;
		return false;
	}
	return false;
}

const struct hb_scheduler_ops hb_scheduler_clockwork = {.parts = {true, false}, .decide = decide_clockwork};
