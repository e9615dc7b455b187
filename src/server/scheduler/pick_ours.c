/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our policy, after Strait: who starts is decided by what the predictor says
 * would become of everybody's deadline. docs/serving-scheduler.md has the argument.
 *
 * Plans are forecasts, their cost is the number of requests expected to miss
 * (plan.h). High priority, by earliest deadline: of starting a batch of each
 * size and of waiting, the plan with the least cost, of equal ones the largest
 * batch. Where high priority runs already, a second batch needs that both
 * together get more done than one after the other. Low priority, by earliest
 * deadline: the batch with the most requests in time among those that add
 * (nearly) nothing to high priority's cost, also for a request of high priority
 * that might come the next moment. So what limits concurrency is the prediction.
 * What has begun can be held (pick_pause.c).
 *
 * Example. HP runs 3 ms yet and has 5 ms left; a queued LP batch of 8 takes 6 ms
 * and is predicted to slow HP by a fifth: 3.6 ms, four times its error of 10 %
 * before the deadline, so HP misses with a probability of 1 %: it starts. With
 * 3.5 ms left it would be 0.6 instead of 0.1: half the batch is tried, then none.
 *
 * Bad at: what has begun where it cannot be held; models whose time depends on
 * the input; a low-priority model whose single batch takes longer than high
 * priority can wait, which gets no more than the share for aged requests.
 */
#include "server/scheduler/pick_pause.h"

/* High-priority misses that a low-priority request in time may cost. */
#define HIGH_FOR_LOW 0.0002
/* A second batch must get so much more done, in batches alone. */
#define GAIN_LEAST 0.05
/* The same for requests that may come while it runs, by the chance that they do. */
#define EXPECTED_FOR_LOW 0.02
/* An idle GPU and low priority that may not start: asked again. */
#define RETRY_NS INT64_C(5000000)
/* Sums of misses in another order differ by less. */
#define ROUNDING 1e-6

/* The most urgent request of models that may start a batch. */
static struct hb_waiting *most_urgent(struct hb_scheduler *scheduler, enum hb_scheduler_priority class,
				      int64_t after_ns)
{
	struct hb_waiting *best = NULL;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		struct hb_waiting *first = hb_scheduler_first(scheduler, model, class, HB_ORDER_URGENCY);
		if (first && hb_scheduler_slot_free(scheduler, model, class) && first->deadline_ns > after_ns &&
		    (!best || first->deadline_ns < best->deadline_ns))
			best = first;
	}
	return best;
}

/* Requests that would be late even with the GPU to themselves. */
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

/* Whether a batch more in flight gets more done than the ones that are: `before`, as hb_forecast_speed() says. */
static bool gains(struct hb_scheduler *scheduler, struct hb_plan *flights, double before, uint32_t model,
		  uint32_t items, enum hb_scheduler_priority class)
{
	struct hb_forecast *forecast = &flights->forecast;
	return !forecast->n ||
	       hb_forecast_speed_with(&scheduler->predictor, forecast, model, items, class) >= before + GAIN_LEAST;
}

static double cost_of_start(struct hb_scheduler *scheduler, int64_t now_ns, const struct hb_plan *flights,
			    const struct hb_waiting *first, uint32_t items)
{
	struct hb_plan plan;
	struct hb_plan_cost cost;
	struct hb_plan_queue queue;
	hb_plan_copy(&plan, flights);
	if (items)
		hb_plan_add(scheduler, &plan, first->model, items, HB_SCHEDULER_HIGH, false, first->deadline_ns, items);
	hb_plan_queue_look(scheduler, first->model, items, &queue);
	hb_plan_add_queue(scheduler, &plan, &queue);
	hb_plan_run(scheduler, now_ns, &plan, &cost);
	return cost.class[HB_SCHEDULER_HIGH];
}

/*
 * Whether the batch should wait for the ones of high priority in flight. Costs
 * are not negative: where starting costs nothing, waiting cannot cost less.
 */
static bool should_wait(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_plan *flights,
			const struct hb_waiting *first, uint32_t items, double start_cost)
{
	double speed = hb_forecast_speed(&scheduler->predictor, &flights->forecast);
	bool gain = gains(scheduler, flights, speed, first->model, items, HB_SCHEDULER_HIGH);
	if (gain && start_cost <= HB_PLAN_SAME)
		return false;
	double wait_cost = cost_of_start(scheduler, now_ns, flights, first, 0);
	return wait_cost < start_cost - HB_PLAN_SAME || (!gain && wait_cost < start_cost + HB_PLAN_SAME);
}

static bool high_start(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	struct hb_waiting *first = most_urgent(scheduler, HB_SCHEDULER_HIGH, INT64_MIN);
	if (!first)
		return false;
	struct hb_plan flights;
	uint32_t best = 0, most = hb_scheduler_batch_items(scheduler, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY,
							   HB_SCHEDULER_BATCH_MAX);
	double best_cost = 0;
	hb_plan_flights(scheduler, now_ns, &flights);
	for (uint32_t items = most; items >= first->items; items--) {
		/* Nothing costs less than nothing. */
		if (best && best_cost <= HB_PLAN_SAME)
			break;
		if (hb_scheduler_batch_items(scheduler, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY, items) !=
		    items)
			continue;
		double cost = cost_of_start(scheduler, now_ns, &flights, first, items);
		if (!best || cost < best_cost - HB_PLAN_SAME) {
			best = items;
			best_cost = cost;
		}
	}
	if (scheduler->n_in_flight[HB_SCHEDULER_HIGH] &&
	    should_wait(scheduler, now_ns, &flights, first, best, best_cost))
		return false;
	return hb_scheduler_start(scheduler, now_ns, first->model, HB_SCHEDULER_HIGH, HB_ORDER_URGENCY, best, action);
}

/*
 * What all plans of one decision about low priority have in common. Without it
 * the plan of starting nothing would be made again for every batch that might.
 */
struct ground {
	struct hb_plan flights;
	double speed; /* of those */
	bool known;   /* the rest is: it is needed only where a batch would gain something */
	struct hb_plan_queue queue;
	uint32_t n_habits, tightest; /* tightest: the model with the least room; HB_SCHEDULER_NONE = none comes */
	double gap_ns[HB_SCHEDULER_MODELS_MAX];
	struct hb_plan_cost before; /* of starting nothing; of the expected one, were it sure to come */
};

/*
 * A request of high priority as it may come while low priority runs: one of the
 * model with the least room, behind all that waits.
 */
static void plan_expected(struct hb_scheduler *scheduler, struct hb_plan *plan, int64_t now_ns, uint32_t model,
			  double chance)
{
	if (model != HB_SCHEDULER_NONE)
		plan->expected = hb_plan_add(scheduler, plan, model, 1, HB_SCHEDULER_HIGH, true,
					     now_ns + scheduler->habits[model].deadline_ns, chance);
}

static void ground_habits(struct hb_scheduler *scheduler, int64_t now_ns, struct ground *ground)
{
	double least = 0;
	ground->n_habits = 0;
	ground->tightest = HB_SCHEDULER_NONE;
	for (uint32_t model = 0; model < scheduler->predictor.n_models; model++) {
		const struct hb_scheduler_habit *habit = &scheduler->habits[model];
		if (habit->deadline_ns <= 0)
			continue;
		double silent_ns = (double)(now_ns - habit->seen_ns);
		ground->gap_ns[ground->n_habits++] = silent_ns > habit->gap_ns ? silent_ns : habit->gap_ns;
		double room = (double)habit->deadline_ns / (1 + hb_predictor_alone(&scheduler->predictor, model, 1).ns);
		if (ground->tightest == HB_SCHEDULER_NONE || room < least) {
			ground->tightest = model;
			least = room;
		}
	}
}

/* The chance that a request of high priority of any model comes within that time. */
static double chance_of_high(const struct ground *ground, double lasts_ns)
{
	double chance = 0;
	for (uint32_t i = 0; i < ground->n_habits; i++)
		chance += lasts_ns / ground->gap_ns[i];
	return chance < 1 ? chance : 1;
}

static void ground_know(struct hb_scheduler *scheduler, int64_t now_ns, struct ground *ground)
{
	struct hb_plan plan;
	if (ground->known)
		return;
	ground->known = true;
	hb_plan_queue_look(scheduler, HB_SCHEDULER_NONE, 0, &ground->queue);
	ground_habits(scheduler, now_ns, ground);
	hb_plan_copy(&plan, &ground->flights);
	hb_plan_add_queue(scheduler, &plan, &ground->queue);
	plan_expected(scheduler, &plan, now_ns, ground->tightest, 1);
	hb_plan_run(scheduler, now_ns, &plan, &ground->before);
}

/* Requests more in time by starting such a batch; 0 = it costs high priority too much. */
static double low_gain(struct hb_scheduler *scheduler, int64_t now_ns, const struct ground *ground,
		       const struct hb_waiting *first, uint32_t items)
{
	struct hb_plan plan;
	struct hb_plan_cost after;
	const struct hb_plan_cost *before = &ground->before;
	double chance = chance_of_high(ground, hb_predictor_alone(&scheduler->predictor, first->model, items).ns);
	hb_plan_copy(&plan, &ground->flights);
	hb_plan_add(scheduler, &plan, first->model, items, HB_SCHEDULER_LOW, false, first->deadline_ns, items);
	hb_plan_add_queue(scheduler, &plan, &ground->queue);
	plan_expected(scheduler, &plan, now_ns, ground->tightest, chance);
	/* At most this can be gained, so at most this much may be lost for it. */
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

static bool low_gains(struct hb_scheduler *scheduler, struct ground *ground, const struct hb_waiting *first,
		      uint32_t items)
{
	return gains(scheduler, &ground->flights, ground->speed, first->model, items, HB_SCHEDULER_LOW);
}

/* Sizes of batches that the first requests of the queue make up: those that gain in one, the others in the other. */
struct sizes {
	uint32_t gaining, other; /* bit n - 1: n items */
};

static struct sizes low_sizes(struct hb_scheduler *scheduler, struct ground *ground, const struct hb_waiting *first)
{
	struct sizes sizes = {0};
	uint32_t items = 0;
	for (const struct hb_waiting *last = first;;) {
		items += last->items;
		if (hb_scheduler_batch_items(scheduler, first->model, HB_SCHEDULER_LOW, HB_ORDER_URGENCY, items) !=
		    items)
			return sizes;
		*(low_gains(scheduler, ground, first, items) ? &sizes.gaining : &sizes.other) |= 1u << (items - 1);
		if (last->next[HB_ORDER_URGENCY] == HB_SCHEDULER_NONE)
			return sizes;
		last = hb_scheduler_waiting(scheduler, last->next[HB_ORDER_URGENCY]);
	}
}
struct choice {
	uint32_t items;
	double gain;
};

/* The best of those sizes, the largest of equals, if it beats *best. */
static void low_best(struct hb_scheduler *scheduler, int64_t now_ns, const struct ground *ground,
		     const struct hb_waiting *first, uint32_t sizes, struct choice *best)
{
	for (uint32_t items = HB_SCHEDULER_BATCH_MAX; items >= first->items; items--) {
		if (!(sizes >> (items - 1) & 1))
			continue;
		/* More cannot be won by so few. */
		double most = items + ground->before.class[HB_SCHEDULER_LOW];
		if (most < best->gain || (most <= best->gain && items < best->items))
			return;
		double gain = low_gain(scheduler, now_ns, ground, first, items);
		if (gain > best->gain || (gain >= best->gain && items > best->items && best->items))
			*best = (struct choice){items, gain};
	}
}

/*
 * The batch of first's model with the most requests in time, if with one more in
 * flight more gets done; 0 = none may start. What gains nothing is asked for
 * only where something else was found, which it may surpass: the usual answer,
 * beside batches that fill the GPU, is that nothing gains.
 */
static uint32_t low_items(struct hb_scheduler *scheduler, int64_t now_ns, struct ground *ground,
			  const struct hb_waiting *first)
{
	struct choice best = {0, HB_PLAN_SAME};
	struct sizes sizes = low_sizes(scheduler, ground, first);
	if (!sizes.gaining)
		return 0;
	ground_know(scheduler, now_ns, ground);
	low_best(scheduler, now_ns, ground, first, sizes.gaining, &best);
	if (!best.items)
		return 0;
	uint32_t gaining = best.items;
	low_best(scheduler, now_ns, ground, first, sizes.other, &best);
	return best.items == gaining ? gaining : 0;
}

/* A low-priority request that has waited for longer than it should, where its share allows a batch. */
static bool aged_start(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
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
	scheduler->batches[action->slot].goes_on = true;
	return true;
}

static bool low_start(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	int64_t after_ns = INT64_MIN;
	struct hb_waiting *first;
	struct ground ground;
	if (!scheduler->queued[HB_SCHEDULER_LOW])
		return false;
	ground.known = false;
	hb_plan_flights(scheduler, now_ns, &ground.flights);
	ground.speed = hb_forecast_speed(&scheduler->predictor, &ground.flights.forecast);
	/* A model whose batch does not fit now does not keep the next one from it. */
	while ((first = most_urgent(scheduler, HB_SCHEDULER_LOW, after_ns))) {
		uint32_t items = low_items(scheduler, now_ns, &ground, first);
		if (items)
			return hb_scheduler_start(scheduler, now_ns, first->model, HB_SCHEDULER_LOW, HB_ORDER_URGENCY,
						  items, action);
		after_ns = first->deadline_ns;
	}
	/* What was expected and does not come is a reason less by and by. */
	if (!hb_scheduler_busy(scheduler) && scheduler->policy_wake_ns > now_ns + RETRY_NS)
		scheduler->policy_wake_ns = now_ns + RETRY_NS;
	return false;
}

static bool ours_decide(struct hb_scheduler *scheduler, int64_t now_ns, struct hb_scheduler_action *action)
{
	return refuse_hopeless(scheduler, now_ns, action) || hb_pause_decide(scheduler, now_ns, action) ||
	       high_start(scheduler, now_ns, action) || aged_start(scheduler, now_ns, action) ||
	       low_start(scheduler, now_ns, action);
}

const struct hb_scheduler_ops hb_scheduler_ours = {
	.parts = {true, true}, .priorities = true, .pauses = true, .decide = ours_decide};
const struct hb_scheduler_ops hb_scheduler_ours_no_transfer = {
	.parts = {false, true}, .priorities = true, .pauses = true, .decide = ours_decide};
const struct hb_scheduler_ops hb_scheduler_ours_no_interference = {
	.parts = {true, false}, .priorities = true, .pauses = true, .decide = ours_decide};
const struct hb_scheduler_ops hb_scheduler_ours_no_preemption = {
	.parts = {true, true}, .priorities = true, .decide = ours_decide};
