/* SPDX-License-Identifier: Apache-2.0 */
/* Creates artificial results; see fake_results.h. Latencies follow a formula, so they are always the same. */
#include "fake_results.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUESTS 1000
#define SPANS_MAX 8192
#define MS INT64_C(1000000)

static const struct fake_mode {
	const char *name;
	double slowdown; /* latencies of the services, relative to exclusive */
	double relative; /* speed of the low-priority programs, relative to alone */
} modes[FAKE_MODES] = {
	{"exclusive", 1, 1},          {"timeslice", 1.8, 0.92}, {"ts100", 1.35, 0.9},  {"ts1", 1.22, 0.89},
	{"mps", 2.4, 0.93},           {"mps_prio", 1.9, 0.91},  {"mps_88", 1.3, 0.89}, {"mps_gate2", 1.02, 0.71},
	{"mps_gate2_88", 1.01, 0.69}, {"reef", 1.1, 0.75},      {"orion", 1.15, 0.8},  {"temporal", 1.04, 0.88},
};

static int64_t find_latency(const struct fake_mode *mode, int i)
{
	double tail = i > 900 ? (i - 900) * (i - 900) / 2500.0 : 0;
	return (int64_t)((2.4 + i * 0.0006 + tail) * mode->slowdown * 1e6);
}

static void make_high(struct hb_sim_high *high, const struct fake_mode *mode, uint32_t index)
{
	snprintf(high->workload, sizeof high->workload, "service%u_b1:graph", index);
	high->rate_per_s = 60;
	high->requests = REQUESTS;
	high->latency_ns = calloc(REQUESTS, sizeof *high->latency_ns);
	high->end_ns = calloc(REQUESTS, sizeof *high->end_ns);
	assert(high->latency_ns && high->end_ns);
	high->slo_ns = find_latency(&modes[0], REQUESTS * 99 / 100);
	for (int i = 0; i < REQUESTS; i++) {
		high->latency_ns[i] = find_latency(mode, i);
		high->end_ns[i] = (i + 1) * INT64_C(16000000);
		high->attainment += high->latency_ns[i] <= high->slo_ns ? 1.0 / REQUESTS : 0;
	}
	high->p50_ns = high->latency_ns[REQUESTS / 2 - 1];
	high->p90_ns = high->latency_ns[REQUESTS * 9 / 10 - 1];
	high->p99_ns = high->latency_ns[REQUESTS * 99 / 100 - 1];
	high->max_ns = high->latency_ns[REQUESTS - 1];
}

static void add_span(struct hb_sim_result *result, enum hb_span_kind kind, uint32_t tenant, int64_t start_ns,
		     int64_t ns, const char *name)
{
	assert(result->n_spans < SPANS_MAX);
	result->spans[result->n_spans++] = (struct hb_span){start_ns, start_ns + ns, name, (uint8_t)kind,
							    (uint8_t)tenant};
}

static int compare_starts(const void *a, const void *b)
{
	const struct hb_span *first = a;
	const struct hb_span *second = b;
	return (first->start_ns > second->start_ns) - (first->start_ns < second->start_ns);
}

/* Adds one request: a switch, a takeover, and kernels with gaps; low-priority programs wait, then run. */
static void make_request(struct hb_sim_result *result, int64_t at_ns, int64_t latency_ns)
{
	uint32_t low = result->n_high;
	add_span(result, HB_SPAN_REQUEST, 0, at_ns, latency_ns, "request");
	add_span(result, HB_SPAN_SWITCH, 0, at_ns + 1000, 190000, "switch");
	add_span(result, HB_SPAN_TAKEOVER, 0, at_ns + 2000, 180000, "hold");
	add_span(result, HB_SPAN_COPY, 0, at_ns + 195000, 20000, "copy <host to device>");
	for (int64_t t = at_ns + 220000; t + 15000 < at_ns + latency_ns; t += 20000)
		add_span(result, HB_SPAN_KERNEL, 0, t, 12000, "void gemm<float, 128>(float const*)</script>");
	if (result->n_low == 0)
		return;
	add_span(result, HB_SPAN_GATED, low, at_ns + 200000, latency_ns - 200000, "gate");
	for (int64_t t = at_ns - 2 * MS; t < at_ns; t += MS)
		add_span(result, HB_SPAN_KERNEL, low, t, MS - 1000, "train_kernel");
}

static void make_result(struct hb_sim_result *result, const struct fake_mode *mode, uint32_t n_high, uint32_t n_low)
{
	snprintf(result->gpu, sizeof result->gpu, "h200");
	snprintf(result->sharing, sizeof result->sharing, "%s", mode->name);
	result->seconds = 20;
	result->seed = 7;
	result->n_high = n_high;
	result->n_low = n_low;
	for (uint32_t i = 0; i < n_high; i++)
		make_high(&result->high[i], mode, i);
	for (uint32_t i = 0; i < n_low; i++) {
		snprintf(result->low[i].workload, sizeof result->low[i].workload, "train%u_b128", i);
		result->low[i].iterations_per_s = 33.9 * mode->relative / (i + 1);
		result->low[i].relative = mode->relative;
	}
	result->gpu_busy = 0.93;
	result->wall_s = 1.25;
	result->spans = calloc(SPANS_MAX, sizeof *result->spans);
	assert(result->spans);
	for (int i = 0; i < 6 && n_high; i++)
		make_request(result, (5 + 17 * i) * MS, (int64_t)(2.5e6 * mode->slowdown) + i * 40000);
	qsort(result->spans, result->n_spans, sizeof *result->spans, compare_starts);
}

struct hb_sim_result *fake_results_new(uint32_t n_high, uint32_t n_low)
{
	struct hb_sim_result *results = calloc(FAKE_MODES, sizeof *results);
	assert(results);
	for (int i = 0; i < FAKE_MODES; i++)
		make_result(&results[i], &modes[i], n_high, n_low);
	return results;
}

void fake_results_free(struct hb_sim_result *results)
{
	for (int i = 0; i < FAKE_MODES; i++) {
		for (uint32_t j = 0; j < results[i].n_high; j++) {
			free(results[i].high[j].latency_ns);
			free(results[i].high[j].end_ns);
		}
		free(results[i].spans);
	}
	free(results);
}
