/* SPDX-License-Identifier: Apache-2.0 */
/* A suite, case by case; see bench_run.h. A case that fails does not end the others: a GPU's time is dear. */
#include "bench/bench_run.h"

#include "base/clock.h"
#include "base/log.h"
#include "bench/bench_company.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

bool hb_bench_time_over(const struct hb_bench_options *options)
{
	return options->deadline_ns && hb_clock_now_ns() >= options->deadline_ns;
}

static int case_run(const struct hb_bench_options *options, const struct hb_bench_plan *plan,
		    struct hb_bench_company *company, struct hb_bench_result *result, struct hb_error *error)
{
	char gpu[96] = "";
	struct hb_bench_outcome *outcome = hb_bench_result_add(result, plan);
	if (!outcome)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_log_info("bench: %s/%s (%s)", options->suite->name, plan->of->name, outcome->world);
	if (options->progress)
		fprintf(stderr, "hb bench: %s/%s (%s)\n", options->suite->name, plan->of->name, outcome->world);
	if (plan->world == HB_BENCH_SKIPPED)
		return 0;
	if (plan->world == HB_BENCH_VIRTUAL)
		return hb_bench_run_virtual(options, plan, outcome, error);
	int code = company->stage ? 0 : hb_bench_stage_new(options->simulated, options->xsched, &company->stage, error);
	code = code ? code : hb_bench_run_processes(options, plan, company, outcome, gpu, error);
	if (*gpu && !options->simulated)
		snprintf(result->gpu, sizeof result->gpu, "%s", gpu);
	if (code == 0 || (code == -EINTR && result->n_cases == 1))
		return code;
	/* What was measured of it is not whole. */
	hb_bench_outcome_clear(outcome);
	outcome->n_dropped = 0;
	snprintf(outcome->failed, sizeof outcome->failed, "%s", error->text);
	if (options->progress)
		fprintf(stderr, "hb bench: %s/%s failed: %s\n", options->suite->name, plan->of->name, error->text);
	return 0;
}

/* Ctrl-C or the time's end leave what was measured before. */
static int case_begin(const struct hb_bench_options *options, struct hb_bench_plan *plan,
		      struct hb_bench_company *company, struct hb_bench_result *result, struct hb_error *error)
{
	const char *why = hb_bench_interrupted()        ? "interrupted"
			  : hb_bench_time_over(options) ? "the time that --limit gives was over"
							: NULL;
	if (why && plan->world != HB_BENCH_SKIPPED) {
		plan->world = HB_BENCH_SKIPPED;
		snprintf(plan->skipped, sizeof plan->skipped, "%s", why);
	}
	return case_run(options, plan, company, result, error);
}

int hb_bench_run(const struct hb_bench_options *options, struct hb_bench_result *result, struct hb_error *error)
{
	struct hb_bench_company *company = calloc(1, sizeof *company);
	int code = company ? 0 : hb_error_set(error, -ENOMEM, "out of memory");
	memset(result, 0, sizeof *result);
	header_fill(options, result);
	hb_bench_interrupt_watch();
	for (const struct hb_bench_case *of = hb_bench_cases; of->name && !code; of++) {
		struct hb_bench_plan plan;
		if (strcmp(of->suite, options->suite->name) != 0 ||
		    (options->only && strcmp(of->name, options->only) != 0))
			continue;
		code = hb_bench_plan_make(of, options->simulated, &plan, error);
		code = code ? code : case_begin(options, &plan, company, result, error);
	}
	if (company) {
		hb_bench_company_dismiss(company, code == 0 && !hb_bench_interrupted());
		hb_bench_stage_free(company->stage);
	}
	free(company);
	if (code)
		hb_bench_result_fini(result);
	return code;
}
