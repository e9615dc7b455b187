/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a suite: each case in its world, every way of sharing in every round,
 * rounds one after another, so that whatever drifts hits all alike. Caller: `hb bench`.
 */
#ifndef HB_BENCH_BENCH_RUN_H
#define HB_BENCH_BENCH_RUN_H

#include "bench/bench_result.h"

struct hb_bench_options {
	const struct hb_bench_suite *suite;
	const char *only; /* one case, NULL = all */
	const struct hb_bench_sharing *sharings[HB_BENCH_SHARINGS_MAX];
	unsigned n_sharings;
	bool simulated;
	unsigned rounds;
	double seconds;      /* of a window */
	const char *xsched;  /* the folder it was installed to, NULL = not there */
	int64_t deadline_ns; /* of hb_clock_now_ns(): no round and no case begins later; 0 = none */
	bool progress;       /* lines on stderr */
};

bool hb_bench_time_over(const struct hb_bench_options *options);

/*
 * 0: *result is filled, though cases may have failed (struct hb_bench_outcome);
 * negative errno: nothing was measured (-EINTR: Ctrl-C), *result is empty.
 * Ctrl-C later ends it with what there is: hb_bench_interrupted().
 */
int hb_bench_run(const struct hb_bench_options *options, struct hb_bench_result *result, struct hb_error *error);

/* The two worlds: bench_virtual.c and bench_window.c. */
struct hb_bench_company;
int hb_bench_run_virtual(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			 struct hb_bench_outcome *outcome, struct hb_error *error);
int hb_bench_run_processes(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			   struct hb_bench_company *company, struct hb_bench_outcome *outcome, char gpu[96],
			   struct hb_error *error);

#endif
