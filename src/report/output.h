/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes results of the simulator: as a table, as JSON, as an HTML page with charts, and as a timeline for Perfetto. The
 * functions use no clock and no environment, so the same results give the same bytes. Caller: `hb sim`.
 *
 * Functions that return int return 0, or a negative errno with *error set. They may not notice write errors; the caller's
 * fclose(out) reports these.
 */
#ifndef HB_SIM_OUTPUT_H
#define HB_SIM_OUTPUT_H

#include "base/error.h"
#include "sim/result.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Most results that are shown together. */
#define HB_SIM_RESULTS_MAX 64
/* A mode keeps a service's SLO when this share of its requests is within the SLO. */
#define HB_SIM_SLO_KEPT 0.95

/* Writes one object, or with `array` an array of n objects, and a newline. With `latencies` it has the latencies and the ends of all requests. */
int hb_result_json_write(FILE *out, const struct hb_sim_result *results, size_t n, bool array, bool latencies,
			 struct hb_error *error);

struct hb_table_style {
	unsigned width; /* width of the terminal in columns; a wider table gets a row for each program */
	bool colors;
};
/* Writes a table: one row for each result if that fits into the width. All results must have the same programs. */
void hb_result_table_write(FILE *out, const struct hb_sim_result *results, size_t n,
			   const struct hb_table_style *style);

/* Writes one sentence that summarizes the numbers, and a newline. Writes nothing when there is nothing to compare. */
void hb_result_reading_write(FILE *out, const struct hb_sim_result *results, size_t n);

/* Writes the spans of one result as Chrome trace events. */
int hb_timeline_json_write(FILE *out, const struct hb_sim_result *result, struct hb_error *error);

struct hb_report {
	const char *command; /* the line the user typed */
	const struct hb_sim_result *results;
	size_t n;
	int64_t spans_from_ns, spans_to_ns; /* the part of the run whose spans were kept */
};
/* Writes one self-contained HTML page that draws the results. It needs a browser with JavaScript and no network. */
int hb_report_write(FILE *out, const struct hb_report *report, struct hb_error *error);

/*
 * Writes the same page with other data: an object whose "kind" names a view in page/. The function escapes all texts.
 */
int hb_page_write(FILE *out, const json_t *data, struct hb_error *error);

#endif
