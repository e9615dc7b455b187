/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to show results: a table for people, JSON for programs, a page of
 * plots, a timeline for Perfetto. All are pure: results in, text out; no clock,
 * no environment. The same results give the same bytes. Caller: `hb sim`.
 *
 * Functions that return int return 0 or a negative errno told in *error; write
 * errors that they do not notice stay in `out` for the caller's fclose().
 */
#ifndef HB_SIM_OUTPUT_H
#define HB_SIM_OUTPUT_H

#include "base/error.h"
#include "sim/result.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Results shown together at most. */
#define HB_SIM_RESULTS_MAX 64
/* A service counts as kept when this share of its requests is within the SLO. */
#define HB_SIM_SLO_KEPT 0.95

/* One object, or with `array` an array of n objects; `latencies`: also the latency of every request. Ends with a newline. */
int hb_result_json_write(FILE *out, const struct hb_sim_result *results, size_t n, bool array, bool latencies,
			 struct hb_error *error);

struct hb_table_style {
	unsigned width; /* columns; wider tables put each program on a line of its own */
	bool colors;
};
/* One row a result when that fits into the width. All results have the same programs. */
void hb_result_table_write(FILE *out, const struct hb_sim_result *results, size_t n,
			   const struct hb_table_style *style);

/* What the numbers say, in one sentence with a final newline; nothing when there is nothing to compare. */
void hb_result_reading_write(FILE *out, const struct hb_sim_result *results, size_t n);

/* Chrome trace events of one result's spans. */
int hb_timeline_json_write(FILE *out, const struct hb_sim_result *result, struct hb_error *error);

struct hb_report {
	const char *command; /* the line the user typed */
	const struct hb_sim_result *results;
	size_t n;
	int64_t spans_from_ns, spans_to_ns; /* the window in which spans were kept */
};
/* One self-contained HTML page that draws the results; it needs a browser with JavaScript and no network. */
int hb_report_write(FILE *out, const struct hb_report *report, struct hb_error *error);

/*
 * The same page with other data: an object whose "kind" names a view in page/. Kernel and program names need no escaping
 * by the caller.
 */
int hb_page_write(FILE *out, const json_t *data, struct hb_error *error);

#endif
