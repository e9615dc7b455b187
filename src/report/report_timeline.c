/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report's timeline of one request: the spans around it as JSON for
 * report.js, and a table of where its time went that needs no script. Called by
 * report.c only.
 */
#include "report/report_parts.h"

#include "base/json.h"
#include "report/output.h"
#include "report/plot.h"
#include "report/request_view.h"

#include <errno.h>
#include <string.h>

/* What is shown around the request, as parts of its latency. */
#define BEFORE 0.12
#define AFTER 0.18

enum row_type { ROW_REQUEST, ROW_KERNEL, ROW_HOLD, ROW_SWITCH, ROW_GATE, N_ROW_TYPES };

#define TENANTS_MAX (2 * HB_SIM_TENANTS_MAX)

/* Rows that hold a span under some mode, numbered from the top; -1 = not shown. */
struct rows {
	int number[TENANTS_MAX][N_ROW_TYPES];
	int n;
};

struct view {
	const struct hb_span *request;
	int64_t from_ns, to_ns;
};

static enum row_type row_of(const struct hb_span *span)
{
	switch ((enum hb_span_kind)span->kind) {
	case HB_SPAN_REQUEST:
		return ROW_REQUEST;
	case HB_SPAN_SWITCH:
		return ROW_SWITCH;
	case HB_SPAN_HOLD:
		return ROW_HOLD;
	case HB_SPAN_GATED:
		return ROW_GATE;
	case HB_SPAN_KERNEL:
	case HB_SPAN_COPY:
		break;
	}
	return ROW_KERNEL;
}

static struct view view_of(const struct hb_span *request)
{
	double latency = (double)(request->end_ns - request->start_ns);
	return (struct view){request, request->start_ns - (int64_t)(BEFORE * latency),
			     request->end_ns + (int64_t)(AFTER * latency)};
}

static bool visible(const struct view *view, const struct hb_span *span)
{
	return span->end_ns > view->from_ns && span->start_ns < view->to_ns && span->tenant < TENANTS_MAX;
}

/* The order on the page: a service's requests, holds and kernels, and the switches between contexts, then what waits. */
static void rows_number(struct rows *rows, uint32_t n_tenants)
{
	static const enum row_type order[] = {ROW_REQUEST, ROW_HOLD, ROW_SWITCH, ROW_GATE, ROW_KERNEL};
	rows->n = 0;
	for (uint32_t tenant = 0; tenant < n_tenants; tenant++)
		for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
			if (rows->number[tenant][order[i]])
				rows->number[tenant][order[i]] = rows->n++;
			else
				rows->number[tenant][order[i]] = -1;
}

static void rows_find(struct rows *rows, const struct hb_sim_result *results, size_t n,
		      const struct hb_span *const *requests)
{
	memset(rows, 0, sizeof *rows);
	for (size_t i = 0; i < n; i++) {
		if (!requests[i])
			continue;
		struct view view = view_of(requests[i]);
		for (size_t j = 0; j < results[i].n_spans; j++)
			if (visible(&view, &results[i].spans[j]))
				rows->number[results[i].spans[j].tenant][row_of(&results[i].spans[j])] = 1;
	}
	rows_number(rows, results[0].n_high + results[0].n_low);
}

static json_t *rows_pack(const struct rows *rows, const struct hb_sim_result *first)
{
	static const struct {
		const char *name, *high_type, *low_type;
	} texts[N_ROW_TYPES] = {
		[ROW_REQUEST] = {"requests", "request", "request"},
		[ROW_KERNEL] = {"kernels, copies", "high", "low"},
		[ROW_HOLD] = {"holds", "hold", "hold"},
		[ROW_SWITCH] = {"switches to it", "switch", "switch"},
		[ROW_GATE] = {"waits at the gate", "gate", "gate"},
	};
	json_t *list = json_array();
	for (int number = 0; number < rows->n; number++) {
		for (uint32_t tenant = 0; tenant < first->n_high + first->n_low; tenant++) {
			bool high = tenant < first->n_high;
			const char *group = high ? first->high[tenant].workload
						 : first->low[tenant - first->n_high].workload;
			for (int type = 0; type < N_ROW_TYPES; type++)
				if (rows->number[tenant][type] == number)
					json_array_append_new(
						list,
						json_pack("{s:s, s:s, s:s}", "group", group, "name", texts[type].name,
							  "type", high ? texts[type].high_type : texts[type].low_type));
		}
	}
	return list;
}

/* Index of `name` in the page's list of names, which it joins when it is new. */
static json_int_t name_index(json_t *names, json_t *indices, const char *name)
{
	json_t *known = json_object_get(indices, name);
	if (known)
		return json_integer_value(known);
	json_int_t index = (json_int_t)json_array_size(names);
	json_array_append_new(names, json_string(name));
	json_object_set_new(indices, name, json_integer(index));
	return index;
}

/* What is the same for every span of a mode. */
struct packer {
	const struct rows *rows;
	const struct hb_residency *residency;
	json_t *names, *indices; /* of all modes */
	int64_t zero_ns;         /* the request's arrival */
};

/* One bar for each piece in which a kernel had the GPU. */
static void span_pack(const struct packer *packer, const struct hb_span *span, json_t *list)
{
	json_int_t name = name_index(packer->names, packer->indices, span->name ? span->name : "");
	struct hb_span_piece piece = {.span = span};
	while (hb_residency_piece(packer->residency, &piece))
		json_array_append_new(
			list, json_pack("[i, I, I, I, i]", packer->rows->number[span->tenant][row_of(span)],
					(json_int_t)(piece.start_ns - packer->zero_ns),
					(json_int_t)(piece.end_ns - piece.start_ns), name, span->kind == HB_SPAN_COPY));
}

static json_t *mode_pack(const struct hb_sim_result *result, const struct hb_span *request, struct packer *packer)
{
	struct view view = view_of(request);
	struct hb_residency *residency = hb_residency_new(result);
	json_t *list = json_array();
	packer->residency = residency;
	packer->zero_ns = request->start_ns;
	for (size_t i = 0; i < result->n_spans && residency; i++)
		if (visible(&view, &result->spans[i]))
			span_pack(packer, &result->spans[i], list);
	hb_residency_free(residency);
	return json_pack("{s:s, s:I, s:I, s:I, s:o}", "name", result->sharing, "latency",
			 (json_int_t)(request->end_ns - request->start_ns), "from",
			 (json_int_t)(view.from_ns - request->start_ns), "to",
			 (json_int_t)(view.to_ns - request->start_ns), "spans", list);
}

static json_t *modes_pack(const struct hb_sim_result *results, size_t n, const struct hb_span *const *requests,
			  const struct rows *rows, json_t *names)
{
	struct packer packer = {.rows = rows, .names = names, .indices = json_object()};
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		if (requests[i])
			json_array_append_new(list, mode_pack(&results[i], requests[i], &packer));
	json_decref(packer.indices);
	return list;
}

/* Indices, among the modes that have a request, of the two shown first. */
static json_t *shown_pack(const struct hb_sim_result *results, size_t n, const struct hb_span *const *requests)
{
	const struct hb_sim_result *best = hb_result_best(results, n);
	int usual = 0;
	int better = 0;
	int number = 0;
	for (size_t i = 0; i < n; i++) {
		if (!requests[i])
			continue;
		if (strcmp(results[i].sharing, "timeslice") == 0)
			usual = number;
		if (&results[i] == best)
			better = number;
		number++;
	}
	return json_pack("[i, i]", usual, better);
}

/* '<' could end the script element it stands in. */
static int json_inline(FILE *out, const json_t *root)
{
	char *text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (!text)
		return -ENOMEM;
	for (const char *c = text; *c; c++)
		*c == '<' ? fputs("\\u003c", out) : fputc(*c, out);
	free(text);
	return 0;
}

static int data_write(FILE *out, const struct hb_sim_result *results, size_t n, const struct hb_span *const *requests)
{
	struct rows rows;
	rows_find(&rows, results, n, requests);
	json_t *names = json_array();
	json_t *modes = modes_pack(results, n, requests, &rows, names);
	json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:I}", "rows", rows_pack(&rows, &results[0]), "names", names,
				 "modes", modes, "shown", shown_pack(results, n, requests), "slo",
				 (json_int_t)results[0].high[0].slo_ns);
	if (!root)
		return -ENOMEM;
	fputs("<script type=\"application/json\" id=\"timeline-data\">", out);
	int rc = json_inline(out, root);
	fputs("</script>\n", out);
	json_decref(root);
	return rc;
}

static void panel_write(FILE *out, const char *label)
{
	fprintf(out,
		"<div class=\"panel\" hidden>\n<div class=\"bar\"><select aria-label=\"%s\"></select><output></output>"
		"<button type=\"button\" value=\"left\" aria-label=\"earlier\">&#8592;</button>"
		"<button type=\"button\" value=\"right\" aria-label=\"later\">&#8594;</button>"
		"<button type=\"button\" value=\"in\" aria-label=\"zoom in\">+</button>"
		"<button type=\"button\" value=\"out\" aria-label=\"zoom out\">&#8722;</button>"
		"<button type=\"button\" value=\"all\">all</button></div>\n"
		"<svg class=\"lanes\" viewBox=\"0 0 960 200\" role=\"img\" tabindex=\"0\"></svg>\n</div>\n",
		label);
}

static void cell(FILE *out, int64_t ns)
{
	fprintf(out, "<td>%.3f</td>", (double)ns / 1e6);
}

static void costs_row(FILE *out, const struct hb_sim_result *result, const struct hb_span *request)
{
	struct hb_residency *residency = hb_residency_new(result);
	if (!residency)
		return;
	struct hb_request_costs costs = hb_request_costs_of(result, residency, request);
	hb_residency_free(residency);
	fputs("<tr><th scope=\"row\">", out);
	hb_svg_text(out, result->sharing);
	fputs("</th>", out);
	cell(out, request->end_ns - request->start_ns);
	cell(out, costs.high_ns);
	cell(out, costs.others_ns);
	fprintf(out, "<td>%u</td>", costs.switches);
	cell(out, costs.switch_ns);
	cell(out, costs.hold_ns);
	cell(out, costs.gated_ns);
	fputs("</tr>\n", out);
}

static void costs_write(FILE *out, const struct hb_sim_result *results, size_t n, const struct hb_span *const *requests)
{
	fputs("<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">this request</th><th scope=\"col\">latency<br>ms</th>"
	      "<th scope=\"col\">its own<br>kernels, ms</th><th scope=\"col\">kernels of<br>others, ms</th><th scope=\"col\">context<br>switches</th>"
	      "<th scope=\"col\">switching<br>ms</th><th scope=\"col\">holds<br>ms</th><th scope=\"col\">others at<br>the gate, ms</th></tr></thead>\n<tbody>\n",
	      out);
	for (size_t i = 0; i < n; i++)
		if (requests[i])
			costs_row(out, &results[i], requests[i]);
	fputs("</tbody></table></div>\n", out);
}

int hb_report_timeline_write(FILE *out, const struct hb_report *report)
{
	const struct hb_sim_result *results = report->results;
	size_t n = report->n;
	const struct hb_span *requests[HB_SIM_RESULTS_MAX] = {NULL};
	size_t found = 0;
	hb_request_views_choose(report, requests);
	for (size_t i = 0; i < n; i++)
		found += requests[i] != NULL;
	if (found == 0)
		return 0;
	fputs("<section>\n<h2>One request, closely</h2>\n<p class=\"soft\">A typical request of ", out);
	hb_svg_text(out, results[0].high[0].workload);
	fputs(n > 1 ? ", the same arrival under every way of sharing where arrivals are given. " : ". ", out);
	fputs("<span class=\"screen\">Choose a way to share above each timeline; drag to move, point at a bar for its name and times.</span></p>\n",
	      out);
	panel_write(out, "sharing mode of the first timeline");
	if (found > 1)
		panel_write(out, "sharing mode of the second timeline");
	costs_write(out, results, n, requests);
	int rc = data_write(out, results, n, requests);
	fputs("</section>\n", out);
	return rc;
}
