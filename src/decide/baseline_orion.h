/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of Orion (Strati et al., EuroSys 2024), a baseline: may an LP launch
 * start beside HP's request? The simulator asks for each LP launch
 * (simulation_spatial.c), and so does the benchmarks' shim (bench/shim). Pure: no
 * clock, no allocation, no CUDA.
 *
 * While HP serves no request, everything may start. Beside a request a launch may
 * start only if
 *  - it needs few SMs: a known number, and at most the limit;
 *  - it is of the other kind (compute or memory bound) than the kernel that HP
 *    launched last, or one of the two kinds is not known;
 *  - the LP time started since HP was last without a request stays within the
 *    budget: 2.5 % of the request's time alone, Orion's own setting.
 * A launch of unknown size or duration has to wait.
 *
 * Example: 132 SMs, limit 66, the request takes 4 ms alone, so the budget is 100
 * us. HP launched a matrix multiplication (compute). An LP kernel with 40 SMs, 60
 * us, memory bound may start. The next one, 50 us, waits, because 110 > 100.
 *
 * Bad at: it needs the size, duration and kind of every kernel (Orion takes them
 * from an offline profile), and it does not know how much two kernels really slow
 * each other.
 */
#ifndef HB_DECIDE_BASELINE_ORION_H
#define HB_DECIDE_BASELINE_ORION_H

#include "decide/kernel_class.h"

#include <stdbool.h>
#include <stdint.h>

/* Budget while HP's time alone is not known, and its share of that time. */
#define HB_ORION_BUDGET_NS INT64_C(100000)
#define HB_ORION_BUDGET_PPM 25000

/* An LP launch. */
struct hb_orion_launch {
	uint32_t sms;        /* SMs that it needs; 0 = not known */
	int64_t duration_ns; /* 0 = not known */
	enum hb_class class;
};

/* HP's present activity. */
struct hb_orion_high {
	bool present;        /* serves a request */
	bool measures_alone; /* this request measures the time alone, so LP has to wait */
	int64_t alone_ns;    /* time of a request alone; 0 = not known */
	enum hb_class class; /* kind of the kernel launched last */
};

/* Whether the launch may start now. *used_ns is the LP time started beside HP's request; the function updates it. */
bool hb_orion_may_start(int64_t *used_ns, const struct hb_orion_high *high, const struct hb_orion_launch *launch,
			uint32_t limit_sms);

/* LP time that may start beside HP until HP serves no request. */
int64_t hb_orion_budget_ns(int64_t alone_ns);
/* The rule itself: a launch of at most limit_sms SMs, within what is left of the budget, and of another kind than `high`. */
bool hb_orion_fits(const struct hb_orion_launch *launch, uint32_t limit_sms, int64_t left_ns, enum hb_class high);

#endif
