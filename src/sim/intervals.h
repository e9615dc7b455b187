/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results by intervals: the latencies of the first HP program, by the time at which
 * each request ended, and the speed of the LP programs. Used by program.c and simulation.c.
 */
#ifndef HB_SIM_INTERVALS_H
#define HB_SIM_INTERVALS_H

#include "sim/sim.h"

/* 0 or -ENOMEM. Without a length this and the next two do nothing. */
int hb_intervals_init(struct hb_sim_result *result, const struct hb_sim_options *options);
/* `latency_ns` and `end_ns` of n requests in the order of their ends. 0 or -ENOMEM. */
int hb_intervals_add_high(struct hb_sim_result *result, const struct hb_sim_options *options, const int64_t *latency_ns,
			  const int64_t *end_ns, size_t n);
/* `busy_ns` of each interval: GPU time alone of what the program launched; `alone` is that of a second alone. */
void hb_intervals_add_low(struct hb_sim_result *result, const struct hb_sim_options *options, const double *busy_ns,
			  double alone);
/* The interval of a time; hb_intervals_count() = after the last one. */
size_t hb_interval_of(const struct hb_sim_options *options, int64_t now_ns);
size_t hb_intervals_count(const struct hb_sim_options *options);

#endif
