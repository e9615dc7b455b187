/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one change of the set in flight to the next: how fast every batch
 * progresses, and when each will be done. See predictor.h and docs/serving-scheduler.md.
 */
#include "server/scheduler/predictor.h"

#include <math.h>
#include <string.h>

/* A batch that should have ended has this part of its time still before it, as far as anybody knows. */
#define OVERDUE_SHARE 0.05
/* What the learned weights may say at most: a batch is not 20 times slower for its company. */
#define SLOWDOWN_MAX 20.0
/* Rounding leaves a last bit. */
#define STOPS_NEAR_NS 1e-3

struct crowd {
	uint32_t runs;
	double link[2];
	double sm[HB_SCHEDULER_PRIORITIES], memory;
};

static bool in_flight(const struct hb_flow *flow)
{
	return flow->live && !flow->waits;
}

static void crowd_run(struct crowd *crowd, const struct hb_flow *flow)
{
	crowd->runs++;
	crowd->sm[flow->priority] += flow->sm;
	crowd->memory += flow->memory;
}

/* What is left of its stage where it stops for being held; 0 = it goes on to the end. */
static double stops_at(const struct hb_flow *flow)
{
	return flow->paused && flow->stage == HB_STAGE_RUN ? flow->stops_ns : 0;
}

/* It has come to there. */
static bool stands(const struct hb_flow *flow)
{
	double stops_ns = stops_at(flow);
	return stops_ns > 0 && flow->left_ns[HB_STAGE_RUN] <= stops_ns + STOPS_NEAR_NS;
}

/* Whether a copy of the same process in the same direction is before it. */
static bool has_to_wait(const struct hb_flow *flow, struct hb_flow *const *others, uint32_t n)
{
	for (uint32_t i = 0; i < n && flow->stage != HB_STAGE_RUN; i++)
		if (others[i]->stage == flow->stage && others[i]->model == flow->model &&
		    others[i]->priority == flow->priority && (int32_t)(others[i]->turn - flow->turn) < 0)
			return true;
	return false;
}

static void crowd_join(struct crowd *crowd, const struct hb_flow *flow)
{
	bool out = flow->stage == HB_STAGE_OUT;
	if (flow->stage == HB_STAGE_RUN)
		crowd_run(crowd, flow);
	else
		crowd->link[out] += flow->link_use[out];
}

/*
 * What may slow a running batch down: that there is company at all, its demand
 * for SMs at this batch's priority or above and below it, and own times the
 * others' demand, for SMs and for memory bandwidth.
 */
static void features_of(const struct hb_flow *flow, const struct crowd *crowd, double *features)
{
	bool high = flow->priority == HB_SCHEDULER_HIGH;
	double beside = high ? crowd->sm[HB_SCHEDULER_HIGH]
			     : crowd->sm[HB_SCHEDULER_HIGH] + crowd->sm[HB_SCHEDULER_LOW];
	double below = high ? crowd->sm[HB_SCHEDULER_LOW] : 0;
	features[0] = crowd->runs > 1;
	features[1] = beside - flow->sm;
	features[2] = below;
	features[3] = flow->sm * (features[1] + below);
	features[4] = flow->memory * (crowd->memory - flow->memory);
}

static double run_rate(const struct hb_predictor *predictor, const struct hb_flow *flow, const struct crowd *crowd,
		       double *features)
{
	double slower = 0;
	features_of(flow, crowd, features);
	if (predictor->parts.interference)
		slower = hb_rls_predict(&predictor->slowdown[flow->priority], features) *
			 hb_predictor_sensitivity(predictor, flow->model, flow->priority);
	slower = slower > SLOWDOWN_MAX ? SLOWDOWN_MAX : slower > 0 ? slower : 0;
	return 1 / (1 + slower);
}

static double copy_rate(const struct hb_predictor *predictor, const struct hb_flow *flow, const struct crowd *crowd)
{
	bool out = flow->stage == HB_STAGE_OUT;
	double use = flow->link_use[out];
	return predictor->parts.transfer ? 1 / (1 + use * (crowd->link[out] - use)) : 1;
}

/* Of flows that are all at work. `features` (or NULL) of those that run; 0 of one that stands. */
static void rates_of(const struct hb_predictor *predictor, struct hb_flow **flow, uint32_t n, double *rate,
		     double (*features)[HB_INTERFERENCE_FEATURES])
{
	struct crowd crowd = {0};
	double x[HB_INTERFERENCE_FEATURES];
	bool waits[HB_FORECAST_MAX];
	for (uint32_t i = 0; i < n; i++) {
		bool stood = stands(flow[i]);
		waits[i] = stood || (predictor->parts.transfer && has_to_wait(flow[i], flow, n));
		if (!waits[i])
			crowd_join(&crowd, flow[i]);
		if (stood && features)
			memset(features[i], 0, sizeof features[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		rate[i] = waits[i]                         ? 0
			  : flow[i]->stage != HB_STAGE_RUN ? copy_rate(predictor, flow[i], &crowd)
			  : !features && crowd.runs == 1
				  ? 1
				  : run_rate(predictor, flow[i], &crowd, features ? features[i] : x);
}

void hb_flows_rate(const struct hb_predictor *predictor, struct hb_flow *flow, uint32_t n, double *rate,
		   double (*features)[HB_INTERFERENCE_FEATURES])
{
	struct hb_flow *at_work[HB_FORECAST_MAX];
	double rates[HB_FORECAST_MAX], seen[HB_FORECAST_MAX][HB_INTERFERENCE_FEATURES];
	uint32_t n_at_work = 0;
	for (uint32_t i = 0; i < n; i++) {
		rate[i] = 0;
		if (in_flight(&flow[i]))
			at_work[n_at_work++] = &flow[i];
	}
	rates_of(predictor, at_work, n_at_work, rates, features ? seen : NULL);
	for (uint32_t i = 0; i < n_at_work; i++) {
		size_t place = (size_t)(at_work[i] - flow);
		rate[place] = rates[i];
		if (features)
			memcpy(features[place], seen[i], sizeof seen[i]);
	}
}

/* What is left of its stage at least, as far as anybody knows. */
static double least_left(const struct hb_flight *flight)
{
	return OVERDUE_SHARE * flight->whole_ns[flight->flow.stage];
}

void hb_flight_overdue(struct hb_flight *flight)
{
	double *left = &flight->flow.left_ns[flight->flow.stage];
	*left = *left > least_left(flight) ? *left : least_left(flight);
}

void hb_forecast_begin(struct hb_predictor *predictor, int64_t now_ns, struct hb_forecast *forecast)
{
	forecast->n = 0;
	forecast->turns = predictor->turns;
	double since_ns = (double)(now_ns - predictor->now_ns);
	double rate[HB_SCHEDULER_FLIGHTS_MAX];
	for (uint32_t slot = 0; slot < HB_SCHEDULER_FLIGHTS_MAX; slot++) {
		if (!predictor->flights[slot].flow.live)
			continue;
		forecast->slot[forecast->n] = slot;
		forecast->flow[forecast->n++] = predictor->flights[slot].flow;
	}
	hb_flows_rate(predictor, forecast->flow, forecast->n, rate, NULL);
	for (uint32_t i = 0; i < forecast->n; i++) {
		struct hb_flow *flow = &forecast->flow[i];
		double left = flow->left_ns[flow->stage] - (since_ns > 0 ? since_ns * rate[i] : 0);
		double least = least_left(&predictor->flights[forecast->slot[i]]);
		least = stops_at(flow) > least ? stops_at(flow) : least;
		flow->left_ns[flow->stage] = left > least ? left : least;
	}
}

static double between(const double ends[2], uint32_t items, uint32_t most)
{
	return most > 1 ? ends[0] + (ends[1] - ends[0]) * (items - 1) / (most - 1) : ends[0];
}

/* Its demands; what it has to do is left open. */
static struct hb_flow flow_demand(const struct hb_predictor *predictor, uint32_t model, uint32_t items,
				  enum hb_scheduler_priority priority)
{
	const struct hb_scheduler_model *known = &predictor->models[model];
	return (struct hb_flow){
		.model = model,
		.items = items,
		.priority = priority,
		.stage = HB_STAGE_IN,
		.live = true,
		.sm = between(known->sm_demand, items, known->max_items),
		.memory = between(known->memory_demand, items, known->max_items),
	};
}

static void flow_work(const struct hb_predictor *predictor, struct hb_flow *flow)
{
	const struct hb_scheduler_model *known = &predictor->models[flow->model];
	double in_bytes = known->in_bytes * flow->items, out_bytes = known->out_bytes * flow->items;
	flow->left_ns[HB_STAGE_IN] = hb_predictor_transfer_ns(predictor, HB_STAGE_IN, in_bytes);
	flow->left_ns[HB_STAGE_RUN] = hb_solo_time_get(&predictor->solo[flow->model], flow->items).ns;
	flow->left_ns[HB_STAGE_OUT] = hb_predictor_transfer_ns(predictor, HB_STAGE_OUT, out_bytes);
	flow->link_use[0] = hb_predictor_link_use(predictor, HB_STAGE_IN, flow->left_ns[HB_STAGE_IN]);
	flow->link_use[1] = hb_predictor_link_use(predictor, HB_STAGE_OUT, flow->left_ns[HB_STAGE_OUT]);
}

uint32_t hb_forecast_add(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			 uint32_t items, enum hb_scheduler_priority priority, bool waits)
{
	if (forecast->n == HB_FORECAST_MAX || model >= predictor->n_models)
		return HB_FORECAST_MAX;
	uint32_t index = forecast->n++;
	forecast->slot[index] = UINT32_MAX;
	forecast->flow[index] = flow_demand(predictor, model, items, priority);
	flow_work(predictor, &forecast->flow[index]);
	forecast->flow[index].waits = waits;
	forecast->flow[index].turn = forecast->turns++;
	for (uint32_t i = 0; i < index; i++)
		forecast->flow[index].crowd += in_flight(&forecast->flow[i]) && !forecast->flow[i].paused;
	return index;
}

/* What is at work at one point of a forecast, in the order of its flows: sums are the same whatever waits or is done. */
struct at_work {
	uint32_t n, high; /* high: those of high priority that still copy in or run */
	struct hb_flow *flow[HB_FORECAST_MAX];
	double rate[HB_FORECAST_MAX];
};

static bool keeps_waiting(const struct hb_flow *flow)
{
	return flow->priority == HB_SCHEDULER_HIGH && flow->stage != HB_STAGE_OUT;
}

static void work_join(struct at_work *work, struct hb_flow *flow)
{
	uint32_t at = work->n++;
	for (; at > 0 && work->flow[at - 1] > flow; at--)
		work->flow[at] = work->flow[at - 1];
	work->flow[at] = flow;
	work->high += keeps_waiting(flow);
}

/* The first batch that waits begins once no high-priority one is at work; when none waits, what is held goes on. */
static void begin_waiting(struct hb_forecast *forecast, struct at_work *work, uint32_t *next)
{
	if (work->high)
		return;
	while (*next < forecast->n && !forecast->flow[*next].waits)
		++*next;
	if (*next == forecast->n) {
		for (uint32_t i = 0; i < work->n; i++)
			work->flow[i]->paused = false;
		return;
	}
	forecast->flow[*next].waits = false;
	work_join(work, &forecast->flow[*next]);
}

/* Time until the first stage of any flow ends, or stands. */
static double next_change_ns(const struct at_work *work)
{
	double next = INFINITY;
	for (uint32_t i = 0; i < work->n; i++) {
		const struct hb_flow *flow = work->flow[i];
		double work_ns = flow->left_ns[flow->stage] - stops_at(flow);
		double left = work->rate[i] > 0 ? work_ns / work->rate[i] : INFINITY;
		next = left < next ? left : next;
	}
	return next > 0 ? next : 0;
}

static void flow_progress(struct hb_flow *flow, double work_ns, double at_ns, uint32_t *turns)
{
	flow->left_ns[flow->stage] -= work_ns;
	/* Rounding leaves a last bit: no stage is left with less than a picosecond. */
	while (flow->live && flow->left_ns[flow->stage] <= 1e-3) {
		if (flow->stage == HB_STAGE_OUT) {
			flow->live = false;
			flow->finish_ns = at_ns;
		} else {
			flow->stage++;
			flow->turn = (*turns)++;
		}
	}
}

/* False: a flow has finished with which `watch` has heard enough. */
static bool work_progress(struct at_work *work, double took_ns, double at_ns, uint32_t *turns,
			  const struct hb_forecast_watch *watch)
{
	uint32_t left = 0;
	bool enough = false;
	work->high = 0;
	for (uint32_t i = 0; i < work->n; i++) {
		struct hb_flow *flow = work->flow[i];
		flow_progress(flow, took_ns * work->rate[i], at_ns, turns);
		if (flow->live) {
			work->high += keeps_waiting(flow);
			work->flow[left++] = flow;
		} else if (watch) {
			enough |= watch->enough(watch->self, flow);
		}
	}
	work->n = left;
	return !enough;
}

bool hb_forecast_run(const struct hb_predictor *predictor, struct hb_forecast *forecast,
		     const struct hb_forecast_watch *watch)
{
	struct at_work work;
	double at_ns = 0;
	uint32_t waiting = 0;
	work.n = work.high = 0;
	for (uint32_t i = 0; i < forecast->n; i++)
		if (in_flight(&forecast->flow[i]))
			work_join(&work, &forecast->flow[i]);
	/* Every step ends a stage, or makes a held run stand, so there are at most so many. */
	for (uint32_t step = 0; step <= (HB_STAGES + 1) * forecast->n; step++) {
		begin_waiting(forecast, &work, &waiting);
		if (!work.n)
			break;
		rates_of(predictor, work.flow, work.n, work.rate, NULL);
		double next_ns = next_change_ns(&work);
		at_ns += next_ns;
		if (!work_progress(&work, next_ns, at_ns, &forecast->turns, watch))
			return false;
	}
	return true;
}

void hb_flow_pause(struct hb_flow *flow, double goes_on_ns, bool paused)
{
	double left_ns = flow->left_ns[HB_STAGE_RUN];
	if (goes_on_ns <= 0 || paused == flow->paused)
		return;
	flow->paused = paused;
	/* Before its run it does not begin one; in it, something is on its way. */
	flow->stops_ns = flow->stage < HB_STAGE_RUN ? left_ns : left_ns > goes_on_ns ? left_ns - goes_on_ns : 0;
}

double hb_flow_stops_after(const struct hb_flow *flow)
{
	double stops_ns = stops_at(flow), left_ns = flow->left_ns[flow->stage] - stops_ns;
	return flow->live && stops_ns > 0 && left_ns > STOPS_NEAR_NS ? left_ns : 0;
}

void hb_forecast_pause(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t index, bool paused)
{
	struct hb_flow *flow = &forecast->flow[index];
	uint32_t slot = forecast->slot[index];
	double whole_ns = slot < HB_SCHEDULER_FLIGHTS_MAX ? predictor->flights[slot].whole_ns[HB_STAGE_RUN]
							  : flow->left_ns[HB_STAGE_RUN];
	hb_flow_pause(flow, whole_ns * predictor->models[flow->model].stop_share, paused);
}

double hb_forecast_error_ns(const struct hb_predictor *predictor, const struct hb_forecast *forecast, uint32_t index)
{
	const struct hb_flow *flow = &forecast->flow[index];
	double known = hb_predictor_error(predictor, flow->priority, flow->crowd);
	return known * flow->finish_ns;
}

double hb_forecast_speed(const struct hb_predictor *predictor, const struct hb_forecast *forecast)
{
	struct crowd crowd = {0};
	double sum = 0, x[HB_INTERFERENCE_FEATURES];
	/* Wherever they are now: running is where they will meet. */
	for (uint32_t i = 0; i < forecast->n; i++)
		if (in_flight(&forecast->flow[i]) && !forecast->flow[i].paused)
			crowd_run(&crowd, &forecast->flow[i]);
	for (uint32_t i = 0; i < forecast->n; i++)
		if (in_flight(&forecast->flow[i]) && !forecast->flow[i].paused)
			sum += run_rate(predictor, &forecast->flow[i], &crowd, x);
	return sum;
}

double hb_forecast_speed_with(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			      uint32_t items, enum hb_scheduler_priority priority)
{
	if (forecast->n == HB_FORECAST_MAX || model >= predictor->n_models)
		return hb_forecast_speed(predictor, forecast);
	forecast->flow[forecast->n++] = flow_demand(predictor, model, items, priority);
	double speed = hb_forecast_speed(predictor, forecast);
	forecast->n--;
	return speed;
}
