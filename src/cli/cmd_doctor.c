/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb doctor`: tries every mechanism on this machine and says what works, what
 * does not, and what to do. What can be tried only as a tenant is tried by
 * running `hb run ... -- hb doctor --inside` once for each priority.
 */
#include "base/install_path.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/daemon_link.h"
#include "cli/doctor_inside.h"
#include "gpu/provider.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND "doctor"
#define PROBES_MAX 32
#define TRIAL_LIMIT_MS 60000
#define TRIAL_TEXT_MAX 65536

static const char usage[] = "usage: hb doctor [OPTION...]\n"
			    "\n"
			    "Tries every mechanism on this machine: what works, what does not, what to do.\n"
			    "\n"
			    "  --gpu sim     the simulated GPU instead of the real one\n"
			    "  --quick       only look, run nothing on the GPU\n"
			    "  --json\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 everything needed works, 1 something is to be mended, 2 bad command line\n";

enum option_code { OPTION_GPU = 256, OPTION_QUICK, OPTION_JSON, OPTION_INSIDE };

struct request {
	bool simulated, quick, json, inside;
};

struct report {
	struct hb_probe probes[PROBES_MAX];
	size_t n;
};

static struct hb_probe *add(struct report *report, const char *name, bool required)
{
	static struct hb_probe spill;
	struct hb_probe *probe = report->n < PROBES_MAX ? &report->probes[report->n++] : &spill;
	memset(probe, 0, sizeof *probe);
	snprintf(probe->name, sizeof probe->name, "%s", name);
	probe->required = required;
	return probe;
}

/* --- from outside ------------------------------------------------------------------- */

static void probe_shim(struct report *report)
{
	struct hb_probe *probe = add(report, "shim", true);
	char path[PATH_MAX] = "";
	probe->works = hb_install_shim_dir(path, sizeof path - 16) == 0 &&
		       access(strcat(path, "/libcuda.so.1"), R_OK) == 0;
	snprintf(probe->found, sizeof probe->found, "%.120s%s", *path ? path : "libcuda.so.1 of ours",
		 probe->works ? "" : " is not there");
	if (!probe->works)
		strcpy(probe->remedy, "install it, or set HB_SHIM_DIR to its folder");
}

static void probe_daemon(struct report *report, bool simulated)
{
	struct hb_probe *probe = add(report, "daemon", true);
	struct hb_error error = {""};
	char path[HB_PATH_MAX];
	int socket = hb_daemon_link(simulated, true, path, &error);
	probe->works = socket >= 0;
	snprintf(probe->found, sizeof probe->found, "%.150s", probe->works ? path : error.text);
	if (socket >= 0)
		close(socket);
	else
		strcpy(probe->remedy, "see the message; hbd --foreground shows more");
}

/* --- as a tenant ----------------------------------------------------------------------- */

static void become_trial(const char *program, const char *priority, bool simulated, int out)
{
	const char *arguments[16];
	size_t n = 0;
	int null = open("/dev/null", O_WRONLY);
	dup2(out, STDOUT_FILENO);
	if (simulated && null >= 0)
		dup2(null, STDERR_FILENO); /* hb run says that the GPU is simulated; so do we */
	arguments[n++] = program;
	arguments[n++] = "run";
	arguments[n++] = "--priority";
	arguments[n++] = priority;
	if (simulated) {
		arguments[n++] = "--gpu";
		arguments[n++] = "sim";
	}
	arguments[n++] = "--";
	arguments[n++] = program;
	arguments[n++] = "doctor";
	arguments[n++] = "--inside";
	arguments[n] = NULL;
	execv(program, (char **)(uintptr_t)arguments);
	_exit(127);
}

/* What it printed, until it ends or its time is over. */
static size_t read_trial(int fd, char *text, size_t size)
{
	size_t used = 0;
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	while (used < size - 1 && poll(&ready, 1, TRIAL_LIMIT_MS) > 0) {
		ssize_t n = read(fd, text + used, size - 1 - used);
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	text[used] = '\0';
	return used;
}

static json_t *run_trial(const char *priority, bool simulated, struct hb_error *error)
{
	static char text[TRIAL_TEXT_MAX];
	char program[PATH_MAX];
	json_t *answer = NULL;
	int ends[2], status;
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	if (n < 0 || pipe2(ends, O_CLOEXEC) < 0) {
		hb_error_set(error, -errno, "cannot run a trial: %s", strerror(errno));
		return NULL;
	}
	program[n] = '\0';
	pid_t child = fork();
	if (child == 0)
		become_trial(program, priority, simulated, ends[1]);
	close(ends[1]);
	size_t length = child > 0 ? read_trial(ends[0], text, sizeof text) : 0;
	close(ends[0]);
	if (child > 0) {
		kill(child, SIGKILL); /* where it is still there its time is over */
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
	}
	if (length == 0)
		hb_error_set(error, -EIO, "the trial program said nothing; see the message above");
	else
		hb_json_parse(text, length, "the trial program", &answer, error);
	return answer;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static void add_mechanism(struct report *report, const char *priority, const json_t *entry)
{
	char name[32];
	snprintf(name, sizeof name, "%s: %s", priority, text_of(entry, "mechanism"));
	/* Without compute slices high priority is nothing but a word. */
	struct hb_probe *probe = add(report, name, strcmp(text_of(entry, "mechanism"), "compute slice") == 0);
	probe->works = json_is_true(json_object_get(entry, "enforced"));
	snprintf(probe->found, sizeof probe->found, "%s", text_of(entry, "why"));
	if (!probe->works)
		strcpy(probe->remedy, "hb status --json has the details; the driver's own slices are in force");
}

static void try_priority(struct report *report, const char *priority, bool simulated)
{
	struct hb_error error = {""};
	char name[32];
	const json_t *use, *entry;
	size_t i, j;
	json_t *answer = run_trial(priority, simulated, &error);
	const char *failed = answer ? text_of(answer, "error") : error.text;
	snprintf(name, sizeof name, "%s: CUDA context", priority);
	struct hb_probe *probe = add(report, name, true);
	probe->works = !*failed;
	snprintf(probe->found, sizeof probe->found, "%.150s",
		 *failed ? failed : "made through the shim, seen by the daemon");
	if (*failed)
		strcpy(probe->remedy, "mend what is above first; then try the program without hb run");
	json_array_foreach(json_object_get(json_object_get(answer, "tenant"), "gpus"), i, use)
		json_array_foreach(json_object_get(use, "mechanisms"), j, entry) add_mechanism(report, priority, entry);
	json_decref(answer);
}

/* --- printing ------------------------------------------------------------------------------ */

static bool all_well(const struct report *report)
{
	bool well = true;
	for (size_t i = 0; i < report->n; i++)
		well = well && (report->probes[i].works || !report->probes[i].required);
	return well;
}

static void print_text(const struct report *report)
{
	for (size_t i = 0; i < report->n; i++) {
		const struct hb_probe *probe = &report->probes[i];
		printf("%-7s %-22s %s\n",
		       probe->works      ? "ok"
		       : probe->required ? "MISSING"
					 : "without",
		       probe->name, probe->found);
		if (probe->remedy[0])
			printf("        %-22s -> %s\n", "", probe->remedy);
	}
	puts(all_well(report) ? "everything that is needed works" : "something that is needed does not work");
}

static int print_json(const struct report *report, struct hb_error *error)
{
	json_t *probes = json_array();
	json_t *root = hb_json_pack(error, "{s:i, s:b, s:o}", "version", 1, "works", (int)all_well(report), "probes",
				    probes);
	for (size_t i = 0; root && i < report->n; i++) {
		const struct hb_probe *probe = &report->probes[i];
		json_array_append_new(probes, hb_json_pack(error, "{s:s, s:b, s:b, s:s, s:s}", "name", probe->name,
							   "works", (int)probe->works, "required", (int)probe->required,
							   "found", probe->found, "remedy", probe->remedy));
	}
	int result = hb_json_write(root, stdout, error);
	json_decref(root);
	return result;
}

/* --- command ---------------------------------------------------------------------------------- */

static int read_command_line(int argc, char **argv, struct request *request)
{
	static const struct option options[] = {
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"quick", no_argument, NULL, OPTION_QUICK},
		{"json", no_argument, NULL, OPTION_JSON},
		{"inside", no_argument, NULL, OPTION_INSIDE},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int code;
	opterr = 0;
	while ((code = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (code == OPTION_GPU && strcmp(optarg, "sim") == 0)
			request->simulated = true;
		else if (code == OPTION_QUICK)
			request->quick = true;
		else if (code == OPTION_JSON)
			request->json = true;
		else if (code == OPTION_INSIDE)
			request->inside = true;
		else if (code == 'h') {
			fputs(usage, stdout);
			return HB_EXIT_OK;
		} else
			return hb_cli_usage_error(COMMAND, code == OPTION_GPU
								   ? "--gpu: only sim can be given"
								   : "unknown option, or one without its value");
	}
	return optind < argc ? hb_cli_usage_error(COMMAND, "no arguments are taken") : -1;
}

int hb_cmd_doctor(int argc, char **argv)
{
	struct request request = {.quick = false};
	struct report report = {.n = 0};
	struct hb_error error = {""};
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	if (request.inside)
		return hb_doctor_inside();
	report.n = hb_provider_of(request.simulated)->probe(report.probes, PROBES_MAX);
	probe_shim(&report);
	bool ready = all_well(&report);
	if (ready && !request.quick)
		probe_daemon(&report, request.simulated);
	if (all_well(&report) && !request.quick) {
		fflush(stdout);
		try_priority(&report, "high", request.simulated);
		try_priority(&report, "low", request.simulated);
	}
	if (request.json && print_json(&report, &error) < 0)
		return hb_cli_error(COMMAND, -EIO, error.text);
	if (!request.json)
		print_text(&report);
	return all_well(&report) ? HB_EXIT_OK : HB_EXIT_FAILURE;
}
