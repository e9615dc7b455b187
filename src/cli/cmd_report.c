/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb report`: collects what a bug report needs into one text file: versions, what `hb doctor` and `hb status` say,
 * configuration, some variables, logs. Every line passes redact.h, so that the file may be published.
 */
#include "base/clock.h"
#include "base/hb-version.h"
#include "base/json.h"
#include "base/out_file.h"
#include "cli/child_process.h"
#include "cli/cli.h"
#include "cli/redact.h"
#include "cli/status_source.h"
#include "daemon/daemon_config.h"
#include "gpu/provider.h"
#include "hb-commit.h"
#include "protocol/socket_path.h"

#include <errno.h>
#include <getopt.h>
#include <gnu/libc-version.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define COMMAND "report"
#define TEXT_MAX (1 << 18)
#define LOG_LINES "200"
#define LOG_TAIL_BYTES 40000
#define COLLECT_LIMIT_NS (20 * HB_NS_PER_S)
#define DOCTOR_LIMIT_NS (300 * HB_NS_PER_S) /* each of its trials has a limit of its own */

static const char usage[] = "usage: hb report [OPTION...]\n"
			    "\n"
			    "Collects what a bug report needs into one text file: versions, hb doctor, hb status,\n"
			    "configuration, logs. Names of users and machines, paths in home folders, arguments\n"
			    "of programs, passwords and tokens are left out. Read the file before you publish it.\n"
			    "\n"
			    "  --output FILE  write this file; - is standard output (default hb-report-TIME.txt)\n"
			    "  --quick        run nothing on the GPU\n"
			    "  --gpu sim      report on the simulated GPU and its daemon\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 done, 1 the file cannot be written, 2 bad command line\n";

enum report_option_code { OPTION_OUTPUT = 256, OPTION_QUICK, OPTION_GPU };

struct collection {
	const char *output;
	bool quick, simulated;
	FILE *out;
	struct hb_redactor redactor;
	char text[TEXT_MAX];
};

/* --- writing ----------------------------------------------------------------------------- */

static void begin_section(struct collection *collection, const char *title)
{
	fprintf(collection->out, "\n=== %s\n", title);
}

static void write_line(struct collection *collection, const char *line)
{
	char clean[HB_REDACT_LINE_MAX];
	fprintf(collection->out, "%s\n", hb_redact_line(&collection->redactor, line, clean, sizeof clean));
}

/* Writes a text line by line, and changes it. */
static void write_text(struct collection *collection, char *text)
{
	char *rest = text;
	for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
		if (*line || rest)
			write_line(collection, line);
}

static void write_command(struct collection *collection, const char *const *arguments, int64_t limit_ns)
{
	struct hb_child child = {.arguments = arguments, .errors = HB_CHILD_ERRORS_READ, .limit_ns = limit_ns};
	int length = hb_child_read(&child, collection->text, sizeof collection->text);
	write_text(collection, collection->text);
	if (length == -ETIMEDOUT)
		fprintf(collection->out, "(%s did not end in time)\n", arguments[0]);
	else if (length <= 0)
		fprintf(collection->out, "(%s printed nothing or is not installed)\n", arguments[0]);
}

/* Writes the end of a file, from the beginning of a line. */
static void write_file(struct collection *collection, const char *path)
{
	FILE *stream = fopen(path, "re");
	if (!stream) {
		snprintf(collection->text, sizeof collection->text, "(%s: %s)", path, strerror(errno));
		write_line(collection, collection->text);
		return;
	}
	bool cut = fseek(stream, -LOG_TAIL_BYTES, SEEK_END) == 0;
	size_t n = fread(collection->text, 1, LOG_TAIL_BYTES, stream);
	fclose(stream);
	collection->text[n] = '\0';
	char *start = cut ? strchr(collection->text, '\n') : NULL;
	write_text(collection, start ? start + 1 : collection->text);
}

/* --- names ------------------------------------------------------------------------------- */

#define PERSONS_FIRST 1000 /* system users have lower numbers, and every machine has them */
#define PERSONS_LAST 65533

static void add_person(struct hb_redactor *redactor, const struct passwd *user)
{
	hb_redact_user(redactor, user->pw_name);
	if (strncmp(user->pw_dir, "/home/", 6) != 0)
		hb_redact_home(redactor, user->pw_dir);
}

static void add_names(struct collection *collection, const json_t *status)
{
	char host[256] = "";
	const json_t *entry;
	const struct passwd *user;
	size_t i;
	const char *const variables[] = {"USER", "LOGNAME", "SUDO_USER"};
	for (i = 0; i < sizeof variables / sizeof *variables; i++)
		if (getenv(variables[i]))
			hb_redact_user(&collection->redactor, getenv(variables[i]));
	json_array_foreach(json_object_get(status, "tenants"), i, entry)
		hb_redact_user(&collection->redactor, json_string_value(json_object_get(entry, "user")) ?: "");
	json_array_foreach(json_object_get(status, "users"), i, entry)
		hb_redact_user(&collection->redactor, json_string_value(json_object_get(entry, "user")) ?: "");
	hb_redact_home(&collection->redactor, getenv("HOME") ?: "");
	setpwent();
	while ((user = getpwent()))
		if (user->pw_uid >= PERSONS_FIRST && user->pw_uid <= PERSONS_LAST)
			add_person(&collection->redactor, user);
	endpwent();
	if (gethostname(host, sizeof host - 1) == 0) {
		hb_redact_host(&collection->redactor, host);
		host[strcspn(host, ".")] = '\0';
		hb_redact_host(&collection->redactor, host);
	}
}

/* --- status ------------------------------------------------------------------------------ */

/* Whether a text under this key of the status is the command line of a program. */
static bool is_command(const char *key)
{
	return strcmp(key, "command") == 0 || strcmp(key, "high") == 0 || strcmp(key, "low") == 0;
}

static void shorten_commands(const struct hb_redactor *redactor, json_t *value)
{
	json_t *entry;
	const char *key;
	char program[256];
	size_t i;
	json_array_foreach(value, i, entry) shorten_commands(redactor, entry);
	json_object_foreach(value, key, entry)
	{
		if (json_is_string(entry) && is_command(key))
			json_object_set_new(value, key,
					    json_string(hb_redact_command(redactor, json_string_value(entry), program,
									  sizeof program)));
		else
			shorten_commands(redactor, entry);
	}
}

static void write_status(struct collection *collection, json_t *status, const struct hb_error *error)
{
	begin_section(collection, "hb status --json");
	shorten_commands(&collection->redactor, status);
	char *text = status ? json_dumps(status, JSON_INDENT(1)) : NULL;
	if (text)
		write_text(collection, text);
	else
		write_line(collection, error->text);
	free(text);
}

/* --- versions, configuration, variables -------------------------------------------------- */

static void write_versions(struct collection *collection)
{
	char driver[64] = "";
	struct utsname machine = {.sysname = ""};
	uname(&machine);
	hb_provider_of(collection->simulated)->driver_version(driver, sizeof driver);
	begin_section(collection, "versions");
	fprintf(collection->out, "hb %s, commit %s\n", HB_VERSION, HB_COMMIT);
	fprintf(collection->out, "%s %s %s, glibc %s\n", machine.sysname, machine.release, machine.machine,
		gnu_get_libc_version());
	fprintf(collection->out, "driver %s\n", *driver ? driver : "not found");
	write_file(collection, "/etc/os-release");
}

/* Comments may say anything, so they are left out. */
static void write_configuration(struct collection *collection, bool system_mode)
{
	char path[512], line[HB_REDACT_LINE_MAX];
	hb_daemon_config_path(system_mode, path, sizeof path);
	begin_section(collection, system_mode ? "configuration of the system" : "configuration of the user");
	FILE *stream = *path ? fopen(path, "re") : NULL;
	if (!stream) {
		fprintf(collection->out, "(none: %s)\n", *path ? strerror(errno) : "there is no home folder");
		return;
	}
	while (fgets(line, sizeof line, stream)) {
		line[strcspn(line, "#\n")] = '\0';
		if (line[strspn(line, " \t")])
			write_line(collection, line);
	}
	fclose(stream);
}

/* Other variables are not even named. HB_TENANT is a token. */
static void write_variables(struct collection *collection)
{
	static const char *const names[] = {"CUDA_DEVICE_ORDER",
					    "CUDA_MODULE_LOADING",
					    "CUDA_MPS_LOG_DIRECTORY",
					    "CUDA_MPS_PIPE_DIRECTORY",
					    "CUDA_VISIBLE_DEVICES",
					    "HB_DATA_DIR",
					    "HB_GPU",
					    "HB_LOG",
					    "HB_SHIM_DIR",
					    "HB_SIMCUDA_DIR",
					    "HB_SIM_DRIVER",
					    "HB_SIM_GPU",
					    "HB_SOCKET",
					    "HB_START_DAEMON",
					    "LD_LIBRARY_PATH",
					    "LD_PRELOAD",
					    "NVIDIA_DRIVER_CAPABILITIES",
					    "NVIDIA_VISIBLE_DEVICES",
					    "XDG_RUNTIME_DIR"};
	char line[HB_REDACT_LINE_MAX];
	begin_section(collection, "environment (only what Hummingbird and CUDA read)");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (!getenv(names[i]))
			continue;
		snprintf(line, sizeof line, "%s=%s", names[i], getenv(names[i]));
		write_line(collection, line);
	}
}

/* --- logs -------------------------------------------------------------------------------- */

static void write_log_beside_socket(struct collection *collection, const char *title, const char *file)
{
	char socket[HB_PATH_MAX], path[HB_PATH_MAX + 64];
	begin_section(collection, title);
	if (hb_socket_path(collection->simulated, socket) < 0)
		return;
	char *name = strrchr(socket, '/');
	snprintf(path, sizeof path, "%.*s/%s", name ? (int)(name - socket) : 0, socket, file);
	write_file(collection, path);
}

static void write_logs(struct collection *collection)
{
	static const char *const unit[] = {"journalctl", "--unit=hummingbird", "--lines=" LOG_LINES,
					   "--no-pager", "--output=short-iso", NULL};
	static const char *const kernel[] = {"journalctl",         "--dmesg", "--grep=NVRM", "--lines=50", "--no-pager",
					     "--output=short-iso", NULL};
	write_log_beside_socket(collection, "log of the user's daemon", "hbd.log");
	write_log_beside_socket(collection, "log of the MPS control daemon", "mps/log/control.log");
	write_log_beside_socket(collection, "log of the MPS server", "mps/log/server.log");
	begin_section(collection, "log of the system's daemon");
	write_command(collection, unit, COLLECT_LIMIT_NS);
	begin_section(collection, "messages of the driver in the kernel's log");
	write_command(collection, kernel, COLLECT_LIMIT_NS);
}

static void write_doctor(struct collection *collection)
{
	char own[PATH_MAX];
	const char *arguments[8];
	size_t n = 0;
	hb_child_own_path(own);
	arguments[n++] = own;
	arguments[n++] = "doctor";
	if (collection->quick)
		arguments[n++] = "--quick";
	if (collection->simulated) {
		arguments[n++] = "--gpu";
		arguments[n++] = "sim";
	}
	arguments[n] = NULL;
	begin_section(collection, collection->quick ? "hb doctor --quick" : "hb doctor");
	write_command(collection, arguments, DOCTOR_LIMIT_NS);
}

static void write_report(struct collection *collection)
{
	struct hb_error error = {""};
	json_t *status = NULL;
	if (hb_status_ask(collection->simulated, &status, &error) < 0)
		status = NULL;
	add_names(collection, status);
	fputs("Report of Hummingbird. Names of users and machines, paths in home folders, arguments of programs,\n"
	      "passwords and tokens were left out. Read it before you publish it.\n",
	      collection->out);
	write_versions(collection);
	write_status(collection, status, &error);
	json_decref(status);
	write_doctor(collection);
	write_configuration(collection, true);
	write_configuration(collection, false);
	write_variables(collection);
	write_logs(collection);
}

/* --- command ----------------------------------------------------------------------------- */

static int take_option(void *argument, int code, const char *value)
{
	struct collection *collection = argument;
	if (code == OPTION_GPU)
		return hb_cli_take_gpu(COMMAND, value, &collection->simulated);
	if (code == OPTION_OUTPUT)
		collection->output = value;
	else if (code == OPTION_QUICK)
		collection->quick = true;
	return -1;
}

static int read_command_line(int argc, char **argv, struct collection *collection)
{
	static const struct option options[] = {
		{"output", required_argument, NULL, OPTION_OUTPUT},
		{"quick", no_argument, NULL, OPTION_QUICK},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, false};
	return hb_cli_read_options(&syntax, argc, argv, collection);
}

/* Writes the report into a file that only this user may read. */
static int write_to_file(struct collection *collection, const char *path, struct hb_error *error)
{
	struct hb_out_file file = {NULL};
	mode_t mask = umask(077);
	int result = hb_out_file_open(&file, path, error);
	umask(mask);
	if (result < 0)
		return result;
	fchmod(fileno(file.stream), 0600); /* also if it replaces a file that others may read */
	collection->out = file.stream;
	write_report(collection);
	result = hb_out_file_commit(&file, error);
	hb_out_file_fini(&file);
	return result;
}

int hb_cmd_report(int argc, char **argv)
{
	static struct collection collection;
	struct hb_error error = {""};
	char name[64];
	time_t now = time(NULL);
	struct tm broken;
	int status = read_command_line(argc, argv, &collection);
	if (status >= 0)
		return status;
	strftime(name, sizeof name, "hb-report-%Y%m%d-%H%M%S.txt", localtime_r(&now, &broken));
	const char *path = collection.output ? collection.output : name;
	if (strcmp(path, "-") == 0) {
		collection.out = stdout;
		write_report(&collection);
		return HB_EXIT_OK;
	}
	int result = write_to_file(&collection, path, &error);
	if (result < 0)
		return hb_cli_error(COMMAND, -EIO, error.text);
	printf("%s was written: read it, then attach it to your bug report\n", path);
	return HB_EXIT_OK;
}
