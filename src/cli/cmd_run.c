/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb run`: runs a command as a tenant. Registers it with the daemon (starts one when none runs), puts the shim's folder
 * first on the library path, and executes the command in the same process. The command therefore keeps its exit status,
 * signals and terminal.
 */
#include "base/fault_point.h"
#include "base/install_path.h"
#include "cli/cli.h"
#include "cli/daemon_link.h"
#include "cli/tenant_options_cli.h"
#include "gpu/provider.h"
#include "protocol/socket_path.h"
#include "protocol/tenant_options_env.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define COMMAND "run"
#define REGISTER_TRIES 3 /* the daemon may end after hb has connected and before it answers */

/*
 * Exit codes of hb's own errors, as env, nohup and timeout use them, so that they differ from most exit codes of
 * commands.
 */
enum { EXIT_HB_FAILED = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static const char usage[] =
	"usage: hb run --priority high|low [OPTION...] -- COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs a CUDA program under Hummingbird. A high-priority program keeps its latency;\n"
	"low-priority programs use the remaining time of the GPU.\n"
	"\n"
	"  --priority high|low  required\n"
	"  --slo OBJECTIVE      10ms, p99<10ms, auto (learned while the program runs alone), none\n"
	"                       (default)\n"
	"  --memory SIZE        most memory that it may allocate on each GPU, e.g. 40GiB\n"
	"  --pcie-weight N      its share of PCIe among programs of low priority, 1 (default) to 1000\n"
	"  --engine ENGINE      temporal: one priority on the GPU at a time; spatial: both at the\n"
	"                       same time; turns: low-priority programs take turns, without MPS;\n"
	"                       auto (default): as the daemon is configured\n"
	"  --no-signs           do not predict requests from bytes that arrive on sockets (high\n"
	"                       priority)\n"
	"  --gpu sim            run on simulated GPUs\n"
	"  -h, --help\n"
	"\n"
	"exit status: the command's; 125 hb failed, 126 the command cannot be executed,\n"
	"127 the command was not found\n";

enum run_option_code { OPTION_ENGINE = HB_TENANT_OPTIONS_END, OPTION_GPU, OPTION_NO_SIGNS };

struct run_request {
	struct hb_tenant_options options;
	bool has_priority;
	bool no_signs;
	char **command;
	char shown[1024]; /* the command for `hb status`, cut to this size */
};

static int report_failure(const struct hb_error *error)
{
	hb_cli_error(COMMAND, -EIO, error->text);
	return EXIT_HB_FAILED;
}

/* Returns -1, or an exit status after a message. */
static int take_engine(struct run_request *request, const char *value)
{
	static const char *const engines[] = {[HB_ENGINE_NONE] = "auto",
					      [HB_ENGINE_TEMPORAL] = "temporal",
					      [HB_ENGINE_TURNS] = "turns",
					      [HB_ENGINE_SPATIAL] = "spatial"};
	for (int i = HB_ENGINE_NONE; i <= HB_ENGINE_SPATIAL; i++)
		if (strcmp(value, engines[i]) == 0) {
			request->options.engine = (enum hb_engine)i;
			return -1;
		}
	return hb_cli_usage_error(COMMAND, "--engine: '%s' is not auto, temporal, spatial or turns", value);
}

static int take_option(void *argument, int code, const char *value)
{
	struct run_request *request = argument;
	bool simulated;
	switch (code) {
	case OPTION_ENGINE:
		return take_engine(request, value);
	case OPTION_GPU:
		request->options.flags |= HB_REGISTER_SIMULATED;
		return hb_cli_take_gpu(COMMAND, value, &simulated);
	case OPTION_NO_SIGNS:
		request->no_signs = true;
		return -1;
	default:
		request->has_priority |= code == HB_TENANT_OPTION_PRIORITY;
		return hb_tenant_options_take(COMMAND, &request->options, code, value);
	}
}

static int read_command_line(int argc, char **argv, struct run_request *request)
{
	static const struct option options[] = {
		HB_TENANT_OPTION_ROWS,
		{"engine", required_argument, NULL, OPTION_ENGINE},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"no-signs", no_argument, NULL, OPTION_NO_SIGNS},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, "+:h", options, take_option, true};
	int status = hb_cli_read_options(&syntax, argc, argv, request);
	if (status >= 0)
		return status;
	if (optind >= argc)
		return hb_cli_usage_error(COMMAND, "no command is given");
	if (!request->has_priority)
		return hb_cli_usage_error(COMMAND, "--priority high or --priority low is required");
	request->command = argv + optind;
	return -1;
}

/* Stores the command for `hb status`: as many of its words as fit. */
static void describe_command(struct run_request *request)
{
	size_t used = 0, size = sizeof request->shown;
	for (char **word = request->command; *word && used < size; word++)
		used += (size_t)snprintf(request->shown + used, size - used, "%s%s", used ? " " : "", *word);
	request->options.command = request->shown;
}

/* --- environment ------------------------------------------------------------------------ */

static int set_variable(const char *name, const char *value, struct hb_error *error)
{
	if (setenv(name, value, 1) == 0)
		return 0;
	return hb_error_set(error, -errno, "cannot set %s: %s", name, strerror(errno));
}

/* Sets the variable of one line of the daemon, NAME=VALUE. */
static int set_granted(const char *line, struct hb_error *error)
{
	static const char *const names[] = {HB_GRANTED_VARIABLES};
	size_t length = strcspn(line, "=");
	for (size_t i = 0; line[length] && i < sizeof names / sizeof names[0]; i++)
		if (strlen(names[i]) == length && strncmp(line, names[i], length) == 0)
			return set_variable(names[i], line + length + 1, error);
	return hb_error_set(
		error, -EPROTO,
		"the daemon wants to set '%.*s' for the command, which a daemon of this version never does; hb is "
		"older than the daemon, or HB_SOCKET belongs to another user",
		length < 60 ? (int)length : 60, line);
}

/* Sets the variables that the daemon sent, for example the folder of the MPS server's pipes. */
static int set_from_daemon(const char *lines, struct hb_error *error)
{
	int result = 0;
	for (; result == 0 && *lines; lines += strlen(lines) + 1)
		result = set_granted(lines, error);
	return result;
}

static int set_library_path(struct hb_error *error)
{
	char shim[PATH_MAX], *path;
	const char *old = getenv("LD_LIBRARY_PATH");
	if (hb_install_shim_dir(shim, sizeof shim) < 0)
		return hb_error_set(error, -ENOENT,
				    "the shim (libcuda.so.1) is not found beside hb; set HB_SHIM_DIR to its folder");
	if (asprintf(&path, "%s%s%s", shim, old && *old ? ":" : "", old ? old : "") < 0)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = set_variable("LD_LIBRARY_PATH", path, error);
	free(path);
	return result;
}

/* Preloads libhb-signs, before other libraries, for high-priority programs. An installation may lack it. */
static int set_preload(const struct run_request *request, struct hb_error *error)
{
	char signs[PATH_MAX], *preload;
	const char *old = getenv("LD_PRELOAD");
	if (request->options.priority != HB_PAGE_HIGH || request->no_signs || hb_install_signs(signs, sizeof signs) < 0)
		return 0;
	if (asprintf(&preload, "%s%s%s", signs, old && *old ? ":" : "", old ? old : "") < 0)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = set_variable("LD_PRELOAD", preload, error);
	free(preload);
	return result;
}

static int set_driver(bool simulated, struct hb_error *error)
{
	char driver[PATH_MAX];
	int result = hb_provider_of(simulated)->driver_library(driver, sizeof driver);
	if (result == 0)
		return set_variable("HB_REAL_LIBCUDA", driver, error);
	if (!simulated)
		return 0; /* the shim finds the system's driver */
	return hb_error_set(error, result,
			    "the simulated driver (libcuda.so.1) is not found beside hb; set HB_SIMCUDA_DIR to "
			    "its folder");
}

static int set_environment(struct run_request *request, const char *socket_path, const char *from_daemon,
			   struct hb_error *error)
{
	int result = hb_tenant_options_to_environment(&request->options);
	if (result < 0)
		return hb_error_set(error, result, "cannot set the environment: %s", strerror(-result));
	result = set_variable("HB_SOCKET", socket_path, error);
	if (result == 0)
		result = set_from_daemon(from_daemon, error);
	if (result == 0)
		result = set_library_path(error);
	if (result == 0)
		result = set_preload(request, error);
	if (result == 0)
		result = set_driver(request->options.flags & HB_REGISTER_SIMULATED, error);
	return result;
}

/* --- registering --------------------------------------------------------------------------- */

static int register_tenant(struct run_request *request, char path[HB_PATH_MAX], char *environment, size_t size,
			   struct hb_error *error)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_tenant_options options = request->options;
	if (getrandom(options.token, sizeof options.token, 0) != (ssize_t)sizeof options.token)
		return hb_error_set(error, -EIO, "the system gave no random numbers");
	memcpy(request->options.token, options.token, sizeof options.token);
	options.flags |= HB_REGISTER_CREATE;
	int result, tries = 0;
	do {
		int socket = hb_daemon_link(options.flags & HB_REGISTER_SIMULATED, true, path, error);
		if (socket < 0)
			return socket;
		result = hb_client_register(socket, &options, &member, environment, size, error);
		close(socket);
	} while (hb_daemon_gone(result) && ++tries < REGISTER_TRIES);
	if (result == 0 && member.page->priority != options.priority)
		fprintf(stderr, "hb run: priority high was not granted; `hb status` says why\n");
	/* The tenant exists as long as this process; it needs neither the mapping nor the connection. */
	hb_membership_fini(&member);
	HB_FAULT(run_enrolled);
	return result;
}

/* Warns when the command runs in a place that the user may not expect. */
static void print_warnings(bool simulated)
{
	static const char system_socket[] = HB_SYSTEM_DIR "/" HB_SOCKET_NAME;
	if (simulated) {
		fprintf(stderr, "hb run: the GPU is simulated, times come from a model\n");
		return;
	}
	if (isatty(STDERR_FILENO) && access("/dev/nvidiactl", F_OK) < 0 && access("/dev/dxg", F_OK) < 0)
		fprintf(stderr,
			"hb run: this machine has no NVIDIA GPU; `hb doctor` says more, --gpu sim simulates one\n");
	if (access(system_socket, F_OK) == 0 && access(system_socket, W_OK) < 0)
		fprintf(stderr,
			"hb run: only group hummingbird may use this machine's daemon (adduser NAME hummingbird); "
			"this command uses another daemon, which cannot protect it from the tenants of the first\n");
}

int hb_cmd_run(int argc, char **argv)
{
	struct run_request request = {.has_priority = false};
	struct hb_error error = {""};
	char path[HB_PATH_MAX], environment[4096] = "\0";
	hb_tenant_options_init(&request.options);
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	describe_command(&request);
	if (register_tenant(&request, path, environment, sizeof environment, &error) < 0 ||
	    set_environment(&request, path, environment, &error) < 0)
		return report_failure(&error);
	print_warnings(request.options.flags & HB_REGISTER_SIMULATED);
	HB_FAULT(run_ready);
	execvp(request.command[0], request.command);
	status = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
	hb_error_set(&error, -errno, "%s: %s", request.command[0], strerror(errno));
	hb_cli_error(COMMAND, -EIO, error.text);
	return status;
}
