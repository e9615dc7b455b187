/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one monotonic clock. The daemon, the shim and the simulated driver read
 * time here and nowhere else; the core and the simulator never do (time is an
 * argument there). Tests stop the clock and warp it, so no test has to sleep.
 */
#ifndef HB_BASE_CLOCK_H
#define HB_BASE_CLOCK_H

#include <stdint.h>

#define HB_NS_PER_US INT64_C(1000)
#define HB_NS_PER_MS INT64_C(1000000)
#define HB_NS_PER_S INT64_C(1000000000)

/* CLOCK_MONOTONIC in ns, unless stopped. Callable in any thread. Costs no system call (vDSO), and one relaxed load on top. */
int64_t hb_clock_now_ns(void);

/* For tests: the clock returns `at_ns` in every thread of this process until hb_clock_resume(). */
void hb_clock_stop(int64_t at_ns);
/* Moves a stopped clock forward by `by_ns` >= 0. */
void hb_clock_warp(int64_t by_ns);
/* Starts a stopped clock again: from now on it returns the kernel's time. */
void hb_clock_resume(void);

#endif
