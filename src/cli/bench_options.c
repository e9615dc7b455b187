/* SPDX-License-Identifier: Apache-2.0 */
/* What may follow `hb bench`, and messages about what may not; see bench_options.h. Measures nothing. */
#include "cli/bench_options.h"

#include "base/clock.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "trace/parse_number.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "bench"
#define SECONDS_MIN 0.01
#define SECONDS_MAX 600.0
#define LIMIT_MAX 86400.0

#define OPTIONS(X) \
	X(CASE, "case", required_argument) \
	X(GPU, "gpu", required_argument) \
	X(HELP, "help", no_argument) \
	X(JSON, "json", no_argument) \
	X(LIMIT, "limit", required_argument) \
	X(OUT, "out", required_argument) \
	X(REPORT, "report", required_argument) \
	X(ROUNDS, "rounds", required_argument) \
	X(SECONDS, "seconds", required_argument) \
	X(SHARING, "sharing", required_argument) \
	X(XSCHED, "xsched", required_argument)

#define IDENTIFIER(id, name, value) OPTION_##id,
#define GETOPT_ROW(id, name, value) {name, value, NULL, OPTION_##id},
enum { OPTION_NONE, OPTIONS(IDENTIFIER) };
static const struct option long_options[] = {OPTIONS(GETOPT_ROW){NULL, 0, NULL, 0}};

/* --- values ---------------------------------------------------------------------------------------- */

static int rounds_take(struct hb_bench_command_line *line, const char *value)
{
	char *end;
	long rounds = strtol(value, &end, 10);
	if (end == value || *end || rounds < 1 || rounds > HB_BENCH_ROUNDS_MAX)
		return hb_cli_usage_error(COMMAND, "--rounds %s: give a number from 1 to %d", value,
					  HB_BENCH_ROUNDS_MAX);
	line->run.rounds = (unsigned)rounds;
	return HB_EXIT_OK;
}

static int seconds_take(struct hb_bench_command_line *line, const char *value)
{
	double seconds;
	if (!hb_number_parse(value, &seconds) || !(seconds >= SECONDS_MIN && seconds <= SECONDS_MAX))
		return hb_cli_usage_error(COMMAND, "--seconds %s: give a number from %g to %g", value, SECONDS_MIN,
					  SECONDS_MAX);
	line->run.seconds = seconds;
	return HB_EXIT_OK;
}

static int limit_take(struct hb_bench_command_line *line, const char *value)
{
	double seconds;
	if (!hb_number_parse(value, &seconds) || !(seconds >= 1 && seconds <= LIMIT_MAX))
		return hb_cli_usage_error(COMMAND, "--limit %s: give seconds from 1 to %g", value, LIMIT_MAX);
	line->run.deadline_ns = hb_clock_now_ns() + (int64_t)(seconds * 1e9);
	return HB_EXIT_OK;
}

static int xsched_take(struct hb_bench_command_line *line, const char *value)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%.4000s/bin/xserver", value);
	if (access(path, X_OK) != 0)
		return hb_cli_usage_error(
			COMMAND, "--xsched %s: there is no bin/xserver; give the folder that XSched was installed to",
			value);
	line->run.xsched = value;
	return HB_EXIT_OK;
}

/* XSched is no part of this project. */
static bool sharing_there(const struct hb_bench_options *run, const struct hb_bench_sharing *sharing)
{
	return sharing->high != HB_BENCH_XSCHED || run->xsched;
}

static int gpu_take(struct hb_bench_command_line *line, const char *value)
{
	if (strcmp(value, "sim") != 0 && (!*value || value[strspn(value, "0123456789")]))
		return hb_cli_usage_error(COMMAND, "--gpu %s: give sim or the number of a GPU", value);
	line->gpu = value;
	return HB_EXIT_OK;
}

static int option_take(struct hb_bench_command_line *line, int option, const char *value)
{
	switch (option) {
	case OPTION_CASE:
		line->run.only = value;
		return HB_EXIT_OK;
	case OPTION_GPU:
		return gpu_take(line, value);
	case OPTION_HELP:
		line->verb = HB_BENCH_VERB_HELP;
		return HB_EXIT_OK;
	case OPTION_JSON:
		line->json = true;
		return HB_EXIT_OK;
	case OPTION_LIMIT:
		return limit_take(line, value);
	case OPTION_OUT:
		line->out_folder = value;
		return HB_EXIT_OK;
	case OPTION_REPORT:
		line->report_path = value;
		return HB_EXIT_OK;
	case OPTION_ROUNDS:
		return rounds_take(line, value);
	case OPTION_XSCHED:
		return xsched_take(line, value);
	case OPTION_SECONDS:
		return seconds_take(line, value);
	default:
		free(line->sharing_list);
		line->sharing_list = strdup(value);
		return HB_EXIT_OK;
	}
}

/* Options may stand before and behind the words; the words end up at argv[optind]. */
static int options_take(struct hb_bench_command_line *line, int argc, char **argv)
{
	int option;
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
		if (option == '?' || option == ':')
			return hb_cli_option_refused(COMMAND, long_options, argc, argv, option);
		int code = option_take(line, option == 'h' ? OPTION_HELP : option, optarg);
		if (code)
			return code;
	}
	return HB_EXIT_OK;
}

/* --- words ------------------------------------------------------------------------------------------- */

static int suite_take(struct hb_bench_command_line *line, const char *name)
{
	const char *names[16];
	size_t n = 0;
	line->run.suite = hb_bench_suite_find(name);
	if (line->run.suite)
		return HB_EXIT_OK;
	for (const struct hb_bench_suite *suite = hb_bench_suites; suite->name && n < 16; suite++)
		names[n++] = suite->name;
	const char *nearest = hb_nearest(name, names, n);
	if (nearest)
		return hb_cli_usage_error(COMMAND, "no suite '%s'; did you mean '%s'?", name, nearest);
	return hb_cli_usage_error(COMMAND, "no suite '%s'; 'hb bench list' shows them", name);
}

static int verb_take(struct hb_bench_command_line *line, int argc, char **argv)
{
	const char *verb = optind < argc ? argv[optind] : NULL;
	const char *word = optind + 1 < argc ? argv[optind + 1] : NULL;
	static const char *const verbs[] = {"list", "run", "report"};
	if (!verb)
		return hb_cli_usage_error(COMMAND, "list, run or report?");
	if (strcmp(verb, "list") == 0) {
		line->verb = HB_BENCH_VERB_LIST;
	} else if (strcmp(verb, "run") == 0 && word) {
		line->verb = HB_BENCH_VERB_RUN;
	} else if (strcmp(verb, "report") == 0 && word) {
		line->verb = HB_BENCH_VERB_REPORT;
		line->file = word;
	} else if (strcmp(verb, "run") == 0 || strcmp(verb, "report") == 0) {
		return hb_cli_usage_error(COMMAND, "%s: %s", verb,
					  *verb == 'r' && verb[1] == 'u' ? "which suite?" : "which file?");
	} else {
		const char *nearest = hb_nearest(verb, verbs, 3);
		return nearest ? hb_cli_usage_error(COMMAND, "no '%s'; did you mean '%s'?", verb, nearest)
			       : hb_cli_usage_error(COMMAND, "no '%s'; there are list, run and report", verb);
	}
	int used = line->verb == HB_BENCH_VERB_LIST ? 1 : 2;
	if (optind + used < argc)
		return hb_cli_usage_error(COMMAND, "'%s': one thing at a time", argv[optind + used]);
	return line->verb == HB_BENCH_VERB_RUN ? suite_take(line, word) : HB_EXIT_OK;
}

/* --- what is run ------------------------------------------------------------------------------------------ */

/* Without --gpu: a real one, if the driver is there. */
static int gpu_resolve(struct hb_bench_command_line *line)
{
	bool none = access("/dev/nvidiactl", F_OK) != 0;
	line->run.simulated = line->gpu ? strcmp(line->gpu, "sim") == 0 : none;
	if (none && !line->run.simulated && access("/dev/dxg", F_OK) != 0)
		return hb_cli_usage_error(
			COMMAND, "--gpu %s: no NVIDIA GPU is here; --gpu sim measures a simulated one", line->gpu);
	if (line->gpu && !line->run.simulated)
		setenv("CUDA_VISIBLE_DEVICES", line->gpu, 1);
	if (line->run.rounds == 0)
		line->run.rounds = line->run.suite->rounds;
	if (!(line->run.seconds > 0))
		line->run.seconds = line->run.simulated ? line->run.suite->simulated_s : line->run.suite->real_s;
	return HB_EXIT_OK;
}

static int case_check_one(const char *suite, const char *only)
{
	const char *names[HB_BENCH_CASES_MAX];
	size_t n = 0;
	for (const struct hb_bench_case *of = hb_bench_cases; of->name; of++) {
		if (strcmp(of->suite, suite) != 0)
			continue;
		if (strcmp(of->name, only) == 0)
			return HB_EXIT_OK;
		if (n < HB_BENCH_CASES_MAX)
			names[n++] = of->name;
	}
	const char *nearest = hb_nearest(only, names, n);
	if (nearest)
		return hb_cli_usage_error(COMMAND, "--case %s: not in %s; did you mean '%s'?", only, suite, nearest);
	return hb_cli_usage_error(COMMAND, "--case %s: not in %s; 'hb bench list' shows them", only, suite);
}

static int case_check(const struct hb_bench_command_line *line)
{
	char *copy = line->run.only ? strdup(line->run.only) : NULL, *rest = copy;
	int code = line->run.only && !copy ? hb_cli_error(COMMAND, -ENOMEM, "out of memory") : HB_EXIT_OK;
	for (char *name; !code && (name = strsep(&rest, ","));)
		code = case_check_one(line->run.suite->name, name);
	free(copy);
	return code;
}

static int sharing_add(struct hb_bench_options *run, const struct hb_bench_sharing *sharing)
{
	for (unsigned i = 0; i < run->n_sharings; i++)
		if (run->sharings[i] == sharing)
			return HB_EXIT_OK;
	run->sharings[run->n_sharings++] = sharing;
	return HB_EXIT_OK;
}

/* In any case that is asked for? */
static bool sharing_possible(const struct hb_bench_options *run, const struct hb_bench_sharing *sharing)
{
	struct hb_bench_plan plan;
	struct hb_error ignored;
	for (const struct hb_bench_case *of = hb_bench_cases; of->name; of++)
		if (strcmp(of->suite, run->suite->name) == 0 && hb_bench_is_listed(run->only, of->name) &&
		    hb_bench_plan_make(of, run->simulated, &plan, &ignored) == 0 && hb_bench_can(&plan, sharing))
			return true;
	return false;
}

/* `chosen`: by the user, not by the suite, so it must be possible. */
static int sharing_take(struct hb_bench_options *run, const char *name, bool chosen)
{
	const char *names[HB_BENCH_SHARINGS_MAX];
	size_t n = 0;
	const struct hb_bench_sharing *found = hb_bench_sharing_find(name);
	if (found && chosen && !sharing_possible(run, found))
		return hb_cli_usage_error(COMMAND, "--sharing %s: not possible in %s on %s GPU", name, run->suite->name,
					  run->simulated ? "a simulated" : "a real");
	if (found && !sharing_there(run, found))
		return hb_cli_usage_error(COMMAND, "--sharing %s: --xsched has to tell where XSched was installed to",
					  name);
	if (found)
		return sharing_add(run, found);
	for (const struct hb_bench_sharing *sharing = hb_bench_sharings; sharing->name; sharing++)
		names[n++] = sharing->name;
	const char *nearest = hb_nearest(name, names, n);
	if (nearest)
		return hb_cli_usage_error(COMMAND, "--sharing %s: not known; did you mean '%s'?", name, nearest);
	return hb_cli_usage_error(COMMAND, "--sharing %s: not known; 'hb bench list' shows them", name);
}

static void sharing_remove(struct hb_bench_options *run, const struct hb_bench_sharing *sharing)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < run->n_sharings; i++)
		if (run->sharings[i] != sharing || sharing->class == HB_BENCH_REFERENCE)
			run->sharings[kept++] = run->sharings[i];
	run->n_sharings = kept;
}

/* "all", "NAME", or "-NAME" after "all". */
static int sharing_word(struct hb_bench_options *run, const char *word, bool chosen)
{
	const struct hb_bench_sharing *less = *word == '-' ? hb_bench_sharing_find(word + 1) : NULL;
	if (strcmp(word, "all") == 0) {
		for (const struct hb_bench_sharing *sharing = hb_bench_sharings; sharing->name; sharing++)
			if (sharing_there(run, sharing))
				sharing_add(run, sharing);
		return HB_EXIT_OK;
	}
	if (!less)
		return sharing_take(run, word, chosen);
	sharing_remove(run, less);
	return HB_EXIT_OK;
}

/* exclusive is always measured: it is what the others are compared to. */
static int sharing_resolve(struct hb_bench_command_line *line)
{
	int code = sharing_add(&line->run, &hb_bench_sharings[0]);
	bool chosen = line->sharing_list;
	if (!chosen)
		line->sharing_list = strdup(line->run.suite->sharing);
	if (!line->sharing_list)
		return hb_cli_error(COMMAND, -ENOMEM, "out of memory");
	char *rest = line->sharing_list;
	for (char *name; (name = strsep(&rest, ",")) && !code;)
		code = sharing_word(&line->run, name, chosen);
	return code;
}

int hb_bench_command_line_parse(struct hb_bench_command_line *line, int argc, char **argv)
{
	*line = (struct hb_bench_command_line){.verb = HB_BENCH_VERB_LIST};
	int code = options_take(line, argc, argv);
	if (code || line->verb == HB_BENCH_VERB_HELP)
		return code;
	code = verb_take(line, argc, argv);
	if (code || line->verb != HB_BENCH_VERB_RUN)
		return code;
	code = gpu_resolve(line);
	code = code ? code : case_check(line);
	return code ? code : sharing_resolve(line);
}

void hb_bench_command_line_fini(struct hb_bench_command_line *line)
{
	free(line->sharing_list);
}
