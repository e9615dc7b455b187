/* SPDX-License-Identifier: Apache-2.0 */
/* `hb bench` without a GPU: its tables, its statistics, its programs that die or hang, its files. */
#include "test_files.h"

#include "base/clock.h"
#include "bench/bench_budget.h"
#include "bench/bench_cpus.h"
#include "bench/bench_output.h"
#include "bench/bench_overall.h"
#include "bench/bench_process.h"
#include "bench/bench_stats.h"

#include <errno.h>
#include <math.h>
#include <signal.h>

/* --- tables ------------------------------------------------------------------------------------------ */

/* Every row names programs that exist, and runs somewhere: on a real GPU all do. */
static void test_every_case_makes_a_plan(void **state)
{
	struct hb_bench_plan plan;
	struct hb_error error = {""};
	for (const struct hb_bench_case *of = hb_bench_cases; of->name; of++) {
		assert_non_null(hb_bench_suite_find(of->suite));
		for (int simulated = 0; simulated < 2; simulated++) {
			int result = hb_bench_plan_make(of, simulated, &plan, &error);
			if (result)
				fail_msg("%s", error.text);
			assert_true(plan.n_high > 0);
			assert_true(simulated || plan.world == HB_BENCH_PROCESSES);
			assert_true((plan.world == HB_BENCH_SKIPPED) == (*plan.skipped != '\0'));
		}
	}
}

static void test_every_sharing_of_a_suite_is_known(void **state)
{
	for (const struct hb_bench_suite *suite = hb_bench_suites; suite->name; suite++) {
		char list[256], *rest = list;
		snprintf(list, sizeof list, "%s", suite->sharing);
		for (char *name; (name = strsep(&rest, ","));)
			if (strcmp(name, "all") != 0 && !hb_bench_sharing_find(name + (*name == '-')))
				fail_msg("%s: %s", suite->name, name);
	}
}

static void test_wrong_rows_are_refused(void **state)
{
	static const struct hb_bench_case wrong[] = {
		{"s", "unknown program", "nothing@closed", "", false},
		{"s", "no arrivals", "launch", "", false},
		{"s", "bad arrivals", "launch@often", "", false},
		{"s", "negative rate", "launch@-3/s", "", false},
		{"s", "unknown low", "launch@closed", "nothing", false},
		{"s", "six lows", "launch@closed", "endless,endless,endless,endless,endless,endless", false},
	};
	struct hb_bench_plan plan;
	struct hb_error error;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(hb_bench_plan_make(&wrong[i], true, &plan, &error), -EINVAL);
}

static void test_stand_ins_are_named(void **state)
{
	struct hb_bench_plan plan;
	struct hb_error error;
	char label[HB_BENCH_LABEL_MAX];
	struct hb_bench_case of = {"s", "c", "vgg19@20/s", "resnet50_train_b128", false};
	assert_int_equal(hb_bench_plan_make(&of, true, &plan, &error), 0);
	hb_bench_label(&plan, plan.high[0].program, label);
	assert_string_equal(label, "vgg19 (as resnet50_b8)");
	hb_bench_label(&plan, plan.low[0], label);
	assert_string_equal(label, "resnet50_train_b128");
	assert_int_equal(hb_bench_plan_make(&of, false, &plan, &error), 0);
	hb_bench_label(&plan, plan.high[0].program, label);
	assert_string_equal(label, "vgg19");
}

/* --- time -------------------------------------------------------------------------------------------------- */

/* What a case leaves is the others', and the last one ends when all have to. */
static void test_time_is_divided_by_cost(void **state)
{
	const int64_t s = HB_NS_PER_S, end_ns = hb_bench_cases_end_ns(100 * s, 200 * s);
	assert_true(end_ns > 190 * s && end_ns < 200 * s);
	assert_int_equal(hb_bench_case_end_ns(100 * s, 190 * s, 10, 30), 130 * s);
	assert_int_equal(hb_bench_case_end_ns(110 * s, 190 * s, 10, 20), 150 * s);
	assert_int_equal(hb_bench_case_end_ns(150 * s, 190 * s, 10, 10), 190 * s);
	/* Nothing is left. */
	assert_int_equal(hb_bench_case_end_ns(195 * s, 190 * s, 10, 10), 195 * s);
	/* No limit: much more than it should take, but not for ever. */
	assert_int_equal(hb_bench_cases_end_ns(100 * s, 0), 0);
	int64_t bound_ns = hb_bench_case_end_ns(0, 0, 20, 40);
	assert_true(bound_ns > 100 * s && bound_ns < 3600 * s);
}

static struct hb_bench_options options_of(const char *suite, bool simulated)
{
	struct hb_bench_options options = {.suite = hb_bench_suite_find(suite), .simulated = simulated};
	options.rounds = options.suite->rounds;
	options.seconds = options.suite->real_s;
	for (const struct hb_bench_sharing *sharing = hb_bench_sharings; sharing->name; sharing++)
		options.sharings[options.n_sharings++] = sharing;
	return options;
}

/* Whatever is measured has its time; and what is not, none. */
static void test_every_case_has_a_cost(void **state)
{
	struct hb_bench_plan plan;
	struct hb_error error;
	for (const struct hb_bench_case *of = hb_bench_cases; of->name; of++)
		for (int simulated = 0; simulated < 2; simulated++) {
			struct hb_bench_options options = options_of(of->suite, simulated);
			assert_int_equal(hb_bench_plan_make(of, simulated, &plan, &error), 0);
			double cost_s = hb_bench_cost_s(&options, &plan);
			assert_true(plan.world == HB_BENCH_SKIPPED ? cost_s == 0 : cost_s > 0);
		}
}

static struct hb_bench_outcome *partial_outcome(struct hb_bench_result *result, const struct hb_bench_plan *plan,
						unsigned rounds)
{
	struct hb_bench_outcome *outcome = hb_bench_result_add(result, plan);
	for (int i = 0; i < 2; i++) {
		struct hb_bench_cell *cell = hb_bench_outcome_cell(outcome, hb_bench_sharings[i].name,
								   hb_bench_sharings[i].class);
		hb_bench_latencies_take(&cell->high[0][0], calloc(3, sizeof(int64_t)), 3, 3);
	}
	outcome->rounds = rounds;
	return outcome;
}

/* exclusive and timeslice were measured when the time was over. */
static void test_what_is_kept_when_the_time_is_over(void **state)
{
	struct hb_bench_options options = options_of("micro", true);
	const struct hb_bench_span span = {.begin_ns = 0, .end_ns = 26 * HB_NS_PER_S};
	struct hb_bench_plan plan;
	struct hb_error error;
	struct hb_bench_result *result = calloc(1, sizeof *result);
	const struct hb_bench_case of = {"micro", "c", "preempt@closed", "spin_5us", false};
	assert_int_equal(hb_bench_plan_make(&of, true, &plan, &error), 0);

	struct hb_bench_outcome *rounds = partial_outcome(result, &plan, 2);
	assert_int_equal(hb_bench_close_early(&options, &plan, &span, 0, -ETIME, rounds), 0);
	assert_string_equal(rounds->unfinished, "not finished within 26 s: 2 of 5 rounds, 6 trials");
	assert_int_equal(rounds->n_dropped, 0);

	struct hb_bench_outcome *first = partial_outcome(result, &plan, 0);
	assert_int_equal(hb_bench_close_early(&options, &plan, &span, 3, -ETIME, first), 0);
	assert_int_equal(first->rounds, 1);
	assert_int_equal(first->n_cells, 2);
	assert_false(hb_bench_outcome_dropped(first, "timeslice"));
	assert_true(hb_bench_outcome_dropped(first, "temporal"));
	assert_string_equal(first->dropped[0].why, "not finished within 26 s: 0 of 5 rounds, 6 trials");

	/* Without exclusive there is nothing to compare with. */
	struct hb_bench_outcome *nothing = partial_outcome(result, &plan, 0);
	assert_int_equal(hb_bench_close_early(&options, &plan, &span, 2, -ETIME, nothing), -ETIME);
	/* Whole, and failed, cases are left as they are. */
	struct hb_bench_outcome *whole = partial_outcome(result, &plan, 5);
	assert_int_equal(hb_bench_close_early(&options, &plan, &span, 3, 0, whole), 0);
	assert_int_equal(hb_bench_close_early(&options, &plan, &span, 3, -EPIPE, whole), -EPIPE);
	assert_string_equal(whole->unfinished, "");
	hb_bench_result_fini(result);
	free(result);
}

/* Whole cores on one side; on a small machine nobody is moved. */
static void test_processors_are_divided_by_cores(void **state)
{
	/* Both usual numberings of eight cores with two threads each. */
	static const char *const high[] = {"0 1 2 3 4 5 6 7", "0 1 2 3 8 9 10 11"};
	for (int numbering = 0; numbering < 2; numbering++) {
		cpu_set_t allowed, set, others;
		int core[CPU_SETSIZE] = {0};
		char text[64] = "";
		CPU_ZERO(&allowed);
		for (int cpu = 0; cpu < 16; cpu++) {
			CPU_SET(cpu, &allowed);
			core[cpu] = numbering == 0 ? cpu & ~1 : cpu % 8;
		}
		assert_true(hb_bench_cpus_split(&allowed, core, true, &set));
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &set))
				sprintf(text + strlen(text), "%s%d", *text ? " " : "", cpu);
		assert_string_equal(text, high[numbering]);
		assert_true(hb_bench_cpus_split(&allowed, core, false, &others));
		CPU_XOR(&set, &set, &others);
		assert_true(CPU_EQUAL(&set, &allowed));
		CPU_ZERO(&allowed);
		for (int cpu = 0; cpu < 16; cpu++)
			if (core[cpu] < (numbering == 0 ? 6 : 3))
				CPU_SET(cpu, &allowed);
		assert_int_equal(CPU_COUNT(&allowed), 6);
		assert_false(hb_bench_cpus_split(&allowed, core, true, &set));
	}
}

/* --- statistics ------------------------------------------------------------------------------------------ */

static void test_quantile_is_an_order_statistic(void **state)
{
	int64_t ns[1000];
	for (int i = 0; i < 1000; i++)
		ns[i] = (i + 1) * 1000;
	struct hb_bench_estimate median = hb_bench_quantile(ns, 1000, 0.5);
	assert_true(median.value == 500);
	/* 500 -+ 1.96 sqrt(250) = 469.01, 530.99; outwards */
	assert_true(median.low == 469 && median.high == 532);
	struct hb_bench_estimate high = hb_bench_quantile(ns, 1000, 0.99);
	assert_true(high.value == 990 && high.low == 983 && high.high == 998);
	struct hb_bench_estimate few = hb_bench_quantile(ns, 20, 0.99);
	assert_true(few.value == 20 && isnan(few.high));
	assert_true(isnan(hb_bench_quantile(ns, 0, 0.5).value));
}

/* Draws by a generator of its own: do intervals of known distributions hold the truth as often as they say? */
static void test_quantile_interval_covers(void **state)
{
	uint64_t x = 88172645463325252u;
	int covered = 0;
	for (int trial = 0; trial < 400; trial++) {
		struct hb_bench_latencies sample = {0};
		int64_t *ns = malloc(400 * sizeof *ns);
		assert_non_null(ns);
		for (int i = 0; i < 400; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			ns[i] = (int64_t)(x % 1000000);
		}
		hb_bench_latencies_take(&sample, ns, 400, 400);
		struct hb_bench_estimate p90 = hb_bench_quantile(sample.ns, 400, 0.9);
		covered += p90.low <= 900 && p90.high >= 900;
		free(sample.ns);
	}
	assert_in_range(covered, 370, 396);
}

static struct hb_bench_outcome *outcome_make(struct hb_bench_result *result)
{
	struct hb_bench_plan plan;
	struct hb_error error;
	static const struct hb_bench_case of = {"pairs", "c", "launch@60/s", "endless", false};
	assert_int_equal(hb_bench_plan_make(&of, true, &plan, &error), 0);
	struct hb_bench_outcome *outcome = hb_bench_result_add(result, &plan);
	assert_non_null(outcome);
	return outcome;
}

/* `n` latencies of a round: 1, 2, ... us, each `by` us longer; and a speed. */
static void round_fill(struct hb_bench_outcome *outcome, const char *sharing, enum hb_bench_class class, unsigned round,
		       int n, int by, double per_s)
{
	struct hb_bench_cell *cell = hb_bench_outcome_cell(outcome, sharing, class);
	int64_t *ns = malloc((size_t)n * sizeof *ns);
	assert_non_null(cell);
	assert_non_null(ns);
	for (int i = 0; i < n; i++)
		ns[i] = (n - i + by) * 1000;
	hb_bench_latencies_take(&cell->high[0][round], ns, (size_t)n, (uint64_t)n);
	cell->low_per_s[0][round] = per_s;
}

static struct hb_bench_result *result_make(void)
{
	struct hb_bench_result *result = calloc(1, sizeof *result);
	assert_non_null(result);
	result->rounds = 4;
	result->seconds = 2;
	strcpy(result->suite, "pairs");
	strcpy(result->gpu, "a <GPU>");
	struct hb_bench_outcome *outcome = outcome_make(result);
	for (unsigned round = 0; round < 4; round++) {
		round_fill(outcome, "exclusive", HB_BENCH_REFERENCE, round, 100, 0, 100 + round);
		round_fill(outcome, "timeslice", HB_BENCH_TEMPORAL, round, 100, 74, 90);
		round_fill(outcome, "mps", HB_BENCH_SPATIAL, round, 100, 89, 95);
		round_fill(outcome, "mps_60", HB_BENCH_SPATIAL, round, 100, 0, 99);
		round_fill(outcome, "temporal", HB_BENCH_ENGINE, round, 100, 1, 60.9);
	}
	/* What it had is gone, and the others stay in their places. */
	hb_bench_outcome_drop(outcome, "mps_60", "spin (low, mps, 60%) hangs <here>");
	snprintf(outcome->unfinished, sizeof outcome->unfinished, "not finished within 9 s");
	return result;
}

static void result_free(struct hb_bench_result *result)
{
	hb_bench_result_fini(result);
	free(result);
}

static void test_summary(void **state)
{
	struct hb_bench_result *result = result_make();
	struct hb_bench_summary *summary = malloc(sizeof *summary);
	assert_non_null(summary);
	assert_int_equal(hb_bench_summary_init(summary, &result->cases[0], result->rounds), 0);
	assert_int_equal(summary->slo_ns[0], 99000);
	assert_true(summary->cells[0].high[0].attainment.value == 0.99);
	assert_true(summary->cells[1].high[0].attainment.value == 0.25);
	/* All rounds alike: no doubt about it. */
	assert_true(summary->cells[1].high[0].attainment.low == 0.25);
	assert_true(fabs(summary->cells[3].mean_relative.value - 60.9 / 101.5) < 1e-12);
	/* The speed alone differs between rounds, so this one is in doubt. */
	assert_true(summary->cells[3].mean_relative.low < summary->cells[3].mean_relative.value);
	struct hb_bench_headline line;
	hb_bench_headline_of(&result->cases[0], summary, &line);
	assert_int_equal(line.ours, 3);
	assert_true(fabs(line.against_spatial - 0.98 / 0.10) < 1e-9);
	assert_true(fabs(line.against_temporal - 0.98 / 0.25) < 1e-9);
	assert_true(fabs(line.drop - 0.01) < 1e-9);
	assert_true(fabs(line.low_against_temporal - 60.9 / 90) < 1e-9);
	hb_bench_summary_fini(summary);
	free(summary);
	result_free(result);
}

/* Means over cases; who was not measured in all of them is nobody's baseline and is not compared. */
static void test_all_cases_together(void **state)
{
	struct hb_bench_result *result = result_make();
	struct hb_bench_outcome *second = outcome_make(result);
	struct hb_bench_overall overall;
	for (unsigned round = 0; round < 4; round++) {
		round_fill(second, "exclusive", HB_BENCH_REFERENCE, round, 100, 0, 100);
		round_fill(second, "timeslice", HB_BENCH_TEMPORAL, round, 100, 49, 50);
		round_fill(second, "reef", HB_BENCH_TEMPORAL, round, 100, 0, 40);
		round_fill(second, "mps", HB_BENCH_SPATIAL, round, 100, 9, 90);
		round_fill(second, "temporal", HB_BENCH_ENGINE, round, 100, 1, 80);
		round_fill(second, "spatial", HB_BENCH_ENGINE, round, 100, 0, 99);
	}
	assert_int_equal(hb_bench_overall_init(&overall, result), 0);
	assert_int_equal(overall.cases, 2);
	assert_string_equal(overall.rows[overall.temporal].sharing, "timeslice");
	assert_string_equal(overall.rows[overall.spatial].sharing, "mps");
	const struct hb_bench_overall_row *ours = &overall.rows[3], *partly = &overall.rows[overall.n - 1];
	assert_string_equal(ours->sharing, "temporal");
	assert_true(fabs(ours->attainment - 0.98) < 1e-9 && fabs(ours->drop - 0.01) < 1e-9);
	assert_true(fabs(ours->against_temporal - 0.98 / ((0.25 + 0.5) / 2)) < 1e-9);
	assert_true(fabs(ours->against_spatial - 0.98 / ((0.1 + 0.9) / 2)) < 1e-9);
	assert_true(fabs(ours->low_against_temporal - (60.9 / 101.5 + 0.8) / (90 / 101.5 + 0.5)) < 1e-9);
	assert_string_equal(partly->sharing, "spatial");
	assert_true(partly->cases == 1 && isnan(partly->drop) && isnan(partly->against_temporal));
	result_free(result);
}

static void test_two_rounds_make_no_interval(void **state)
{
	struct hb_bench_result *result = result_make();
	struct hb_bench_summary *summary = malloc(sizeof *summary);
	assert_non_null(summary);
	assert_int_equal(hb_bench_summary_init(summary, &result->cases[0], 2), 0);
	assert_true(isnan(summary->cells[3].mean_relative.low));
	hb_bench_summary_fini(summary);
	free(summary);
	result_free(result);
}

/* Rounds for which there was no time count for nothing. */
static void test_fewer_rounds(void **state)
{
	struct hb_bench_result *result = result_make();
	struct hb_bench_summary *summary = malloc(sizeof *summary);
	assert_non_null(summary);
	result->cases[0].rounds = 3;
	assert_int_equal(hb_bench_summary_init(summary, &result->cases[0], result->rounds), 0);
	assert_int_equal(summary->cells[3].high[0].seen, 300);
	assert_true(summary->cells[0].low[0].per_s == 101);
	hb_bench_summary_fini(summary);
	free(summary);
	result_free(result);
}

/* --- files ------------------------------------------------------------------------------------------------- */

typedef int write_fn(FILE *out, const struct hb_bench_result *result, struct hb_error *error);

static char *text_of(write_fn *write, const struct hb_bench_result *result)
{
	char *text = NULL;
	size_t size;
	struct hb_error error = {""};
	FILE *out = open_memstream(&text, &size);
	assert_non_null(out);
	assert_int_equal(write(out, result, &error), 0);
	fclose(out);
	return text;
}

/* Everything that is shown comes back from the file. */
static void test_a_file_shows_the_same(void **state)
{
	static write_fn *const writers[] = {hb_bench_table_write, hb_bench_page_write, hb_bench_json_write};
	struct hb_bench_result *first = result_make(), *again = calloc(1, sizeof *again);
	struct hb_error error = {""};
	assert_non_null(again);
	first->cases[0].rounds = 3;
	char *json = text_of(hb_bench_json_write, first), *path = test_gzip("a.json.gz", json, SIZE_MAX);
	if (hb_bench_json_load(path, again, &error))
		fail_msg("%s", error.text);
	for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
		char *a = text_of(writers[i], first), *b = text_of(writers[i], again);
		assert_string_equal(a, b);
		assert_true(strlen(a) > 500);
		free(a);
		free(b);
	}
	free(path);
	free(json);
	result_free(first);
	result_free(again);
}

static void test_page_escapes(void **state)
{
	struct hb_bench_result *result = result_make();
	char *page = text_of(hb_bench_page_write, result);
	assert_non_null(strstr(page, "a &lt;GPU&gt;"));
	assert_null(strstr(page, "<GPU>"));
	free(page);
	result_free(result);
}

static void test_bad_files_are_refused(void **state)
{
	struct hb_bench_result *first = result_make(), *again = calloc(1, sizeof *again);
	static const char *const changes[][2] = {
		{"\"version\": 1", "\"version\": 2"},
		{"\"rounds\": 4", "\"rounds\": 5"},
		{"\"rounds\": 4", "\"rounds\": 0"},
		{"\"class\": \"spatial\"", "\"class\": \"odd\""},
		{"\"latency_ns\": \"1000 2000", "\"latency_ns\": \"1000 x000"},
		{"\"suite\"", "\"sweet\""},
	};
	struct hb_error error;
	char *json = text_of(hb_bench_json_write, first);
	assert_non_null(again);
	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
		char *copy = strdup(json), *at = strstr(copy, changes[i][0]);
		assert_non_null(at);
		memcpy(at, changes[i][1], strlen(changes[i][1]));
		char *path = test_text("bad.json", copy);
		assert_int_equal(hb_bench_json_load(path, again, &error), -EINVAL);
		assert_non_null(strstr(error.text, path));
		free(path);
		free(copy);
	}
	assert_int_equal(hb_bench_json_load("/nonexistent/file", again, &error), -ENOENT);
	free(json);
	free(again);
	result_free(first);
}

/* --- processes ----------------------------------------------------------------------------------------------- */

static struct hb_bench_process start(const char *script)
{
	struct hb_bench_command command = {.end_signal = SIGKILL};
	struct hb_bench_process process;
	struct hb_error error = {""};
	assert_true(hb_bench_command_split(&command, "sh -c"));
	assert_true(hb_bench_command_add(&command, script));
	char *folder = test_path(".");
	if (hb_bench_process_start(&process, "the program", &command, folder, &error))
		fail_msg("%s", error.text);
	free(folder);
	hb_bench_command_fini(&command);
	return process;
}

static void expect_failure(const char *script, int64_t limit_ns, int code, const char *text)
{
	struct hb_bench_process process = start(script);
	struct hb_error error = {""};
	json_t *answer = NULL;
	assert_int_equal(hb_bench_process_hear(&process, "ready", limit_ns, &answer, &error), code);
	if (!strstr(error.text, text) || !strstr(error.text, "the program"))
		fail_msg("'%s' is not in '%s'", text, error.text);
	hb_bench_process_kill(&process);
}

static void test_a_program_that_dies_is_named(void **state)
{
	int64_t long_ns = 60 * HB_NS_PER_S;
	expect_failure("echo first >&2; echo out of memory >&2; exit 3", long_ns, -EPIPE,
		       "ended with status 3; its last lines: first|out of memory");
	expect_failure("kill -SEGV $$", long_ns, -EPIPE, "was ended by signal 11");
	expect_failure("exec no-such-program", long_ns, -EPIPE, "ended with status 127");
	expect_failure("echo '{\"event\": \"served\"}'; read line", long_ns, -EPROTO, "something unexpected");
	expect_failure("echo stuck >&2; read line", 300 * HB_NS_PER_MS, -ETIMEDOUT, "hangs: no answer 'ready'");
}

static void test_talk(void **state)
{
	struct hb_bench_process process = start(
		"echo noise; echo '{\"event\": \"ready\", \"gpu\": \"x\"}'; read a; echo \"{\\\"event\\\": \\\"$a\\\"}\"; read b");
	struct hb_error error = {""};
	json_t *answer = NULL;
	assert_int_equal(hb_bench_process_hear(&process, "ready", 60 * HB_NS_PER_S, &answer, &error), 0);
	assert_string_equal(json_string_value(json_object_get(answer, "gpu")), "x");
	json_decref(answer);
	assert_int_equal(hb_bench_process_tell(&process, &error, "echo%d", 1), 0);
	assert_int_equal(hb_bench_process_hear(&process, "echo1", 60 * HB_NS_PER_S, &answer, &error), 0);
	json_decref(answer);
	assert_int_equal(hb_bench_process_check(&process, &error), 0);
	hb_bench_process_stop(&process, 0, 60 * HB_NS_PER_S);
	assert_int_equal(process.pid, 0);
}

/* No wait lasts longer, whatever its own limit; what was said already is heard. */
static void test_the_time_ends_every_wait(void **state)
{
	struct hb_bench_process process = start("echo '{\"event\": \"ready\"}'; while :; do sleep 1; done");
	struct hb_error error = {""};
	json_t *answer = NULL;
	assert_int_equal(hb_bench_process_hear(&process, "ready", 60 * HB_NS_PER_S, &answer, &error), 0);
	json_decref(answer);
	hb_bench_time_set(hb_clock_now_ns() + 50 * HB_NS_PER_MS);
	assert_int_equal(hb_bench_process_hear(&process, "more", 3600 * HB_NS_PER_S, &answer, &error), -ETIME);
	assert_int_equal(hb_bench_stopped(&error), -ETIME);
	assert_false(hb_bench_sleep_until(hb_clock_now_ns() + 3600 * HB_NS_PER_S));
	assert_int_equal(hb_bench_time_left(HB_NS_PER_S), 0);
	pid_t pid = process.pid;
	hb_bench_process_stop(&process, SIGTERM, 3600 * HB_NS_PER_S);
	assert_int_equal(kill(pid, 0), -1);
	hb_bench_time_set(0);
	assert_int_equal(hb_bench_time_left(HB_NS_PER_S), HB_NS_PER_S);
	assert_int_equal(hb_bench_stopped(&error), 0);
}

/* Neither "quit" nor the end of its input ends it: it is killed. */
static void test_a_program_that_does_not_stop_is_killed(void **state)
{
	struct hb_bench_process process = start(
		"trap '' TERM; echo '{\"event\": \"ready\"}'; while :; do sleep 1; done");
	struct hb_error error = {""};
	json_t *answer = NULL;
	assert_int_equal(hb_bench_process_hear(&process, "ready", 60 * HB_NS_PER_S, &answer, &error), 0);
	json_decref(answer);
	pid_t pid = process.pid;
	hb_bench_process_stop(&process, 0, 100 * HB_NS_PER_MS);
	assert_int_equal(kill(pid, 0), -1);
}

static void test_command_run(void **state)
{
	struct hb_bench_command command = {.end_signal = SIGKILL};
	struct hb_error error = {""};
	assert_true(hb_bench_command_split(&command, "sh -c"));
	assert_true(hb_bench_command_add(&command, "read line; test \"$line\" = \"$WORD\""));
	assert_true(hb_bench_command_set(&command, "WORD", "quit"));
	char *folder = test_path(".");
	assert_int_equal(hb_bench_command_run(&command, "c", "quit\n", folder, 60 * HB_NS_PER_S, &error), 0);
	assert_int_equal(hb_bench_command_run(&command, "c", "other\n", folder, 60 * HB_NS_PER_S, &error), -EPIPE);
	free(folder);
	hb_bench_command_fini(&command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_case_makes_a_plan),
		cmocka_unit_test(test_every_sharing_of_a_suite_is_known),
		cmocka_unit_test(test_wrong_rows_are_refused),
		cmocka_unit_test(test_stand_ins_are_named),
		cmocka_unit_test(test_quantile_is_an_order_statistic),
		cmocka_unit_test(test_quantile_interval_covers),
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_two_rounds_make_no_interval),
		cmocka_unit_test(test_fewer_rounds),
		cmocka_unit_test(test_all_cases_together),
		cmocka_unit_test(test_processors_are_divided_by_cores),
		cmocka_unit_test(test_time_is_divided_by_cost),
		cmocka_unit_test(test_every_case_has_a_cost),
		cmocka_unit_test(test_what_is_kept_when_the_time_is_over),
		cmocka_unit_test(test_a_file_shows_the_same),
		cmocka_unit_test(test_page_escapes),
		cmocka_unit_test(test_bad_files_are_refused),
		cmocka_unit_test(test_a_program_that_dies_is_named),
		cmocka_unit_test(test_talk),
		cmocka_unit_test(test_the_time_ends_every_wait),
		cmocka_unit_test(test_a_program_that_does_not_stop_is_killed),
		cmocka_unit_test(test_command_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
