/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A case in virtual time: recorded programs in `hb sim`'s engine. A round is a
 * run with arrivals of its own (its seed is the round's number), the same for
 * every way of sharing; nothing drifts, so the order does not matter.
 */
#include "base/paths.h"
#include "bench/bench_process.h"
#include "bench/bench_run.h"
#include "sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACE "traces/h200-pytorch-2.11.csv.gz"

static int traces_read(struct hb_trace_set *traces, struct hb_error *error)
{
	char path[PATH_MAX];
	int result = hb_path_data(TRACE, path, sizeof path, error);
	return result ? result : hb_trace_read_csv(path, traces, error);
}

/* NAME or NAME:graph. */
static int tenant_fill(const struct hb_trace_set *traces, const char *trace, const char *arrivals,
		       struct hb_sim_tenant *tenant, struct hb_error *error)
{
	char name[sizeof tenant->label];
	snprintf(tenant->label, sizeof tenant->label, "%s", trace);
	snprintf(name, sizeof name, "%.*s", (int)strcspn(trace, ":"), trace);
	tenant->graph = strchr(trace, ':') != NULL;
	tenant->arrivals = arrivals;
	tenant->workload = hb_trace_find(traces, name);
	return tenant->workload ? 0 : hb_error_set(error, -ENOENT, "programs.def: there is no recorded '%s'", name);
}

static int options_fill(const struct hb_bench_plan *plan, const struct hb_trace_set *traces, struct hb_sim_options *run,
			struct hb_error *error)
{
	int result = 0;
	run->traces = traces;
	run->gpu = "h200";
	run->n_high = plan->n_high;
	run->n_low = plan->n_low;
	for (unsigned i = 0; i < plan->n_high && !result; i++)
		result = tenant_fill(traces, plan->high[i].program->trace, plan->high[i].arrivals, &run->high[i],
				     error);
	for (unsigned i = 0; i < plan->n_low && !result; i++)
		result = tenant_fill(traces, plan->low[i]->trace, NULL, &run->low[i], error);
	return result;
}

static int round_keep(const struct hb_sim_result *found, unsigned round, struct hb_bench_cell *cell)
{
	for (uint32_t i = 0; i < found->n_high; i++) {
		size_t n = found->high[i].requests;
		int64_t *copy = malloc((n ? n : 1) * sizeof *copy);
		if (!copy)
			return -ENOMEM;
		if (n)
			memcpy(copy, found->high[i].latency_ns, n * sizeof *copy);
		hb_bench_latencies_take(&cell->high[i][round], copy, n, n);
	}
	for (uint32_t i = 0; i < found->n_low; i++)
		cell->low_per_s[i][round] = found->low[i].iterations_per_s;
	return 0;
}

static int round_run(const struct hb_bench_options *options, struct hb_sim_options *run, unsigned round,
		     const struct hb_bench_sharing *sharing, struct hb_bench_outcome *outcome, struct hb_error *error)
{
	struct hb_sim_result found = {.n_high = 0};
	struct hb_bench_cell *cell = hb_bench_outcome_cell(outcome, sharing->name, sharing->class);
	run->sharing = sharing->virtual_mode;
	run->seconds = options->seconds;
	run->seed = round * HB_SIM_TENANTS_MAX + 1; /* each program draws with the seed and its index */
	int result = cell ? hb_sim_run(run, &found, error) : hb_error_set(error, -E2BIG, "too many ways to share");
	if (result)
		return result;
	result = round_keep(&found, round, cell);
	hb_sim_result_fini(&found);
	return result ? hb_error_set(error, result, "out of memory") : 0;
}

/* One run takes less than a second, so it is enough to look between them. */
static int rounds_run(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
		      struct hb_sim_options *run, struct hb_bench_outcome *outcome, unsigned *measured,
		      struct hb_error *error)
{
	int result = 0;
	for (unsigned round = 0; round < options->rounds && !result; round++) {
		for (unsigned i = 0; i < options->n_sharings && !result; i++) {
			if (!hb_bench_can(plan, options->sharings[i]))
				continue;
			result = hb_bench_stopped(error);
			result = result ? result : round_run(options, run, round, options->sharings[i], outcome, error);
			*measured |= (result == 0) << i;
		}
		outcome->rounds += !result;
	}
	return result;
}

int hb_bench_run_virtual(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
			 const struct hb_bench_span *span, struct hb_bench_outcome *outcome, struct hb_error *error)
{
	struct hb_trace_set traces = {0};
	struct hb_sim_options run = {0};
	unsigned measured = 0;
	int result = traces_read(&traces, error);
	result = result ? result : options_fill(plan, &traces, &run, error);
	result = result ? result : rounds_run(options, plan, &run, outcome, &measured, error);
	hb_trace_set_fini(&traces);
	return hb_bench_close_early(options, plan, span, measured, result, outcome);
}
