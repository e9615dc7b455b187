/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb bench`: measures ways to share a GPU and shows what was measured. What is
 * measured is in the tables of src/bench, how in its runners; here is only the
 * order of things. Described in docs/bench.md.
 */
#include "bench/bench_output.h"
#include "bench/bench_process.h"
#include "bench/bench_serve.h"
#include "cli/bench_options.h"
#include "cli/cli.h"
#include "cli/out_file.h"
#include "hb-commit.h"
#include "trace/gzip_stream.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND "bench"

static const char help[] = "usage: hb bench list\n"
			   "       hb bench run SUITE [OPTION...]\n"
			   "       hb bench report FILE [--json] [--report FILE]\n"
			   "\n"
			   "Measures services beside programs of low priority under every way of sharing a\n"
			   "GPU, in one run, in turns. On a real GPU, or on a simulated one where there is\n"
			   "none. Report shows a file again that run wrote (.json, .json.gz).\n"
			   "\n"
			   "  --gpu sim|N      a simulated GPU, or the N-th real one (the first real one)\n"
			   "  --sharing WAY[,WAY...]|all[,-WAY...]\n"
			   "                   what to compare with exclusive; -WAY: all but that (the suite's)\n"
			   "  --case NAME[,NAME...]\n"
			   "                   some cases of the suite (all)\n"
			   "  --rounds N       how often everything is measured (the suite's)\n"
			   "  --seconds S      length of a window (the suite's)\n"
			   "  --limit S        ends within so long, with what was measured by then (none)\n"
			   "  --xsched DIR     where XSched was installed to, for the way to share xsched\n"
			   "  --json           everything as JSON instead of a table, raw values included\n"
			   "  --report FILE    a page of plots, self-contained HTML\n"
			   "  --out DIR        writes DIR/SUITE.json.gz and DIR/SUITE.html\n"
			   "\n"
			   "exit status: 0 done, 1 something failed, 2 bad command line or input\n";

static int list_print(void)
{
	for (const struct hb_bench_suite *suite = hb_bench_suites; suite->name; suite++) {
		printf("%-11s%s\n", suite->name, suite->help);
		for (const struct hb_bench_case *of = hb_bench_cases; of->name; of++)
			if (strcmp(of->suite, suite->name) == 0)
				printf("  %-26s%s%s%s%s\n", of->name, of->high, *of->low ? " beside " : "", of->low,
				       of->kill ? " (killed)" : "");
	}
	printf("\nways to share:\n");
	for (const struct hb_bench_sharing *sharing = hb_bench_sharings; sharing->name; sharing++)
		printf("  %-13s%-11s%s\n", sharing->name, hb_bench_class_name(sharing->class),
		       sharing->high == HB_BENCH_XSCHED ? "processes, with --xsched"
		       : sharing->high == HB_BENCH_NONE ? "recorded programs"
		       : *sharing->virtual_mode == '\0' ? "processes"
							: "recorded programs, processes");
	return HB_EXIT_OK;
}

static void command_text(int argc, char **argv, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "hb");
	for (int i = 0; i < argc && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, " %s", argv[i]);
}

/* --- files --------------------------------------------------------------------------------------------- */

typedef int write_fn(FILE *out, const struct hb_bench_result *result, struct hb_error *error);

/* Opened before anything is measured, written when all is; those in the folder also after each case. */
struct outputs {
	struct hb_out_file report, json, page;
	char json_path[PATH_MAX], page_path[PATH_MAX];
};

static int folder_open(struct outputs *outputs, struct hb_error *error)
{
	int code = hb_out_file_open(&outputs->json, outputs->json_path, error);
	return code ? code : hb_out_file_open(&outputs->page, outputs->page_path, error);
}

static int outputs_open(struct outputs *outputs, const struct hb_bench_command_line *line, struct hb_error *error)
{
	int code = hb_out_file_open(&outputs->report, line->report_path, error);
	if (code || !line->out_folder)
		return code;
	if (mkdir(line->out_folder, 0755) < 0 && errno != EEXIST)
		return hb_error_set(error, -errno, "%s: %s", line->out_folder, strerror(errno));
	snprintf(outputs->json_path, PATH_MAX, "%.4000s/%s.json.gz", line->out_folder, line->run.suite->name);
	snprintf(outputs->page_path, PATH_MAX, "%.4000s/%s.html", line->out_folder, line->run.suite->name);
	return folder_open(outputs, error);
}

static int output_fill(struct hb_out_file *file, write_fn *write, const struct hb_bench_result *result,
		       struct hb_error *error)
{
	int code = file->stream ? hb_out_file_wrote(file, write(file->stream, result, error), error) : 0;
	return code ? code : hb_out_file_commit(file, error);
}

static int json_gz_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error)
{
	FILE *stream = hb_gzip_stream_new(fileno(out));
	if (!stream)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int code = hb_bench_json_write(stream, result, error);
	if (fclose(stream) != 0 && !code)
		code = hb_error_set(error, -EIO, "cannot write the compressed results: %s", strerror(errno));
	return code;
}

static int folder_fill(struct outputs *outputs, const struct hb_bench_result *result, struct hb_error *error)
{
	int code = output_fill(&outputs->json, json_gz_write, result, error);
	return code ? code : output_fill(&outputs->page, hb_bench_page_write, result, error);
}

static int outputs_fill(struct outputs *outputs, const struct hb_bench_result *result, struct hb_error *error)
{
	int code = folder_fill(outputs, result, error);
	return code ? code : output_fill(&outputs->report, hb_bench_page_write, result, error);
}

static void outputs_fini(struct outputs *outputs)
{
	hb_out_file_fini(&outputs->report);
	hb_out_file_fini(&outputs->json);
	hb_out_file_fini(&outputs->page);
}

static int result_show(const struct hb_bench_command_line *line, struct outputs *outputs,
		       const struct hb_bench_result *result, struct hb_error *error)
{
	int code = outputs_fill(outputs, result, error);
	if (code)
		return code;
	return line->json ? hb_bench_json_write(stdout, result, error) : hb_bench_table_write(stdout, result, error);
}

static bool any_failed(const struct hb_bench_result *result)
{
	for (unsigned i = 0; i < result->n_cases; i++)
		if (*result->cases[i].failed || result->cases[i].n_dropped)
			return true;
	return false;
}

/* --- run and report ---------------------------------------------------------------------------------------- */

/* How it was called, and where results go. */
struct call {
	const struct hb_bench_command_line *line;
	int argc;
	char **argv;
	struct outputs *outputs;
};

static void call_note(const struct call *call, struct hb_bench_result *result)
{
	command_text(call->argc, call->argv, result->command, sizeof result->command);
	snprintf(result->version, sizeof result->version, "%s", HB_COMMIT);
}

/* The folder's files as they are so far, in their places whatever comes. */
static int keep(void *context, struct hb_bench_result *result, struct hb_error *error)
{
	const struct call *call = context;
	if (!call->line->out_folder)
		return 0;
	call_note(call, result);
	int code = folder_fill(call->outputs, result, error);
	return code ? code : folder_open(call->outputs, error);
}

static int fill(struct hb_bench_command_line *line, struct call *call, struct hb_bench_result *result,
		struct hb_error *error)
{
	if (line->verb == HB_BENCH_VERB_REPORT)
		return hb_bench_json_load(line->file, result, error);
	line->run.progress = isatty(STDERR_FILENO) == 1;
	line->run.keep = keep;
	line->run.context = call;
	int code = hb_bench_run(&line->run, result, error);
	if (code == 0)
		call_note(call, result);
	return code;
}

static int results_do(struct hb_bench_command_line *line, int argc, char **argv)
{
	struct hb_error error = {""};
	struct outputs outputs = {.json_path = ""};
	struct hb_bench_result *result = calloc(1, sizeof *result);
	if (!result)
		return hb_cli_error(COMMAND, -ENOMEM, "out of memory");
	int code = outputs_open(&outputs, line, &error);
	struct call call = {.line = line, .argc = argc, .argv = argv, .outputs = &outputs};
	code = code ? code : fill(line, &call, result, &error);
	code = code ? code : result_show(line, &outputs, result, &error);
	if (code == 0 && hb_bench_interrupted())
		code = hb_error_set(&error, -EINTR, "interrupted; what had been measured before is kept");
	int status = code ? hb_cli_error(COMMAND, code, error.text) : any_failed(result) ? HB_EXIT_FAILURE : HB_EXIT_OK;
	outputs_fini(&outputs);
	hb_bench_result_fini(result);
	free(result);
	return status;
}

static int serve_do(const struct hb_bench_command_line *line)
{
	struct hb_error error = {""};
	if (line->json || line->report_path || line->run.xsched || line->run.rounds != line->run.suite->rounds)
		return hb_cli_usage_error(COMMAND, "serve takes --gpu, --seconds, --limit and --out");
	if (line->run.simulated && line->run.deadline_ns)
		return hb_cli_usage_error(
			COMMAND, "--limit: serve in virtual time is always whole; fewer --seconds make it shorter");
	if (line->out_folder && mkdir(line->out_folder, 0755) < 0 && errno != EEXIST)
		return hb_cli_error(COMMAND, -errno, line->out_folder);
	int code = hb_bench_serve_become(&line->run, line->out_folder, &error);
	return hb_cli_error(COMMAND, code, error.text);
}

int hb_cmd_bench(int argc, char **argv)
{
	struct hb_bench_command_line line;
	char *words[64] = {NULL};
	/* As typed: reading options changes their order. */
	for (int i = 0; i < argc && i < 63; i++)
		words[i] = argv[i];
	int code = hb_bench_command_line_parse(&line, argc, argv);
	if (code == HB_EXIT_OK && line.verb == HB_BENCH_VERB_HELP)
		fputs(help, stdout);
	else if (code == HB_EXIT_OK && line.verb == HB_BENCH_VERB_LIST)
		code = list_print();
	else if (code == HB_EXIT_OK && line.verb == HB_BENCH_VERB_RUN && hb_bench_is_serve(line.run.suite))
		code = serve_do(&line);
	else if (code == HB_EXIT_OK)
		code = results_do(&line, argc < 63 ? argc : 63, words);
	hb_bench_command_line_fini(&line);
	return code;
}
