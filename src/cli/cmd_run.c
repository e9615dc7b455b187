/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb run`: makes a tenant of a command. Registers it with the daemon (started
 * when none runs), puts the shim's folder first on the library path, and
 * becomes the command, so its exit status, signals and terminal are its own.
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
#define REGISTER_TRIES 3 /* a daemon may end between our connecting and our asking */

/* As env, nohup and timeout have it, so that the command's own status is never mistaken for ours. */
enum { EXIT_OURS = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static const char usage[] =
	"usage: hb run --priority high|low [OPTION...] -- COMMAND [ARGUMENT...]\n"
	"\n"
	"Runs a CUDA program under Hummingbird. A program of high priority keeps its\n"
	"latency; programs of low priority use what is left.\n"
	"\n"
	"  --priority high|low  needed\n"
	"  --slo OBJECTIVE      10ms, p99<10ms, auto (learned while it runs alone), none (default)\n"
	"  --memory SIZE        most GPU memory it may hold on each GPU, e.g. 40GiB\n"
	"  --pcie-weight N      its share of PCIe among programs of low priority, 1 (default) to 1000\n"
	"  --engine ENGINE      temporal, spatial: high and low on the GPU at once, turns: low\n"
	"                       priority without MPS, or auto (default): as the daemon is configured\n"
	"  --no-signs           do not watch the bytes that come in to foresee requests (high)\n"
	"  --gpu sim            run on simulated GPUs\n"
	"  -h, --help\n"
	"\n"
	"exit status: the command's; 125 hb itself failed, 126 the command cannot be run,\n"
	"127 it is not found\n";

enum option_code { OPTION_ENGINE = HB_TENANT_OPTIONS_END, OPTION_GPU, OPTION_NO_SIGNS };

struct request {
	struct hb_tenant_options options;
	bool has_priority;
	bool no_signs;
	char **command;
	char shown[1024]; /* the command for `hb status`, cut to this size */
};

static int report_failure(const struct hb_error *error)
{
	hb_cli_error(COMMAND, -EIO, error->text);
	return EXIT_OURS;
}

/* -1 = fine; else the exit status. */
static int take_engine(struct request *request, const char *value)
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
	return hb_cli_usage_error(COMMAND, "--engine: '%s' is none of auto, temporal, spatial, turns", value);
}

static int take_option(void *argument, int code, const char *value)
{
	struct request *request = argument;
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

static int read_command_line(int argc, char **argv, struct request *request)
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
		return hb_cli_usage_error(COMMAND, "--priority high or low is needed");
	request->command = argv + optind;
	return -1;
}

/* What `hb status` shows: the words of the command, as many as fit. */
static void describe_command(struct request *request)
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

/* One line of the daemon, NAME=VALUE. */
static int set_granted(const char *line, struct hb_error *error)
{
	static const char *const names[] = {HB_GRANTED_VARIABLES};
	size_t length = strcspn(line, "=");
	for (size_t i = 0; line[length] && i < sizeof names / sizeof names[0]; i++)
		if (strlen(names[i]) == length && strncmp(line, names[i], length) == 0)
			return set_variable(names[i], line + length + 1, error);
	return hb_error_set(
		error, -EPROTO,
		"the daemon wants to set '%.*s' for the command, which no daemon of this version does; is hb "
		"older than it, or HB_SOCKET somebody else's?",
		length < 60 ? (int)length : 60, line);
}

/* The daemon's lines, e.g. where the MPS server's pipes are. */
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

/* Programs of high priority get libhb-signs, first of what is preloaded. An installation may lack it. */
static int set_preload(const struct request *request, struct hb_error *error)
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
		return 0; /* the shim finds the system's own */
	return hb_error_set(error, result,
			    "the simulated driver (libcuda.so.1) is not found beside hb; set HB_SIMCUDA_DIR to "
			    "its folder");
}

static int set_environment(struct request *request, const char *socket_path, const char *from_daemon,
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

static int register_tenant(struct request *request, char path[HB_PATH_MAX], char *environment, size_t size,
			   struct hb_error *error)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_tenant_options options = request->options;
	if (getrandom(options.token, sizeof options.token, 0) != (ssize_t)sizeof options.token)
		return hb_error_set(error, -EIO, "no random numbers to be had");
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
		fprintf(stderr, "hb run: priority high was not granted, see `hb status`\n");
	/* The tenant lives as long as this process does: the mapping and the connection are not needed for that. */
	hb_membership_fini(&member);
	HB_FAULT(run_enrolled);
	return result;
}

/* What a user should know about where the command runs, and might not expect. */
static void print_warnings(bool simulated)
{
	static const char system_socket[] = HB_SYSTEM_DIR "/" HB_SOCKET_NAME;
	if (simulated) {
		fprintf(stderr, "hb run: simulated GPU, times are modelled\n");
		return;
	}
	if (isatty(STDERR_FILENO) && access("/dev/nvidiactl", F_OK) < 0 && access("/dev/dxg", F_OK) < 0)
		fprintf(stderr, "hb run: no NVIDIA GPU is here; `hb doctor` says more, --gpu sim simulates one\n");
	if (access(system_socket, F_OK) == 0 && access(system_socket, W_OK) < 0)
		fprintf(stderr, "hb run: this machine's daemon is for group hummingbird (adduser NAME hummingbird); "
				"this command uses another one, which cannot keep its GPU from the others\n");
}

int hb_cmd_run(int argc, char **argv)
{
	struct request request = {.has_priority = false};
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
