/* SPDX-License-Identifier: Apache-2.0 */
/* Predictors to compare with; see comparators.h. */
#include "simserving/comparators.h"

#include <string.h>

/* GPUlet fits its model before it serves. Here the first batches take the place of its measurements. */
#define REGRESSION_SAMPLES 500u
#define REGRESSION_P0 1e4
/* A step removes this part of the sample's error: normalized gradient descent is stable below 2. */
#define SGD_STEP 0.1
#define EWMA_WEIGHT 0.2
/* As in predictor.c: a larger slowdown has another cause than interference. */
#define SLOWDOWN_SANE 30.0

void hb_comparators_init(struct hb_comparators *comparators)
{
	memset(comparators, 0, sizeof *comparators);
	hb_rls_init(&comparators->regression, HB_COMPARATOR_FEATURES, 1, REGRESSION_P0);
}

void hb_comparators_replace(struct hb_comparators *comparators, uint32_t model)
{
	memset(comparators->ewma_ns[model], 0, sizeof comparators->ewma_ns[model]);
}

static double predict_linear(const double *w, const struct hb_compared_flight *flight)
{
	double slowdown = 0;
	for (int k = 0; k < HB_COMPARATOR_FEATURES && flight->beside; k++)
		slowdown += w[k] * flight->x[k];
	return flight->alone_ns * (1 + (slowdown > 0 ? slowdown : 0));
}

/* Fills in the features, and counts the other batches in flight. */
static void describe_company(struct hb_compared_flight *flight, const struct hb_predictor *predictor, uint32_t slot)
{
	const struct hb_flow *own = &predictor->flights[slot].flow;
	uint32_t n = 0;
	double sm = 0, memory = 0;
	for (uint32_t i = 0; i < HB_SCHEDULER_FLIGHTS_MAX; i++) {
		const struct hb_flow *other = &predictor->flights[i].flow;
		if (i == slot || !other->live)
			continue;
		n++;
		sm += other->sm;
		memory += other->memory;
	}
	flight->beside = n > 0;
	flight->row = n < HB_PREDICTOR_BESIDE_MAX ? n : HB_PREDICTOR_BESIDE_MAX - 1;
	memcpy(flight->x, (const double[]){1, own->sm, sm, own->memory, memory}, sizeof flight->x);
}

void hb_comparators_begin(struct hb_comparators *comparators, const struct hb_predictor *predictor, int64_t now_ns,
			  uint32_t slot)
{
	const struct hb_flow *flow = &predictor->flights[slot].flow;
	struct hb_compared_flight *flight = &comparators->flights[slot];
	*flight = (struct hb_compared_flight){.model = flow->model, .items = flow->items, .begun_ns = now_ns};
	flight->alone_ns = hb_predictor_alone(predictor, flow->model, flow->items).ns;
	describe_company(flight, predictor, slot);
	double ewma_ns = comparators->ewma_ns[flow->model][flow->items][flight->row];
	flight->predicted_ns[HB_COMPARED_REGRESSION] = predict_linear(comparators->regression.w, flight);
	flight->predicted_ns[HB_COMPARED_SGD] = predict_linear(comparators->sgd, flight);
	flight->predicted_ns[HB_COMPARED_EWMA] = ewma_ns > 0 ? ewma_ns : flight->alone_ns;
}

static void learn_slowdown(struct hb_comparators *comparators, const struct hb_compared_flight *flight, double took_ns)
{
	double slowdown = took_ns / flight->alone_ns - 1, error = slowdown, size = 0;
	if (!flight->beside || !(slowdown < SLOWDOWN_SANE))
		return;
	if (comparators->regression.updates < REGRESSION_SAMPLES)
		hb_rls_update(&comparators->regression, flight->x, slowdown);
	for (int k = 0; k < HB_COMPARATOR_FEATURES; k++) {
		error -= comparators->sgd[k] * flight->x[k];
		size += flight->x[k] * flight->x[k];
	}
	for (int k = 0; k < HB_COMPARATOR_FEATURES; k++)
		comparators->sgd[k] += SGD_STEP * error * flight->x[k] / size;
}

const double *hb_comparators_end(struct hb_comparators *comparators, int64_t now_ns, uint32_t slot, bool pauses)
{
	struct hb_compared_flight *flight = &comparators->flights[slot];
	double took_ns = (double)(now_ns - flight->begun_ns);
	double *ewma_ns = &comparators->ewma_ns[flight->model][flight->items][flight->row];
	if (pauses || took_ns <= 0 || flight->alone_ns <= 0)
		return flight->predicted_ns;
	learn_slowdown(comparators, flight, took_ns);
	*ewma_ns = *ewma_ns > 0 ? *ewma_ns + EWMA_WEIGHT * (took_ns - *ewma_ns) : took_ns;
	return flight->predicted_ns;
}
