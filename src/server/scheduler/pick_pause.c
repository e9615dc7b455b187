/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low-priority batches that have begun and are in high priority's way: our
 * policy holds them where the plan in which they stand costs high priority less
 * than the one in which they run, and lets them go on as soon as it does not.
 * Nothing is held for being of low priority alone.
 *
 * Example. An LP batch has 6 ms left; an HP request of 3 ms with a deadline in
 * 5 ms comes, and beside LP would take 5.4 ms: it would miss. With LP held,
 * which takes effect after a tenth of its run, 3.2 ms: LP is held until HP has
 * ended. With a deadline in 10 ms nobody is held.
 *
 * Bad at: several batches of which one alone is in the way, which are held
 * together; back ends whose batches go on for long after they are held.
 */
#include "server/scheduler/pick_pause.h"

/* High-priority misses that holding must save, and so many for each low-priority request that misses for it. */
#define PAUSE_LEAST 0.02
#define HIGH_FOR_LOW 0.02
#define PAUSE_CHANGE_NS INT64_C(200000)

/* High priority of its own model waits for the place it takes: standing it would be in the way for ever. */
static bool is_waited_for(const struct hb_scheduler *scheduler, const struct hb_scheduler_batch *batch)
{
	return scheduler->queues[batch->model][HB_SCHEDULER_HIGH].requests &&
	       !hb_scheduler_slot_free(scheduler, batch->model, HB_SCHEDULER_HIGH);
}

static bool may_stand(const struct hb_scheduler *scheduler, uint32_t slot)
{
	const struct hb_scheduler_batch *batch = &scheduler->batches[slot];
	return batch->used && batch->can_pause && !batch->goes_on && !is_waited_for(scheduler, batch);
}

static double left_ns(const struct hb_scheduler *scheduler, uint32_t slot)
{
	const struct hb_flow *flow = &scheduler->predictor.flights[slot].flow;
	return flow->stage <= HB_STAGE_RUN ? flow->left_ns[HB_STAGE_RUN] : 0;
}

/* What was held for so long that it would be served for its age goes on to its end, within the share for that. */
static void let_aged_go(struct hb_scheduler *scheduler, int64_t now_ns)
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
		scheduler->aged_after_ns = now_ns + (int64_t)(left_ns(scheduler, slot) / scheduler->config.aged_share);
		scheduler->counts.aged++;
		batch->goes_on = true;
	}
}

static void plan_pause(const struct hb_scheduler *scheduler, struct hb_plan *plan, bool paused)
{
	for (uint32_t i = 0; i < plan->forecast.n; i++) {
		uint32_t slot = plan->forecast.slot[i];
		if (slot < HB_SCHEDULER_FLIGHTS_MAX)
			hb_forecast_pause(&scheduler->predictor, &plan->forecast, i,
					  paused && may_stand(scheduler, slot));
	}
}

static bool should_pause(struct hb_scheduler *scheduler, int64_t now_ns)
{
	struct hb_plan flights, plan;
	struct hb_plan_cost runs, stands;
	struct hb_plan_queue queue;
	hb_plan_flights(scheduler, now_ns, &flights);
	hb_plan_queue_look(scheduler, HB_SCHEDULER_NONE, 0, &queue);
	hb_plan_add_queue(scheduler, &flights, &queue);
	hb_plan_copy(&plan, &flights);
	plan_pause(scheduler, &plan, false);
	hb_plan_run(scheduler, now_ns, &plan, &runs);
	if (runs.class[HB_SCHEDULER_HIGH] < PAUSE_LEAST)
		return false;
	plan_pause(scheduler, &flights, true);
	hb_plan_run(scheduler, now_ns, &flights, &stands);
	double saved = runs.class[HB_SCHEDULER_HIGH] - stands.class[HB_SCHEDULER_HIGH];
	double lost = stands.class[HB_SCHEDULER_LOW] - runs.class[HB_SCHEDULER_LOW];
	return saved >= PAUSE_LEAST && saved >= HIGH_FOR_LOW * lost;
}

/* Not twice within HOLD_CHANGE_NS: what is held now changes what is best, and back. It is asked again then. */
static bool change(struct hb_scheduler *scheduler, int64_t now_ns, uint32_t slot, bool paused,
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
	let_aged_go(scheduler, now_ns);
	bool high = scheduler->n_in_flight[HB_SCHEDULER_HIGH] || scheduler->queued[HB_SCHEDULER_HIGH];
	bool hold = high && should_pause(scheduler, now_ns);
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++) {
		if (change(scheduler, now_ns, slot, hold && may_stand(scheduler, slot), action))
			return true;
	}
	return false;
}
