/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb trace`: prints facts about recorded traces (`info`) and makes traces from the recordings of profilers (`import`);
 * `record` is in cmd_trace_record.c. This file reads the options; src/trace reads, measures and writes traces.
 */
#include "base/out_file.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/trace_info_output.h"
#include "cli/trace_record.h"
#include "trace/gzip_stream.h"
#include "trace/trace_import.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "trace"

static const char help[] =
	"usage: hb trace info [--json] [--gpu NAME] FILE...\n"
	"       hb trace import [--from kineto|nsys|auto] IN -o OUT.csv[.gz] --name NAME [OPTION...]\n"
	"       hb trace record FILE [--seconds N] [--gpu sim]\n"
	"\n"
	"info prints facts about recorded traces: iterations, times, launch shapes, and how\n"
	"much of the GPU the kernels fill.\n"
	"  --json             print one JSON object\n"
	"  --gpu NAME         the GPU to fill: a file of data/gpus, or a path (default h200)\n"
	"\n"
	"import makes a trace for hb sim from a recording of your program.\n"
	"  --from FORMAT      kineto: PyTorch profiler's Chrome trace (.json, .json.gz)\n"
	"                     nsys: Nsight Systems, exported with nsys export --type sqlite\n"
	"                     auto: decide by the file's content (default)\n"
	"  -o, --output FILE  the trace; a name that ends in .gz is compressed\n"
	"  --name NAME        name of the workload for --high and --low\n"
	"  --device N         number of the GPU in the recording (default: the GPU with the\n"
	"                     most work)\n"
	"  --alone TIME       time of an iteration alone, measured without a profiler, such as\n"
	"                     2.4ms (default: estimated, if the recording has the launches)\n"
	"where an iteration begins (default: the profiler's steps; without steps everything\n"
	"is one iteration):\n"
	"  --range NAME       at each NVTX range or record_function of that name\n"
	"  --split-gap TIME   after the GPU had no work for this time\n"
	"  --iterations N     split into N iterations: of equal work, else at the longest gaps\n"
	"\n"
	"record writes the decisions of a running daemon, and their reasons, as a timeline for\n"
	"ui.perfetto.dev. hb sim --replay FILE runs the same decisions again.\n"
	"  --seconds N        record for N seconds, or until Ctrl-C (default 10)\n"
	"  --gpu sim          record the daemon for simulated GPUs\n"
	"\n"
	"example:\n"
	"  hb trace import trace.json.gz -o bert.csv.gz --name bert_b1\n"
	"  hb sim --trace bert.csv.gz --high bert_b1@100/s\n";

enum {
	OPTION_ALONE = 256,
	OPTION_DEVICE,
	OPTION_FROM,
	OPTION_GPU,
	OPTION_ITERATIONS,
	OPTION_JSON,
	OPTION_NAME,
	OPTION_RANGE,
	OPTION_SPLIT_GAP,
};

static int report_error(int code, const struct hb_error *error)
{
	return code ? hb_cli_error(COMMAND, code, error->text) : HB_EXIT_OK;
}

static int print_info(const struct hb_trace_set *set, const char *gpu_name, char *const *paths, int n_paths, bool json)
{
	struct hb_error error = {0};
	struct hb_gpu_spec gpu;
	int code = hb_gpu_spec_load(gpu_name, &gpu, &error);
	if (code)
		return report_error(code, &error);
	struct hb_workload_info *info = hb_trace_info_new(set, &gpu);
	if (!info)
		code = hb_error_set(&error, -ENOMEM, "%s: out of memory", paths[0]);
	else if (json)
		code = hb_trace_info_json(stdout, set, info, gpu.name, paths, n_paths, &error);
	else
		hb_trace_info_table(stdout, set, info, gpu.name);
	free(info);
	return report_error(code, &error);
}

static int run_info(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, OPTION_JSON},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	const char *gpu = "h200";
	bool json = false;
	for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		switch (option) {
		case OPTION_JSON:
			json = true;
			break;
		case OPTION_GPU:
			gpu = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return HB_EXIT_OK;
		default:
			return hb_cli_option_refused(COMMAND, options, argc, argv, option);
		}
	}
	if (optind == argc)
		return hb_cli_usage_error(COMMAND, "info: no file is given");
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	int code = 0;
	for (int i = optind; i < argc && !code; i++)
		code = hb_trace_read_csv(argv[i], &set, &error);
	int status = code ? report_error(code, &error) : print_info(&set, gpu, argv + optind, argc - optind, json);
	hb_trace_set_fini(&set);
	return status;
}

struct import_command {
	struct hb_import_options options;
	const char *in, *out;
	bool help;
};

static bool parse_format(const char *text, enum hb_import_format *format)
{
	static const char *const names[] = {
		[HB_IMPORT_AUTO] = "auto",
		[HB_IMPORT_KINETO] = "kineto",
		[HB_IMPORT_NSYS] = "nsys",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(names[i], text) != 0)
			continue;
		*format = (enum hb_import_format)i;
		return true;
	}
	return false;
}

static int parse_count(const char *option, const char *text, int64_t least, int64_t *count)
{
	char *end = NULL;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	if (end == text || *end || errno || value < least || value > INT_MAX)
		return hb_cli_usage_error(COMMAND, "import: --%s '%s' is not a whole number from %" PRId64, option,
					  text, least);
	*count = value;
	return HB_EXIT_OK;
}

static int parse_time(const char *option, const char *text, int64_t *ns)
{
	struct hb_error error = {0};
	if (hb_duration_parse(text, ns, &error))
		return hb_cli_usage_error(COMMAND, "import: --%s: %s", option, error.text);
	if (*ns <= 0 || *ns > HB_TRACE_TIME_MAX_NS)
		return hb_cli_usage_error(COMMAND, "import: --%s '%s' is not above 0 and at most a day", option, text);
	return HB_EXIT_OK;
}

static int set_option(struct import_command *command, int option)
{
	int64_t count = 0;
	int status = HB_EXIT_OK;
	switch (option) {
	case OPTION_FROM:
		if (parse_format(optarg, &command->options.format))
			return HB_EXIT_OK;
		return hb_cli_usage_error(COMMAND, "import: --from '%s' is not kineto, nsys or auto", optarg);
	case 'o':
		command->out = optarg;
		return HB_EXIT_OK;
	case OPTION_NAME:
		command->options.name = optarg;
		return HB_EXIT_OK;
	case OPTION_RANGE:
		command->options.range = optarg;
		return HB_EXIT_OK;
	case OPTION_ALONE:
		return parse_time("alone", optarg, &command->options.alone_ns);
	case OPTION_SPLIT_GAP:
		return parse_time("split-gap", optarg, &command->options.split_gap_ns);
	case OPTION_DEVICE:
		status = parse_count("device", optarg, 0, &count);
		command->options.device = (int)count;
		return status;
	case OPTION_ITERATIONS:
		status = parse_count("iterations", optarg, 1, &count);
		command->options.iterations = (uint32_t)count;
		return status;
	default: /* 'h' */
		command->help = true;
		return HB_EXIT_OK;
	}
}

/* Returns a message about what is missing, or NULL. */
static const char *find_missing_option(const struct import_command *command, int n_inputs)
{
	if (n_inputs != 1)
		return "give one recording";
	if (!command->out)
		return "give the file to write with -o";
	return command->options.name ? NULL : "give the workload a name with --name";
}

/* Returns true when the import can start; else *status is the exit code, after a message or the help text. */
static bool parse_import(struct import_command *command, int argc, char **argv, int *status)
{
	static const struct option options[] = {
		{"from", required_argument, NULL, OPTION_FROM},
		{"output", required_argument, NULL, 'o'},
		{"name", required_argument, NULL, OPTION_NAME},
		{"range", required_argument, NULL, OPTION_RANGE},
		{"split-gap", required_argument, NULL, OPTION_SPLIT_GAP},
		{"iterations", required_argument, NULL, OPTION_ITERATIONS},
		{"device", required_argument, NULL, OPTION_DEVICE},
		{"alone", required_argument, NULL, OPTION_ALONE},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	*command = (struct import_command){.options = {.device = -1}};
	for (int option; (option = getopt_long(argc, argv, ":o:h", options, NULL)) != -1;) {
		*status = option == '?' || option == ':' ? hb_cli_option_refused(COMMAND, options, argc, argv, option)
							 : set_option(command, option);
		if (command->help)
			fputs(help, stdout);
		if (*status != HB_EXIT_OK || command->help)
			return false;
	}
	const char *missing = find_missing_option(command, argc - optind);
	if (missing) {
		*status = hb_cli_usage_error(COMMAND, "import: %s", missing);
		return false;
	}
	command->in = argv[optind];
	return true;
}

static int write_trace(FILE *out, const struct hb_trace_set *set, bool compress)
{
	FILE *stream = compress ? hb_gzip_stream_new(fileno(out)) : out;
	int code = stream ? hb_trace_write_csv(stream, set) : -ENOMEM;
	if (compress && stream && fclose(stream) && !code)
		code = -EIO;
	return code;
}

/*
 * Writes the trace and, when its time alone is known, a second file with that time. When the time is unknown, removes such
 * a file of an earlier trace at `path`, because hb sim would use it for this trace.
 */
static int write_files(const struct hb_trace_set *set, const char *path, const char *alone_path, struct hb_error *error)
{
	struct hb_out_file trace = {0}, alone = {0};
	size_t length = strlen(path);
	bool compress = length > 3 && strcmp(path + length - 3, ".gz") == 0;
	bool known = set->workloads[0].alone_ns > 0;
	int code = hb_out_file_open(&trace, path, error);
	if (!code)
		code = hb_out_file_open(&alone, known ? alone_path : NULL, error);
	if (!code && trace.stream && write_trace(trace.stream, set, compress))
		code = hb_error_set(error, -EIO, "%s: cannot write: %s", path, strerror(errno));
	if (!code && alone.stream && hb_trace_write_alone_csv(alone.stream, set))
		code = hb_error_set(error, -EIO, "%s: cannot write: %s", alone_path, strerror(errno));
	if (!code)
		code = hb_out_file_commit(&trace, error);
	if (!code)
		code = hb_out_file_commit(&alone, error);
	if (!code && !known && unlink(alone_path) && errno != ENOENT)
		code = hb_error_set(error, -errno, "%s: cannot remove: %s", alone_path, strerror(errno));
	hb_out_file_fini(&trace);
	hb_out_file_fini(&alone);
	return code;
}

static int write_import(const struct hb_trace_set *set, const char *path, struct hb_error *error)
{
	char *alone_path = hb_trace_alone_path(path);
	int code = alone_path ? write_files(set, path, alone_path, error)
			      : hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	free(alone_path);
	return code;
}

static void print_report(const struct import_command *command, const struct hb_import_report *report, int64_t alone_ns)
{
	char time[HB_UNITS_TEXT_MAX];
	printf("%s: %s, %u ops in %u iteration%s (%s)\n", command->out, command->options.name, report->ops,
	       report->iterations, report->iterations == 1 ? "" : "s", report->split);
	if (alone_ns)
		printf("alone: %s (%s)\n", hb_duration_format(alone_ns, time),
		       report->alone_estimated ? "estimated" : "as given");
	else
		printf("alone: not known; hb sim estimates it from the recorded gaps; --alone sets it\n");
	if (report->outside)
		printf("left out: %u ops outside every iteration\n", report->outside);
	if (report->elsewhere)
		printf("left out: %u ops of other GPUs or processes\n", report->elsewhere);
	if (report->closed_graphs)
		printf("missing: the kernels of %u graph launches; record with --cuda-graph-trace=node\n",
		       report->closed_graphs);
}

static int run_import(int argc, char **argv)
{
	struct import_command command;
	struct hb_import_report report = {0};
	struct hb_trace_set set = {0};
	struct hb_error error = {0};
	int status = HB_EXIT_OK;
	if (!parse_import(&command, argc, argv, &status))
		return status;
	int code = hb_trace_import(command.in, &command.options, &set, &report, &error);
	if (!code)
		code = write_import(&set, command.out, &error);
	if (!code)
		print_report(&command, &report, set.workloads[0].alone_ns);
	hb_trace_set_fini(&set);
	return report_error(code, &error);
}

int hb_cmd_trace(int argc, char **argv)
{
	opterr = 0;
	if (argc > 1 && strcmp(argv[1], "info") == 0)
		return run_info(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "import") == 0)
		return run_import(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "record") == 0)
		return hb_trace_record(argc - 1, argv + 1, help);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(help, stdout);
		return HB_EXIT_OK;
	}
	if (argc > 1)
		return hb_cli_usage_error(COMMAND, "'%s' is not info, import or record", argv[1]);
	return hb_cli_usage_error(COMMAND, "info, import or record is missing");
}
