/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy `ours`, after Strait: compares plans (miss_chance.h) by the expected number
 * of deadline misses. docs/serving-scheduler.md explains why.
 *
 * - High priority, earliest deadline first: compares a batch of each size with
 *   waiting and takes the plan with the least cost, of equal ones the largest
 *   batch. Beside running high-priority batches, a further batch must also
 *   increase the work done per time, unless they are overdue by far.
 * - Low priority, earliest deadline first: the batch with the most requests in
 *   time among those that add (nearly) nothing to the cost of high priority,
 *   including a high-priority request that might arrive next.
 * - Running low-priority batches can be paused (pick_pause.c).
 *
 * There is no limit on concurrency; the predictions limit it.
 *
 * Example. An HP batch has 3 ms of work and 5 ms until its deadline. A queued LP
 * batch of 8 takes 6 ms and is predicted to slow HP by 20 %: HP would end after
 * 3.6 ms, four times its error of 10 % before the deadline, and miss with a
 * probability of 1 %. The LP batch starts. With 3.5 ms until the deadline the
 * probability would be 0.6 instead of 0.1; smaller LP batches are tried, then none.
 *
 * Bad at: running batches that cannot be paused; models whose time depends on the
 * input; a low-priority model whose smallest batch takes longer than high
 * priority can wait: it gets only the share for aged requests.
 */
#include "server/scheduler/pick_pause.h"

/* Expected high-priority misses that one more low-priority request in time may cost. */
#define HIGH_FOR_LOW 0.0002
/* An additional batch must increase the sum of progress rates (hb_forecast_speed) by at least this amount. */
#define GAIN_LEAST 0.05
/* The same bound for the expected misses of a high-priority request that may arrive, weighted with its probability. */
#define EXPECTED_FOR_LOW 0.02
/* While the GPU is idle and no queued low-priority batch may start, the decision is repeated after this time. */
#define RETRY_NS INT64_C(5000000)
/* A batch is overdue by far after this many times its predicted time, and this much longer. */
#define OVERDUE_FACTOR 10
#define OVERDUE_LEAST_NS 10e6
#define OVERDUE_MOST_NS 1e17
/* Two sums of the same misses, added in different orders, differ by less than this. */
#define ROUNDING 1e-6

_Static_assert(HB_SCHEDULER_MODELS_MAX <= 64, "find_most_urgent() has a bit for each model");

/* Requests are ordered by deadline, and those with the same deadline, or with none, by age. */
static bool is_more_urgent(const struct hb_waiting *a, const struct hb_waiting *b)
{
	return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->arrival_ns < b->arrival_ns;
}

/* Returns the most urgent request among models that may start a batch. `tried`: a bit for each model that is left out. */
static struct hb_waiting *find_most_urgent(struct hb_scheduler *scheduler, enum hb_scheduler_priority class,
					   uint64_t tried)
{
	struct hb_waiting *best = NULL;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		struct hb_waiting *first = hb_scheduler_first(scheduler, model, class, HB_ORDER_URGENCY);
		if (first && !(tried >> model & 1) && hb_scheduler_slot_free(scheduler, model, class) &&
		    (!best || is_more_urgent(first, best)))
			best = first;
	}
	return best;
}

/* Refuses requests that would be late even if they ran alone. */
static bool refuse_hopeless(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++)
		for (int class = 0; class < HB_SCHEDULER_PRIORITIES; class ++)
			for (;;) {
				struct hb_waiting *first = hb_scheduler_first(scheduler, model, class,
									      HB_ORDER_URGENCY);
				if (!first || first->deadline_ns == INT64_MAX)
					break;
				double alone_ns = hb_predictor_alone(&scheduler->predictor, model, first->items).ns;
				if (alone_ns <= (double)(first->deadline_ns - now_ns))
					break;
				int64_t finish_ns = now_ns + (int64_t)alone_ns;
				if (hb_scheduler_refuse(scheduler, now_ns, first, HB_SCHEDULER_LATE, finish_ns, action))
					return true;
			}
	return false;
}

/* Returns whether one more batch increases the work done per time, which is `before` without it (hb_forecast_speed). */
static bool speeds_up(struct hb_scheduler *scheduler, struct hb_plan *flights, double before, uint32_t model,
		      uint32_t items, enum hb_scheduler_priority class)
{
	struct hb_forecast *forecast = &flights->forecast;
	return !forecast->n ||
	       hb_forecast_speed_with(&scheduler->predictor, forecast, model, items, class) >= before + GAIN_LEAST;
}

/* Returns the cost of high priority if a batch of `items` starts now; 0 items = nothing starts. */
static double compute_start_cost(struct hb_scheduler *scheduler, int64_t now_ns, const struct hb_plan *flights,
				 const struct hb_waiting *first, uint32_t items)
{
	struct hb_plan plan;
	struct hb_plan_cost cost;
	struct hb_plan_queue queue;
	hb_plan_copy(&plan, flights);
	if (items)
		hb_plan_add(scheduler, &plan, first->model, items, HB_SCHEDULER_HIGH, false, first->deadline_ns, items);
	hb_plan_collect_queue(scheduler, first->model, items, &queue);
	hb_plan_add_queue(scheduler, &plan, &queue);
	hb_plan_run(scheduler, now_ns, &plan, &cost);
	return cost.class[HB_SCHEDULER_HIGH];
}

/*
 * Returns whether the batch should wait for the high-priority batches in flight. Costs
 * are never negative: if starting costs nothing, waiting cannot cost less.
 */
static bool should_wait(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *flights,
			const struct hb_waiting *first, uint32_t items, double start_cost)
{
	double speed = hb_forecast_speed(&scheduler->predictor, &flights->forecast);
	bool gain = speeds_up(scheduler, flights, speed, first->model, items, HB_SCHEDULER_HIGH);
	if (gain && start_cost <= HB_PLAN_SAME)
		return false;
	double wait_cost = compute_start_cost(scheduler, now_ns, flights, first, 0);
	return wait_cost < start_cost - HB_PLAN_SAME || (!gain && wait_cost < start_cost + HB_PLAN_SAME);
}

/*
 * Returns until when others wait for the high-priority batches in flight; 0 = there are none. A batch that is overdue by far
 * waits for something other than the GPU: its worker hangs, or is started again.
 */
static int64_t await_until_ns(const struct hb_scheduler *scheduler)
{
	int64_t until_ns = 0;
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++) {
		const struct hb_flight *flight = &scheduler->predictor.flights[slot];
		if (!flight->flow.live || flight->flow.priority != HB_SCHEDULER_HIGH)
			continue;
		double most_ns = OVERDUE_FACTOR * flight->predicted_ns + OVERDUE_LEAST_NS;
		int64_t end_ns = flight->begun_ns + (int64_t)(most_ns < OVERDUE_MOST_NS ? most_ns : OVERDUE_MOST_NS);
		until_ns = end_ns > until_ns ? end_ns : until_ns;
	}
	return until_ns;
}

static bool start_high(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	struct hb_waiting *first = find_most_urgent(scheduler, HB_SCHEDULER_HIGH, 0);
	if (!first)
		return false;
	struct hb_plan flights;
	uint32_t best = 0, most = hb_scheduler_batch_items(scheduler, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY,
							   HB_SCHEDULER_BATCH_MAX);
	double best_cost = 0;
	hb_plan_flights(scheduler, now_ns, &flights);
	for (uint32_t items = most; items >= first->items; items--) {
		/* A cost of 0 cannot be improved. */
		if (best && best_cost <= HB_PLAN_SAME)
			break;
		if (hb_scheduler_batch_items(scheduler, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY, items) !=
		    items)
			continue;
		double cost = compute_start_cost(scheduler, now_ns, &flights, first, items);
		if (!best || cost < best_cost - HB_PLAN_SAME) {
			best = items;
			best_cost = cost;
		}
	}
	int64_t until_ns = await_until_ns(scheduler);
	if (now_ns < until_ns && should_wait(scheduler, now_ns, &flights, first, best, best_cost)) {
		scheduler->policy_wake_ns = until_ns < scheduler->policy_wake_ns ? until_ns : scheduler->policy_wake_ns;
		return false;
	}
	return hb_scheduler_start(scheduler, now_ns, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY, best, action);
}

/*
 * The part that all plans of one decision about low priority share: computed once
 * per decision, and only if a batch might start.
 */
struct low_decision {
	struct hb_plan flights; /* the batches in flight */
	double speed;           /* hb_forecast_speed() of `flights` */
	bool complete;          /* the fields below are set */
	struct hb_plan_queue queue;
	uint32_t n_habits,
		tightest; /* tightest: the model with the shortest deadline / time alone, or HB_SCHEDULER_NONE */
	double gap_ns[HB_SCHEDULER_MODELS_MAX]; /* time between arrivals, for each model with high-priority requests */
	struct hb_plan_cost
		before; /* cost if nothing starts; `expected` is computed as if that request were certain to arrive */
};

/*
 * Adds the high-priority request that may arrive while low priority runs: one of
 * the tightest model, behind the queue.
 */
static void add_expected(struct hb_scheduler *scheduler, struct hb_plan *plan, int64_t now_ns, uint32_t model,
			 double chance)
{
	if (model != HB_SCHEDULER_NONE)
		plan->expected = hb_plan_add(scheduler, plan, model, 1, HB_SCHEDULER_HIGH, true,
					     now_ns + scheduler->habits[model].deadline_ns, chance);
}

static void collect_habits(struct hb_scheduler *scheduler, int64_t now_ns, struct low_decision *decision)
{
	double least = 0;
	decision->n_habits = 0;
	decision->tightest = HB_SCHEDULER_NONE;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		const struct hb_scheduler_habit *habit = &scheduler->habits[model];
		if (habit->deadline_ns <= 0)
			continue;
		double silent_ns = (double)(now_ns - habit->seen_ns);
		decision->gap_ns[decision->n_habits++] = silent_ns > habit->gap_ns ? silent_ns : habit->gap_ns;
		double room = (double)habit->deadline_ns / (1 + hb_predictor_alone(&scheduler->predictor, model, 1).ns);
		if (decision->tightest == HB_SCHEDULER_NONE || room < least) {
			decision->tightest = model;
			least = room;
		}
	}
}

/* Returns the probability that a high-priority request of any model arrives within lasts_ns. */
static double compute_arrival_chance(const struct low_decision *decision, double lasts_ns)
{
	double chance = 0;
	for (uint32_t i = 0; i < decision->n_habits; i++)
		chance += lasts_ns / decision->gap_ns[i];
	return chance < 1 ? chance : 1;
}

static void complete_decision(struct hb_scheduler *scheduler, int64_t now_ns, struct low_decision *decision)
{
	struct hb_plan plan;
	if (decision->complete)
		return;
	decision->complete = true;
	hb_plan_collect_queue(scheduler, HB_SCHEDULER_NONE, 0, &decision->queue);
	collect_habits(scheduler, now_ns, decision);
	hb_plan_copy(&plan, &decision->flights);
	hb_plan_add_queue(scheduler, &plan, &decision->queue);
	add_expected(scheduler, &plan, now_ns, decision->tightest, 1);
	hb_plan_run(scheduler, now_ns, &plan, &decision->before);
}

/*
 * Returns the number of additional low-priority requests in time if the batch starts; 0 = it costs high priority too
 * much.
 */
static double compute_low_gain(struct hb_scheduler *scheduler, int64_t now_ns, const struct low_decision *decision,
			       const struct hb_waiting *first, uint32_t items)
{
	struct hb_plan plan;
	struct hb_plan_cost after;
	const struct hb_plan_cost *before = &decision->before;
	double chance = compute_arrival_chance(decision,
					       hb_predictor_alone(&scheduler->predictor, first->model, items).ns);
	hb_plan_copy(&plan, &decision->flights);
	hb_plan_add(scheduler, &plan, first->model, items, HB_SCHEDULER_LOW, false, first->deadline_ns, items);
	hb_plan_add_queue(scheduler, &plan, &decision->queue);
	add_expected(scheduler, &plan, now_ns, decision->tightest, chance);
	/* The gain is at most `most`, which bounds the cost that may be accepted for it. */
	double most = items + before->class[HB_SCHEDULER_LOW];
	struct hb_plan_cost limit = {
		.class[HB_SCHEDULER_HIGH] = before->class[HB_SCHEDULER_HIGH] + HIGH_FOR_LOW * most + ROUNDING,
		.expected = chance * before->expected + EXPECTED_FOR_LOW * most + ROUNDING,
	};
	if (!hb_plan_run_within(scheduler, now_ns, &plan, &limit, &after))
		return 0;
	double gain = items - (after.class[HB_SCHEDULER_LOW] - before->class[HB_SCHEDULER_LOW]);
	bool harmless = after.class[HB_SCHEDULER_HIGH] - before->class[HB_SCHEDULER_HIGH] <= HIGH_FOR_LOW * gain &&
			after.expected - chance * before->expected <= EXPECTED_FOR_LOW * gain;
	return harmless ? gain : 0;
}

static bool low_speeds_up(struct hb_scheduler *scheduler, struct low_decision *decision, const struct hb_waiting *first,
			  uint32_t items)
{
	return speeds_up(scheduler, &decision->flights, decision->speed, first->model, items, HB_SCHEDULER_LOW);
}

/* Sizes of batches that can be made of the first requests of a queue. Bit n - 1 = n items. */
struct batch_sizes {
	uint32_t faster; /* sizes with which more work is done per time */
	uint32_t other;
};

static struct batch_sizes collect_sizes(struct hb_scheduler *scheduler, struct low_decision *decision,
					const struct hb_waiting *first)
{
	struct batch_sizes sizes = {0};
	uint32_t items = 0;
	for (const struct hb_waiting *last = first;;) {
		items += last->items;
		if (hb_scheduler_batch_items(scheduler, first->model, HB_SCHEDULER_LOW, HB_ORDER_URGENCY, items) !=
		    items)
			return sizes;
		*(low_speeds_up(scheduler, decision, first, items) ? &sizes.faster : &sizes.other) |= 1u << (items - 1);
		if (last->next[HB_ORDER_URGENCY] == HB_SCHEDULER_NONE)
			return sizes;
		last = hb_scheduler_waiting(scheduler, last->next[HB_ORDER_URGENCY]);
	}
}
struct size_choice {
	uint32_t items;
	double gain;
};

/* Sets *best to the size with the largest gain (of equal ones the largest size) if that is better than *best. */
static void improve_choice(struct hb_scheduler *scheduler, int64_t now_ns, const struct low_decision *decision,
			   const struct hb_waiting *first, uint32_t sizes, struct size_choice *best)
{
	for (uint32_t items = HB_SCHEDULER_BATCH_MAX; items >= first->items; items--) {
		if (!(sizes >> (items - 1) & 1))
			continue;
		/* Smaller sizes cannot gain more than this. */
		double most = items + decision->before.class[HB_SCHEDULER_LOW];
		if (most < best->gain || (most <= best->gain && items < best->items))
			return;
		double gain = compute_low_gain(scheduler, now_ns, decision, first, items);
		if (gain > best->gain || (gain >= best->gain && items > best->items && best->items))
			*best = (struct size_choice){items, gain};
	}
}

/*
 * Returns the number of items of the batch with the most requests in time, of the model of `first`; 0 =
 * none may start. The batch must make the GPU do more work per time. Other sizes
 * are evaluated only if such a size was found; if one of them is better, nothing
 * starts. Beside batches that fill the GPU usually no size helps, and the
 * decision is cheap.
 */
static uint32_t choose_low_items(struct hb_scheduler *scheduler, int64_t now_ns, struct low_decision *decision,
				 const struct hb_waiting *first)
{
	struct size_choice best = {0, HB_PLAN_SAME};
	struct batch_sizes sizes = collect_sizes(scheduler, decision, first);
	if (!sizes.faster)
		return 0;
	complete_decision(scheduler, now_ns, decision);
	improve_choice(scheduler, now_ns, decision, first, sizes.faster, &best);
	if (!best.items)
		return 0;
	uint32_t faster = best.items;
	improve_choice(scheduler, now_ns, decision, first, sizes.other, &best);
	return best.items == faster ? faster : 0;
}

/* Starts the oldest low-priority request if it has waited `age_ns` and the share of GPU time for aged requests allows. */
static bool start_aged(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	struct hb_waiting *oldest = NULL;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		struct hb_waiting *first = hb_scheduler_first(scheduler, model, HB_SCHEDULER_LOW, HB_ORDER_ARRIVAL);
		if (first && hb_scheduler_slot_free(scheduler, model, HB_SCHEDULER_LOW) &&
		    (!oldest || first->arrival_ns < oldest->arrival_ns))
			oldest = first;
	}
	if (!oldest)
		return false;
	int64_t due_ns = oldest->arrival_ns + scheduler->config.age_ns;
	due_ns = due_ns > scheduler->aged_after_ns ? due_ns : scheduler->aged_after_ns;
	if (now_ns < due_ns) {
		scheduler->policy_wake_ns = due_ns < scheduler->policy_wake_ns ? due_ns : scheduler->policy_wake_ns;
		return false;
	}
	double takes_ns = hb_predictor_alone(&scheduler->predictor, oldest->model, oldest->items).ns;
	scheduler->aged_after_ns = now_ns + (int64_t)(takes_ns / scheduler->config.aged_share);
	scheduler->counts.aged++;
	hb_scheduler_start(scheduler, now_ns, oldest->model, HB_SCHEDULER_LOW, HB_ORDER_ARRIVAL, oldest->items, action);
	scheduler->batches[action->slot].runs_to_end = true;
	return true;
}

static bool start_low(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	uint64_t tried = 0;
	struct hb_waiting *first;
	struct low_decision decision;
	if (!scheduler->queued[HB_SCHEDULER_LOW])
		return false;
	decision.complete = false;
	hb_plan_flights(scheduler, now_ns, &decision.flights);
	decision.speed = hb_forecast_speed(&scheduler->predictor, &decision.flights.forecast);
	/* If no batch of a model may start, the next model is tried. */
	while ((first = find_most_urgent(scheduler, HB_SCHEDULER_LOW, tried))) {
		uint32_t items = choose_low_items(scheduler, now_ns, &decision, first);
		if (items)
			return hb_scheduler_start(scheduler, now_ns, first->model, HB_SCHEDULER_LOW, HB_ORDER_URGENCY,
						  items, action);
		tried |= UINT64_C(1) << first->model;
	}
	/* Retry: the longer no expected request arrives, the smaller its assumed probability. */
	if (!hb_scheduler_busy(scheduler) && scheduler->policy_wake_ns > now_ns + RETRY_NS)
		scheduler->policy_wake_ns = now_ns + RETRY_NS;
	return false;
}

static bool decide_ours(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	/* Aged requests come first, because high priority may never leave a slot of their worker free. */
	return refuse_hopeless(scheduler, now_ns, action) || hb_pause_decide(scheduler, now_ns, action) ||
	       start_aged(scheduler, now_ns, action) || start_high(scheduler, now_ns, action) ||
	       start_low(scheduler, now_ns, action);
}

const struct hb_scheduler_ops hb_scheduler_ours = {
	.parts = {true, true}, .priorities = true, .pauses = true, .decide = decide_ours};
const struct hb_scheduler_ops hb_scheduler_ours_no_transfer = {
	.parts = {false, true}, .priorities = true, .pauses = true, .decide = decide_ours};
const struct hb_scheduler_ops hb_scheduler_ours_no_interference = {
	.parts = {true, false}, .priorities = true, .pauses = true, .decide = decide_ours};
const struct hb_scheduler_ops hb_scheduler_ours_no_preemption = {
	.parts = {true, true}, .priorities = true, .decide = decide_ours};
