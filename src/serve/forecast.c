/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one change of the set in flight to the next: how fast every batch
 * progresses, and when each will be done. See predictor.h and docs/serve.md.
 */
#include "serve/predictor.h"

#include <string.h>

/* A batch that should have ended has this part of its time still before it, as far as anybody knows. */
#define OVERDUE_SHARE 0.05
/* What the learned weights may say at most: a batch is not 20 times slower for its company. */
#define SLOWDOWN_MAX 20.0

struct crowd {
	uint32_t runs;
	double link[2];
	double sm[HB_SERVE_PRIORITIES], memory;
};

static bool in_flight(const struct hb_flow *flow)
{
	return flow->live && !flow->waits;
}

static void crowd_count(struct crowd *crowd, const struct hb_flow *flow, uint32_t n)
{
	*crowd = (struct crowd){0};
	for (uint32_t i = 0; i < n; i++) {
		if (!in_flight(&flow[i]))
			continue;
		if (flow[i].stage == HB_STAGE_RUN) {
			crowd->runs++;
			crowd->sm[flow[i].priority] += flow[i].sm;
			crowd->memory += flow[i].memory;
		} else {
			bool out = flow[i].stage == HB_STAGE_OUT;
			crowd->link[out] += flow[i].link_use[out];
		}
	}
}

/*
 * What may slow a running batch down: that there is company at all, its demand
 * for SMs at this batch's priority or above and below it, and own times the
 * others' demand, for SMs and for memory bandwidth.
 */
static void features_of(const struct hb_flow *flow, const struct crowd *crowd, double *features)
{
	bool high = flow->priority == HB_SERVE_HIGH;
	double beside = high ? crowd->sm[HB_SERVE_HIGH] : crowd->sm[HB_SERVE_HIGH] + crowd->sm[HB_SERVE_LOW];
	double below = high ? crowd->sm[HB_SERVE_LOW] : 0;
	features[0] = crowd->runs > 1;
	features[1] = beside - flow->sm;
	features[2] = below;
	features[3] = flow->sm * (features[1] + below);
	features[4] = flow->memory * (crowd->memory - flow->memory);
}

void hb_flows_rate(const struct hb_predictor *predictor, const struct hb_flow *flow, uint32_t n, double *rate,
		   double (*features)[HB_INTERFERENCE_FEATURES])
{
	struct crowd crowd;
	crowd_count(&crowd, flow, n);
	for (uint32_t i = 0; i < n; i++) {
		double x[HB_INTERFERENCE_FEATURES] = {0}, slower = 0;
		rate[i] = 0;
		if (!in_flight(&flow[i]))
			continue;
		if (flow[i].stage != HB_STAGE_RUN) {
			bool out = flow[i].stage == HB_STAGE_OUT;
			double use = flow[i].link_use[out];
			rate[i] = predictor->parts.transfer ? 1 / (1 + use * (crowd.link[out] - use)) : 1;
			continue;
		}
		features_of(&flow[i], &crowd, x);
		if (predictor->parts.interference)
			slower = hb_rls_predict(&predictor->slowdown[flow[i].priority], x);
		slower = slower > SLOWDOWN_MAX ? SLOWDOWN_MAX : slower > 0 ? slower : 0;
		rate[i] = 1 / (1 + slower);
		if (features)
			memcpy(features[i], x, sizeof x);
	}
}

void hb_forecast_begin(struct hb_predictor *predictor, int64_t now_ns, struct hb_forecast *forecast)
{
	forecast->n = 0;
	double since_ns = (double)(now_ns - predictor->now_ns);
	double rate[HB_SERVE_FLIGHTS_MAX];
	for (uint32_t slot = 0; slot < HB_SERVE_FLIGHTS_MAX; slot++) {
		if (!predictor->flights[slot].flow.live)
			continue;
		forecast->slot[forecast->n] = slot;
		forecast->flow[forecast->n++] = predictor->flights[slot].flow;
	}
	hb_flows_rate(predictor, forecast->flow, forecast->n, rate, NULL);
	for (uint32_t i = 0; i < forecast->n; i++) {
		struct hb_flow *flow = &forecast->flow[i];
		double left = flow->left_ns[flow->stage] - (since_ns > 0 ? since_ns * rate[i] : 0);
		double least = OVERDUE_SHARE * predictor->flights[forecast->slot[i]].whole_ns[flow->stage];
		flow->left_ns[flow->stage] = left > least ? left : least;
	}
}

static double between(const double ends[2], uint32_t items, uint32_t most)
{
	return most > 1 ? ends[0] + (ends[1] - ends[0]) * (items - 1) / (most - 1) : ends[0];
}

static struct hb_flow flow_of(const struct hb_predictor *predictor, uint32_t model, uint32_t items,
			      enum hb_serve_priority priority)
{
	const struct hb_serve_model *known = &predictor->models[model];
	return (struct hb_flow){
		.model = model,
		.items = items,
		.priority = priority,
		.stage = HB_STAGE_IN,
		.live = true,
		.left_ns = {hb_predictor_transfer_ns(predictor, HB_STAGE_IN, known->in_bytes * items),
			    hb_solo_time_get(&predictor->solo[model], items).ns,
			    hb_predictor_transfer_ns(predictor, HB_STAGE_OUT, known->out_bytes * items)},
		.sm = between(known->sm_demand, items, known->max_items),
		.memory = between(known->memory_demand, items, known->max_items),
		.link_use = {hb_predictor_link_use(predictor, HB_STAGE_IN, known->in_bytes * items),
			     hb_predictor_link_use(predictor, HB_STAGE_OUT, known->out_bytes * items)},
	};
}

uint32_t hb_forecast_add(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			 uint32_t items, enum hb_serve_priority priority, bool waits)
{
	if (forecast->n == HB_FORECAST_MAX || model >= predictor->n_models)
		return HB_FORECAST_MAX;
	uint32_t index = forecast->n++;
	forecast->slot[index] = UINT32_MAX;
	forecast->flow[index] = flow_of(predictor, model, items, priority);
	forecast->flow[index].waits = waits;
	for (uint32_t i = 0; i < index; i++)
		forecast->flow[index].crowd += in_flight(&forecast->flow[i]);
	return index;
}

/* The first batch that waits begins once no high-priority one is at work. */
static void begin_waiting(struct hb_forecast *forecast)
{
	struct hb_flow *first = NULL;
	for (uint32_t i = 0; i < forecast->n; i++) {
		struct hb_flow *flow = &forecast->flow[i];
		if (!flow->live)
			continue;
		if (flow->waits && !first)
			first = flow;
		if (!flow->waits && flow->priority == HB_SERVE_HIGH && flow->stage != HB_STAGE_OUT)
			return;
	}
	if (first)
		first->waits = false;
}

static void flow_progress(struct hb_flow *flow, double work_ns, double at_ns)
{
	flow->left_ns[flow->stage] -= work_ns;
	/* Rounding leaves a last bit: no stage is left with less than a picosecond. */
	while (flow->live && flow->left_ns[flow->stage] <= 1e-3) {
		if (flow->stage == HB_STAGE_OUT) {
			flow->live = false;
			flow->finish_ns = at_ns;
		} else {
			flow->stage++;
		}
	}
}

/* Time until the first stage of any flow ends; negative: nothing progresses. */
static double next_change_ns(const struct hb_forecast *forecast, const double *rate)
{
	double next = -1;
	for (uint32_t i = 0; i < forecast->n; i++) {
		const struct hb_flow *flow = &forecast->flow[i];
		if (!(rate[i] > 0))
			continue;
		double left = flow->left_ns[flow->stage] / rate[i];
		left = left > 0 ? left : 0;
		next = next < 0 || left < next ? left : next;
	}
	return next;
}

void hb_forecast_run(const struct hb_predictor *predictor, struct hb_forecast *forecast)
{
	double at_ns = 0, rate[HB_FORECAST_MAX];
	/* Every step ends a stage, so there are at most so many. */
	for (uint32_t step = 0; step <= HB_STAGES * forecast->n; step++) {
		begin_waiting(forecast);
		hb_flows_rate(predictor, forecast->flow, forecast->n, rate, NULL);
		double next = next_change_ns(forecast, rate);
		if (next < 0)
			break;
		at_ns += next;
		for (uint32_t i = 0; i < forecast->n; i++)
			if (rate[i] > 0)
				flow_progress(&forecast->flow[i], next * rate[i], at_ns);
	}
}

double hb_forecast_error_ns(const struct hb_predictor *predictor, const struct hb_forecast *forecast, uint32_t index)
{
	const struct hb_flow *flow = &forecast->flow[index];
	double known = hb_predictor_error(predictor, flow->priority, flow->crowd);
	return known * flow->finish_ns;
}

double hb_forecast_speed(const struct hb_predictor *predictor, const struct hb_forecast *forecast)
{
	double rate[HB_FORECAST_MAX], sum = 0;
	struct hb_flow running[HB_FORECAST_MAX];
	for (uint32_t i = 0; i < forecast->n; i++) {
		running[i] = forecast->flow[i];
		running[i].stage = HB_STAGE_RUN; /* where they will meet */
	}
	hb_flows_rate(predictor, running, forecast->n, rate, NULL);
	for (uint32_t i = 0; i < forecast->n; i++)
		sum += rate[i];
	return sum;
}
