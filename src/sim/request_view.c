/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of a typical request and where its time went; see request_view.h. */
#include "sim/request_view.h"

#include <math.h>

/* Kernels that begin after the window were not kept, so a request that ends later is not whole. */
static int64_t spans_end(const struct hb_sim_result *result)
{
	int64_t end = 0;
	for (size_t i = 0; i < result->n_spans; i++)
		if (result->spans[i].kind != HB_SPAN_REQUEST && result->spans[i].start_ns > end)
			end = result->spans[i].start_ns;
	return end;
}

static bool candidate(const struct hb_sim_result *result, const struct hb_span *span, int64_t end_ns)
{
	return span->kind == HB_SPAN_REQUEST && span->tenant == 0 && span->end_ns <= end_ns &&
	       span->start_ns >= result->spans[0].start_ns;
}

/* 0 for a request exactly as long as its mode's median. */
static double strangeness(const struct hb_sim_result *result, const struct hb_span *span)
{
	double latency = (double)(span->end_ns - span->start_ns);
	return fabs(log(latency > 0 ? latency / fmax(1, (double)result->high[0].p50_ns) : 1));
}

static const struct hb_span *request_at(const struct hb_sim_result *result, int64_t arrival_ns, int64_t end_ns)
{
	for (size_t i = 0; i < result->n_spans && result->spans[i].start_ns <= arrival_ns; i++)
		if (result->spans[i].start_ns == arrival_ns && candidate(result, &result->spans[i], end_ns))
			return &result->spans[i];
	return NULL;
}

static const struct hb_span *most_typical(const struct hb_sim_result *result)
{
	const struct hb_span *best = NULL;
	int64_t end_ns = spans_end(result);
	for (size_t i = 0; i < result->n_spans; i++) {
		const struct hb_span *span = &result->spans[i];
		if (candidate(result, span, end_ns) && (!best || strangeness(result, span) < strangeness(result, best)))
			best = span;
	}
	return best;
}

/* Sum over all modes; negative when one of them does not have this request whole. */
static double shared_strangeness(const struct hb_sim_result *results, size_t n, const int64_t *ends, int64_t arrival_ns)
{
	double sum = 0;
	for (size_t i = 0; i < n; i++) {
		const struct hb_span *span = request_at(&results[i], arrival_ns, ends[i]);
		if (!span)
			return -1;
		sum += strangeness(&results[i], span);
	}
	return sum;
}

#define RESULTS_MAX 64

static bool shared_choose(const struct hb_sim_result *results, size_t n, const struct hb_span **views)
{
	int64_t ends[RESULTS_MAX];
	double best = INFINITY;
	int64_t arrival_ns = 0;
	for (size_t i = 0; i < n; i++)
		ends[i] = spans_end(&results[i]);
	for (size_t i = 0; i < results[0].n_spans; i++) {
		const struct hb_span *span = &results[0].spans[i];
		if (!candidate(&results[0], span, ends[0]))
			continue;
		double sum = shared_strangeness(results, n, ends, span->start_ns);
		if (sum < 0 || sum >= best)
			continue;
		best = sum;
		arrival_ns = span->start_ns;
	}
	if (isinf(best))
		return false;
	for (size_t i = 0; i < n; i++)
		views[i] = request_at(&results[i], arrival_ns, ends[i]);
	return true;
}

void hb_request_views_choose(const struct hb_sim_result *results, size_t n, const struct hb_span **views)
{
	if (n > 0 && n <= RESULTS_MAX && results[0].n_high > 0 && shared_choose(results, n, views))
		return;
	for (size_t i = 0; i < n; i++)
		views[i] = results[i].n_high > 0 ? most_typical(&results[i]) : NULL;
}

static int64_t overlap(const struct hb_span *a, const struct hb_span *b)
{
	int64_t start = a->start_ns > b->start_ns ? a->start_ns : b->start_ns;
	int64_t end = a->end_ns < b->end_ns ? a->end_ns : b->end_ns;
	return end > start ? end - start : 0;
}

static void cost_add(struct hb_request_costs *costs, const struct hb_span *span, const struct hb_span *request)
{
	int64_t ns = overlap(span, request);
	bool own = span->tenant == request->tenant;
	switch ((enum hb_span_kind)span->kind) {
	case HB_SPAN_KERNEL:
	case HB_SPAN_COPY:
		*(own ? &costs->high_ns : &costs->others_ns) += ns;
		break;
	case HB_SPAN_SWITCH:
		costs->switch_ns += ns;
		costs->switches += ns > 0;
		break;
	case HB_SPAN_HOLD:
		costs->hold_ns += own ? ns : 0;
		break;
	case HB_SPAN_GATED:
		costs->gated_ns += own ? 0 : ns;
		break;
	case HB_SPAN_REQUEST:
		break;
	}
}

struct hb_request_costs hb_request_costs_of(const struct hb_sim_result *result, const struct hb_span *request)
{
	struct hb_request_costs costs = {0};
	for (size_t i = 0; i < result->n_spans; i++)
		cost_add(&costs, &result->spans[i], request);
	return costs;
}
