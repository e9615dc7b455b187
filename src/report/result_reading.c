/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Summarizes a comparison of sharing modes in one sentence; see output.h. `hb sim` prints it below the table and at the top
 * of the report.
 */
#include "report/output.h"

#include "report/report_parts.h"

#include <string.h>

/* One number for each priority: the lowest attainment of the services, and the mean speed of the low-priority programs. */
struct mode_outcome {
	double attainment;
	double relative;
	const char *worst; /* the service with that attainment */
	double slo_ms;
};

static struct mode_outcome find_outcome(const struct hb_sim_result *result)
{
	struct mode_outcome outcome = {.attainment = 2};
	for (uint32_t i = 0; i < result->n_high; i++) {
		const struct hb_sim_high *high = &result->high[i];
		if (high->slo_ns <= 0 || high->attainment >= outcome.attainment)
			continue;
		outcome.attainment = high->attainment;
		outcome.worst = high->workload;
		outcome.slo_ms = (double)high->slo_ns / 1e6;
	}
	for (uint32_t i = 0; i < result->n_low; i++)
		outcome.relative += result->low[i].relative / result->n_low;
	return outcome;
}

/* Returns whether the mode shares a GPU: in `exclusive` each program has a GPU of its own. */
static bool is_shared(const struct hb_sim_result *result)
{
	return strcmp(result->sharing, "exclusive") != 0;
}

/* Finds the mode with the fastest LP among those that keep the SLOs; if none keeps them, the mode with the best attainment. */
static const struct hb_sim_result *find_best(const struct hb_sim_result *results, size_t n, bool *kept)
{
	const struct hb_sim_result *best = NULL;
	struct mode_outcome top = {0};
	*kept = false;
	for (size_t i = 0; i < n; i++) {
		struct mode_outcome outcome = find_outcome(&results[i]);
		bool keeps = outcome.attainment >= HB_SIM_SLO_KEPT;
		if (!is_shared(&results[i]) || (*kept && !keeps))
			continue;
		bool better = keeps ? !*kept || outcome.relative > top.relative : outcome.attainment > top.attainment;
		if (best && !better)
			continue;
		best = &results[i];
		top = outcome;
		*kept = keeps;
	}
	return best;
}

const struct hb_sim_result *hb_result_best(const struct hb_sim_result *results, size_t n)
{
	bool kept;
	return find_best(results, n, &kept);
}

static const struct hb_sim_result *find_default(const struct hb_sim_result *results, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(results[i].sharing, "timeslice") == 0)
			return &results[i];
	return NULL;
}

static size_t count_shared(const struct hb_sim_result *results, size_t n)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		count += is_shared(&results[i]);
	return count;
}

static uint32_t count_slos(const struct hb_sim_result *result)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < result->n_high; i++)
		count += result->high[i].slo_ns > 0;
	return count;
}

static void write_low_name(FILE *out, const struct hb_sim_result *result)
{
	if (result->n_low == 1)
		fputs(result->low[0].workload, out);
	else
		fprintf(out, "the %u low-priority programs", result->n_low);
}

/* Writes "95 % of NAME's requests within 5.60 ms", or for several services "95 % of every service's requests within its SLO". */
static void write_promise(FILE *out, const struct hb_sim_result *result, const struct mode_outcome *outcome)
{
	fprintf(out, "%.0f %% of ", 100 * HB_SIM_SLO_KEPT);
	if (count_slos(result) == 1)
		fprintf(out, "%s's requests within %.2f ms", outcome->worst, outcome->slo_ms);
	else
		fputs("every service's requests within its SLO", out);
}

static void write_best(FILE *out, const struct hb_sim_result *best, const struct mode_outcome *top, bool kept)
{
	if (kept) {
		fprintf(out, "%s lets ", best->sharing);
		write_low_name(out, best);
		fprintf(out, " run fastest (%.1f %% of alone) among those that keep at least ", 100 * top->relative);
		write_promise(out, best, top);
		return;
	}
	fputs("none keeps ", out);
	write_promise(out, best, top);
	fprintf(out, "; %s comes closest (%.1f %%", best->sharing, 100 * top->attainment);
	if (count_slos(best) > 1)
		fprintf(out, " of %s's", top->worst);
	fputs(", with ", out);
	write_low_name(out, best);
	fprintf(out, " at %.1f %% of alone)", 100 * top->relative);
}

void hb_result_reading_write(FILE *out, const struct hb_sim_result *results, size_t n)
{
	bool kept = false;
	const struct hb_sim_result *best = find_best(results, n, &kept);
	if (!best || count_shared(results, n) < 2 || best->n_low == 0)
		return;
	struct mode_outcome top = find_outcome(best);
	if (!top.worst)
		return;
	fprintf(out, "Of %zu ways to share, ", count_shared(results, n));
	write_best(out, best, &top, kept);
	const struct hb_sim_result *driver = find_default(results, n);
	if (driver && driver != best) {
		struct mode_outcome usual = find_outcome(driver);
		fprintf(out, "; the driver's own time slicing keeps %.1f %%", 100 * usual.attainment);
		if (count_slos(driver) > 1)
			fprintf(out, " of %s's", usual.worst);
		fprintf(out, " and leaves %.1f %%", 100 * usual.relative);
	}
	fputs(".\n", out);
}
