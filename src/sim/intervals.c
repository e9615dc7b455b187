/* SPDX-License-Identifier: Apache-2.0 */
/* See intervals.h. */
#include "sim/intervals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t hb_intervals_count(const struct hb_sim_options *options)
{
	int64_t all_ns = options->lead_ns + (int64_t)(options->seconds * 1e9);
	return options->interval_ns > 0 ? (size_t)((all_ns + options->interval_ns - 1) / options->interval_ns) : 0;
}

size_t hb_interval_of(const struct hb_sim_options *options, int64_t now_ns)
{
	size_t interval = (size_t)(now_ns / options->interval_ns), n = hb_intervals_count(options);
	return interval < n ? interval : n;
}

int hb_intervals_init(struct hb_sim_result *result, const struct hb_sim_options *options)
{
	result->n_intervals = hb_intervals_count(options);
	if (!result->n_intervals)
		return 0;
	result->interval_ns = options->interval_ns;
	result->intervals = calloc(result->n_intervals, sizeof *result->intervals);
	return result->intervals ? 0 : -ENOMEM;
}

static int compare_values(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
	return (left > right) - (left < right);
}

static void fill_interval(struct hb_sim_interval *interval, int64_t *latency_ns, size_t n)
{
	qsort(latency_ns, n, sizeof *latency_ns, compare_values);
	interval->requests = n;
	interval->p50_ns = latency_ns[n / 2];
	interval->p99_ns = latency_ns[n * 99 / 100];
}

int hb_intervals_add_high(struct hb_sim_result *result, const struct hb_sim_options *options, const int64_t *latency_ns,
			  const int64_t *end_ns, size_t n)
{
	if (!result->n_intervals || !n)
		return 0;
	int64_t *sorted_ns = malloc(n * sizeof *sorted_ns);
	if (!sorted_ns)
		return -ENOMEM;
	memcpy(sorted_ns, latency_ns, n * sizeof *sorted_ns);
	for (size_t first = 0, end; first < n; first = end) {
		size_t interval = hb_interval_of(options, end_ns[first]);
		for (end = first; end < n && hb_interval_of(options, end_ns[end]) == interval;)
			end++;
		if (interval < result->n_intervals)
			fill_interval(&result->intervals[interval], &sorted_ns[first], end - first);
	}
	free(sorted_ns);
	return 0;
}

void hb_intervals_add_low(struct hb_sim_result *result, const struct hb_sim_options *options, const double *busy_ns,
			  double alone)
{
	for (size_t i = 0; i < result->n_intervals; i++)
		result->intervals[i].low += busy_ns[i] / (alone * (double)options->interval_ns / 1e9);
}
