/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What raw results say: percentiles, attainment of the p99 alone, speed of
 * alone, each with a 95 % confidence interval, and the comparison in the form
 * of the Hummingbird paper. Pure, and the same bytes everywhere.
 *
 * Percentiles: order statistics. With n requests the p-quantile lies between the
 * ordered values of rank n p -+ 1.96 sqrt(n p (1 - p)) (rounded outwards;
 * Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2). It
 * needs no distribution, but takes requests as independent.
 * Attainment and speed: percentile bootstrap over rounds (Efron and Tibshirani,
 * An Introduction to the Bootstrap, chapter 13), 1000 draws of as many rounds as
 * there are, the speed alone drawn with the same rounds; so drift between rounds
 * widens it. None with fewer than 3 rounds.
 */
#ifndef HB_BENCH_BENCH_STATS_H
#define HB_BENCH_BENCH_STATS_H

#include "bench/bench_result.h"

/* NAN = not known. */
struct hb_bench_estimate {
	double value, low, high;
};

struct hb_bench_high_summary {
	uint64_t n;      /* kept latencies */
	uint64_t seen;   /* measured */
	int64_t *all_ns; /* of all rounds, ascending */
	struct hb_bench_estimate p50_us, p99_us, attainment;
	double max_us;
};

struct hb_bench_low_summary {
	struct hb_bench_estimate relative; /* to alone */
	double per_s;
};

struct hb_bench_cell_summary {
	struct hb_bench_high_summary high[HB_BENCH_TENANTS_MAX];
	struct hb_bench_low_summary low[HB_BENCH_TENANTS_MAX];
	double worst_attainment;                /* of its services; NAN = none has one */
	struct hb_bench_estimate mean_relative; /* of its low-priority programs with a speed */
};

struct hb_bench_summary {
	int64_t slo_ns[HB_BENCH_TENANTS_MAX]; /* p99 alone; 0 = not measured */
	struct hb_bench_cell_summary cells[HB_BENCH_SHARINGS_MAX];
};

/* 0 or -ENOMEM. */
int hb_bench_summary_init(struct hb_bench_summary *summary, const struct hb_bench_outcome *outcome, unsigned rounds);
void hb_bench_summary_fini(struct hb_bench_summary *summary);

/* Indices of cells; -1 = there is none. Best: highest worst attainment, at equal ones (0.1 points) the faster LP. */
struct hb_bench_headline {
	int ours, spatial, temporal, alone;
	double against_spatial, against_temporal; /* attainment, ratio */
	double drop;                              /* attainment alone minus ours */
	double low_against_temporal;              /* speed of low priority, ratio */
};
void hb_bench_headline_of(const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
			  struct hb_bench_headline *headline);

/* The value of rank ceil(share n) and its interval; all NAN when n is 0, bounds beyond the data NAN. */
struct hb_bench_estimate hb_bench_quantile(const int64_t *ns, size_t n, double share);

#endif
