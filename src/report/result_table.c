/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results as a table for a terminal; see output.h. Two layouts: one row a
 * sharing mode with the programs side by side, or, when that is too wide, one
 * row a program. Must not read the environment: the caller says width and colours.
 */
#include "report/output.h"

#include <math.h>
#include <string.h>

#define CELL 8       /* a latency, a share or a rate with its gap */
#define GROUP_GAP 2  /* between programs */
#define HIGH_CELLS 4 /* p50 p90 p99 in-SLO */
#define LOW_CELLS 2  /* it/s of-alone */
#define BUSY_WIDTH 10

#define BOLD "\033[1m"
#define RED "\033[31m"
#define RESET "\033[0m"

/* Five significant places at most, so that a column stays a column. */
static void number_format(char *text, size_t size, double value)
{
	int decimals = value < 100 ? 2 : value < 1000 ? 1 : 0;
	snprintf(text, size, "%.*f", decimals, value);
}

static void cell_number(FILE *out, double value, bool known)
{
	char text[32] = "-";
	if (known && isfinite(value))
		number_format(text, sizeof text, value);
	fprintf(out, "%*s", CELL, text);
}

static void cell_share(FILE *out, int width, double share, bool known, const char *color)
{
	char text[32] = "-";
	if (known && isfinite(share))
		snprintf(text, sizeof text, "%.1f%%", 100 * share);
	fprintf(out, "%s%*s%s", color, width, text, *color ? RESET : "");
}

static void high_cells(FILE *out, const struct hb_sim_high *high, bool colors)
{
	bool known = high->requests > 0;
	cell_number(out, (double)high->p50_ns / 1e6, known);
	cell_number(out, (double)high->p90_ns / 1e6, known);
	cell_number(out, (double)high->p99_ns / 1e6, known);
	bool judged = known && high->slo_ns > 0;
	cell_share(out, CELL, high->attainment, judged,
		   colors && judged && high->attainment < HB_SIM_SLO_KEPT ? RED : "");
}

static void low_cells(FILE *out, const struct hb_sim_low *low)
{
	cell_number(out, low->iterations_per_s, true);
	cell_share(out, CELL + 2, low->relative, true, "");
}

static int sharing_width(const struct hb_sim_result *results, size_t n)
{
	size_t width = strlen("sharing");
	for (size_t i = 0; i < n; i++) {
		size_t length = strlen(results[i].sharing);
		width = length > width ? length : width;
	}
	return (int)width;
}

static int high_width(void)
{
	return HIGH_CELLS * CELL;
}

static int low_width(void)
{
	return LOW_CELLS * CELL + 2;
}

/* Before a program's columns: a name wider than they are needs more. */
static int group_gap(const char *name, int width)
{
	int excess = (int)strlen(name) - width;
	return GROUP_GAP + (excess > 0 ? excess : 0);
}

static unsigned side_by_side_width(const struct hb_sim_result *results, size_t n)
{
	const struct hb_sim_result *first = &results[0];
	int width = sharing_width(results, n) + BUSY_WIDTH;
	for (uint32_t i = 0; i < first->n_high; i++)
		width += high_width() + group_gap(first->high[i].workload, high_width());
	for (uint32_t i = 0; i < first->n_low; i++)
		width += low_width() + group_gap(first->low[i].workload, low_width());
	return (unsigned)width;
}

/* A program's name above its columns, right-aligned with them. */
static void group_title(FILE *out, const char *name, int width)
{
	fprintf(out, "%*s", width + group_gap(name, width), name);
}

static void side_by_side_header(FILE *out, const struct hb_sim_result *first, int label_width)
{
	fprintf(out, "%-*s", label_width, "");
	for (uint32_t i = 0; i < first->n_high; i++)
		group_title(out, first->high[i].workload, high_width());
	for (uint32_t i = 0; i < first->n_low; i++)
		group_title(out, first->low[i].workload, low_width());
	fprintf(out, "\n%-*s", label_width, "sharing");
	for (uint32_t i = 0; i < first->n_high; i++)
		fprintf(out, "%*s%*s%*s%*s%*s", group_gap(first->high[i].workload, high_width()), "", CELL, "p50 ms",
			CELL, "p90 ms", CELL, "p99 ms", CELL, "in SLO");
	for (uint32_t i = 0; i < first->n_low; i++)
		fprintf(out, "%*s%*s%*s", group_gap(first->low[i].workload, low_width()), "", CELL, "it/s", CELL + 2,
			"of alone");
	fprintf(out, "%*s\n", BUSY_WIDTH, "GPU busy");
}

static void side_by_side_row(FILE *out, const struct hb_sim_result *result, int label_width, bool colors)
{
	fprintf(out, "%-*s", label_width, result->sharing);
	for (uint32_t i = 0; i < result->n_high; i++) {
		fprintf(out, "%*s", group_gap(result->high[i].workload, high_width()), "");
		high_cells(out, &result->high[i], colors);
	}
	for (uint32_t i = 0; i < result->n_low; i++) {
		fprintf(out, "%*s", group_gap(result->low[i].workload, low_width()), "");
		low_cells(out, &result->low[i]);
	}
	cell_share(out, BUSY_WIDTH, result->gpu_busy, true, "");
	fputc('\n', out);
}

static int program_width(const struct hb_sim_result *first)
{
	size_t width = strlen("program");
	for (uint32_t i = 0; i < first->n_high; i++)
		width = strlen(first->high[i].workload) > width ? strlen(first->high[i].workload) : width;
	for (uint32_t i = 0; i < first->n_low; i++)
		width = strlen(first->low[i].workload) > width ? strlen(first->low[i].workload) : width;
	return (int)width;
}

static void stacked_header(FILE *out, int label_width, int name_width)
{
	fprintf(out, "%-*s  %-*s%*s%*s%*s%*s%*s%*s%*s\n", label_width, "sharing", name_width, "program", CELL, "p50 ms",
		CELL, "p90 ms", CELL, "p99 ms", CELL, "in SLO", CELL, "it/s", CELL + 2, "of alone", BUSY_WIDTH,
		"GPU busy");
}

/* The mode's name and how busy the GPU was stand in its first row only. */
static void stacked_rows(FILE *out, const struct hb_sim_result *result, int label_width, int name_width, bool colors)
{
	for (uint32_t i = 0; i < result->n_high + result->n_low; i++) {
		fprintf(out, "%-*s  ", label_width, i == 0 ? result->sharing : "");
		if (i < result->n_high) {
			fprintf(out, "%-*s", name_width, result->high[i].workload);
			high_cells(out, &result->high[i], colors);
		} else {
			fprintf(out, "%-*s%*s", name_width, result->low[i - result->n_high].workload, high_width(), "");
			low_cells(out, &result->low[i - result->n_high]);
		}
		if (i == 0) {
			fprintf(out, "%*s", i < result->n_high ? low_width() : 0, "");
			cell_share(out, BUSY_WIDTH, result->gpu_busy, true, "");
		}
		fputc('\n', out);
	}
}

static void rule(FILE *out, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		fputc('-', out);
	fputc('\n', out);
}

/* What is the same in every row stands above the table. */
static void preamble(FILE *out, const struct hb_sim_result *first)
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

void hb_result_table_write(FILE *out, const struct hb_sim_result *results, size_t n, const struct hb_table_style *style)
{
	if (n == 0)
		return;
	int label_width = sharing_width(results, n);
	int name_width = program_width(&results[0]);
	unsigned width = side_by_side_width(results, n);
	bool stacked = width > style->width;
	if (stacked)
		width = (unsigned)(label_width + 2 + name_width + high_width() + low_width() + BUSY_WIDTH);
	preamble(out, &results[0]);
	fputs(style->colors ? BOLD : "", out);
	if (stacked)
		stacked_header(out, label_width, name_width);
	else
		side_by_side_header(out, &results[0], label_width);
	fputs(style->colors ? RESET : "", out);
	rule(out, width);
	for (size_t i = 0; i < n; i++) {
		if (stacked)
			stacked_rows(out, &results[i], label_width, name_width, style->colors);
		else
			side_by_side_row(out, &results[i], label_width, style->colors);
	}
}
