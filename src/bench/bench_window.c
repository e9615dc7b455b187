/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases with real processes; see bench_run.h. All programs of all ways of
 * sharing are started first and wait; then, round by round, each way gets its
 * window: its programs of low priority begin, settle, and the services measure
 * for a while. What the lines mean is in docs/bench.md.
 */
#include "base/clock.h"
#include "base/log.h"
#include "bench/bench_company.h"
#include "bench/bench_run.h"
#include "bench/bench_stats.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A simulated GPU may be on a busy machine; a real one's time is dear. */
#define ANSWER_SIMULATED_NS (60 * HB_NS_PER_S)
#define ANSWER_REAL_NS (6 * HB_NS_PER_S)
#define SETTLE_MAX_NS (200 * HB_NS_PER_MS)

/* Of one window. */
struct cast {
	struct hb_bench_member *high[HB_BENCH_TENANTS_MAX], *low[HB_BENCH_TENANTS_MAX];
	unsigned n_high, n_low;
	unsigned high_at, low_at; /* index of the first in the case */
};

/* Where a case is. */
struct progress {
	unsigned measured; /* ways of sharing in this round: bits, by their place in the options */
	int64_t window_begin_ns, window_end_ns;
	int64_t longest_round_ns;
};

/* A case. */
struct play {
	const struct hb_bench_options *options;
	const struct hb_bench_plan *plan;
	const struct hb_bench_span *span;
	struct progress *progress;
	struct hb_bench_company *company;
	struct hb_bench_outcome *outcome;
	struct hb_error *error;
	int64_t *slo_ns; /* of each service: the p99 alone, so far; 0 = not known */
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

/* A window with all its questions and answers has one limit. */
static int64_t answer_ns(const struct play *play)
{
	int64_t left_ns = play->progress->window_end_ns - hb_clock_now_ns();
	return left_ns > 0 ? left_ns : 0;
}

/* --- who takes part -------------------------------------------------------------------------------- */

static bool takes_part(const struct play *play, const struct hb_bench_sharing *sharing)
{
	return hb_bench_can(play->plan, sharing) && !hb_bench_outcome_dropped(play->outcome, sharing->name);
}

/* Everybody is there, and the GPU is shared as the name says? */
static int sharing_check(const struct play *play, const struct hb_bench_sharing *sharing)
{
	struct cast cast;
	cast_fill(play, sharing, &cast);
	for (unsigned i = 0; i < cast.n_high + cast.n_low; i++) {
		const struct hb_bench_member *member = i < cast.n_high ? cast.high[i] : cast.low[i - cast.n_high];
		if (*member->failed)
			return hb_error_set(play->error, -EPIPE, "%s", member->failed);
	}
	return hb_bench_stage_verify(play->company->stage, sharing, play->error);
}

/* What hangs, for how long, and how many trials there were before. */
static void hang_describe(const struct play *play, const struct hb_bench_sharing *sharing)
{
	const struct hb_bench_cell *cell = hb_bench_outcome_cell(play->outcome, sharing->name, sharing->class);
	char what[sizeof play->error->text];
	snprintf(what, sizeof what, "%s", play->error->text);
	hb_error_format(play->error, "not finished within %.3g s, %llu trials: %s",
			(double)(hb_clock_now_ns() - play->progress->window_begin_ns) / 1e9,
			(unsigned long long)hb_bench_cell_trials(cell, play->plan->n_high), what);
}

/* Without the reference nothing can be judged; any other way of sharing may fail alone. */
static int sharing_drop(const struct play *play, const struct hb_bench_sharing *sharing, int result)
{
	if (result == 0 || result == -EINTR || result == -ETIME)
		return result;
	if (result == -ETIMEDOUT)
		hang_describe(play, sharing);
	if (sharing->class == HB_BENCH_REFERENCE)
		return result;
	hb_bench_outcome_drop(play->outcome, sharing->name, play->error->text);
	hb_log_info("bench: %s: %s failed: %s", play->plan->of->name, sharing->name, play->error->text);
	return 0;
}

/* Starts who is missing. Cells are made in the order of the command line. */
static int everybody_gather(const struct play *play, char gpu[96])
{
	const struct hb_bench_options *options = play->options;
	struct cast cast;
	hb_bench_company_begin(play->company);
	for (unsigned i = 0; i < options->n_sharings; i++)
		if (takes_part(play, options->sharings[i]))
			cast_fill(play, options->sharings[i], &cast);
	int result = hb_bench_company_gather(play->company, gpu, play->error);
	for (unsigned i = 0; i < options->n_sharings && !result; i++) {
		const struct hb_bench_sharing *sharing = options->sharings[i];
		if (!takes_part(play, sharing))
			continue;
		hb_bench_outcome_cell(play->outcome, sharing->name, sharing->class);
		result = sharing_drop(play, sharing, sharing_check(play, sharing));
	}
	return result;
}

/* After a way of sharing has failed: its programs may hang, and others may need them. */
static int go_on_without(const struct play *play, const struct hb_bench_sharing *sharing, int result)
{
	struct cast cast;
	result = sharing_drop(play, sharing, result);
	if (result)
		return result;
	cast_fill(play, sharing, &cast);
	for (unsigned i = 0; i < cast.n_high; i++)
		hb_bench_process_kill(&cast.high[i]->process);
	for (unsigned i = 0; i < cast.n_low; i++)
		hb_bench_process_kill(&cast.low[i]->process);
	return everybody_gather(play, NULL);
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
		result = result ? result : hear(play, cast->high[i], "prepared", answer_ns(play));
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
		result = hb_bench_process_hear(&member->process, "results", answer_ns(play), &answer, play->error);
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
		result = hb_bench_process_hear(&cast->low[i]->process, "rested", answer_ns(play), &answer, play->error);
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
	return hb_bench_sleep_until(until_ns) ? 0 : hb_bench_stopped(play->error);
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
	result = result ? result : served_high(play, cast, answer_ns(play), &n_served);
	for (unsigned i = 0; i < cast->n_high && !result; i++)
		result = finish_high(play, cast->high[i], cell, cast->high_at + i, round);
	return result ? result : revive_low(play, cast);
}

/* Requests may take as long again, and a second; the rest is for answers. */
static void window_open(const struct play *play, int64_t length_ns)
{
	struct progress *progress = play->progress;
	int64_t answers_ns = play->options->simulated ? ANSWER_SIMULATED_NS : ANSWER_REAL_NS;
	progress->window_begin_ns = hb_clock_now_ns();
	progress->window_end_ns = progress->window_begin_ns + 2 * length_ns + HB_NS_PER_S + answers_ns;
}

static int window_run(const struct play *play, const struct cast *cast, struct hb_bench_cell *cell, unsigned round)
{
	int64_t length_ns = (int64_t)(play->options->seconds * 1e9);
	int64_t settle_ns = length_ns / 5 < SETTLE_MAX_NS ? length_ns / 5 : SETTLE_MAX_NS;
	window_open(play, settle_ns + length_ns);
	int result = prepare_high(play, cast);
	result = result ? result : tell_low(play, cast, (double)(length_ns + settle_ns) / 1e9);
	if (result == 0 && cast->n_low)
		result = window_sleep(play, hb_clock_now_ns() + settle_ns);
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

/* --- what engines are told ------------------------------------------------------------------------------ */

/*
 * The p99 alone of what was measured so far. Only of open loops: what is measured one after the other is no request as
 * an engine sees them (a launch call, a first block).
 */
static void slo_learn(const struct play *play, const struct hb_bench_cell *alone)
{
	for (unsigned i = 0; i < play->plan->n_high; i++) {
		size_t n = 0, used = 0;
		for (unsigned round = 0; round < play->options->rounds; round++)
			n += alone->high[i][round].n;
		int64_t *all = n && play->plan->high[i].rate_per_s > 0 ? malloc(n * sizeof *all) : NULL;
		if (!all)
			continue;
		for (unsigned round = 0; round < play->options->rounds; round++) {
			const struct hb_bench_latencies *of = &alone->high[i][round];
			if (of->n)
				memcpy(all + used, of->ns, of->n * sizeof *all);
			used += of->n;
		}
		struct hb_bench_latencies sorted = {0};
		hb_bench_latencies_take(&sorted, all, n, n);
		play->slo_ns[i] = (int64_t)(hb_bench_quantile(all, n, 0.99).value * 1e3);
		free(all);
	}
}

static int slo_tell(const struct play *play, const struct hb_bench_sharing *sharing, const struct cast *cast)
{
	int result = 0;
	for (unsigned i = 0; i < cast->n_high && !result; i++) {
		struct hb_bench_member *member = cast->high[i];
		if (member->slo_ns == play->slo_ns[i])
			continue;
		result = hb_bench_stage_slo(play->company->stage, sharing, member->process.pid, play->slo_ns[i],
					    play->error);
		member->slo_ns = play->slo_ns[i];
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
	if (sharing->class == HB_BENCH_REFERENCE) {
		int result = run_alone(play, &cast, cell, round);
		if (result == 0)
			slo_learn(play, cell);
		return result;
	}
	int result = hb_bench_stage_set(play->company->stage, sharing, play->error);
	result = result ? result : slo_tell(play, sharing, &cast);
	return result ? result : window_run(play, &cast, cell, round);
}

/* Each begins with another way of sharing. */
static int run_round(const struct play *play, unsigned round)
{
	const struct hb_bench_options *options = play->options;
	int result = 0;
	for (unsigned i = 0; i < options->n_sharings && !result; i++) {
		const struct hb_bench_sharing *sharing = options->sharings[(i + round) % options->n_sharings];
		if (!takes_part(play, sharing))
			continue;
		result = run_sharing(play, sharing, round);
		play->progress->measured |= (result == 0) << ((i + round) % options->n_sharings);
		result = result ? go_on_without(play, sharing, result) : 0;
	}
	return result;
}

static void round_tell(const struct play *play, unsigned round, int64_t took_ns)
{
	hb_log_info("bench: %s: round %u of %u has ended after %.1f s, %.1f s are left", play->plan->of->name,
		    round + 1, play->options->rounds, (double)took_ns / 1e9,
		    (double)(play->span->end_ns - hb_clock_now_ns()) / 1e9);
}

/* Not one more that should not be whole before the time is over, but always one. */
static int run_rounds(const struct play *play)
{
	int result = 0;
	for (unsigned round = 0; round < play->options->rounds && !result; round++) {
		struct progress *progress = play->progress;
		int64_t begin_ns = hb_clock_now_ns();
		if (round > 0 && begin_ns + progress->longest_round_ns > play->span->end_ns)
			break;
		progress->measured = 0;
		result = run_round(play, round);
		play->outcome->rounds += result == 0;
		int64_t took_ns = hb_clock_now_ns() - begin_ns;
		progress->longest_round_ns = took_ns > progress->longest_round_ns ? took_ns
										  : progress->longest_round_ns;
		if (result == 0)
			round_tell(play, round, took_ns);
	}
	return result;
}

int hb_bench_run_processes(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			   const struct hb_bench_span *span, struct hb_bench_company *company,
			   struct hb_bench_outcome *outcome, char gpu[96], struct hb_error *error)
{
	int64_t slo_ns[HB_BENCH_TENANTS_MAX] = {0};
	struct progress progress = {0};
	const struct play play = {.options = options,
				  .plan = plan,
				  .span = span,
				  .progress = &progress,
				  .company = company,
				  .outcome = outcome,
				  .error = error,
				  .slo_ns = slo_ns};
	int result = everybody_gather(&play, gpu);
	if (!result)
		hb_log_info("bench: %s: %u programs are ready after %.1f s", plan->of->name, company->n,
			    (double)(hb_clock_now_ns() - span->begin_ns) / 1e9);
	result = result ? result : run_rounds(&play);
	if (result)
		hb_bench_company_dismiss(company, false);
	return hb_bench_close_early(options, plan, span, progress.measured, result, outcome);
}
