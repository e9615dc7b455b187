/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs the data of the page of `hb sim --report` as JSON: the results as in `hb sim --json`, the distribution of each
 * service's latencies, and the spans of one request. page/sim_view.js and page/timeline.js describe the keys.
 */
#include "report/report_parts.h"

#include "report/request_view.h"
#include "report/residency.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The timeline also shows these parts of the request's latency, before its arrival and after its end. */
#define SHOWN_BEFORE 0.12
#define SHOWN_AFTER 0.18

/* A point of a distribution is left out when it differs less than this from the previous one: less than a pixel of the page. */
#define LATENCY_STEP 0.001 /* relative */
#define SHARE_STEP 0.004   /* relative to a factor of 10 in the share of slower requests */

/* Number of each kind of span: its index in hb.timeline.KINDS of page/timeline.js. */
static const int kind_numbers[] = {
	[HB_SPAN_REQUEST] = 0, [HB_SPAN_KERNEL] = 1,   [HB_SPAN_COPY] = 2,
	[HB_SPAN_SWITCH] = 3,  [HB_SPAN_TAKEOVER] = 4, [HB_SPAN_GATED] = 5,
};

static double measure_nines(double share)
{
	return -log10(fmax(1e-9, 1 - share));
}

static json_t *pack_distribution(const struct hb_sim_high *high)
{
	json_t *points = json_array();
	double last_ns = -1;
	double last_tens = 0;
	for (uint64_t i = 0; i < high->requests; i++) {
		double ns = (double)high->latency_ns[i];
		double share = (double)(i + 1) / (double)high->requests;
		double tens = measure_nines(share);
		bool seen = ns - last_ns > LATENCY_STEP * last_ns || tens - last_tens > SHARE_STEP;
		if (!seen && i + 1 < high->requests)
			continue;
		json_array_append_new(points, json_pack("[f, f]", round(ns) / 1e3, round(share * 1e6) / 1e6));
		last_ns = ns;
		last_tens = tens;
	}
	return points;
}

static json_t *pack_results(const struct hb_report *report, struct hb_error *error)
{
	json_t *list = json_array();
	for (size_t i = 0; i < report->n; i++) {
		const struct hb_sim_result *result = &report->results[i];
		json_t *object = hb_result_json_pack(result, false, error);
		json_t *highs = json_object_get(object, "high");
		for (uint32_t j = 0; j < result->n_high; j++)
			json_object_set_new(json_array_get(highs, j), "distribution",
					    pack_distribution(&result->high[j]));
		/* The time that the run took is left out, so that the same results give the same page. */
		json_object_del(object, "wall_s");
		if (json_array_append_new(list, object)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *pack_programs(const struct hb_sim_result *first)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < first->n_high + first->n_low; i++) {
		bool high = i < first->n_high;
		const char *name = high ? first->high[i].workload : first->low[i - first->n_high].workload;
		json_array_append_new(list, json_pack("{s:o, s:b}", "name", hb_text_pack(name), "high", high));
	}
	return list;
}

/* Part of a run that the timeline shows, and the names of all timelines so far. */
struct shown_part {
	const struct hb_sim_result *result;
	const struct hb_span *request;
	int64_t from_ns, to_ns;
	json_t *names, *indices;
};

static json_int_t find_name(const struct shown_part *part, const char *name)
{
	json_t *known = json_object_get(part->indices, name);
	if (known)
		return json_integer_value(known);
	json_int_t index = (json_int_t)json_array_size(part->names);
	json_array_append_new(part->names, hb_text_pack(name));
	json_object_set_new(part->indices, name, json_integer(index));
	return index;
}

/* Adds one entry for each interval in which the span's kernel had the GPU. */
static void pack_span(const struct shown_part *part, const struct hb_residency *residency, const struct hb_span *span,
		      json_t *list)
{
	if (span->end_ns <= part->from_ns || span->start_ns >= part->to_ns)
		return;
	json_int_t name = find_name(part, span->name ? span->name : "");
	struct hb_span_piece piece = {.span = span};
	while (hb_residency_piece(residency, &piece))
		json_array_append_new(list, json_pack("[i, i, I, I, I]", kind_numbers[span->kind], (int)span->tenant,
						      (json_int_t)(piece.start_ns - part->request->start_ns),
						      (json_int_t)(piece.end_ns - piece.start_ns), name));
}

static json_t *pack_mode(const struct shown_part *part)
{
	const struct hb_sim_result *result = part->result;
	struct hb_residency *residency = hb_residency_new(result);
	if (!residency)
		return NULL;
	json_t *spans = json_array();
	int64_t zero_ns = part->request->start_ns;
	for (size_t i = 0; i < result->n_spans; i++)
		pack_span(part, residency, &result->spans[i], spans);
	hb_residency_free(residency);
	return json_pack("{s:s, s:I, s:I, s:I, s:o}", "name", result->sharing, "latency_ns",
			 (json_int_t)(part->request->end_ns - zero_ns), "from_ns",
			 (json_int_t)(part->from_ns - zero_ns), "to_ns", (json_int_t)(part->to_ns - zero_ns), "spans",
			 spans);
}

static json_t *pack_modes(const struct hb_report *report, const struct hb_span *const *requests, json_t *names)
{
	json_t *list = json_array();
	json_t *indices = json_object();
	for (size_t i = 0; i < report->n; i++) {
		const struct hb_span *request = requests[i];
		if (!request)
			continue;
		double latency = (double)(request->end_ns - request->start_ns);
		struct shown_part part = {
			.result = &report->results[i],
			.request = request,
			.from_ns = request->start_ns - (int64_t)(SHOWN_BEFORE * latency),
			.to_ns = request->end_ns + (int64_t)(SHOWN_AFTER * latency),
			.names = names,
			.indices = indices,
		};
		json_array_append_new(list, pack_mode(&part));
	}
	json_decref(indices);
	return list;
}

/* Packs two indices among the modes that have the request: of the driver's own time slicing, and of the best mode. */
static json_t *pack_shown(const struct hb_report *report, const struct hb_span *const *requests)
{
	const struct hb_sim_result *best = hb_result_best(report->results, report->n);
	int usual = 0;
	int better = 0;
	int n = 0;
	for (size_t i = 0; i < report->n; i++) {
		if (!requests[i])
			continue;
		if (strcmp(report->results[i].sharing, "timeslice") == 0)
			usual = n;
		if (&report->results[i] == best)
			better = n;
		n++;
	}
	return n > 1 ? json_pack("[i, i]", usual, better) : json_pack("[i]", 0);
}

/* Packs the chosen request; JSON null when no mode kept the spans of a complete request. */
static json_t *pack_request(const struct hb_report *report)
{
	const struct hb_span *requests[HB_SIM_RESULTS_MAX] = {NULL};
	bool found = false;
	hb_request_views_choose(report, requests);
	for (size_t i = 0; i < report->n; i++)
		found |= requests[i] != NULL;
	if (!found)
		return json_null();
	json_t *names = json_array();
	json_t *modes = pack_modes(report, requests, names);
	return json_pack("{s:o, s:o, s:I, s:o, s:o}", "programs", pack_programs(&report->results[0]), "names", names,
			 "slo_ns", (json_int_t)report->results[0].high[0].slo_ns, "shown", pack_shown(report, requests),
			 "modes", modes);
}

static json_t *pack_reading(const struct hb_report *report)
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	if (!memory)
		return NULL;
	hb_result_reading_write(memory, report->results, report->n);
	json_t *packed = fclose(memory) == 0 ? json_stringn(text, size ? size - 1 : 0) : NULL;
	free(text);
	return packed;
}

int hb_report_json_pack(const struct hb_report *report, json_t **data, struct hb_error *error)
{
	*error = (struct hb_error){"out of memory"};
	*data = hb_json_pack(error, "{s:s, s:o, s:o, s:f, s:o, s:o}", "kind", "sim", "command",
			     hb_text_pack(report->command), "reading", pack_reading(report), "slo_kept",
			     HB_SIM_SLO_KEPT, "results", pack_results(report, error), "request", pack_request(report));
	return *data ? 0 : -EINVAL;
}
