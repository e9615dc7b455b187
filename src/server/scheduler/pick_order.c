/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Baselines that only order the queue. While fewer than `concurrency` batches
 * are in flight, the first request starts, in a batch with all queued requests
 * of its model, up to the model's largest batch.
 *
 *	fifo           by arrival, without priorities: the simplest server
 *	priority-fifo  high priority first, each by arrival, high priority on streams
 *	               of high priority: a server with priority queues (Triton)
 *	edf            earliest deadline first, without priorities
 *	separate       every model serves its own queue, as if it were a server of its
 *	               own: a batch starts when its worker is free, whatever else is in
 *	               flight. High priority on streams of high priority
 *
 * Bad at: a long low-priority batch that has begun delays all later requests; a
 * large batch is late for its first request; one value of `concurrency` is right
 * for one load and one mix of models only.
 */
#include "server/scheduler/scheduler_policy.h"

static bool start_first_request(struct hb_scheduler *scheduler, int64_t now_ns, enum hb_scheduler_priority class,
				enum hb_scheduler_order order, struct hb_scheduler_action *action)
{
	struct hb_waiting *best = NULL;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		struct hb_waiting *first = hb_scheduler_first(scheduler, model, class, order);
		if (!first || !hb_scheduler_slot_free(scheduler, model, class))
			continue;
		bool sooner = order == HB_ORDER_ARRIVAL ? !best || first->arrival_ns < best->arrival_ns
							: !best || first->deadline_ns < best->deadline_ns;
		best = sooner ? first : best;
	}
	return best && hb_scheduler_start(scheduler, now_ns, best->model, class, order, HB_SCHEDULER_BATCH_MAX, action);
}

static bool has_room(const struct hb_scheduler *scheduler)
{
	return hb_scheduler_busy(scheduler) < scheduler->config.concurrency;
}

static bool decide_fifo(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	return has_room(scheduler) &&
	       start_first_request(scheduler, now_ns, HB_SCHEDULER_HIGH, HB_ORDER_ARRIVAL, action);
}

static bool decide_priority(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	return has_room(scheduler) &&
	       (start_first_request(scheduler, now_ns, HB_SCHEDULER_HIGH, HB_ORDER_ARRIVAL, action) ||
		start_first_request(scheduler, now_ns, HB_SCHEDULER_LOW, HB_ORDER_ARRIVAL, action));
}

static bool decide_edf(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	return has_room(scheduler) &&
	       start_first_request(scheduler, now_ns, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY, action);
}

static bool decide_separate(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	return start_first_request(scheduler, now_ns, HB_SCHEDULER_HIGH, HB_ORDER_ARRIVAL, action) ||
	       start_first_request(scheduler, now_ns, HB_SCHEDULER_LOW, HB_ORDER_ARRIVAL, action);
}

/*
 * The baseline `preempt`, after REEF (OSDI 2022): low-priority batches are paused
 * as soon as high priority has work and resume when it has none. A batch stops at
 * its next step (HB_SCHEDULER_PAUSE), so it must be launched in steps. High
 * priority is first come, first served.
 *
 * Bad at: low priority under load, which is delayed by every interruption and
 * never runs beside high priority, even if the GPU has room; high-priority
 * requests among each other, because it ignores deadlines.
 */
static bool decide_preempt(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	if (scheduler->n_in_flight[HB_SCHEDULER_HIGH] < scheduler->config.concurrency &&
	    start_first_request(scheduler, now_ns, HB_SCHEDULER_HIGH, HB_ORDER_ARRIVAL, action))
		return true;
	bool high = scheduler->n_in_flight[HB_SCHEDULER_HIGH] > 0;
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++)
		if (hb_scheduler_pause(scheduler, now_ns, slot, high, action))
			return true;
	return !high && scheduler->n_in_flight[HB_SCHEDULER_LOW] < scheduler->config.concurrency &&
	       start_first_request(scheduler, now_ns, HB_SCHEDULER_LOW, HB_ORDER_ARRIVAL, action);
}

const struct hb_scheduler_ops hb_scheduler_fifo = {.parts = {true, true}, .decide = decide_fifo};
const struct hb_scheduler_ops hb_scheduler_priority_fifo = {
	.parts = {true, true}, .priorities = true, .decide = decide_priority};
const struct hb_scheduler_ops hb_scheduler_edf = {.parts = {true, true}, .decide = decide_edf};
const struct hb_scheduler_ops hb_scheduler_separate = {
	.parts = {true, true}, .priorities = true, .decide = decide_separate};
const struct hb_scheduler_ops hb_scheduler_preempt = {
	.parts = {true, true}, .priorities = true, .pauses = true, .decide = decide_preempt};
