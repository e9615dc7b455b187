/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All cases of a suite together, in the form of the Hummingbird paper's
 * headline: attainment of each engine against the best spatial and the best
 * temporal baseline, its distance from exclusive, and low priority's speed
 * against the temporal one's. One way of sharing is one row for all cases: no
 * choosing of the best one for each. Pure. Callers: the table, the page, the JSON.
 */
#ifndef HB_BENCH_BENCH_OVERALL_H
#define HB_BENCH_BENCH_OVERALL_H

#include "bench/bench_stats.h"

struct hb_bench_overall_row {
	char sharing[64];
	enum hb_bench_class class;
	unsigned cases;           /* that it was measured in */
	unsigned low_cases;       /* and in which low priority's speed is known */
	double attainment, least; /* mean over cases of the worst service's; the least of them */
	double low;               /* mean over cases of the speed relative to alone; NAN = not known */
	/* Of engines that were measured in all cases, else NAN: */
	double drop;                              /* attainment below exclusive */
	double against_spatial, against_temporal; /* attainment, ratio to that of the row */
	double low_against_temporal;
};

struct hb_bench_overall {
	unsigned cases; /* with low priority and an attainment */
	unsigned n;
	struct hb_bench_overall_row rows[HB_BENCH_SHARINGS_MAX];
	int alone, spatial, temporal; /* the best rows of these kinds; -1 = none was measured in all cases */
};

/* 0 or -ENOMEM. */
int hb_bench_overall_init(struct hb_bench_overall *overall, const struct hb_bench_result *result);

#endif
