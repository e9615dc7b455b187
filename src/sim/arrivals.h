/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrival times of requests. A spec is the text after '@' in `--high NAME@SPEC`:
 *   60/s               Poisson, mean 60 a second
 *   60/s:periodic      every 1/60 s, the first after 1/60 s; periodic=P starts
 *                      P periods (0 to 1) later, so that several do not coincide
 *   60/s:burst         Markov-modulated Poisson: mean 60/s, on-state 5 times
 *                      the off-state's rate, mean sojourn 0.5 s (the constants
 *                      are in arrivals.c); burst=R,T sets ratio and sojourn
 *   60/s:trace=PATH    the times of the file (as below), faster or slower so that
 *                      the mean is 60/s, from a random one on, again and again
 *   closed             the next request begins when the last one ended
 *   file:PATH          times in seconds, one on each line, ascending; empty lines
 *                      and lines that begin with '#' are ignored; may be gzip.
 *                      Or a table with commas whose first column is arrival_s
 * A generator is seeded; the same spec and seed give the same times everywhere
 * (integer and IEEE double arithmetic only).
 */
#ifndef HB_SIM_ARRIVALS_H
#define HB_SIM_ARRIVALS_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

enum hb_arrival_kind {
	HB_ARRIVE_POISSON,
	HB_ARRIVE_PERIODIC,
	HB_ARRIVE_BURST,
	HB_ARRIVE_CLOSED,
	HB_ARRIVE_FILE,
	HB_ARRIVE_TRACE
};

struct hb_arrivals;

/* 0, -EINVAL (error says what and how to write it), -ENOENT, -ENOMEM. */
int hb_arrivals_new(const char *spec, uint64_t seed, struct hb_arrivals **out, struct hb_error *error);
void hb_arrivals_free(struct hb_arrivals *arrivals);
enum hb_arrival_kind hb_arrivals_kind(const struct hb_arrivals *arrivals);
/* Mean rate; for a file the count over the last time; 0 for closed. */
double hb_arrivals_rate_per_s(const struct hb_arrivals *arrivals);
/* Next arrival in ns from the start, ascending; INT64_MAX = none left (or closed). */
int64_t hb_arrivals_next(struct hb_arrivals *arrivals);

#endif
