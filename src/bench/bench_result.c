/* SPDX-License-Identifier: Apache-2.0 */
/* Results in memory; see bench_result.h. */
#include "bench/bench_result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const worlds[] = {
	[HB_BENCH_SKIPPED] = "skipped", [HB_BENCH_VIRTUAL] = "virtual", [HB_BENCH_PROCESSES] = "processes"};

struct hb_bench_outcome *hb_bench_result_add(struct hb_bench_result *result, const struct hb_bench_plan *plan)
{
	if (result->n_cases == HB_BENCH_CASES_MAX)
		return NULL;
	struct hb_bench_outcome *outcome = &result->cases[result->n_cases];
	*outcome = (struct hb_bench_outcome){.n_high = plan->n_high, .n_low = plan->n_low};
	outcome->cells = calloc(HB_BENCH_SHARINGS_MAX, sizeof *outcome->cells);
	if (!outcome->cells)
		return NULL;
	result->n_cases++;
	snprintf(outcome->name, sizeof outcome->name, "%s", plan->of->name);
	snprintf(outcome->world, sizeof outcome->world, "%s", worlds[plan->world]);
	snprintf(outcome->skipped, sizeof outcome->skipped, "%s", plan->skipped);
	for (unsigned i = 0; i < plan->n_high; i++) {
		hb_bench_label(plan, plan->high[i].program, outcome->high[i]);
		memcpy(outcome->arrivals[i], plan->high[i].arrivals, sizeof outcome->arrivals[i]);
	}
	for (unsigned i = 0; i < plan->n_low; i++)
		hb_bench_label(plan, plan->low[i], outcome->low[i]);
	return outcome;
}

struct hb_bench_cell *hb_bench_outcome_cell(struct hb_bench_outcome *outcome, const char *sharing,
					    enum hb_bench_class class)
{
	for (unsigned i = 0; i < outcome->n_cells; i++)
		if (strcmp(outcome->cells[i].sharing, sharing) == 0)
			return &outcome->cells[i];
	if (outcome->n_cells == HB_BENCH_SHARINGS_MAX)
		return NULL;
	struct hb_bench_cell *cell = &outcome->cells[outcome->n_cells++];
	snprintf(cell->sharing, sizeof cell->sharing, "%s", sharing);
	cell->class = class;
	for (unsigned i = 0; i < HB_BENCH_TENANTS_MAX; i++)
		for (unsigned round = 0; round < HB_BENCH_ROUNDS_MAX; round++)
			cell->low_per_s[i][round] = NAN;
	return cell;
}

static void cell_clear(struct hb_bench_cell *cell)
{
	for (unsigned i = 0; i < HB_BENCH_TENANTS_MAX; i++)
		for (unsigned round = 0; round < HB_BENCH_ROUNDS_MAX; round++)
			free(cell->high[i][round].ns);
	memset(cell, 0, sizeof *cell);
}

static void cell_remove(struct hb_bench_outcome *outcome, unsigned at)
{
	cell_clear(&outcome->cells[at]);
	outcome->n_cells--;
	memmove(&outcome->cells[at], &outcome->cells[at + 1], (outcome->n_cells - at) * sizeof *outcome->cells);
	memset(&outcome->cells[outcome->n_cells], 0, sizeof *outcome->cells);
}

void hb_bench_outcome_drop(struct hb_bench_outcome *outcome, const char *sharing, const char *why)
{
	for (unsigned i = 0; i < outcome->n_cells; i++)
		if (strcmp(outcome->cells[i].sharing, sharing) == 0)
			cell_remove(outcome, i);
	if (outcome->n_dropped == HB_BENCH_SHARINGS_MAX || hb_bench_outcome_dropped(outcome, sharing))
		return;
	struct hb_bench_dropped *dropped = &outcome->dropped[outcome->n_dropped++];
	snprintf(dropped->sharing, sizeof dropped->sharing, "%s", sharing);
	snprintf(dropped->why, sizeof dropped->why, "%s", why);
}

bool hb_bench_outcome_dropped(const struct hb_bench_outcome *outcome, const char *sharing)
{
	for (unsigned i = 0; i < outcome->n_dropped; i++)
		if (strcmp(outcome->dropped[i].sharing, sharing) == 0)
			return true;
	return false;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

void hb_bench_latencies_take(struct hb_bench_latencies *latencies, int64_t *ns, size_t n, uint64_t seen)
{
	free(latencies->ns);
	if (n)
		qsort(ns, n, sizeof *ns, by_value);
	*latencies = (struct hb_bench_latencies){.ns = ns, .n = n, .seen = seen};
}

uint64_t hb_bench_cell_trials(const struct hb_bench_cell *cell, unsigned n_high)
{
	uint64_t trials = 0;
	for (unsigned i = 0; cell && i < n_high; i++)
		for (unsigned round = 0; round < HB_BENCH_ROUNDS_MAX; round++)
			trials += cell->high[i][round].seen;
	return trials;
}

uint64_t hb_bench_outcome_trials(const struct hb_bench_outcome *outcome)
{
	uint64_t trials = 0;
	for (unsigned c = 0; c < outcome->n_cells; c++)
		trials += hb_bench_cell_trials(&outcome->cells[c], outcome->n_high);
	return trials;
}

void hb_bench_outcome_clear(struct hb_bench_outcome *outcome)
{
	for (unsigned c = 0; c < outcome->n_cells; c++)
		cell_clear(&outcome->cells[c]);
	outcome->n_cells = 0;
}

void hb_bench_result_fini(struct hb_bench_result *result)
{
	for (unsigned i = 0; i < result->n_cases; i++) {
		hb_bench_outcome_clear(&result->cases[i]);
		free(result->cases[i].cells);
	}
	result->n_cases = 0;
}
