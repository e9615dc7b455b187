/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pausing half of the policy `ours`: low-priority batches are paused while
 * the plan in which they are paused costs high priority less than the plan in
 * which they run, and resume as soon as it does not. Priority alone is no reason
 * to pause a batch.
 *
 * Example. An LP batch has 6 ms left. An HP request of 3 ms arrives with a
 * deadline in 5 ms. Beside LP it would take 5.4 ms and miss. With LP paused,
 * which takes effect after a tenth of LP's run, it takes 3.2 ms. So LP is paused
 * until HP has ended. With a deadline in 10 ms no batch would be paused.
 *
 * Bad at: several LP batches of which only one delays HP (all are paused
 * together); back ends whose batches still execute for long after a pause.
 */
#include "server/scheduler/pick_pause.h"

/* A pause must save at least this many high-priority misses, and HIGH_FOR_LOW for each low-priority miss that it causes. */
#define PAUSE_LEAST 0.02
#define HIGH_FOR_LOW 0.02
/* A batch is not paused or resumed again within this time: each change alters the plans, and the decision could oscillate. */
#define PAUSE_CHANGE_NS INT64_C(200000)

/*
 * Returns whether high priority of the same model waits for the place of the batch; paused, the batch would block it
 * forever.
 */
static bool is_waited_for(const struct hb_scheduler *scheduler, const struct hb_scheduler_batch *batch)
{
	return scheduler->queues[batch->model][HB_SCHEDULER_HIGH].requests &&
	       !hb_scheduler_slot_free(scheduler, batch->model, HB_SCHEDULER_HIGH);
}

static bool may_pause(const struct hb_scheduler *scheduler, uint32_t slot)
{
	const struct hb_scheduler_batch *batch = &scheduler->batches[slot];
	return batch->used && batch->can_pause && !batch->runs_to_end && !is_waited_for(scheduler, batch);
}

static double compute_run_left(const struct hb_scheduler *scheduler, uint32_t slot)
{
	const struct hb_flow *flow = &scheduler->predictor.flights[slot].flow;
	return flow->stage <= HB_STAGE_RUN ? flow->left_ns[HB_STAGE_RUN] : 0;
}

/* Lets batches that began `age_ns` ago run to their end, as far as the share of GPU time for aged batches allows. */
static void release_aged(struct hb_scheduler *scheduler, int64_t now_ns)
{
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++) {
		struct hb_scheduler_batch *batch = &scheduler->batches[slot];
		if (!batch->used || !batch->paused)
			continue;
		int64_t due_ns = batch->begun_ns + scheduler->config.age_ns;
		due_ns = due_ns > scheduler->aged_after_ns ? due_ns : scheduler->aged_after_ns;
		if (now_ns < due_ns) {
			scheduler->policy_wake_ns = due_ns < scheduler->policy_wake_ns ? due_ns
										       : scheduler->policy_wake_ns;
			continue;
		}
		scheduler->aged_after_ns = now_ns +
					   (int64_t)(compute_run_left(scheduler, slot) / scheduler->config.aged_share);
		scheduler->counts.aged++;
		batch->runs_to_end = true;
	}
}

static void pause_in_plan(const struct hb_scheduler *scheduler, struct hb_plan *plan, bool paused)
{
	for (uint32_t i = 0; i < plan->forecast.n; i++) {
		uint32_t slot = plan->forecast.slot[i];
		if (slot < HB_SCHEDULER_FLIGHTS_MAX)
			hb_forecast_pause(&scheduler->predictor, &plan->forecast, i,
					  paused && may_pause(scheduler, slot));
	}
}

static bool should_pause(struct hb_scheduler *scheduler, int64_t now_ns)
{
	struct hb_plan flights, plan;
	struct hb_plan_cost runs, pauses;
	struct hb_plan_queue queue;
	hb_plan_flights(scheduler, now_ns, &flights);
	hb_plan_collect_queue(scheduler, HB_SCHEDULER_NONE, 0, &queue);
	hb_plan_add_queue(scheduler, &flights, &queue);
	hb_plan_copy(&plan, &flights);
	pause_in_plan(scheduler, &plan, false);
	hb_plan_run(scheduler, now_ns, &plan, &runs);
	if (runs.class[HB_SCHEDULER_HIGH] < PAUSE_LEAST)
		return false;
	pause_in_plan(scheduler, &flights, true);
	hb_plan_run(scheduler, now_ns, &flights, &pauses);
	double saved = runs.class[HB_SCHEDULER_HIGH] - pauses.class[HB_SCHEDULER_HIGH];
	double lost = pauses.class[HB_SCHEDULER_LOW] - runs.class[HB_SCHEDULER_LOW];
	return saved >= PAUSE_LEAST && saved >= HIGH_FOR_LOW * lost;
}

/*
 * Pauses or resumes the batch in `slot`. False: nothing is to be done, or it is too early and the policy is called
 * again later.
 */
static bool change_pause(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool paused,
			 struct hb_scheduler_action *action)
{
	struct hb_scheduler_batch *batch = &scheduler->batches[slot];
	if (!batch->used || batch->paused == paused)
		return false;
	if (now_ns < batch->pause_change_after_ns) {
		int64_t *wake_ns = &scheduler->policy_wake_ns;
		*wake_ns = *wake_ns < batch->pause_change_after_ns ? *wake_ns : batch->pause_change_after_ns;
		return false;
	}
	batch->pause_change_after_ns = now_ns + PAUSE_CHANGE_NS;
	return hb_scheduler_pause(scheduler, now_ns, slot, paused, action);
}

bool hb_pause_decide(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	bool any = false;
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++)
		any |= scheduler->batches[slot].used && scheduler->batches[slot].can_pause;
	if (!any)
		return false;
	release_aged(scheduler, now_ns);
	bool high = scheduler->n_in_flight[HB_SCHEDULER_HIGH] || scheduler->queued[HB_SCHEDULER_HIGH];
	bool pause = high && should_pause(scheduler, now_ns);
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++) {
		if (change_pause(scheduler, now_ns, slot, pause && may_pause(scheduler, slot), action))
			return true;
	}
	return false;
}
