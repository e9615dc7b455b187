/* SPDX-License-Identifier: Apache-2.0 */
/* Learns from the events of batches; see predictor.h. Forecasts are in forecast.c. */
#include "server/scheduler/predictor.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Forgetting factors per sample: batches of the last seconds count, those of minutes ago do not. */
#define LINK_FORGET 0.995
#define LINK_P0 1e4
#define SLOWDOWN_FORGET 0.998
#define SLOWDOWN_P0 10.0
/* Link speed assumed before the first measurement. */
#define LINK_GUESS_US 10.0
#define LINK_GUESS_US_PER_MB 100.0
/*
 * Interference assumed before the first measurement: batches that fill the GPU
 * share it in turns. Without an assumption a new server would start all batches
 * at once, because they would seem to cost nothing.
 */
#define SLOWDOWN_GUESS_BESIDE 1.0
#define SLOWDOWN_GUESS_BELOW 0.3
/* A batch that ran beside others for less than this share of its time counts as alone. */
#define ALONE_SHARE 0.05
/*
 * A larger slowdown is not learned, because it has another cause than interference (for example, a process was
 * stopped).
 */
#define SLOWDOWN_SANE 30.0
/*
 * Sensitivity of a model = (yx + PRIOR) / (xx + PRIOR), limited to 1/MOST..MOST. The prior keeps a model that was rarely
 * seen at 1. FORGET: half of the weight is on the last 35 batches.
 */
#define SENSITIVITY_PRIOR 2.0
#define SENSITIVITY_FORGET 0.98
#define SENSITIVITY_MOST 4.0
/* The error estimate: a guess while there are fewer samples than LEAST_SAMPLES, then this quantile of the lateness. */
#define ERROR_GUESS 0.3
#define ERROR_QUANTILE 0.9
#define ERROR_LEAST_SAMPLES 8
#define ERROR_MAX 3.0

void hb_predictor_init(struct hb_predictor *predictor, struct hb_predictor_parts parts)
{
	memset(predictor, 0, sizeof *predictor);
	predictor->parts = parts;
	for (int i = 0; i < 2; i++)
		hb_rls_init(&predictor->link[i], 2, LINK_FORGET, LINK_P0);
	for (int i = 0; i < HB_SCHEDULER_PRIORITIES; i++) {
		hb_rls_init(&predictor->slowdown[i], HB_INTERFERENCE_FEATURES, SLOWDOWN_FORGET, SLOWDOWN_P0);
		predictor->slowdown[i].w[1] = SLOWDOWN_GUESS_BESIDE;
		predictor->slowdown[i].w[2] = SLOWDOWN_GUESS_BELOW;
		for (int row = 0; row < HB_PREDICTOR_BESIDE_MAX; row++)
			predictor->error[i][row] = ERROR_GUESS;
	}
}

static bool is_share_valid(const double share[2])
{
	return share[0] >= 0 && share[0] <= 1 && share[1] >= 0 && share[1] <= 1;
}

static bool are_bytes_valid(double bytes)
{
	return bytes >= 0 && bytes < 1e15;
}

static bool is_model_valid(const struct hb_scheduler_model *model)
{
	return model->max_items >= 1 && model->max_items <= HB_SCHEDULER_BATCH_MAX &&
	       are_bytes_valid(model->in_bytes) && are_bytes_valid(model->out_bytes) &&
	       is_share_valid(model->sm_demand) && is_share_valid(model->memory_demand) && model->stop_share >= 0 &&
	       model->stop_share <= 1;
}

static void store_model(struct hb_predictor *predictor, uint32_t number, const struct hb_scheduler_model *model)
{
	predictor->models[number] = *model;
	memset(predictor->sensitivity[number], 0, sizeof predictor->sensitivity[number]);
	hb_solo_time_init(&predictor->solo[number], model->run_guess_ns);
}

int hb_predictor_add_model(struct hb_predictor *predictor, const struct hb_scheduler_model *model)
{
	if (!is_model_valid(model))
		return -EINVAL;
	if (predictor->n_models == HB_SCHEDULER_MODELS_MAX)
		return -ENOSPC;
	store_model(predictor, predictor->n_models, model);
	return (int)predictor->n_models++;
}

static bool is_in_flight(const struct hb_predictor *predictor, uint32_t number)
{
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		if (predictor->flights[i].flow.live && predictor->flights[i].flow.model == number)
			return true;
	return false;
}

int hb_predictor_replace_model(struct hb_predictor *predictor, uint32_t number, const struct hb_scheduler_model *model)
{
	if (number >= predictor->n_models || !is_model_valid(model))
		return -EINVAL;
	if (is_in_flight(predictor, number))
		return -EBUSY;
	store_model(predictor, number, model);
	return 0;
}

int hb_predictor_set_demand(struct hb_predictor *predictor, uint32_t number, const struct hb_demand *demand)
{
	if (number >= predictor->n_models)
		return -EINVAL;
	if (is_in_flight(predictor, number))
		return -EBUSY;
	struct hb_scheduler_model changed = predictor->models[number];
	memcpy(changed.sm_demand, demand->sm, sizeof changed.sm_demand);
	memcpy(changed.memory_demand, demand->memory, sizeof changed.memory_demand);
	changed.in_bytes = demand->in_bytes;
	changed.out_bytes = demand->out_bytes;
	if (!is_model_valid(&changed))
		return -EINVAL;
	predictor->models[number] = changed;
	return 0;
}

double hb_predictor_transfer_ns(const struct hb_predictor *predictor, enum hb_scheduler_stage stage, double bytes)
{
	if (bytes <= 0)
		return 0;
	const struct hb_rls *link = &predictor->link[stage == HB_STAGE_OUT];
	double x[2] = {1, bytes / 1e6};
	double us = link->updates ? hb_rls_predict(link, x) : LINK_GUESS_US + LINK_GUESS_US_PER_MB * x[1];
	return us > 0 ? us * 1e3 : 0;
}

double hb_predictor_link_use(const struct hb_predictor *predictor, enum hb_scheduler_stage stage, double transfer_ns)
{
	const struct hb_rls *link = &predictor->link[stage == HB_STAGE_OUT];
	double latency_us = link->updates ? link->w[0] : LINK_GUESS_US;
	double all_us = transfer_ns / 1e3;
	return all_us <= 0 || latency_us >= all_us ? 0 : latency_us <= 0 ? 1 : 1 - latency_us / all_us;
}

struct hb_estimate hb_predictor_alone(const struct hb_predictor *predictor, uint32_t model, uint32_t items)
{
	const struct hb_scheduler_model *known = &predictor->models[model];
	struct hb_estimate run = hb_solo_time_get(&predictor->solo[model], items);
	run.ns += hb_predictor_transfer_ns(predictor, HB_STAGE_IN, known->in_bytes * items);
	run.ns += hb_predictor_transfer_ns(predictor, HB_STAGE_OUT, known->out_bytes * items);
	return run;
}

static double compute_error(const struct hb_quantile_ring *ring)
{
	if (hb_quantile_ring_count(ring) < ERROR_LEAST_SAMPLES)
		return ERROR_GUESS;
	double error = hb_quantile_ring_get(ring, ERROR_QUANTILE, ERROR_GUESS);
	return error > ERROR_MAX ? ERROR_MAX : error > 0 ? error : 0;
}

static uint32_t clamp_beside(uint32_t beside)
{
	return beside < HB_PREDICTOR_BESIDE_MAX ? beside : HB_PREDICTOR_BESIDE_MAX - 1;
}

double hb_predictor_error(const struct hb_predictor *predictor, enum hb_scheduler_priority priority, uint32_t beside)
{
	return predictor->error[priority][clamp_beside(beside)];
}

void hb_predictor_profiled(struct hb_predictor *predictor, uint32_t model, uint32_t items,
			   const double stage_ns[HB_STAGES])
{
	if (model >= predictor->n_models)
		return;
	const struct hb_scheduler_model *known = &predictor->models[model];
	hb_solo_time_learn(&predictor->solo[model], items, stage_ns[HB_STAGE_RUN]);
	double in[2] = {1, known->in_bytes * items / 1e6}, out[2] = {1, known->out_bytes * items / 1e6};
	if (in[1] > 0)
		hb_rls_update(&predictor->link[0], in, stage_ns[HB_STAGE_IN] / 1e3);
	if (out[1] > 0)
		hb_rls_update(&predictor->link[1], out, stage_ns[HB_STAGE_OUT] / 1e3);
}

/* Advances all flights by dt_ns, or to the moment at which the next paused run stops. Returns the time advanced. */
static double advance_to_stop(struct hb_predictor *predictor, double dt_ns)
{
	struct hb_flow flow[HB_SCHEDULER_FLIGHTS_MAX];
	double rate[HB_SCHEDULER_FLIGHTS_MAX], features[HB_SCHEDULER_FLIGHTS_MAX][HB_INTERFERENCE_FEATURES];
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++)
		flow[i] = predictor->flights[i].flow;
	hb_flows_rate(predictor, flow, HB_SCHEDULER_FLIGHTS_MAX, rate, features);
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++) {
		double left_ns = rate[i] > 0 ? hb_flow_work_to_stop(&flow[i]) / rate[i] : 0;
		dt_ns = left_ns > 0 && left_ns < dt_ns ? left_ns : dt_ns;
	}
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++) {
		struct hb_flight *flight = &predictor->flights[i];
		double work_ns = dt_ns * rate[i];
		if (!flight->flow.live)
			continue;
		double left = flight->flow.left_ns[flight->flow.stage] - work_ns;
		flight->flow.left_ns[flight->flow.stage] = left > 0 ? left : 0;
		flight->done_ns[flight->flow.stage] += work_ns;
		if (flight->flow.stage != HB_STAGE_RUN)
			continue;
		flight->company_ns += features[i][0] > 0 ? dt_ns : 0;
		for (uint32_t k = 0; k < HB_INTERFERENCE_FEATURES; k++)
			flight->features_ns[k] += work_ns * features[i][k];
	}
	return dt_ns;
}

/* Advances all flights to now_ns. */
static void advance_flights(struct hb_predictor *predictor, int64_t now_ns)
{
	double dt_ns = (double)(now_ns - predictor->now_ns);
	if (dt_ns <= 0)
		return;
	predictor->now_ns = now_ns;
	/* Each part but the last ends when a paused run stops. */
	for (uint32_t part = 0; part <= HB_SCHEDULER_FLIGHTS_MAX && dt_ns > 0; part++)
		dt_ns -= advance_to_stop(predictor, dt_ns);
}

static double predict_flight(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot)
{
	struct hb_forecast forecast;
	hb_forecast_begin(predictor, now_ns, &forecast);
	hb_forecast_run(predictor, &forecast, NULL);
	for (uint32_t i = 0; i < forecast.n; i++)
		if (forecast.slot[i] == slot)
			return forecast.flow[i].finish_ns;
	return 0;
}

void hb_predictor_begin(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, uint32_t model, uint32_t items,
			enum hb_scheduler_priority priority)
{
	if (slot >= HB_SCHEDULER_FLIGHTS_MAX || model >= predictor->n_models || predictor->flights[slot].flow.live)
		return;
	advance_flights(predictor, now_ns);
	struct hb_forecast forecast;
	hb_forecast_begin(predictor, now_ns, &forecast);
	uint32_t index = hb_forecast_add(predictor, &forecast, model, items, priority, false);
	struct hb_flight *flight = &predictor->flights[slot];
	*flight = (struct hb_flight){.flow = forecast.flow[index], .begun_ns = now_ns, .stage_ns = now_ns};
	flight->flow.turn = predictor->turns++;
	memcpy(flight->total_ns, flight->flow.left_ns, sizeof flight->total_ns);
	flight->predicted_ns = predict_flight(predictor, now_ns, slot);
}

static void learn_transfer(struct hb_predictor *predictor, const struct hb_flight *flight)
{
	const struct hb_scheduler_model *model = &predictor->models[flight->flow.model];
	bool out = flight->flow.stage == HB_STAGE_OUT;
	double bytes = (out ? model->out_bytes : model->in_bytes) * flight->flow.items;
	if (bytes <= 0)
		return;
	double x[2] = {1, bytes / 1e6};
	hb_rls_update(&predictor->link[out], x, flight->done_ns[flight->flow.stage] / 1e3);
}

double hb_predictor_sensitivity(const struct hb_predictor *predictor, uint32_t model,
				enum hb_scheduler_priority priority)
{
	const struct hb_sensitivity *known = &predictor->sensitivity[model][priority];
	double s = (known->yx + SENSITIVITY_PRIOR) / (known->xx + SENSITIVITY_PRIOR);
	return s < 1 / SENSITIVITY_MOST ? 1 / SENSITIVITY_MOST : s > SENSITIVITY_MOST ? SENSITIVITY_MOST : s;
}

/*
 * Learns the model's sensitivity from one run: y = observed slowdown, x = slowdown predicted for the average model.
 * Returns the sensitivity before the update.
 */
static double learn_sensitivity(struct hb_predictor *predictor, const struct hb_flight *flight, double x, double y)
{
	uint32_t model = flight->flow.model;
	enum hb_scheduler_priority priority = flight->flow.priority;
	double before = hb_predictor_sensitivity(predictor, model, priority);
	struct hb_sensitivity *known = &predictor->sensitivity[model][priority];
	if (x > 0) {
		known->yx = SENSITIVITY_FORGET * known->yx + y * x;
		known->xx = SENSITIVITY_FORGET * known->xx + x * x;
	}
	return before;
}

/*
 * Learns from a completed run. Alone: its time. Beside others: y = actual time / time alone - 1, x = mean features of the
 * other batches, weighted by the work done.
 */
static void learn_run(struct hb_predictor *predictor, const struct hb_flight *flight, int64_t now_ns)
{
	struct hb_rls *slowdown = &predictor->slowdown[flight->flow.priority];
	double took_ns = (double)(now_ns - flight->stage_ns), x[HB_INTERFERENCE_FEATURES];
	double work_ns = flight->done_ns[HB_STAGE_RUN];
	if (took_ns <= 0 || work_ns <= 0)
		return;
	for (uint32_t k = 0; k < HB_INTERFERENCE_FEATURES; k++)
		x[k] = flight->features_ns[k] / work_ns;
	if (flight->company_ns < ALONE_SHARE * took_ns) {
		double slower = predictor->parts.interference ? hb_rls_predict(slowdown, x) : 0;
		slower *= hb_predictor_sensitivity(predictor, flight->flow.model, flight->flow.priority);
		hb_solo_time_learn(&predictor->solo[flight->flow.model], flight->flow.items,
				   took_ns / (1 + (slower > 0 ? slower : 0)));
		return;
	}
	double y = took_ns / flight->total_ns[HB_STAGE_RUN] - 1;
	if (y >= SLOWDOWN_SANE)
		return;
	double sensitivity = learn_sensitivity(predictor, flight, hb_rls_predict(slowdown, x), y);
	for (uint32_t k = 0; k < HB_INTERFERENCE_FEATURES; k++)
		x[k] *= sensitivity;
	hb_rls_update(slowdown, x, y);
}

static void learn_stage(struct hb_predictor *predictor, struct hb_flight *flight, int64_t now_ns)
{
	if (flight->flow.stage == HB_STAGE_RUN && !flight->was_paused)
		learn_run(predictor, flight, now_ns);
	else if (flight->flow.stage != HB_STAGE_RUN)
		learn_transfer(predictor, flight);
}

void hb_predictor_stage(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage)
{
	if (slot >= HB_SCHEDULER_FLIGHTS_MAX || !predictor->flights[slot].flow.live)
		return;
	struct hb_flight *flight = &predictor->flights[slot];
	if (stage <= flight->flow.stage || stage >= HB_STAGES)
		return;
	advance_flights(predictor, now_ns);
	learn_stage(predictor, flight, now_ns);
	flight->flow.stage = stage;
	flight->flow.turn = predictor->turns++;
	flight->stage_ns = now_ns;
}

void hb_predictor_pause(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, bool paused)
{
	if (slot >= HB_SCHEDULER_FLIGHTS_MAX || !predictor->flights[slot].flow.live)
		return;
	advance_flights(predictor, now_ns);
	struct hb_flight *flight = &predictor->flights[slot];
	hb_flight_overdue(flight);
	hb_flow_pause(&flight->flow, flight->total_ns[HB_STAGE_RUN] * predictor->models[flight->flow.model].stop_share,
		      paused);
	flight->was_paused |= flight->flow.paused;
}

void hb_predictor_end(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, bool complete)
{
	if (slot >= HB_SCHEDULER_FLIGHTS_MAX || !predictor->flights[slot].flow.live)
		return;
	advance_flights(predictor, now_ns);
	struct hb_flight *flight = &predictor->flights[slot];
	flight->flow.live = false;
	if (!complete)
		return;
	/* A back end that did not report the last stage did not report stages at all. */
	if (flight->flow.stage >= (predictor->models[flight->flow.model].out_bytes > 0 ? HB_STAGE_OUT : HB_STAGE_RUN))
		learn_stage(predictor, flight, now_ns);
	predictor->ended++;
	if (flight->predicted_ns <= 0 || flight->was_paused)
		return;
	double late = (double)(now_ns - flight->begun_ns) / flight->predicted_ns - 1;
	uint32_t row = clamp_beside(flight->flow.beside);
	struct hb_quantile_ring *ring = &predictor->late[flight->flow.priority][row];
	hb_quantile_ring_add(ring, late);
	predictor->error[flight->flow.priority][row] = compute_error(ring);
	hb_quantile_ring_add(&predictor->error_size, fabs(late));
}
