/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits every long kernel into parts of a fixed run time, in every engine. For
 * tests of splitting and for measurements of its cost; part of the benchmarks'
 * shim only (shim/extension.h). Settings, read when the process has registered:
 *	HB_BENCH_SPLIT_US            run time of a part in microseconds; switches this on
 *	HB_BENCH_SPLIT_COST_PERCENT  most that all parts may cost of a kernel's time
 *	HB_BENCH_SPLIT_REPORT        file to which each process appends a line of JSON
 *	                             when it ends: launches split, parts, and launches
 *	                             that were not split, by reason
 */
#include "base/clock.h"
#include "bench_levers.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"
#include "split_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ALLOWED_US_MAX 1000000
/* A part waits at most this long for the part before it. */
#define WAIT_MOST_NS (100 * HB_NS_PER_MS)

static int64_t allowed_ns; /* run time of a part; constant after the start, as the next */
static uint32_t cost_percent = HB_SPLIT_COST_PERCENT;
static hb_page_u64 n_unsplit[HB_N_SPLIT_REASONS]; /* launches by reason */

/* The parts that this thread launched. Parts of several streams are paced together. */
static __thread struct hb_split_clock issued __attribute__((tls_model("initial-exec")));
/* The launch that is being timed; shape NULL = none. */
static __thread struct hb_split_known timed __attribute__((tls_model("initial-exec")));

void hb_bench_note_unsplit(enum hb_split_reason reason)
{
	atomic_fetch_add_explicit(&n_unsplit[reason], 1, memory_order_relaxed);
}

static void write_report(void)
{
	const char *path = getenv("HB_BENCH_SPLIT_REPORT");
	FILE *out = path ? fopen(path, "a") : NULL;
	if (!out)
		return;
	const struct hb_page_process *process = hb_place()->process;
	fprintf(out, "{\"split\": %llu, \"parts\": %llu",
		(unsigned long long)atomic_load(&process->counters[HB_COUNT_split]),
		(unsigned long long)atomic_load(&process->counters[HB_COUNT_parts]));
	for (int i = 0; i < HB_N_SPLIT_REASONS; i++)
		if (atomic_load(&n_unsplit[i]))
			fprintf(out, ", \"%s\": %llu", hb_split_reason_name((enum hb_split_reason)i),
				(unsigned long long)atomic_load(&n_unsplit[i]));
	fprintf(out, "}\n");
	fclose(out);
}

bool hb_bench_start_split(void)
{
	const char *text = getenv("HB_BENCH_SPLIT_US"), *cost = getenv("HB_BENCH_SPLIT_COST_PERCENT");
	long us = text ? strtol(text, NULL, 10) : 0;
	if (getenv("HB_BENCH_SPLIT_REPORT"))
		atexit(write_report);
	if (us <= 0 || us > ALLOWED_US_MAX)
		return false;
	if (cost)
		cost_percent = (uint32_t)strtoul(cost, NULL, 10);
	allowed_ns = us * 1000;
	atomic_fetch_or(&hb_shim_alert, HB_ALERT_SPLIT);
	return true;
}

static void wait_for_turn(void)
{
	int64_t wait_ns = hb_split_wait_ns(&issued, hb_clock_now_ns());
	if (wait_ns > WAIT_MOST_NS)
		wait_ns = WAIT_MOST_NS;
	if (wait_ns > 0)
		nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
	hb_split_pass_gate();
}

/* Returns the driver's result, or -1 if nothing was launched. */
static int launch_parts(const struct hb_split_launch *launch, const struct hb_split_function *function,
			const struct hb_split_plan *plan, struct hb_split_arguments *arguments)
{
	CUresult result = CUDA_SUCCESS;
	for (uint32_t i = 0; i < plan->n_parts && result == CUDA_SUCCESS; i++) {
		if (i)
			wait_for_turn();
		result = hb_split_launch_part(launch, function, arguments,
					      (struct hb_bounds){i * plan->n_blocks_each, plan->n_blocks_each});
		if (result != CUDA_SUCCESS && i == 0)
			return -1;
		hb_split_issued(&issued, hb_clock_now_ns(), plan->part_ns);
	}
	hb_split_count_parts(plan->n_parts);
	return (int)result;
}

static uint32_t count_threads(const CUlaunchConfig *config)
{
	return config->blockDimX * config->blockDimY * config->blockDimZ;
}

static enum hb_split_reason make_plan(const struct hb_split_launch *launch, const struct hb_split_known *known,
				      struct hb_split_plan *plan)
{
	const struct hb_split_question question = {
		.duration_ns = known->duration_ns,
		.allowed_ns = allowed_ns,
		.n_blocks = (uint32_t)hb_split_count_blocks(&launch->config),
		.n_threads = count_threads(&launch->config),
		.n_resident = known->n_resident,
		.cost_percent = cost_percent,
	};
	return hb_split_plan(&question, plan);
}

static enum hb_split_reason try_split(const struct hb_split_launch *launch, struct hb_split_known *known,
				      CUresult *result)
{
	struct hb_split_plan plan;
	struct hb_split_arguments arguments;
	struct hb_split_function function;
	enum hb_split_reason reason = hb_split_find(launch, &function);
	if (reason != HB_SPLIT_none)
		return reason;
	*known = hb_split_shape_of(&function, (uint32_t)hb_split_count_blocks(&launch->config),
				   count_threads(&launch->config), launch->config.sharedMemBytes);
	if (!known->shape)
		return HB_SPLIT_brief;
	reason = make_plan(launch, known, &plan);
	if (reason != HB_SPLIT_none)
		return reason;
	if (!hb_split_copy_settings(&function))
		return HB_SPLIT_driver;
	if (!hb_split_take_arguments(&function, launch, &arguments))
		return HB_SPLIT_launch;
	int code = launch_parts(launch, &function, &plan, &arguments);
	if (code < 0)
		return HB_SPLIT_driver;
	*result = (CUresult)code;
	return HB_SPLIT_none;
}

enum hb_split_reason hb_bench_split(const struct hb_split_launch *launch, CUresult *result)
{
	struct hb_split_known known = {.shape = NULL};
	enum hb_split_reason reason = try_split(launch, &known, result);
	timed.shape = NULL;
	if (reason != HB_SPLIT_none && known.shape && known.n_resident < hb_split_count_blocks(&launch->config) &&
	    hb_split_time_begin(&known, hb_split_stream(launch)))
		timed = known;
	return reason;
}

void hb_bench_after_unsplit(const struct hb_split_launch *launch)
{
	if (timed.shape)
		hb_split_time_end(&timed, hb_split_stream(launch));
	timed.shape = NULL;
}
