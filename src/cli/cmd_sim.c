/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb sim`: runs recorded programs on the GPU model under each sharing mode and shows the results. sim_options.c reads
 * the options, src/sim runs a mode, src/report writes the results; this file calls them in order. Runs are independent, so
 * several modes use several processors. The output does not depend on the number of processors.
 */
#include "base/clock.h"
#include "base/out_file.h"
#include "cli/cli.h"
#include "cli/sim_options.h"
#include "cli/trace_record.h"
#include "report/output.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COMMAND "sim"
#define PROGRESS_AFTER_NS INT64_C(2000000000)
#define TABLE_WIDTH 100

static const char help[] =
	"usage: hb sim --high SERVICE[,slo=SLO] ... --low NAME[:graph][,weight=N][,host=N%] ... [OPTION...]\n"
	"       hb sim --replay FILE [--policy NAME] [--actions]\n"
	"\n"
	"Shows what happens to a service and a training job that share a GPU, for each way of\n"
	"sharing. The answer comes from recorded kernel traces and a model of the GPU.\n"
	"\n"
	"programs:\n"
	"  --high NAME[:graph][:tokens=N]@ARRIVALS[;NAME...,from=TIME][,slo=SLO]\n"
	"                   a service; may be repeated. With :graph a request is one CUDA graph,\n"
	"                   with :tokens=N each arrival brings N requests that follow each other.\n"
	"                   After ';' the service changes to other requests at a time\n"
	"      ARRIVALS     60/s (Poisson), 60/s:periodic, 60/s:burst, 60/s:burst=RATIO,SECONDS\n"
	"                   (in bursts: RATIO times the rate of the time between them, SECONDS on\n"
	"                   average), 60/s:trace=PATH (the times of a file, at that rate), closed\n"
	"                   (the next request arrives when the previous one ends), file:PATH\n"
	"                   (times in seconds, one on each line)\n"
	"      SLO          auto (the p99 alone; the default), none, or a time such as 10ms\n"
	"  --low NAME[:graph][,weight=N][,pcie-weight=N][,host=N%]\n"
	"                   a program that runs without pause; may be repeated. N, 1 to 1000: its\n"
	"                   share of the GPU among the programs of low priority (default 1);\n"
	"                   with pcie-weight, of PCIe (default: weight). With host=25%, that part\n"
	"                   of its memory did not fit and is on the host; alone, all of it fits\n"
	"  --trace FILE     recorded kernels, CSV or gzip; may be repeated\n"
	"                   (default: the traces of an H200 that come with hb)\n"
	"\n"
	"run:\n"
	"  --gpu NAME       the GPU: a file of data/gpus, or a path (default h200)\n"
	"  --sharing MODE[,MODE...]|all\n"
	"                   the ways to share the GPU (default all); the modes are listed below\n"
	"  --seconds N      simulated time (default 20)\n"
	"  --lead TIME      time that low-priority programs run before the first request can\n"
	"                   arrive, in addition to --seconds (default 0s; 700ms with arrivals\n"
	"                   from a file, as in the recorded co-location runs)\n"
	"  --host-noise N   the hosts are shared, too: their work takes N % longer on average,\n"
	"                   in phases of 150 ms on average (default 0)\n"
	"  --seed N         seed of the random arrivals (default 1)\n"
	"  --jobs N         number of modes that run at the same time (default: one for each\n"
	"                   processor)\n"
	"\n"
	"output:\n"
	"  --json           one object; an array of objects for several modes\n"
	"  --every TIME     also show what happened in each interval of this length\n"
	"  --latencies      in that JSON also the latencies and the ends of all requests, in ns,\n"
	"                   each in ascending order\n"
	"  --report FILE    an HTML page with charts; it needs a browser with JavaScript and no\n"
	"                   network. Each chart has a button that saves it as SVG\n"
	"  --timeline FILE  every kernel of one mode, for ui.perfetto.dev\n"
	"  --window FROM,TO the part of the run that --report and --timeline show in detail,\n"
	"                   for example 1s,1200ms (default: one second, after a quarter of the run)\n"
	"  --progress       report progress on stderr even when stderr is no terminal\n"
	"\n"
	"replay:\n"
	"  --replay FILE    run the decisions of a recording of hb trace record again\n"
	"  --policy NAME    let another policy decide\n"
	"  --actions        print the actions\n"
	"\n"
	"modes:\n"
	"  exclusive        a GPU for each program; the reference, \"alone\"\n"
	"  timeslice        the driver's time slices\n"
	"  tsN              the driver's time slices, N us for low priority (ts100, ts1)\n"
	"  mps              all programs in one MPS server, same priority\n"
	"  mps_prio         MPS, high stream priority for the service\n"
	"  mps_N            MPS with priorities; low priority may use N % of the SMs (mps_88)\n"
	"  mps_gateD        MPS with priorities; low priority launches only between requests,\n"
	"                   with at most D launches in flight (mps_gate2)\n"
	"  mps_gateD_N      the same with at most N % of the SMs (mps_gate2_88)\n"
	"  reef             the rule of REEF: during a request only launches that fit the free SMs\n"
	"  orion            the rule of Orion: beside a request only small kernels that use another\n"
	"                   resource than the request\n"
	"  temporal         Hummingbird's default engine, as hb run uses it for a service that\n"
	"                   makes its own requests\n"
	"  temporal:hints=learned\n"
	"                   the same for a service whose sockets announce requests\n"
	"  spatial          Hummingbird's spatial engine, as hb run uses it\n"
	"  auto             tries temporal and spatial, then uses the better one\n"
	"docs/sharing-modes.md compares them and names the options of temporal and spatial.\n"
	"\n"
	"example:\n"
	"  hb sim --high resnet50_b1@60/s --low resnet50_train_b128 --report out.html\n";

/* The modes to run. A free worker takes the next mode; results, errors and codes have one entry for each mode. */
struct mode_work {
	const struct hb_sim_command *command;
	struct hb_sim_result *results;
	struct hb_error *errors;
	int *codes;
	pthread_mutex_t lock;
	size_t next, done;
	bool failed; /* a mode failed, so no further mode is started */
	bool progress;
	int64_t begun_ns;
};

static void report_progress(struct mode_work *work)
{
	if (!work->progress || work->command->n_modes < 2)
		return;
	if (hb_clock_now_ns() - work->begun_ns > PROGRESS_AFTER_NS)
		fprintf(stderr, "hb sim: %zu of %zu modes done\n", work->done, work->command->n_modes);
}

static bool take_work(struct mode_work *work, size_t *index)
{
	pthread_mutex_lock(&work->lock);
	bool taken = !work->failed && work->next < work->command->n_modes;
	*index = work->next;
	work->next += taken;
	pthread_mutex_unlock(&work->lock);
	return taken;
}

static void finish_work(struct mode_work *work, int code)
{
	pthread_mutex_lock(&work->lock);
	work->done++;
	work->failed |= code != 0;
	if (!work->failed)
		report_progress(work);
	pthread_mutex_unlock(&work->lock);
}

static void *run_worker(void *argument)
{
	struct mode_work *work = argument;
	size_t i;
	while (take_work(work, &i)) {
		struct hb_sim_options options = work->command->run;
		options.sharing = work->command->modes[i];
		options.progress = work->progress && work->command->n_modes == 1;
		work->codes[i] = hb_sim_run(&options, &work->results[i], &work->errors[i]);
		finish_work(work, work->codes[i]);
	}
	return NULL;
}

/* Runs all modes. The calling thread is also a worker, so the run is only slower when no thread can be created. */
static void run_workers(struct mode_work *work)
{
	pthread_t threads[HB_SIM_RESULTS_MAX];
	size_t n = 0;
	size_t wanted = work->command->jobs < work->command->n_modes ? work->command->jobs : work->command->n_modes;
	while (n + 1 < wanted && pthread_create(&threads[n], NULL, run_worker, work) == 0)
		n++;
	run_worker(work);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

/* Returns an exit code. When several modes fail, the error of the first one is printed. */
static int run_modes(const struct hb_sim_command *command, struct hb_sim_result *results)
{
	struct hb_error errors[HB_SIM_RESULTS_MAX];
	int codes[HB_SIM_RESULTS_MAX] = {0};
	struct mode_work work = {
		.command = command,
		.results = results,
		.errors = errors,
		.codes = codes,
		.progress = command->progress || isatty(STDERR_FILENO) == 1,
		.begun_ns = hb_clock_now_ns(),
	};
	pthread_mutex_init(&work.lock, NULL);
	run_workers(&work);
	pthread_mutex_destroy(&work.lock);
	for (size_t i = 0; i < command->n_modes; i++)
		if (codes[i])
			return hb_cli_error(COMMAND, codes[i], errors[i].text);
	return HB_EXIT_OK;
}

/* Writes a word of the command line with the quotes that a shell needs. */
static void quote_word(FILE *out, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%^";
	if (*word && strspn(word, plain) == strlen(word)) {
		fputs(word, out);
		return;
	}
	fputc('\'', out);
	for (; *word; word++)
		*word == '\'' ? fputs("'\\''", out) : fputc(*word, out);
	fputc('\'', out);
}

static char *format_command_line(int argc, char **argv)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	fputs("hb", out);
	for (int i = 0; i < argc; i++) {
		fputc(' ', out);
		quote_word(out, argv[i]);
	}
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static unsigned find_terminal_width(void)
{
	struct winsize size;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
		return size.ws_col;
	return TABLE_WIDTH;
}

/* Prints a paragraph and breaks its lines between words. */
static void print_wrapped(const char *text, size_t width)
{
	size_t column = 0;
	while (*(text += strspn(text, " \n"))) {
		size_t length = strcspn(text, " \n");
		bool fits = column == 0 || column + 1 + length <= width;
		column = fits && column ? column + 1 + length : length;
		printf("%s%.*s", !fits ? "\n" : column > length ? " " : "", (int)length, text);
		text += length;
	}
	fputc('\n', stdout);
}

static int print_reading(const struct hb_sim_result *results, size_t n, size_t width)
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	if (!memory)
		return hb_cli_error(COMMAND, -ENOMEM, "out of memory");
	hb_result_reading_write(memory, results, n);
	if (fclose(memory) == 0 && size > 0) {
		fputc('\n', stdout);
		print_wrapped(text, width);
	}
	free(text);
	return HB_EXIT_OK;
}

static int print_results(const struct hb_sim_command *command, const struct hb_sim_result *results)
{
	struct hb_error error;
	size_t n = command->n_modes;
	if (command->json) {
		int rc = hb_result_json_write(stdout, results, n, n > 1, command->latencies, &error);
		return rc ? hb_cli_error(COMMAND, -EIO, error.text) : HB_EXIT_OK;
	}
	struct hb_table_style style = {.width = find_terminal_width(), .colors = hb_cli_colors(stdout)};
	hb_result_table_write(stdout, results, n, &style);
	return print_reading(results, n, style.width);
}

struct sim_outputs {
	struct hb_out_file report, timeline;
};

static int open_outputs(struct sim_outputs *outputs, const struct hb_sim_command *command)
{
	struct hb_error error;
	int rc = hb_out_file_open(&outputs->report, command->report_path, &error);
	rc = rc ? rc : hb_out_file_open(&outputs->timeline, command->timeline_path, &error);
	return rc ? hb_cli_error(COMMAND, rc, error.text) : HB_EXIT_OK;
}

static void close_outputs(struct sim_outputs *outputs)
{
	hb_out_file_fini(&outputs->report);
	hb_out_file_fini(&outputs->timeline);
}

static int fill_outputs(struct sim_outputs *outputs, const struct hb_report *report, struct hb_error *error)
{
	int rc = 0;
	if (outputs->report.stream)
		rc = hb_out_file_wrote(&outputs->report, hb_report_write(outputs->report.stream, report, error), error);
	if (!rc && outputs->timeline.stream)
		rc = hb_out_file_wrote(&outputs->timeline,
				       hb_timeline_json_write(outputs->timeline.stream, report->results, error), error);
	rc = rc ? rc : hb_out_file_commit(&outputs->report, error);
	return rc ? rc : hb_out_file_commit(&outputs->timeline, error);
}

static int write_outputs(struct sim_outputs *outputs, const struct hb_sim_command *command, char *line,
			 const struct hb_sim_result *results)
{
	struct hb_report report = {
		.command = line,
		.results = results,
		.n = command->n_modes,
		.spans_from_ns = command->run.spans_from_ns,
		.spans_to_ns = command->run.spans_to_ns,
	};
	struct hb_error error = {""};
	int rc = line ? fill_outputs(outputs, &report, &error) : hb_error_set(&error, -ENOMEM, "out of memory");
	free(line);
	return rc ? hb_cli_error(COMMAND, rc, error.text) : HB_EXIT_OK;
}

static int run_command(const struct hb_sim_command *command, int argc, char **argv)
{
	struct sim_outputs outputs = {0};
	struct hb_sim_result *results = calloc(command->n_modes, sizeof *results);
	if (!results)
		return hb_cli_error(COMMAND, -ENOMEM, "out of memory");
	int code = open_outputs(&outputs, command);
	code = code ? code : run_modes(command, results);
	code = code ? code : write_outputs(&outputs, command, format_command_line(argc, argv), results);
	code = code ? code : print_results(command, results);
	close_outputs(&outputs);
	for (size_t i = 0; i < command->n_modes; i++)
		hb_sim_result_fini(&results[i]);
	free(results);
	return code;
}

int hb_cmd_sim(int argc, char **argv)
{
	struct hb_sim_command command;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--replay") == 0)
			return hb_sim_replay(argc, argv);
	int code = hb_sim_command_parse(&command, argc, argv);
	if (!code && command.help)
		fputs(help, stdout);
	else if (!code)
		code = run_command(&command, argc, argv);
	hb_sim_command_fini(&command);
	return code;
}
