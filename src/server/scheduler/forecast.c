/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forecasts: steps from one change of the set of batches in flight to the next
 * and computes when every batch ends. See predictor.h and
 * docs/serving-scheduler.md.
 */
#include "server/scheduler/predictor.h"

#include <math.h>
#include <string.h>

/* A batch that should already have ended is assumed to have this share of its stage left. */
#define OVERDUE_SHARE 0.05
/* Limit of the predicted slowdown: other batches do not make a batch 20 times slower. */
#define SLOWDOWN_MAX 20.0
/* Work smaller than this is a rounding error. */
#define ROUNDING_NS 1e-3

/* Sums over the batches in flight. */
struct flight_sums {
	uint32_t runs;
	double link[2];
	double sm[HB_SCHEDULER_PRIORITIES], memory;
};

static bool is_in_flight(const struct hb_flow *flow)
{
	return flow->live && !flow->waits;
}

static void add_run(struct flight_sums *sums, const struct hb_flow *flow)
{
	sums->runs++;
	sums->sm[flow->priority] += flow->sm;
	sums->memory += flow->memory;
}

/* Returns the work left in the stage at which the flow stops because it is paused; 0 = it does not stop. */
static double find_stop_point(const struct hb_flow *flow)
{
	return flow->paused && flow->stage == HB_STAGE_RUN ? flow->stop_ns : 0;
}

static bool has_stopped(const struct hb_flow *flow)
{
	double stop_ns = find_stop_point(flow);
	return stop_ns > 0 && flow->left_ns[HB_STAGE_RUN] <= stop_ns + ROUNDING_NS;
}

/* Returns whether an earlier copy of the same process in the same direction is still in flight. */
static bool has_to_wait(const struct hb_flow *flow, struct hb_flow *const *others, uint32_t n)
{
	for (uint32_t i = 0; i < n && flow->stage != HB_STAGE_RUN; i++)
		if (others[i]->stage == flow->stage && others[i]->model == flow->model &&
		    others[i]->priority == flow->priority && (int32_t)(others[i]->turn - flow->turn) < 0)
			return true;
	return false;
}

static void add_to_sums(struct flight_sums *sums, const struct hb_flow *flow)
{
	bool out = flow->stage == HB_STAGE_OUT;
	if (flow->stage == HB_STAGE_RUN)
		add_run(sums, flow);
	else
		sums->link[out] += flow->link_use[out];
}

/*
 * Computes the features of the batches that run beside this one:
 *
 *	0  1 if there is any
 *	1  sum of the SM demands of the others of its own priority and above
 *	2  sum of the SM demands below its priority
 *	3  own SM demand * (feature 1 + feature 2)
 *	4  own memory demand * sum of the others' memory demands
 */
static void compute_features(const struct hb_flow *flow, const struct flight_sums *sums, double *features)
{
	bool high = flow->priority == HB_SCHEDULER_HIGH;
	double beside = high ? sums->sm[HB_SCHEDULER_HIGH] : sums->sm[HB_SCHEDULER_HIGH] + sums->sm[HB_SCHEDULER_LOW];
	double below = high ? sums->sm[HB_SCHEDULER_LOW] : 0;
	features[0] = sums->runs > 1;
	features[1] = beside - flow->sm;
	features[2] = below;
	features[3] = flow->sm * (features[1] + below);
	features[4] = flow->memory * (sums->memory - flow->memory);
}

static double compute_run_rate(const struct hb_predictor *predictor, const struct hb_flow *flow,
			       const struct flight_sums *sums, double *features)
{
	double slower = 0;
	compute_features(flow, sums, features);
	if (predictor->parts.interference)
		slower = hb_rls_predict(&predictor->slowdown[flow->priority], features) *
			 hb_predictor_sensitivity(predictor, flow->model, flow->priority);
	slower = slower > SLOWDOWN_MAX ? SLOWDOWN_MAX : slower > 0 ? slower : 0;
	return 1 / (1 + slower);
}

static double compute_copy_rate(const struct hb_predictor *predictor, const struct hb_flow *flow,
				const struct flight_sums *sums)
{
	bool out = flow->stage == HB_STAGE_OUT;
	double use = flow->link_use[out];
	return predictor->parts.transfer ? 1 / (1 + use * (sums->link[out] - use)) : 1;
}

/*
 * Computes the progress rate of each of n active flows. `features` (or NULL) is set for flows in the run stage. A flow that
 * is paused or waits for an earlier copy has rate 0; a paused one also has zero features.
 */
static void compute_rates(const struct hb_predictor *predictor, struct hb_flow **flow, uint32_t n, double *rate,
			  double (*features)[HB_INTERFERENCE_FEATURES])
{
	struct flight_sums sums = {0};
	double x[HB_INTERFERENCE_FEATURES];
	bool waits[HB_FORECAST_MAX];
	for (uint32_t i = 0; i < n; i++) {
		bool stopped = has_stopped(flow[i]);
		waits[i] = stopped || (predictor->parts.transfer && has_to_wait(flow[i], flow, n));
		if (!waits[i])
			add_to_sums(&sums, flow[i]);
		if (stopped && features)
			memset(features[i], 0, sizeof features[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		rate[i] = waits[i]                         ? 0
			  : flow[i]->stage != HB_STAGE_RUN ? compute_copy_rate(predictor, flow[i], &sums)
			  : !features && sums.runs == 1
				  ? 1
				  : compute_run_rate(predictor, flow[i], &sums, features ? features[i] : x);
}

void hb_flows_rate(const struct hb_predictor *predictor, struct hb_flow *flow, uint32_t n, double *rate,
		   double (*features)[HB_INTERFERENCE_FEATURES])
{
	struct hb_flow *active[HB_FORECAST_MAX];
	double rates[HB_FORECAST_MAX], seen[HB_FORECAST_MAX][HB_INTERFERENCE_FEATURES];
	uint32_t n_active = 0;
	for (uint32_t i = 0; i < n; i++) {
		rate[i] = 0;
		if (is_in_flight(&flow[i]))
			active[n_active++] = &flow[i];
	}
	compute_rates(predictor, active, n_active, rates, features ? seen : NULL);
	for (uint32_t i = 0; i < n_active; i++) {
		size_t place = (size_t)(active[i] - flow);
		rate[place] = rates[i];
		if (features)
			memcpy(features[place], seen[i], sizeof seen[i]);
	}
}

/* Returns the least work that a batch is assumed to have left while its stage has not ended. */
static double compute_least_left(const struct hb_flight *flight)
{
	return OVERDUE_SHARE * flight->total_ns[flight->flow.stage];
}

void hb_flight_overdue(struct hb_flight *flight)
{
	double *left = &flight->flow.left_ns[flight->flow.stage];
	*left = *left > compute_least_left(flight) ? *left : compute_least_left(flight);
}

void hb_forecast_begin(const struct hb_predictor *predictor, int64_t now_ns, struct hb_forecast *forecast)
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
		double least = compute_least_left(&predictor->flights[forecast->slot[i]]);
		least = find_stop_point(flow) > least ? find_stop_point(flow) : least;
		flow->left_ns[flow->stage] = left > least ? left : least;
	}
}

/* Interpolates linearly between ends[0] at 1 item and ends[1] at `most` items. */
static double interpolate_demand(const double ends[2], uint32_t items, uint32_t most)
{
	return most > 1 ? ends[0] + (ends[1] - ends[0]) * (items - 1) / (most - 1) : ends[0];
}

/* Makes a flow with its demands; the caller sets its work. */
static struct hb_flow new_flow(const struct hb_predictor *predictor, uint32_t model, uint32_t items,
			       enum hb_scheduler_priority priority)
{
	const struct hb_scheduler_model *known = &predictor->models[model];
	return (struct hb_flow){
		.model = model,
		.items = items,
		.priority = priority,
		.stage = HB_STAGE_IN,
		.live = true,
		.sm = interpolate_demand(known->sm_demand, items, known->max_items),
		.memory = interpolate_demand(known->memory_demand, items, known->max_items),
	};
}

static void set_flow_work(const struct hb_predictor *predictor, struct hb_flow *flow)
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
	forecast->flow[index] = new_flow(predictor, model, items, priority);
	set_flow_work(predictor, &forecast->flow[index]);
	forecast->flow[index].waits = waits;
	forecast->flow[index].turn = forecast->turns++;
	for (uint32_t i = 0; i < index; i++)
		forecast->flow[index].beside += is_in_flight(&forecast->flow[i]) && !forecast->flow[i].paused;
	return index;
}

/*
 * The flows that are active at one point of a forecast. They are kept in the order of the forecast's flow[], so that sums of
 * floating-point numbers do not depend on the order in which flows join.
 */
struct active_flows {
	uint32_t n, high; /* high: number of high-priority flows that copy in or run */
	struct hb_flow *flow[HB_FORECAST_MAX];
	double rate[HB_FORECAST_MAX];
};

static bool keeps_queue_waiting(const struct hb_flow *flow)
{
	return flow->priority == HB_SCHEDULER_HIGH && flow->stage != HB_STAGE_OUT;
}

static void join_active(struct active_flows *active, struct hb_flow *flow)
{
	uint32_t at = active->n++;
	for (; at > 0 && active->flow[at - 1] > flow; at--)
		active->flow[at] = active->flow[at - 1];
	active->flow[at] = flow;
	active->high += keeps_queue_waiting(flow);
}

/* Begins the next waiting batch when no high-priority batch copies in or runs. If none waits, resumes paused batches. */
static void begin_next_waiting(struct hb_forecast *forecast, struct active_flows *active, uint32_t *next)
{
	if (active->high)
		return;
	while (*next < forecast->n && !forecast->flow[*next].waits)
		++*next;
	if (*next == forecast->n) {
		for (uint32_t i = 0; i < active->n; i++)
			active->flow[i]->paused = false;
		return;
	}
	forecast->flow[*next].waits = false;
	join_active(active, &forecast->flow[*next]);
}

/* Returns the time until the next stage of any flow ends, or a paused run stops. */
static double find_next_change(const struct active_flows *active)
{
	double next = INFINITY;
	for (uint32_t i = 0; i < active->n; i++) {
		const struct hb_flow *flow = active->flow[i];
		double work_ns = flow->left_ns[flow->stage] - find_stop_point(flow);
		double left = active->rate[i] > 0 ? work_ns / active->rate[i] : INFINITY;
		next = left < next ? left : next;
	}
	return next > 0 ? next : 0;
}

static void advance_flow(struct hb_flow *flow, double work_ns, double at_ns, uint32_t *turns)
{
	flow->left_ns[flow->stage] -= work_ns;
	while (flow->live && flow->left_ns[flow->stage] <= ROUNDING_NS) {
		if (flow->stage == HB_STAGE_OUT) {
			flow->live = false;
			flow->finish_ns = at_ns;
		} else {
			flow->stage++;
			flow->turn = (*turns)++;
		}
	}
}

/* Advances the active flows by took_ns. False: `watch` stopped the forecast. */
static bool advance_active(struct active_flows *active, double took_ns, double at_ns, uint32_t *turns,
			   const struct hb_forecast_watch *watch)
{
	uint32_t left = 0;
	bool enough = false;
	active->high = 0;
	for (uint32_t i = 0; i < active->n; i++) {
		struct hb_flow *flow = active->flow[i];
		advance_flow(flow, took_ns * active->rate[i], at_ns, turns);
		if (flow->live) {
			active->high += keeps_queue_waiting(flow);
			active->flow[left++] = flow;
		} else if (watch) {
			enough |= watch->enough(watch->self, flow);
		}
	}
	active->n = left;
	return !enough;
}

bool hb_forecast_run(const struct hb_predictor *predictor, struct hb_forecast *forecast,
		     const struct hb_forecast_watch *watch)
{
	struct active_flows active;
	double at_ns = 0;
	uint32_t waiting = 0;
	active.n = active.high = 0;
	for (uint32_t i = 0; i < forecast->n; i++)
		if (is_in_flight(&forecast->flow[i]))
			join_active(&active, &forecast->flow[i]);
	/* Every step ends a stage or stops a paused run, which bounds the number of steps. */
	for (uint32_t step = 0; step <= (HB_STAGES + 1) * forecast->n; step++) {
		begin_next_waiting(forecast, &active, &waiting);
		if (!active.n)
			break;
		compute_rates(predictor, active.flow, active.n, active.rate, NULL);
		double next_ns = find_next_change(&active);
		at_ns += next_ns;
		if (!advance_active(&active, next_ns, at_ns, &forecast->turns, watch))
			return false;
	}
	return true;
}

void hb_flow_pause(struct hb_flow *flow, double still_ns, bool paused)
{
	double left_ns = flow->left_ns[HB_STAGE_RUN];
	if (still_ns <= 0 || paused == flow->paused)
		return;
	flow->paused = paused;
	/*
	 * A flow that is paused before the run stage does not begin its run. In the run stage, queued launches still
	 * execute.
	 */
	flow->stop_ns = flow->stage < HB_STAGE_RUN ? left_ns : left_ns > still_ns ? left_ns - still_ns : 0;
}

double hb_flow_work_to_stop(const struct hb_flow *flow)
{
	double stop_ns = find_stop_point(flow), left_ns = flow->left_ns[flow->stage] - stop_ns;
	return flow->live && stop_ns > 0 && left_ns > ROUNDING_NS ? left_ns : 0;
}

void hb_forecast_pause(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t index, bool paused)
{
	struct hb_flow *flow = &forecast->flow[index];
	uint32_t slot = forecast->slot[index];
	double total_ns = slot < HB_SCHEDULER_FLIGHTS_MAX ? predictor->flights[slot].total_ns[HB_STAGE_RUN]
							  : flow->left_ns[HB_STAGE_RUN];
	hb_flow_pause(flow, total_ns * predictor->models[flow->model].stop_share, paused);
}

double hb_forecast_error_ns(const struct hb_predictor *predictor, const struct hb_forecast *forecast, uint32_t index)
{
	const struct hb_flow *flow = &forecast->flow[index];
	double known = hb_predictor_error(predictor, flow->priority, flow->beside);
	return known * flow->finish_ns;
}

double hb_forecast_speed(const struct hb_predictor *predictor, const struct hb_forecast *forecast)
{
	struct flight_sums sums = {0};
	double sum = 0, x[HB_INTERFERENCE_FEATURES];
	/* Each flow counts as running, whatever its stage is now, because all will meet in the run stage. */
	for (uint32_t i = 0; i < forecast->n; i++)
		if (is_in_flight(&forecast->flow[i]) && !forecast->flow[i].paused)
			add_run(&sums, &forecast->flow[i]);
	for (uint32_t i = 0; i < forecast->n; i++)
		if (is_in_flight(&forecast->flow[i]) && !forecast->flow[i].paused)
			sum += compute_run_rate(predictor, &forecast->flow[i], &sums, x);
	return sum;
}

double hb_forecast_speed_with(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			      uint32_t items, enum hb_scheduler_priority priority)
{
	if (forecast->n == HB_FORECAST_MAX || model >= predictor->n_models)
		return hb_forecast_speed(predictor, forecast);
	forecast->flow[forecast->n++] = new_flow(predictor, model, items, priority);
	double speed = hb_forecast_speed(predictor, forecast);
	forecast->n--;
	return speed;
}
