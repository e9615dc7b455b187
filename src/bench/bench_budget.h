/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a case may take. Pure: moments are arguments. With --limit the time
 * is divided over the cases by what each should take, and what one leaves is the
 * others'; without it a case has several times that. Caller: bench_run.c.
 */
#ifndef HB_BENCH_BENCH_BUDGET_H
#define HB_BENCH_BENCH_BUDGET_H

#include "bench/bench_run.h"

/* What a case should take, measured on an H200; 0 for one that is skipped. */
double hb_bench_cost_s(const struct hb_bench_options *options, const struct hb_bench_plan *plan);
/* When programs, daemons and servers begin to be ended: before --limit, in time for it. 0 = no limit. */
int64_t hb_bench_cases_end_ns(int64_t begin_ns, int64_t deadline_ns);
/*
 * When a case that begins at `now_ns` has to be over. `cost_s`: its own; `rest_s`: of it and all behind it;
 * `cases_end_ns`: as above.
 */
int64_t hb_bench_case_end_ns(int64_t now_ns, int64_t cases_end_ns, double cost_s, double rest_s);

#endif
