/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb register`: root registers a process of another user as a tenant, and gets the environment for the programs that this
 * process starts. For agents of clusters: the Slurm plugin and the prolog scripts beside it (packaging/slurm) call it.
 */
#include "cli/cli.h"
#include "cli/daemon_link.h"
#include "cli/run_environment.h"
#include "cli/tenant_options_cli.h"
#include "protocol/job_file.h"
#include "protocol/tenant_options_env.h"

#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define COMMAND "register"
/* The MPS server may have to start, for which the daemon allows 20 s. */
#define REGISTER_LIMIT_MS 22000

static const char usage[] =
	"usage: hb register --user USER --process PID --priority high|low [OPTION...] [NAME]\n"
	"\n"
	"Registers a process of another user as a tenant, for agents that start jobs as root.\n"
	"The tenant exists as long as this process. Prints the environment for the programs\n"
	"that the process starts, in lines 'export NAME=VALUE' and 'unset NAME'. NAME is what\n"
	"`hb status` shows as the command.\n"
	"\n"
	"  --user USER          login name or number; required\n"
	"  --process PID        required\n"
	"  --priority high|low  required; rules with 'registered_by: root' decide whether it is\n"
	"                       granted. The user cannot raise it later\n"
	"  --open               any process of the user that knows the environment may join the\n"
	"                       tenant, not only processes that PID started\n"
	"  --require            fail if the priority is not granted\n"
	"  --slo OBJECTIVE      10ms, p99<10ms, auto (learned while the program runs alone), none\n"
	"                       (default)\n"
	"  --memory SIZE        most memory that it may allocate on each GPU, e.g. 40GiB\n"
	"  --weight N           its share of the GPU among programs of low priority, 1 (default) to 1000\n"
	"  --pcie-weight N      its share of PCIe among them, 1 to 1000 (default: --weight)\n"
	"  --mps                low priority: run in the MPS server. Without it the programs take turns.\n"
	"                       In the server, killing one program can end the others\n"
	"  --no-signs           do not predict requests from bytes that arrive on sockets (high\n"
	"                       priority)\n"
	"  --gpu sim            use the daemon for simulated GPUs\n"
	"  -h, --help\n"
	"\n"
	"exit status: 0 done, 1 the daemon refused or none answers, 2 bad command line\n";

enum register_option_code {
	OPTION_USER = HB_TENANT_OPTIONS_END,
	OPTION_PROCESS,
	OPTION_OPEN,
	OPTION_REQUIRE,
	OPTION_MPS,
	OPTION_NO_SIGNS,
	OPTION_GPU
};

struct register_request {
	struct hb_tenant_options options;
	struct hb_job_file job;
	bool has_priority, has_user, required, in_mps, no_signs;
};

static int take_user(struct register_request *request, const char *value)
{
	char *end;
	errno = 0;
	unsigned long number = strtoul(value, &end, 10);
	bool is_number = *value >= '0' && *value <= '9' && !*end && !errno && number < UINT32_MAX;
	const struct passwd *user = is_number ? getpwuid((uid_t)number) : getpwnam(value);
	if (!user && !is_number)
		return hb_cli_usage_error(COMMAND, "--user: there is no user '%s'", value);
	request->job.uid = user ? user->pw_uid : (uid_t)number;
	snprintf(request->job.user, sizeof request->job.user, "%s", user ? user->pw_name : value);
	request->has_user = true;
	return -1;
}

static int take_process(struct register_request *request, const char *value)
{
	char *end;
	errno = 0;
	long number = strtol(value, &end, 10);
	if (*end || end == value || errno || number <= 0 || number > INT32_MAX)
		return hb_cli_usage_error(COMMAND, "--process: '%s' is not the number of a process", value);
	request->job.pid = (pid_t)number;
	return -1;
}

static int take_option(void *argument, int code, const char *value)
{
	struct register_request *request = argument;
	bool simulated;
	switch (code) {
	case OPTION_USER:
		return take_user(request, value);
	case OPTION_PROCESS:
		return take_process(request, value);
	case OPTION_OPEN:
		request->job.open = true;
		return -1;
	case OPTION_REQUIRE:
		request->required = true;
		return -1;
	case OPTION_MPS:
		request->in_mps = true;
		return -1;
	case OPTION_NO_SIGNS:
		request->no_signs = true;
		return -1;
	case OPTION_GPU:
		request->options.flags |= HB_REGISTER_SIMULATED;
		return hb_cli_take_gpu(COMMAND, value, &simulated);
	default:
		request->has_priority |= code == HB_TENANT_OPTION_PRIORITY;
		return hb_tenant_options_take(COMMAND, &request->options, code, value);
	}
}

static int read_command_line(int argc, char **argv, struct register_request *request)
{
	static const struct option options[] = {
		HB_TENANT_OPTION_ROWS,
		{"user", required_argument, NULL, OPTION_USER},
		{"process", required_argument, NULL, OPTION_PROCESS},
		{"open", no_argument, NULL, OPTION_OPEN},
		{"require", no_argument, NULL, OPTION_REQUIRE},
		{"mps", no_argument, NULL, OPTION_MPS},
		{"no-signs", no_argument, NULL, OPTION_NO_SIGNS},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, true};
	int status = hb_cli_read_options(&syntax, argc, argv, request);
	if (status >= 0)
		return status;
	if (!request->has_user || !request->job.pid || !request->has_priority)
		return hb_cli_usage_error(COMMAND, "--user, --process and --priority are required");
	if (optind + 1 < argc)
		return hb_cli_usage_error(COMMAND, "'%s': only one name can be given", argv[optind + 1]);
	if (request->in_mps && request->options.priority == HB_PAGE_HIGH)
		return hb_cli_usage_error(COMMAND, "--mps is for --priority low");
	snprintf(request->job.name, sizeof request->job.name, "%s", optind < argc ? argv[optind] : "job");
	request->options.command = request->job.name;
	return -1;
}

/* The daemon reads what root announced when the request arrives, so the file is written first. */
static int register_job(struct register_request *request, char path[HB_PATH_MAX], char *environment, size_t size,
			struct hb_error *error)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_tenant_options *options = &request->options;
	bool simulated = options->flags & HB_REGISTER_SIMULATED;
	int socket = hb_daemon_link(simulated, false, path, error);
	if (socket < 0)
		return socket;
	hb_job_clean(path);
	int result = hb_job_write(path, options->token, &request->job, error);
	if (result < 0) {
		close(socket);
		return result;
	}
	hb_client_limit(socket, REGISTER_LIMIT_MS);
	result = hb_client_register(socket, options, &member, environment, size, error);
	bool granted = result == 0 && member.page->priority == options->priority;
	if (result == 0 && !granted && request->required) {
		struct hb_error ignored;
		hb_client_bye(socket, options->token, &ignored);
		result = hb_error_set(error, -EPERM,
				      "priority high was not granted: no rule of the daemon allows it for this "
				      "job (registered_by: root)");
	} else if (result == 0 && !granted) {
		fprintf(stderr, "hb register: priority high was not granted; `hb status` says why\n");
	}
	if (result < 0)
		hb_job_remove(path, options->token);
	close(socket);
	hb_membership_fini(&member);
	return result;
}

static void print_environment(void)
{
	static const char *const others[] = {"HB_SOCKET", "LD_LIBRARY_PATH", "LD_PRELOAD", "HB_REAL_LIBCUDA",
					     "CUDA_MPS_PIPE_DIRECTORY"};
	for (const char *const *name = hb_tenant_option_variables; *name; name++)
		if (getenv(*name))
			printf("export %s=%s\n", *name, getenv(*name));
		else
			printf("unset %s\n", *name);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (getenv(others[i]))
			printf("export %s=%s\n", others[i], getenv(others[i]));
}

int hb_cmd_register(int argc, char **argv)
{
	struct register_request request = {.job = {.pid = 0}};
	struct hb_error error = {""};
	char path[HB_PATH_MAX], environment[4096] = "\0";
	hb_tenant_options_init(&request.options);
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	struct hb_tenant_options *options = &request.options;
	request.job.priority = options->priority;
	request.job.memory_bytes = options->memory_bytes;
	if (options->priority == HB_PAGE_LOW && !request.in_mps)
		options->engine = HB_ENGINE_TURNS;
	if (getrandom(options->token, HB_TOKEN_BYTES, 0) != HB_TOKEN_BYTES)
		return hb_cli_error(COMMAND, -EIO, "the system gave no random numbers");
	options->flags |= HB_REGISTER_CREATE;
	int result = register_job(&request, path, environment, sizeof environment, &error);
	bool signs = options->priority == HB_PAGE_HIGH && !request.no_signs;
	if (result == 0)
		result = hb_run_set_environment(options, path, environment, signs, &error);
	if (result < 0)
		return hb_cli_error(COMMAND, -EIO, error.text);
	print_environment();
	return HB_EXIT_OK;
}
