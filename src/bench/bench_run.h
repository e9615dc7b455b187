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
	const char *only; /* cases, comma-separated; NULL = all */
	const struct hb_bench_sharing *sharings[HB_BENCH_SHARINGS_MAX];
	unsigned n_sharings;
	bool simulated;
	unsigned rounds;
	double seconds;      /* of a window */
	const char *xsched;  /* the folder it was installed to, NULL = not there */
	int64_t deadline_ns; /* of hb_clock_now_ns(): all is over by then; 0 = none */
	bool progress;       /* lines on stderr */
	/* After each case: what there is so far, to be kept whatever happens next. NULL = not wanted. */
	int (*keep)(void *context, struct hb_bench_result *result, struct hb_error *error);
	void *context;
};

/* How long a case may take: moments of hb_clock_now_ns(). */
struct hb_bench_span {
	int64_t begin_ns, end_ns;
};
/*
 * The last act of both worlds' runners, with what ended the case (0 = it is whole): 0 where something can be kept of
 * it. Whole rounds are worth keeping; when its time was over within the first one, the ways of sharing that were
 * measured (`measured`: bits, by their place in the options) are, with exclusive among them.
 */
int hb_bench_close_early(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			 const struct hb_bench_span *span, unsigned measured, int result,
			 struct hb_bench_outcome *outcome);

/*
 * 0: *result is filled, though cases may have failed (struct hb_bench_outcome);
 * negative errno: nothing was measured (-EINTR: Ctrl-C), *result is empty.
 * Ctrl-C later ends it with what there is: hb_bench_interrupted().
 */
int hb_bench_run(const struct hb_bench_options *options, struct hb_bench_result *result, struct hb_error *error);

/*
 * The two worlds: bench_virtual.c and bench_window.c. 0, or what ended the case with nothing to keep: -ETIME, -EINTR
 * or what failed.
 */
struct hb_bench_company;
int hb_bench_run_virtual(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			 const struct hb_bench_span *span, struct hb_bench_outcome *outcome, struct hb_error *error);
int hb_bench_run_processes(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			   const struct hb_bench_span *span, struct hb_bench_company *company,
			   struct hb_bench_outcome *outcome, char gpu[96], struct hb_error *error);

#endif
