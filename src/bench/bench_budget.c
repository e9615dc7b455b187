/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of cases, their share of the time, and what is kept when it is over; see bench_budget.h and bench_run.h. */
#include "bench/bench_budget.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Of a window, beside its length: settling, comparing clocks, fetching what was measured. */
#define WINDOW_MORE_S 0.2
/* Until programs are ready: daemons, servers and contexts; and for each PyTorch program, in so many places. */
#define START_S 5.0
#define START_TORCH_S 1.2
#define PLACES 4
/* A window in virtual time, of its length. */
#define VIRTUAL_SHARE 0.2

/* Without a limit: so many times the cost, and this. */
#define UNLIMITED_FACTOR 5
#define UNLIMITED_MORE_S 300.0

/* Kept of the limit for the end: a tenth, within these. */
#define END_LEAST_NS (500 * HB_NS_PER_MS)
#define END_MOST_NS (8 * HB_NS_PER_S)

static double start_s(const struct hb_bench_plan *plan)
{
	unsigned torch = 0;
	for (unsigned i = 0; i < plan->n_high + plan->n_low; i++) {
		const struct hb_bench_program *program = i < plan->n_high ? plan->high[i].program
									  : plan->low[i - plan->n_high];
		torch += hb_bench_needs_python(plan, program);
	}
	return START_S + PLACES * START_TORCH_S * torch;
}

double hb_bench_cost_s(const struct hb_bench_options *options, const struct hb_bench_plan *plan)
{
	unsigned windows = plan->n_high + plan->n_low; /* exclusive: one after another */
	if (plan->world == HB_BENCH_SKIPPED)
		return 0;
	for (unsigned i = 0; i < options->n_sharings; i++)
		windows += hb_bench_can(plan, options->sharings[i]) &&
			   options->sharings[i]->class != HB_BENCH_REFERENCE;
	if (plan->world == HB_BENCH_VIRTUAL)
		return options->rounds * windows * options->seconds * VIRTUAL_SHARE;
	return start_s(plan) + options->rounds * windows * (options->seconds + WINDOW_MORE_S);
}

int64_t hb_bench_cases_end_ns(int64_t begin_ns, int64_t deadline_ns)
{
	int64_t end_ns = (deadline_ns - begin_ns) / 10;
	if (!deadline_ns)
		return 0;
	end_ns = end_ns < END_LEAST_NS ? END_LEAST_NS : end_ns > END_MOST_NS ? END_MOST_NS : end_ns;
	return deadline_ns - end_ns;
}

int64_t hb_bench_case_end_ns(int64_t now_ns, int64_t cases_end_ns, double cost_s, double rest_s)
{
	if (!cases_end_ns)
		return now_ns + (int64_t)((UNLIMITED_FACTOR * cost_s + UNLIMITED_MORE_S) * 1e9);
	int64_t left_ns = cases_end_ns > now_ns ? cases_end_ns - now_ns : 0;
	return now_ns + (rest_s > 0 ? (int64_t)((double)left_ns * (cost_s / rest_s)) : left_ns);
}

/* --- when it is over ------------------------------------------------------------------------------- */

/* Of a first round that was not whole: those that are missing are named. */
static void first_round_keep(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			     unsigned measured, struct hb_bench_outcome *outcome)
{
	for (unsigned i = 0; i < options->n_sharings; i++) {
		const char *name = options->sharings[i]->name;
		if (hb_bench_can(plan, options->sharings[i]) && !(measured & 1u << i) &&
		    !hb_bench_outcome_dropped(outcome, name))
			hb_bench_outcome_drop(outcome, name, outcome->unfinished);
	}
	outcome->rounds = 1;
}

int hb_bench_close_early(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			 const struct hb_bench_span *span, unsigned measured, int result,
			 struct hb_bench_outcome *outcome)
{
	if (result == -ETIME || (result == 0 && outcome->rounds < options->rounds))
		snprintf(outcome->unfinished, sizeof outcome->unfinished,
			 "not finished within %.3g s: %u of %u rounds, %llu trials",
			 (double)(span->end_ns - span->begin_ns) / 1e9, outcome->rounds, options->rounds,
			 (unsigned long long)hb_bench_outcome_trials(outcome));
	if (result == -ETIME && !outcome->rounds && (measured & 1))
		first_round_keep(options, plan, measured, outcome);
	return outcome->rounds && (result == -ETIME || result == -EINTR) ? 0 : result;
}
