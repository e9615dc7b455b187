/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases with real processes; see bench_run.h. All programs of all ways of
 * sharing are started first and wait; then, round by round, each way gets its
 * window: its programs of low priority begin, settle, and the services measure
 * for a while. What the lines mean is in docs/bench.md.
 */
#include "base/clock.h"
#include "bench/bench_company.h"
#include "bench/bench_run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS (60 * HB_NS_PER_S)
#define SETTLE_NS (200 * HB_NS_PER_MS)

/* Of one window. */
struct cast {
	struct hb_bench_member *high[HB_BENCH_TENANTS_MAX], *low[HB_BENCH_TENANTS_MAX];
	unsigned n_high, n_low;
	unsigned high_at, low_at; /* index of the first in the case */
};

/* A case. */
struct play {
	const struct hb_bench_options *options;
	const struct hb_bench_plan *plan;
	struct hb_bench_company *company;
	struct hb_bench_outcome *outcome;
	struct hb_error *error;
};

static void cast_fill(const struct play *play, const struct hb_bench_sharing *sharing, struct cast *cast)
{
	const struct hb_bench_plan *plan = play->plan;
	*cast = (struct cast){.n_high = plan->n_high, .n_low = plan->n_low};
	for (unsigned i = 0; i < plan->n_high; i++)
		cast->high[i] = hb_bench_company_call(play->company, plan->high[i].program, i, true, sharing);
	for (unsigned i = 0; i < plan->n_low; i++)
		cast->low[i] = hb_bench_company_call(play->company, plan->low[i], i, false, sharing);
}

static int everybody_gather(const struct play *play, char gpu[96])
{
	struct cast cast;
	hb_bench_company_begin(play->company);
	for (unsigned i = 0; i < play->options->n_sharings; i++)
		if (hb_bench_can(play->plan, play->options->sharings[i]))
			cast_fill(play, play->options->sharings[i], &cast);
	return hb_bench_company_gather(play->company, gpu, play->error);
}

/* --- a window ------------------------------------------------------------------------------------- */

/* Words for everybody on one side; stops at the first error. */
static int tell_low(const struct play *play, const struct cast *cast, double seconds)
{
	int result = 0;
	for (unsigned i = 0; i < cast->n_low && !result; i++)
		result = hb_bench_process_tell(&cast->low[i]->process, play->error, "work %.3f", seconds);
	return result;
}

static int hear(const struct play *play, struct hb_bench_member *member, const char *event, int64_t limit_ns)
{
	json_t *answer = NULL;
	int result = hb_bench_process_hear(&member->process, event, limit_ns, &answer, play->error);
	json_decref(answer);
	return result;
}

static int prepare_high(const struct play *play, const struct cast *cast)
{
	int result = 0;
	for (unsigned i = 0; i < cast->n_high && !result; i++) {
		result = hb_bench_process_tell(&cast->high[i]->process, play->error, "prepare");
		result = result ? result : hear(play, cast->high[i], "prepared", ANSWER_NS);
	}
	return result;
}

static int serve_high(const struct play *play, const struct cast *cast, unsigned round)
{
	int result = 0;
	for (unsigned i = 0; i < cast->n_high && !result; i++) {
		const struct hb_bench_high *high = &play->plan->high[cast->high_at + i];
		const char *kind = high->rate_per_s <= 0 ? "closed" : high->periodic ? "periodic" : "poisson";
		result = hb_bench_process_tell(&cast->high[i]->process, play->error, "serve %.3f %s %.6g %.6g %u",
					       play->options->seconds, kind, high->rate_per_s, high->phase,
					       round * 8 + i + 1);
	}
	return result;
}

/* Requests that were due in the window are waited for with low priority still at work, but not for ever. */
static int served_high(const struct play *play, const struct cast *cast, int64_t limit_ns, unsigned *n_served)
{
	int64_t deadline_ns = hb_clock_now_ns() + limit_ns;
	int result = 0;
	for (; *n_served < cast->n_high && !result; *n_served += result == 0) {
		int64_t left_ns = deadline_ns - hb_clock_now_ns();
		result = hear(play, cast->high[*n_served], "served", left_ns > 0 ? left_ns : 0);
	}
	return result;
}

static int64_t *integers(const json_t *list, size_t *n)
{
	*n = json_array_size(list);
	int64_t *values = malloc((*n ? *n : 1) * sizeof *values);
	for (size_t i = 0; values && i < *n; i++)
		values[i] = json_integer_value(json_array_get(list, i));
	return values;
}

static int finish_high(const struct play *play, struct hb_bench_member *member, struct hb_bench_cell *cell,
		       unsigned index, unsigned round)
{
	json_t *answer = NULL;
	int result = hb_bench_process_tell(&member->process, play->error, "finish");
	if (result == 0)
		result = hb_bench_process_hear(&member->process, "results", ANSWER_NS, &answer, play->error);
	if (result)
		return result;
	size_t n;
	int64_t *values = integers(json_object_get(answer, "latency_ns"), &n);
	int64_t clock_error_ns = json_integer_value(json_object_get(answer, "clock_error_ns"));
	uint64_t seen = (uint64_t)json_integer_value(json_object_get(answer, "seen"));
	json_decref(answer);
	if (!values)
		return hb_error_set(play->error, -ENOMEM, "out of memory");
	hb_bench_latencies_take(&cell->high[index][round], values, n, seen);
	if (clock_error_ns > cell->clock_error_ns)
		cell->clock_error_ns = clock_error_ns;
	return 0;
}

/* Iterations that had ended by `at_ns`, with the part of the one under way. */
static double progress(const int64_t *ends, size_t n, int64_t at_ns)
{
	for (size_t i = 0; i < n; i++) {
		if (ends[i] < at_ns)
			continue;
		if (i == 0)
			return 0;
		return (double)i +
		       (double)(at_ns - ends[i - 1]) / (double)(ends[i] - ends[i - 1] + (ends[i] == ends[i - 1]));
	}
	return (double)n;
}

/* Of a program that has no iterations worth the name: not known. */
static double low_rate(const int64_t *ends, size_t n, int64_t begin_ns, int64_t end_ns)
{
	if (n < 2)
		return NAN;
	return (progress(ends, n, end_ns) - progress(ends, n, begin_ns)) / ((double)(end_ns - begin_ns) / 1e9);
}

static int rest_low(const struct play *play, const struct cast *cast, struct hb_bench_cell *cell, unsigned round,
		    int64_t begin_ns, int64_t end_ns)
{
	int result = 0;
	for (unsigned i = 0; i < cast->n_low && !result; i++)
		if (cast->low[i]->process.pid > 0)
			result = hb_bench_process_tell(&cast->low[i]->process, play->error, "rest");
	for (unsigned i = 0; i < cast->n_low && !result; i++) {
		json_t *answer = NULL;
		size_t n = 0;
		if (cast->low[i]->process.pid <= 0)
			continue;
		result = hb_bench_process_hear(&cast->low[i]->process, "rested", ANSWER_NS, &answer, play->error);
		int64_t *ends = integers(json_object_get(answer, "ends_ns"), &n);
		if (result == 0 && ends)
			cell->low_per_s[cast->low_at + i][round] = low_rate(ends, n, begin_ns, end_ns);
		free(ends);
		json_decref(answer);
	}
	return result;
}

static int window_sleep(const struct play *play, int64_t until_ns)
{
	return hb_bench_sleep_until(until_ns) ? 0 : hb_error_set(play->error, -EINTR, "interrupted");
}

/* The first program of low priority dies in the middle, and the next one takes its place after the window. */
static int kill_low(const struct play *play, const struct cast *cast, int64_t at_ns)
{
	if (!play->plan->of->kill || !cast->n_low || !cast->n_high)
		return 0;
	int result = window_sleep(play, at_ns);
	hb_bench_process_kill(&cast->low[0]->process);
	return result;
}

static int revive_low(const struct play *play, const struct cast *cast)
{
	if (!cast->n_low || cast->low[0]->process.pid > 0)
		return 0;
	return hb_bench_company_replace(play->company, cast->low[0], play->error);
}

static int window_end(const struct play *play, const struct cast *cast, struct hb_bench_cell *cell, unsigned round,
		      int64_t begin_ns, int64_t length_ns)
{
	unsigned n_served = 0;
	int result = window_sleep(play, begin_ns + length_ns);
	if (result == 0)
		result = served_high(play, cast, length_ns + HB_NS_PER_S, &n_served);
	if (result == 0 || result == -ETIMEDOUT)
		result = rest_low(play, cast, cell, round, begin_ns, begin_ns + length_ns);
	result = result ? result : served_high(play, cast, ANSWER_NS, &n_served);
	for (unsigned i = 0; i < cast->n_high && !result; i++)
		result = finish_high(play, cast->high[i], cell, cast->high_at + i, round);
	return result ? result : revive_low(play, cast);
}

static int window_run(const struct play *play, const struct cast *cast, struct hb_bench_cell *cell, unsigned round)
{
	int64_t length_ns = (int64_t)(play->options->seconds * 1e9);
	int result = prepare_high(play, cast);
	result = result ? result : tell_low(play, cast, (double)(length_ns + SETTLE_NS) / 1e9);
	if (result == 0 && cast->n_low)
		result = window_sleep(play, hb_clock_now_ns() + SETTLE_NS);
	int64_t begin_ns = hb_clock_now_ns();
	result = result ? result : serve_high(play, cast, round);
	result = result ? result : kill_low(play, cast, begin_ns + length_ns / 2);
	return result ? result : window_end(play, cast, cell, round, begin_ns, length_ns);
}

/* --- rounds ------------------------------------------------------------------------------------------ */

/* Each program with the GPU to itself, one after another. */
static int run_alone(const struct play *play, const struct cast *all, struct hb_bench_cell *cell, unsigned round)
{
	int result = 0;
	for (unsigned i = 0; i < all->n_high && !result; i++) {
		struct cast one = {.high = {all->high[i]}, .n_high = 1, .high_at = i};
		result = window_run(play, &one, cell, round);
	}
	for (unsigned i = 0; i < all->n_low && !result; i++) {
		struct cast one = {.low = {all->low[i]}, .n_low = 1, .low_at = i};
		result = window_run(play, &one, cell, round);
	}
	return result;
}

static int run_sharing(const struct play *play, const struct hb_bench_sharing *sharing, unsigned round)
{
	struct cast cast;
	struct hb_bench_cell *cell = hb_bench_outcome_cell(play->outcome, sharing->name, sharing->class);
	if (!cell)
		return hb_error_set(play->error, -E2BIG, "too many ways to share");
	cast_fill(play, sharing, &cast);
	return sharing->class == HB_BENCH_REFERENCE ? run_alone(play, &cast, cell, round)
						    : window_run(play, &cast, cell, round);
}

/* Each round begins with another way of sharing; cells are made in the order of the command line. */
static int run_rounds(const struct play *play)
{
	const struct hb_bench_options *options = play->options;
	int result = 0;
	for (unsigned round = 0; round < options->rounds && !result; round++)
		for (unsigned i = 0; i < options->n_sharings && !result; i++) {
			unsigned at = (i + round) % options->n_sharings;
			if (hb_bench_can(play->plan, options->sharings[at]))
				result = run_sharing(play, options->sharings[at], round);
		}
	return result;
}

int hb_bench_run_processes(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			   struct hb_bench_company *company, struct hb_bench_outcome *outcome, char gpu[96],
			   struct hb_error *error)
{
	const struct play play = {
		.options = options, .plan = plan, .company = company, .outcome = outcome, .error = error};
	int result = everybody_gather(&play, gpu);
	result = result ? result : run_rounds(&play);
	if (result)
		hb_bench_company_dismiss(company, false);
	return result;
}
