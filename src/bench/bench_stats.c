/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles, shares and their intervals; see bench_stats.h. */
#include "bench/bench_stats.h"

#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define Z 1.96 /* 95 % */
#define DRAWS 1000
#define ROUNDS_NEEDED 3
#define SAME 0.001 /* attainments that count as equal */

static const struct hb_bench_estimate unknown = {NAN, NAN, NAN};

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Rank 1 is the first. */
static double rank_us(const int64_t *ns, size_t n, double rank)
{
	return rank >= 1 && rank <= (double)n ? (double)ns[(size_t)rank - 1] / 1e3 : NAN;
}

struct hb_bench_estimate hb_bench_quantile(const int64_t *ns, size_t n, double share)
{
	if (n == 0)
		return unknown;
	double middle = (double)n * share, half = Z * sqrt(middle * (1 - share));
	double rank = ceil(middle) < 1 ? 1 : ceil(middle);
	return (struct hb_bench_estimate){rank_us(ns, n, rank), rank_us(ns, n, floor(middle - half)),
					  rank_us(ns, n, ceil(middle + half) + 1)};
}

/* --- bootstrap over rounds ---------------------------------------------------------------------- */

/* A statistic of rounds drawn with repetition; NAN = these rounds say nothing. */
typedef double statistic_fn(const void *data, const unsigned *rounds, unsigned n);

static struct hb_bench_estimate bootstrap(statistic_fn *statistic, const void *data, unsigned n)
{
	unsigned chosen[HB_BENCH_ROUNDS_MAX] = {0};
	double draws[DRAWS];
	size_t known = 0;
	struct hb_rng rng;
	for (unsigned i = 0; i < n; i++)
		chosen[i] = i;
	struct hb_bench_estimate estimate = {statistic(data, chosen, n), NAN, NAN};
	if (n < ROUNDS_NEEDED || isnan(estimate.value))
		return estimate;
	hb_rng_init(&rng, 1, 1);
	for (unsigned draw = 0; draw < DRAWS; draw++) {
		for (unsigned i = 0; i < n; i++)
			chosen[i] = (unsigned)hb_rng_below(&rng, n);
		draws[known] = statistic(data, chosen, n);
		known += !isnan(draws[known]);
	}
	if (known < DRAWS / 2)
		return estimate;
	qsort(draws, known, sizeof *draws, by_number);
	estimate.low = draws[(size_t)(0.025 * (double)known)];
	estimate.high = draws[(size_t)(0.975 * (double)known)];
	return estimate;
}

struct attained {
	uint64_t within[HB_BENCH_ROUNDS_MAX], all[HB_BENCH_ROUNDS_MAX];
};

static double attainment(const void *data, const unsigned *rounds, unsigned n)
{
	const struct attained *attained = data;
	uint64_t within = 0, all = 0;
	for (unsigned i = 0; i < n; i++) {
		within += attained->within[rounds[i]];
		all += attained->all[rounds[i]];
	}
	return all ? (double)within / (double)all : NAN;
}

static struct hb_bench_estimate attainment_of(const struct hb_bench_latencies *latencies, unsigned rounds,
					      int64_t slo_ns)
{
	struct attained attained = {{0}, {0}};
	for (unsigned round = 0; round < rounds; round++) {
		const struct hb_bench_latencies *of = &latencies[round];
		while (attained.within[round] < of->n && of->ns[attained.within[round]] <= slo_ns)
			attained.within[round]++;
		attained.all[round] = of->n;
	}
	return slo_ns > 0 ? bootstrap(attainment, &attained, rounds) : unknown;
}

/* Speeds of some programs and the same ones alone. */
struct speeds {
	const double *shared[HB_BENCH_TENANTS_MAX], *alone[HB_BENCH_TENANTS_MAX];
	unsigned n;
};

static double mean(const double *values, const unsigned *rounds, unsigned n)
{
	double sum = 0;
	unsigned known = 0;
	for (unsigned i = 0; i < n; i++) {
		if (isnan(values[rounds[i]]))
			continue;
		sum += values[rounds[i]];
		known++;
	}
	return known ? sum / known : NAN;
}

/* The mean over programs of speed / speed alone. */
static double relative(const void *data, const unsigned *rounds, unsigned n)
{
	const struct speeds *speeds = data;
	double sum = 0;
	unsigned known = 0;
	for (unsigned i = 0; i < speeds->n; i++) {
		double alone = mean(speeds->alone[i], rounds, n), shared = mean(speeds->shared[i], rounds, n);
		if (!(alone > 0) || isnan(shared))
			continue;
		sum += shared / alone;
		known++;
	}
	return known ? sum / known : NAN;
}

/* --- a case ---------------------------------------------------------------------------------------- */

static int pool(const struct hb_bench_latencies *latencies, unsigned rounds, struct hb_bench_high_summary *summary)
{
	size_t n = 0;
	for (unsigned round = 0; round < rounds; round++) {
		n += latencies[round].n;
		summary->seen += latencies[round].seen;
	}
	summary->all_ns = malloc((n ? n : 1) * sizeof *summary->all_ns);
	if (!summary->all_ns)
		return -ENOMEM;
	for (unsigned round = 0; round < rounds; round++) {
		if (latencies[round].n)
			memcpy(summary->all_ns + summary->n, latencies[round].ns,
			       latencies[round].n * sizeof *summary->all_ns);
		summary->n += latencies[round].n;
	}
	if (n)
		qsort(summary->all_ns, n, sizeof *summary->all_ns, by_value);
	summary->p50_us = hb_bench_quantile(summary->all_ns, n, 0.5);
	summary->p99_us = hb_bench_quantile(summary->all_ns, n, 0.99);
	summary->max_us = n ? (double)summary->all_ns[n - 1] / 1e3 : NAN;
	return 0;
}

static int alone_find(const struct hb_bench_outcome *outcome)
{
	for (unsigned i = 0; i < outcome->n_cells; i++)
		if (outcome->cells[i].class == HB_BENCH_REFERENCE)
			return (int)i;
	return -1;
}

static void low_fill(const struct hb_bench_outcome *outcome, unsigned index, const struct hb_bench_cell *alone,
		     unsigned rounds, struct hb_bench_cell_summary *summary)
{
	unsigned all[HB_BENCH_ROUNDS_MAX];
	struct speeds together = {.n = alone ? outcome->n_low : 0};
	const struct hb_bench_cell *cell = &outcome->cells[index];
	for (unsigned round = 0; round < rounds; round++)
		all[round] = round;
	for (unsigned i = 0; i < outcome->n_low; i++) {
		struct speeds one = {.shared = {cell->low_per_s[i]}, .n = alone ? 1 : 0};
		one.alone[0] = together.alone[i] = alone ? alone->low_per_s[i] : NULL;
		together.shared[i] = cell->low_per_s[i];
		summary->low[i].per_s = mean(cell->low_per_s[i], all, rounds);
		summary->low[i].relative = bootstrap(relative, &one, rounds);
	}
	summary->mean_relative = bootstrap(relative, &together, rounds);
}

static int64_t p99_ns(const struct hb_bench_high_summary *summary)
{
	return summary->n ? (int64_t)(summary->p99_us.value * 1e3 + 0.5) : 0;
}

int hb_bench_summary_init(struct hb_bench_summary *summary, const struct hb_bench_outcome *outcome, unsigned rounds)
{
	int alone = alone_find(outcome);
	if (outcome->rounds && outcome->rounds < rounds)
		rounds = outcome->rounds;
	*summary = (struct hb_bench_summary){.slo_ns = {0}};
	for (unsigned c = 0; c < outcome->n_cells; c++)
		for (unsigned i = 0; i < outcome->n_high; i++)
			if (pool(outcome->cells[c].high[i], rounds, &summary->cells[c].high[i])) {
				hb_bench_summary_fini(summary);
				return -ENOMEM;
			}
	for (unsigned i = 0; i < outcome->n_high && alone >= 0; i++)
		summary->slo_ns[i] = p99_ns(&summary->cells[alone].high[i]);
	for (unsigned c = 0; c < outcome->n_cells; c++) {
		struct hb_bench_cell_summary *cell = &summary->cells[c];
		cell->worst_attainment = NAN;
		for (unsigned i = 0; i < outcome->n_high; i++) {
			cell->high[i].attainment = attainment_of(outcome->cells[c].high[i], rounds, summary->slo_ns[i]);
			cell->worst_attainment = fmin(cell->worst_attainment, cell->high[i].attainment.value);
		}
		low_fill(outcome, c, alone >= 0 ? &outcome->cells[alone] : NULL, rounds, cell);
	}
	return 0;
}

void hb_bench_summary_fini(struct hb_bench_summary *summary)
{
	for (unsigned c = 0; c < HB_BENCH_SHARINGS_MAX; c++)
		for (unsigned i = 0; i < HB_BENCH_TENANTS_MAX; i++) {
			free(summary->cells[c].high[i].all_ns);
			summary->cells[c].high[i].all_ns = NULL;
		}
}

/* --- headline ---------------------------------------------------------------------------------------- */

static bool better(const struct hb_bench_cell_summary *a, const struct hb_bench_cell_summary *b)
{
	double by = a->worst_attainment - b->worst_attainment;
	if (fabs(by) > SAME)
		return by > 0;
	return a->mean_relative.value > b->mean_relative.value;
}

static int best_of(const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
		   enum hb_bench_class class)
{
	int best = -1;
	for (unsigned i = 0; i < outcome->n_cells; i++) {
		if (outcome->cells[i].class != class || isnan(summary->cells[i].worst_attainment))
			continue;
		if (best < 0 || better(&summary->cells[i], &summary->cells[best]))
			best = (int)i;
	}
	return best;
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : NAN;
}

void hb_bench_headline_of(const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
			  struct hb_bench_headline *headline)
{
	const struct hb_bench_cell_summary *cells = summary->cells;
	*headline = (struct hb_bench_headline){
		.ours = best_of(outcome, summary, HB_BENCH_ENGINE),
		.spatial = best_of(outcome, summary, HB_BENCH_SPATIAL),
		.temporal = best_of(outcome, summary, HB_BENCH_TEMPORAL),
		.alone = best_of(outcome, summary, HB_BENCH_REFERENCE),
		.against_spatial = NAN,
		.against_temporal = NAN,
		.drop = NAN,
		.low_against_temporal = NAN,
	};
	if (headline->ours < 0)
		return;
	const struct hb_bench_cell_summary *ours = &cells[headline->ours];
	if (headline->spatial >= 0)
		headline->against_spatial = ratio(ours->worst_attainment, cells[headline->spatial].worst_attainment);
	if (headline->temporal >= 0) {
		headline->against_temporal = ratio(ours->worst_attainment, cells[headline->temporal].worst_attainment);
		headline->low_against_temporal = ratio(ours->mean_relative.value,
						       cells[headline->temporal].mean_relative.value);
	}
	if (headline->alone >= 0)
		headline->drop = cells[headline->alone].worst_attainment - ours->worst_attainment;
}
