/* SPDX-License-Identifier: Apache-2.0 */
/* Means over the cases of a suite; see bench_overall.h. */
#include "bench/bench_overall.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME 0.001 /* attainments that count as equal, as for a case */

static struct hb_bench_overall_row *row_of(struct hb_bench_overall *overall, const struct hb_bench_cell *cell)
{
	for (unsigned i = 0; i < overall->n; i++)
		if (strcmp(overall->rows[i].sharing, cell->sharing) == 0)
			return &overall->rows[i];
	if (overall->n == HB_BENCH_SHARINGS_MAX)
		return NULL;
	struct hb_bench_overall_row *row = &overall->rows[overall->n++];
	*row = (struct hb_bench_overall_row){.class = cell->class,
					     .least = NAN,
					     .drop = NAN,
					     .against_spatial = NAN,
					     .against_temporal = NAN,
					     .low_against_temporal = NAN};
	snprintf(row->sharing, sizeof row->sharing, "%s", cell->sharing);
	return row;
}

/* Sums; they become means at the end. */
static void cell_add(struct hb_bench_overall *overall, const struct hb_bench_cell *cell,
		     const struct hb_bench_cell_summary *summary)
{
	struct hb_bench_overall_row *row = isnan(summary->worst_attainment) ? NULL : row_of(overall, cell);
	if (!row)
		return;
	row->cases++;
	row->attainment += summary->worst_attainment;
	row->least = fmin(row->least, summary->worst_attainment);
	if (isnan(summary->mean_relative.value))
		return;
	row->low_cases++;
	row->low += summary->mean_relative.value;
}

static int case_add(struct hb_bench_overall *overall, const struct hb_bench_outcome *outcome, unsigned rounds)
{
	struct hb_bench_summary *summary = malloc(sizeof *summary);
	if (!summary || hb_bench_summary_init(summary, outcome, rounds)) {
		free(summary);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < outcome->n_cells; i++)
		cell_add(overall, &outcome->cells[i], &summary->cells[i]);
	overall->cases++;
	hb_bench_summary_fini(summary);
	free(summary);
	return 0;
}

static bool better(const struct hb_bench_overall_row *a, const struct hb_bench_overall_row *b)
{
	double by = a->attainment - b->attainment;
	return fabs(by) > SAME ? by > 0 : a->low > b->low;
}

static int best_of(const struct hb_bench_overall *overall, enum hb_bench_class class)
{
	int best = -1;
	for (unsigned i = 0; i < overall->n; i++) {
		const struct hb_bench_overall_row *row = &overall->rows[i];
		if (row->class == class && row->cases == overall->cases &&
		    (best < 0 || better(row, &overall->rows[best])))
			best = (int)i;
	}
	return best;
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

/* Speeds are comparable only where they are known in the same cases. */
static double low_ratio(const struct hb_bench_overall_row *row, const struct hb_bench_overall_row *other)
{
	return row->low_cases == other->low_cases ? ratio(row->low, other->low) : NAN;
}

static void compare(struct hb_bench_overall *overall, struct hb_bench_overall_row *row)
{
	const struct hb_bench_overall_row *rows = overall->rows;
	if (row->class != HB_BENCH_ENGINE || row->cases != overall->cases)
		return;
	if (overall->alone >= 0)
		row->drop = rows[overall->alone].attainment - row->attainment;
	if (overall->spatial >= 0)
		row->against_spatial = ratio(row->attainment, rows[overall->spatial].attainment);
	if (overall->temporal < 0)
		return;
	row->against_temporal = ratio(row->attainment, rows[overall->temporal].attainment);
	row->low_against_temporal = low_ratio(row, &rows[overall->temporal]);
}

int hb_bench_overall_init(struct hb_bench_overall *overall, const struct hb_bench_result *result)
{
	int code = 0;
	*overall = (struct hb_bench_overall){.cases = 0};
	for (unsigned i = 0; i < result->n_cases && !code; i++)
		if (result->cases[i].n_low && result->cases[i].n_cells)
			code = case_add(overall, &result->cases[i], result->rounds);
	for (unsigned i = 0; i < overall->n; i++) {
		struct hb_bench_overall_row *row = &overall->rows[i];
		row->attainment /= row->cases;
		row->low = row->low_cases ? row->low / row->low_cases : NAN;
	}
	overall->alone = best_of(overall, HB_BENCH_REFERENCE);
	overall->spatial = best_of(overall, HB_BENCH_SPATIAL);
	overall->temporal = best_of(overall, HB_BENCH_TEMPORAL);
	for (unsigned i = 0; i < overall->n; i++)
		compare(overall, &overall->rows[i]);
	return code;
}
