/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes results as a table for a terminal; see output.h. The wide layout has one row for each sharing mode, with the
 * programs side by side. When that is too wide, the stacked layout has one row for each program. The caller chooses width
 * and colors, because this file must not read the environment.
 */
#include "report/output.h"

#include <math.h>
#include <string.h>

#define CELL 8       /* width of a latency, a share or a rate, with the gap before it */
#define GROUP_GAP 2  /* gap between programs */
#define HIGH_CELLS 4 /* cells of an HP program: p50, p90, p99, in-SLO */
#define LOW_CELLS 2  /* it/s of-alone */
#define BUSY_WIDTH 10

#define BOLD "\033[1m"
#define RED "\033[31m"
#define RESET "\033[0m"

/* Writes a number with at most five significant digits, so that it fits into its column. */
static void format_number(char *text, size_t size, double value)
{
	int decimals = value < 100 ? 2 : value < 1000 ? 1 : 0;
	snprintf(text, size, "%.*f", decimals, value);
}

static void write_number_cell(FILE *out, double value, bool known)
{
	char text[32] = "-";
	if (known && isfinite(value))
		format_number(text, sizeof text, value);
	fprintf(out, "%*s", CELL, text);
}

static void write_share_cell(FILE *out, int width, double share, bool known, const char *color)
{
	char text[32] = "-";
	if (known && isfinite(share))
		snprintf(text, sizeof text, "%.1f%%", 100 * share);
	fprintf(out, "%s%*s%s", color, width, text, *color ? RESET : "");
}

static void write_high_cells(FILE *out, const struct hb_sim_high *high, bool colors)
{
	bool known = high->requests > 0;
	write_number_cell(out, (double)high->p50_ns / 1e6, known);
	write_number_cell(out, (double)high->p90_ns / 1e6, known);
	write_number_cell(out, (double)high->p99_ns / 1e6, known);
	bool judged = known && high->slo_ns > 0;
	write_share_cell(out, CELL, high->attainment, judged,
			 colors && judged && high->attainment < HB_SIM_SLO_KEPT ? RED : "");
}

static void write_low_cells(FILE *out, const struct hb_sim_low *low)
{
	write_number_cell(out, low->iterations_per_s, true);
	write_share_cell(out, CELL + 2, low->relative, true, "");
}

static int find_sharing_width(const struct hb_sim_result *results, size_t n)
{
	size_t width = strlen("sharing");
	for (size_t i = 0; i < n; i++) {
		size_t length = strlen(results[i].sharing);
		width = length > width ? length : width;
	}
	return (int)width;
}

static int find_high_width(void)
{
	return HIGH_CELLS * CELL;
}

static int find_low_width(void)
{
	return LOW_CELLS * CELL + 2;
}

/* Returns the width of the gap before a program's columns. A name that is wider than the columns needs a wider gap. */
static int find_group_gap(const char *name, int width)
{
	int excess = (int)strlen(name) - width;
	return GROUP_GAP + (excess > 0 ? excess : 0);
}

static unsigned find_row_width(const struct hb_sim_result *results, size_t n)
{
	const struct hb_sim_result *first = &results[0];
	int width = find_sharing_width(results, n) + BUSY_WIDTH;
	for (uint32_t i = 0; i < first->n_high; i++)
		width += find_high_width() + find_group_gap(first->high[i].workload, find_high_width());
	for (uint32_t i = 0; i < first->n_low; i++)
		width += find_low_width() + find_group_gap(first->low[i].workload, find_low_width());
	return (unsigned)width;
}

/* Writes a program's name above its columns, aligned to the right. */
static void write_group_title(FILE *out, const char *name, int width)
{
	fprintf(out, "%*s", width + find_group_gap(name, width), name);
}

static void write_wide_header(FILE *out, const struct hb_sim_result *first, int label_width)
{
	fprintf(out, "%-*s", label_width, "");
	for (uint32_t i = 0; i < first->n_high; i++)
		write_group_title(out, first->high[i].workload, find_high_width());
	for (uint32_t i = 0; i < first->n_low; i++)
		write_group_title(out, first->low[i].workload, find_low_width());
	fprintf(out, "\n%-*s", label_width, "sharing");
	for (uint32_t i = 0; i < first->n_high; i++)
		fprintf(out, "%*s%*s%*s%*s%*s", find_group_gap(first->high[i].workload, find_high_width()), "", CELL,
			"p50 ms", CELL, "p90 ms", CELL, "p99 ms", CELL, "in SLO");
	for (uint32_t i = 0; i < first->n_low; i++)
		fprintf(out, "%*s%*s%*s", find_group_gap(first->low[i].workload, find_low_width()), "", CELL, "it/s",
			CELL + 2, "of alone");
	fprintf(out, "%*s\n", BUSY_WIDTH, "GPU busy");
}

static void write_wide_row(FILE *out, const struct hb_sim_result *result, int label_width, bool colors)
{
	fprintf(out, "%-*s", label_width, result->sharing);
	for (uint32_t i = 0; i < result->n_high; i++) {
		fprintf(out, "%*s", find_group_gap(result->high[i].workload, find_high_width()), "");
		write_high_cells(out, &result->high[i], colors);
	}
	for (uint32_t i = 0; i < result->n_low; i++) {
		fprintf(out, "%*s", find_group_gap(result->low[i].workload, find_low_width()), "");
		write_low_cells(out, &result->low[i]);
	}
	write_share_cell(out, BUSY_WIDTH, result->gpu_busy, true, "");
	fputc('\n', out);
}

static int find_program_width(const struct hb_sim_result *first)
{
	size_t width = strlen("program");
	for (uint32_t i = 0; i < first->n_high; i++)
		width = strlen(first->high[i].workload) > width ? strlen(first->high[i].workload) : width;
	for (uint32_t i = 0; i < first->n_low; i++)
		width = strlen(first->low[i].workload) > width ? strlen(first->low[i].workload) : width;
	return (int)width;
}

static void write_stacked_header(FILE *out, int label_width, int name_width)
{
	fprintf(out, "%-*s  %-*s%*s%*s%*s%*s%*s%*s%*s\n", label_width, "sharing", name_width, "program", CELL, "p50 ms",
		CELL, "p90 ms", CELL, "p99 ms", CELL, "in SLO", CELL, "it/s", CELL + 2, "of alone", BUSY_WIDTH,
		"GPU busy");
}

/* Writes one row for each program of a mode. Only the first row has the mode's name and how busy the GPU was. */
static void write_stacked_rows(FILE *out, const struct hb_sim_result *result, int label_width, int name_width,
			       bool colors)
{
	for (uint32_t i = 0; i < result->n_high + result->n_low; i++) {
		fprintf(out, "%-*s  ", label_width, i == 0 ? result->sharing : "");
		if (i < result->n_high) {
			fprintf(out, "%-*s", name_width, result->high[i].workload);
			write_high_cells(out, &result->high[i], colors);
		} else {
			fprintf(out, "%-*s%*s", name_width, result->low[i - result->n_high].workload, find_high_width(),
				"");
			write_low_cells(out, &result->low[i - result->n_high]);
		}
		if (i == 0) {
			fprintf(out, "%*s", i < result->n_high ? find_low_width() : 0, "");
			write_share_cell(out, BUSY_WIDTH, result->gpu_busy, true, "");
		}
		fputc('\n', out);
	}
}

static void write_rule(FILE *out, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		fputc('-', out);
	fputc('\n', out);
}

/* Writes above the table what is the same in every row. */
static void write_preamble(FILE *out, const struct hb_sim_result *first)
{
	fprintf(out, "GPU %s, %g s, seed %llu\n", first->gpu, first->seconds, (unsigned long long)first->seed);
	for (uint32_t i = 0; i < first->n_high; i++) {
		const struct hb_sim_high *high = &first->high[i];
		fprintf(out, "  high  %s", high->workload);
		if (high->rate_per_s > 0)
			fprintf(out, ", %.6g requests/s", high->rate_per_s);
		else
			fputs(", one request after the other", out);
		if (high->slo_ns > 0)
			fprintf(out, ", SLO %.2f ms\n", (double)high->slo_ns / 1e6);
		else
			fputs(", no SLO\n", out);
	}
	for (uint32_t i = 0; i < first->n_low; i++)
		fprintf(out, "  low   %s\n", first->low[i].workload);
	fputc('\n', out);
}

static void write_intervals(FILE *out, const struct hb_sim_result *result)
{
	if (!result->n_intervals)
		return;
	double interval_s = (double)result->interval_ns / 1e9;
	fprintf(out, "\n%s\n%8s%10s%8s%8s%10s\n", result->sharing, "from s", "requests", "p50 ms", "p99 ms", "low");
	for (size_t i = 0; i < result->n_intervals; i++) {
		const struct hb_sim_interval *interval = &result->intervals[i];
		fprintf(out, "%8.2f%10llu", (double)i * interval_s, (unsigned long long)interval->requests);
		write_number_cell(out, (double)interval->p50_ns / 1e6, interval->requests > 0);
		write_number_cell(out, (double)interval->p99_ns / 1e6, interval->requests > 0);
		write_share_cell(out, CELL + 2, interval->low, true, "");
		fputc('\n', out);
	}
}

void hb_result_table_write(FILE *out, const struct hb_sim_result *results, size_t n, const struct hb_table_style *style)
{
	if (n == 0)
		return;
	int label_width = find_sharing_width(results, n);
	int name_width = find_program_width(&results[0]);
	unsigned width = find_row_width(results, n);
	bool stacked = width > style->width;
	if (stacked)
		width = (unsigned)(label_width + 2 + name_width + find_high_width() + find_low_width() + BUSY_WIDTH);
	write_preamble(out, &results[0]);
	fputs(style->colors ? BOLD : "", out);
	if (stacked)
		write_stacked_header(out, label_width, name_width);
	else
		write_wide_header(out, &results[0], label_width);
	fputs(style->colors ? RESET : "", out);
	write_rule(out, width);
	for (size_t i = 0; i < n; i++) {
		if (stacked)
			write_stacked_rows(out, &results[i], label_width, name_width, style->colors);
		else
			write_wide_row(out, &results[i], label_width, style->colors);
	}
	for (size_t i = 0; i < n; i++)
		write_intervals(out, &results[i]);
}
