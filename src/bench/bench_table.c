/* SPDX-License-Identifier: Apache-2.0 */
/* Results for a terminal: for each case one row a way of sharing and service, then the headline, at the end all together; see bench_output.h. */
#include "bench/bench_output.h"
#include "bench/bench_overall.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_WIDTH 12
#define CELL_WIDTH 27
#define SHARE_WIDTH 24

/* Five significant places at most. */
static void number_text(char *text, size_t size, double value)
{
	if (isnan(value))
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.*f", value < 100 ? 2 : value < 1000 ? 1 : 0, value);
}

static void share_text(char *text, size_t size, double value)
{
	if (isnan(value))
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.1f", 100 * value);
}

/* "12.3 [12.1, 12.6]" */
static void estimate_write(FILE *out, const struct hb_bench_estimate *estimate, int width,
			   void (*text)(char *, size_t, double))
{
	char value[32], low[32], high[32], whole[128];
	text(value, sizeof value, estimate->value);
	text(low, sizeof low, estimate->low);
	text(high, sizeof high, estimate->high);
	if (isnan(estimate->low) && isnan(estimate->high))
		snprintf(whole, sizeof whole, "%s", value);
	else
		snprintf(whole, sizeof whole, "%s [%s, %s]", value, low, high);
	fprintf(out, "%*s", width, whole);
}

static void head_write(FILE *out, const struct hb_bench_result *result)
{
	fprintf(out, "%s on %s, driver %s: %u rounds of %g s, 95 %% intervals in brackets\n", result->suite,
		result->gpu, result->driver, result->rounds, result->seconds);
}

static void programs_write(FILE *out, const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
			   unsigned rounds)
{
	fprintf(out, "\n%s (%s)\n", outcome->name, outcome->world);
	if (*outcome->unfinished)
		fprintf(out, "  %s\n", outcome->unfinished);
	else if (summary && outcome->rounds && outcome->rounds < rounds)
		fprintf(out, "  %u rounds only: the time was over\n", outcome->rounds);
	for (unsigned i = 0; i < outcome->n_high; i++) {
		char slo[32];
		number_text(slo, sizeof slo, summary && summary->slo_ns[i] ? (double)summary->slo_ns[i] / 1e3 : NAN);
		fprintf(out, "  high  %s, %s, SLO %s us (p99 alone)\n", outcome->high[i], outcome->arrivals[i], slo);
	}
	for (unsigned i = 0; i < outcome->n_low; i++)
		fprintf(out, "  low   %s\n", outcome->low[i]);
}

static void rows_write(FILE *out, const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary)
{
	fprintf(out, "\n  %-*s%9s%*s%*s%*s%*s\n", NAME_WIDTH, "sharing", "n", CELL_WIDTH, "p50 us", CELL_WIDTH,
		"p99 us", SHARE_WIDTH, "in SLO %", SHARE_WIDTH, "low, % of alone");
	for (unsigned c = 0; c < outcome->n_cells; c++)
		for (unsigned i = 0; i < outcome->n_high; i++) {
			const struct hb_bench_high_summary *high = &summary->cells[c].high[i];
			fprintf(out, "  %-*s%9llu", NAME_WIDTH, i == 0 ? outcome->cells[c].sharing : "",
				(unsigned long long)high->seen);
			estimate_write(out, &high->p50_us, CELL_WIDTH, number_text);
			estimate_write(out, &high->p99_us, CELL_WIDTH, number_text);
			estimate_write(out, &high->attainment, SHARE_WIDTH, share_text);
			if (i == 0 && outcome->n_low)
				estimate_write(out, &summary->cells[c].mean_relative, SHARE_WIDTH, share_text);
			fputc('\n', out);
		}
}

/* "; best spatial mps_prio 42.7 % (2.25x)" */
static void against_write(FILE *out, const char *what, const struct hb_bench_outcome *outcome,
			  const struct hb_bench_summary *summary, int cell, double ratio)
{
	char share[32], times[32];
	if (cell < 0)
		return;
	share_text(share, sizeof share, summary->cells[cell].worst_attainment);
	number_text(times, sizeof times, ratio);
	fprintf(out, "; best %s %s %s %% (%sx)", what, outcome->cells[cell].sharing, share, times);
}

static void headline_write(FILE *out, const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary)
{
	struct hb_bench_headline line;
	char share[32];
	hb_bench_headline_of(outcome, summary, &line);
	if (line.ours < 0 || outcome->n_low == 0)
		return;
	share_text(share, sizeof share, summary->cells[line.ours].worst_attainment);
	fprintf(out, "\n  %s: %s %% in SLO, %.1f points below exclusive", outcome->cells[line.ours].sharing, share,
		100 * line.drop);
	against_write(out, "spatial", outcome, summary, line.spatial, line.against_spatial);
	against_write(out, "temporal", outcome, summary, line.temporal, line.against_temporal);
	if (!isnan(line.low_against_temporal))
		fprintf(out, "; low priority %.2fx of %s", line.low_against_temporal,
			outcome->cells[line.temporal].sharing);
	fputc('\n', out);
}

static void clock_write(FILE *out, const struct hb_bench_outcome *outcome)
{
	int64_t worst = 0;
	for (unsigned c = 0; c < outcome->n_cells; c++)
		worst = outcome->cells[c].clock_error_ns > worst ? outcome->cells[c].clock_error_ns : worst;
	if (worst)
		fprintf(out, "\n  the device's clock was compared to +- %.2f us\n", (double)worst / 1e3);
}

static int case_write(FILE *out, const struct hb_bench_outcome *outcome, unsigned rounds, struct hb_error *error)
{
	struct hb_bench_summary *summary = NULL;
	if (*outcome->skipped || *outcome->failed) {
		programs_write(out, outcome, NULL, rounds);
		fprintf(out, "\n  %s: %s\n", *outcome->failed ? "failed" : "skipped",
			*outcome->failed ? outcome->failed : outcome->skipped);
		return 0;
	}
	summary = malloc(sizeof *summary);
	int result = summary ? hb_bench_summary_init(summary, outcome, rounds) : -ENOMEM;
	if (result) {
		free(summary);
		return hb_error_set(error, result, "out of memory");
	}
	programs_write(out, outcome, summary, rounds);
	rows_write(out, outcome, summary);
	headline_write(out, outcome, summary);
	clock_write(out, outcome);
	for (unsigned i = 0; i < outcome->n_dropped; i++)
		fprintf(out, "\n  %s failed: %s\n", outcome->dropped[i].sharing, outcome->dropped[i].why);
	hb_bench_summary_fini(summary);
	free(summary);
	return 0;
}

/* --- all cases together ------------------------------------------------------------------------------------- */

static void overall_row_write(FILE *out, const struct hb_bench_overall_row *row)
{
	const struct {
		double value;
		void (*text)(char *, size_t, double);
		int width;
	} values[] = {{row->attainment, share_text, 12},
		      {row->least, share_text, 8},
		      {row->drop, share_text, 12},
		      {row->against_spatial, number_text, 12},
		      {row->against_temporal, number_text, 12},
		      {row->low, share_text, 12},
		      {row->low_against_temporal, number_text, 12}};
	fprintf(out, "  %-*s%6u", NAME_WIDTH, row->sharing, row->cases);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		char text[32];
		values[i].text(text, sizeof text, values[i].value);
		fprintf(out, "%*s", values[i].width, text);
	}
	fputc('\n', out);
}

static const char *row_name(const struct hb_bench_overall *overall, int row)
{
	return row < 0 ? "none" : overall->rows[row].sharing;
}

static int overall_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error)
{
	struct hb_bench_overall overall;
	int code = hb_bench_overall_init(&overall, result);
	if (code)
		return hb_error_set(error, code, "out of memory");
	if (overall.cases < 2)
		return 0;
	fprintf(out, "\nall %u cases together: best spatial baseline %s, best temporal one %s\n\n", overall.cases,
		row_name(&overall, overall.spatial), row_name(&overall, overall.temporal));
	fprintf(out, "  %-*s%6s%12s%8s%12s%12s%12s%12s%12s\n", NAME_WIDTH, "sharing", "cases", "in SLO %", "least",
		"below excl.", "x spatial", "x temporal", "low, %", "x temporal");
	for (unsigned i = 0; i < overall.n; i++)
		overall_row_write(out, &overall.rows[i]);
	return 0;
}

int hb_bench_table_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error)
{
	int code = 0;
	head_write(out, result);
	for (unsigned i = 0; i < result->n_cases && !code; i++)
		code = case_write(out, &result->cases[i], result->rounds, error);
	return code ? code : overall_write(out, result, error);
}
