/* SPDX-License-Identifier: Apache-2.0 */
/* A suite, case by case; see bench_run.h. A case that fails does not end the others: a GPU's time is dear. */
#include "bench/bench_run.h"

#include "base/clock.h"
#include "base/log.h"
#include "bench/bench_budget.h"
#include "bench/bench_company.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What ends may take when the time is over already. */
#define END_LEAST_NS (2 * HB_NS_PER_S)

/* The processor's name as the kernel has it, and how many there are. */
static void machine_fill(struct hb_bench_result *result)
{
	char line[256], model[96] = "unknown processor";
	FILE *file = fopen("/proc/cpuinfo", "re");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "model name : %95[^\n]", model) == 1)
			break;
	if (file)
		fclose(file);
	snprintf(result->machine, sizeof result->machine, "%s, %ld processors", model, sysconf(_SC_NPROCESSORS_ONLN));
}

/* The version in the first line of the kernel module's file. */
static void driver_fill(struct hb_bench_result *result)
{
	char line[256];
	FILE *file = result->simulated ? NULL : fopen("/proc/driver/nvidia/version", "re");
	snprintf(result->driver, sizeof result->driver, "%s", result->simulated ? "simulated" : "unknown");
	if (!file)
		return;
	/* "... Kernel Module for x86_64  580.159.03  Release Build ...": the first word that is a version. */
	char *rest = NULL;
	char *word = fgets(line, sizeof line, file) ? strtok_r(line, " \t\n", &rest) : NULL;
	while (word && !(*word >= '0' && *word <= '9' && strchr(word, '.')))
		word = strtok_r(NULL, " \t\n", &rest);
	if (word)
		snprintf(result->driver, sizeof result->driver, "%.90s", word);
	fclose(file);
}

static void header_fill(const struct hb_bench_options *options, struct hb_bench_result *result)
{
	time_t now = time(NULL);
	struct tm utc;
	snprintf(result->suite, sizeof result->suite, "%s", options->suite->name);
	result->simulated = options->simulated;
	result->rounds = options->rounds;
	result->seconds = options->seconds;
	snprintf(result->gpu, sizeof result->gpu, "%s", options->simulated ? "h200, simulated" : "unknown");
	machine_fill(result);
	driver_fill(result);
	if (gmtime_r(&now, &utc))
		strftime(result->time, sizeof result->time, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

static void case_tell(const struct hb_bench_options *options, const struct hb_bench_outcome *outcome,
		      const struct hb_bench_span *span)
{
	double limit_s = (double)(span->end_ns - span->begin_ns) / 1e9;
	if (*outcome->skipped)
		hb_log_info("bench: %s/%s: skipped: %s", options->suite->name, outcome->name, outcome->skipped);
	else
		hb_log_info("bench: %s/%s (%s): begins, has %.0f s", options->suite->name, outcome->name,
			    outcome->world, limit_s);
	if (options->progress)
		fprintf(stderr, "hb bench: %s/%s (%s)\n", options->suite->name, outcome->name, outcome->world);
}

static void end_tell(const struct hb_bench_options *options, const struct hb_bench_outcome *outcome,
		     const struct hb_bench_span *span)
{
	const char *how = *outcome->failed ? "failed: " : *outcome->skipped ? "skipped: " : outcome->unfinished;
	hb_log_info("bench: %s/%s: has ended after %.1f s%s%s%s%s", options->suite->name, outcome->name,
		    (double)(hb_clock_now_ns() - span->begin_ns) / 1e9, *how ? "; " : "", how, outcome->failed,
		    outcome->skipped);
	if (options->progress && *outcome->failed)
		fprintf(stderr, "hb bench: %s/%s failed: %s\n", options->suite->name, outcome->name, outcome->failed);
}

/* What was measured of it is not whole. */
static void case_fail(struct hb_bench_outcome *outcome, int code, const struct hb_error *error)
{
	hb_bench_outcome_clear(outcome);
	outcome->n_dropped = 0;
	snprintf(outcome->failed, sizeof outcome->failed, "%s",
		 code == -ETIME && *outcome->unfinished ? outcome->unfinished : error->text);
	outcome->unfinished[0] = '\0';
}

/* A suite under way. */
struct run {
	const struct hb_bench_options *options;
	struct hb_bench_company *company;
	struct hb_bench_result *result;
	struct hb_error *error;
	int64_t cases_end_ns; /* 0 = no limit */
};

/* -ENOENT: a program of the case lacks something that is not ours. */
static int parts_check(struct hb_bench_stage *stage, const struct hb_bench_plan *plan, struct hb_error *error)
{
	int code = 0;
	for (unsigned i = 0; i < plan->n_high + plan->n_low && !code; i++) {
		const struct hb_bench_program *program = i < plan->n_high ? plan->high[i].program
									  : plan->low[i - plan->n_high];
		if (hb_bench_needs_python(plan, program))
			code = hb_bench_stage_check_python(stage, program, error);
	}
	return code;
}

static int case_measure(const struct run *run, const struct hb_bench_plan *plan, const struct hb_bench_span *span,
			struct hb_bench_outcome *outcome)
{
	const struct hb_bench_options *options = run->options;
	struct hb_bench_company *company = run->company;
	char gpu[96] = "";
	int code = 0;
	hb_bench_time_set(span->end_ns);
	if (plan->world == HB_BENCH_VIRTUAL)
		return hb_bench_run_virtual(options, plan, span, outcome, run->error);
	if (!company->stage)
		code = hb_bench_stage_new(options->simulated, options->xsched, &company->stage, run->error);
	code = code ? code : parts_check(company->stage, plan, run->error);
	if (code == -ENOENT) {
		snprintf(outcome->skipped, sizeof outcome->skipped, "%.150s", run->error->text);
		snprintf(outcome->world, sizeof outcome->world, "skipped");
		return 0;
	}
	code = code ? code : hb_bench_run_processes(options, plan, span, company, outcome, gpu, run->error);
	if (*gpu && !options->simulated)
		snprintf(run->result->gpu, sizeof run->result->gpu, "%s", gpu);
	return code;
}

static int case_run(const struct run *run, const struct hb_bench_plan *plan, const struct hb_bench_span *span)
{
	struct hb_bench_outcome *outcome = hb_bench_result_add(run->result, plan);
	if (!outcome)
		return hb_error_set(run->error, -ENOMEM, "out of memory");
	case_tell(run->options, outcome, span);
	if (plan->world == HB_BENCH_SKIPPED)
		return 0;
	int code = case_measure(run, plan, span, outcome);
	if (code == -EINTR && run->result->n_cases == 1)
		return code;
	if (code)
		case_fail(outcome, code, run->error);
	end_tell(run->options, outcome, span);
	return run->options->keep ? run->options->keep(run->options->context, run->result, run->error) : 0;
}

/* Ctrl-C or the time's end leave what was measured before. `rest_s`: what this case and those behind it should take. */
static int case_begin(const struct run *run, struct hb_bench_plan *plan, double rest_s)
{
	struct hb_bench_span span = {.begin_ns = hb_clock_now_ns()};
	bool over = run->cases_end_ns && span.begin_ns >= run->cases_end_ns;
	const char *why = hb_bench_interrupted() ? "interrupted" : over ? "the time that --limit gives was over" : NULL;
	span.end_ns = hb_bench_case_end_ns(span.begin_ns, run->cases_end_ns, hb_bench_cost_s(run->options, plan),
					   rest_s);
	if (why && plan->world != HB_BENCH_SKIPPED) {
		plan->world = HB_BENCH_SKIPPED;
		snprintf(plan->skipped, sizeof plan->skipped, "%s", why);
	}
	return case_run(run, plan, &span);
}

static bool is_asked_for(const struct hb_bench_options *options, const struct hb_bench_case *of)
{
	return strcmp(of->suite, options->suite->name) == 0 && hb_bench_is_listed(options->only, of->name);
}

static int cases_run(const struct run *run)
{
	struct hb_bench_plan plan;
	double rest_s = 0;
	int code = 0;
	for (const struct hb_bench_case *of = hb_bench_cases; of->name && !code; of++) {
		if (!is_asked_for(run->options, of))
			continue;
		code = hb_bench_plan_make(of, run->options->simulated, &plan, run->error);
		rest_s += code ? 0 : hb_bench_cost_s(run->options, &plan);
	}
	for (const struct hb_bench_case *of = hb_bench_cases; of->name && !code; of++) {
		if (!is_asked_for(run->options, of))
			continue;
		code = hb_bench_plan_make(of, run->options->simulated, &plan, run->error);
		double cost_s = code ? 0 : hb_bench_cost_s(run->options, &plan);
		code = code ? code : case_begin(run, &plan, rest_s);
		rest_s -= cost_s;
	}
	return code;
}

/* All that is still there ends; with a limit, within it. */
static void company_end(const struct run *run, bool well)
{
	int64_t now_ns = hb_clock_now_ns(), deadline_ns = run->options->deadline_ns;
	hb_bench_time_set(deadline_ns && deadline_ns < now_ns + END_LEAST_NS ? now_ns + END_LEAST_NS : deadline_ns);
	hb_bench_company_dismiss(run->company, well);
	hb_bench_stage_free(run->company->stage);
	hb_bench_time_set(0);
}

int hb_bench_run(const struct hb_bench_options *options, struct hb_bench_result *result, struct hb_error *error)
{
	struct run run = {.options = options,
			  .company = calloc(1, sizeof *run.company),
			  .result = result,
			  .error = error,
			  .cases_end_ns = hb_bench_cases_end_ns(hb_clock_now_ns(), options->deadline_ns)};
	memset(result, 0, sizeof *result);
	if (!run.company)
		return hb_error_set(error, -ENOMEM, "out of memory");
	run.company->simulated = options->simulated;
	header_fill(options, result);
	hb_bench_interrupt_watch();
	int code = cases_run(&run);
	company_end(&run, code == 0 && !hb_bench_interrupted());
	free(run.company);
	if (code)
		hb_bench_result_fini(result);
	return code;
}
