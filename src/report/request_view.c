/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a typical request; see request_view.h. */
#include "report/request_view.h"

#include <math.h>

/*
 * Returns whether the span is a request of the first HP program with all its kernels: only spans in the window were
 * kept.
 */
static bool is_candidate(const struct hb_report *report, const struct hb_sim_result *result, const struct hb_span *span)
{
	int64_t to_ns = report->spans_to_ns;
	if (result->spans_truncated)
		to_ns = result->spans[result->n_spans - 1].start_ns;
	return span->kind == HB_SPAN_REQUEST && span->tenant == 0 && span->start_ns >= report->spans_from_ns &&
	       span->end_ns <= to_ns;
}

/* Measures how far a request's latency is from the median of its mode; 0 = exactly the median. */
static double measure_strangeness(const struct hb_sim_result *result, const struct hb_span *span)
{
	double latency = (double)(span->end_ns - span->start_ns);
	return fabs(log(fmax(1, latency) / fmax(1, (double)result->high[0].p50_ns)));
}

/* Finds the request that arrived at this time. Spans are ordered by start; several may start at the same time. */
static const struct hb_span *find_request(const struct hb_report *report, const struct hb_sim_result *result,
					  int64_t arrival_ns)
{
	size_t low = 0;
	size_t high = result->n_spans;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (result->spans[middle].start_ns < arrival_ns)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < result->n_spans && result->spans[low].start_ns == arrival_ns; low++)
		if (is_candidate(report, result, &result->spans[low]))
			return &result->spans[low];
	return NULL;
}

static const struct hb_span *find_most_typical(const struct hb_report *report, const struct hb_sim_result *result)
{
	const struct hb_span *best = NULL;
	for (size_t i = 0; i < result->n_spans; i++) {
		const struct hb_span *span = &result->spans[i];
		if (!is_candidate(report, result, span))
			continue;
		if (!best || measure_strangeness(result, span) < measure_strangeness(result, best))
			best = span;
	}
	return best;
}

/* Sums the strangeness of a request over all modes; infinite when a mode lacks the request or a part of it. */
static double sum_strangeness(const struct hb_report *report, int64_t arrival_ns)
{
	double sum = 0;
	for (size_t i = 0; i < report->n; i++) {
		const struct hb_span *span = find_request(report, &report->results[i], arrival_ns);
		if (!span)
			return INFINITY;
		sum += measure_strangeness(&report->results[i], span);
	}
	return sum;
}

/* Chooses the same request in every mode. Returns false when no request is complete in every mode. */
static bool choose_shared(const struct hb_report *report, const struct hb_span **views)
{
	const struct hb_sim_result *first = &report->results[0];
	double best = INFINITY;
	int64_t arrival_ns = 0;
	for (size_t i = 0; i < first->n_spans; i++) {
		if (!is_candidate(report, first, &first->spans[i]))
			continue;
		double sum = sum_strangeness(report, first->spans[i].start_ns);
		if (sum >= best)
			continue;
		best = sum;
		arrival_ns = first->spans[i].start_ns;
	}
	if (isinf(best))
		return false;
	for (size_t i = 0; i < report->n; i++)
		views[i] = find_request(report, &report->results[i], arrival_ns);
	return true;
}

void hb_request_views_choose(const struct hb_report *report, const struct hb_span **views)
{
	if (report->n > 0 && report->results[0].n_high > 0 && choose_shared(report, views))
		return;
	for (size_t i = 0; i < report->n; i++)
		views[i] = report->results[i].n_high > 0 ? find_most_typical(report, &report->results[i]) : NULL;
}
