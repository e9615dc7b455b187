/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb run`: runs a command as a tenant. Registers it with the daemon (starts one when none runs), sets the command's
 * environment (run_environment.c), and executes the command in the same process. The command therefore keeps its exit
 * status, signals and terminal. A low-priority command that the daemon puts into the MPS server gets a supervisor
 * (hb_supervisor.c): hb executes that, which starts the command.
 */
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/install_path.h"
#include "cli/cli.h"
#include "cli/daemon_link.h"
#include "cli/run_environment.h"
#include "cli/run_execute.h"
#include "cli/run_place.h"
#include "cli/tenant_options_cli.h"
#include "protocol/socket_path.h"
#include "protocol/tenant_options_env.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define COMMAND "run"
#define REGISTER_TRIES 3 /* the daemon may end after hb has connected and before it answers */
/* A registration may have to wait until the MPS server has started, for which the daemon allows 20 s. */
#define REGISTER_LIMIT_MS 22000
/* All of it together with --or-alone: 2 s less what hb needs besides. */
#define ALONE_LIMIT_MS 1700

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
	"  --gpus N             run on N GPUs that the daemon chooses by memory (--memory), high\n"
	"                       priority and other programs: sets CUDA_VISIBLE_DEVICES\n"
	"  --weight N           its share of the GPU among programs of low priority, 1 (default) to 1000\n"
	"  --pcie-weight N      its share of PCIe among them, 1 to 1000 (default: --weight)\n"
	"  --engine ENGINE      temporal: one priority on the GPU at a time; spatial: both at the\n"
	"                       same time; turns: low-priority programs take turns, without MPS;\n"
	"                       auto (default): as the daemon is configured\n"
	"  --no-signs           do not predict requests from bytes that arrive on sockets (high\n"
	"                       priority)\n"
	"  --or-alone           if the daemon is missing, full or does not answer within 2 s: run the\n"
	"                       command without Hummingbird, with a message (otherwise exit 125)\n"
	"  --elastic            low priority: large allocations move to memory of the host while high\n"
	"                       priority needs the GPU's memory (experimental)\n"
	"  --oversubscribe      low priority: --elastic, and large allocations that do not fit are\n"
	"                       created in memory of the host, which is slower (experimental)\n"
	"  --own-context        keep a program of low priority out of the MPS server: its faults do\n"
	"                       not reach other programs, and it takes turns with them\n"
	"  --gpu sim            run on simulated GPUs\n"
	"  -h, --help\n"
	"\n"
	"exit status: the command's; 125 hb failed, 126 the command cannot be executed,\n"
	"127 the command was not found\n";

enum run_option_code {
	OPTION_ENGINE = HB_TENANT_OPTIONS_END,
	OPTION_ELASTIC,
	OPTION_OVERSUBSCRIBE,
	OPTION_GPU,
	OPTION_GPUS,
	OPTION_NO_SIGNS,
	OPTION_OR_ALONE,
	OPTION_OWN_CONTEXT
};

struct run_request {
	struct hb_tenant_options options;
	bool has_priority;
	uint32_t n_gpus; /* for which the daemon chooses GPUs; 0 = CUDA and the program choose */
	struct hb_placed placed;
	bool no_signs;
	bool or_alone;
	bool own_context;
	char **command;
	char supervisor[PATH_MAX]; /* program; "" = the command gets none */
	int page_fd;               /* the tenant's page, for the supervisor; -1 = none */
	char shown[1024];          /* the command for `hb status`, cut to this size */
};

static int report_failure(const struct hb_error *error)
{
	hb_cli_error(COMMAND, -EIO, error->text);
	return HB_RUN_FAILED;
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

static int take_gpus(struct run_request *request, const char *value)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || n < 1 || n > HB_PAGE_GPUS)
		return hb_cli_usage_error(COMMAND, "--gpus: '%s' is not a number from 1 to %d", value, HB_PAGE_GPUS);
	request->n_gpus = (uint32_t)n;
	return -1;
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
	case OPTION_GPUS:
		return take_gpus(request, value);
	case OPTION_ELASTIC:
		request->options.flags |= HB_REGISTER_ELASTIC;
		return -1;
	case OPTION_OVERSUBSCRIBE:
		request->options.flags |= HB_REGISTER_ELASTIC | HB_REGISTER_OVER;
		return -1;
	case OPTION_NO_SIGNS:
		request->no_signs = true;
		return -1;
	case OPTION_OWN_CONTEXT:
		request->own_context = true;
		return -1;
	case OPTION_OR_ALONE:
		request->or_alone = true;
		return -1;
	default:
		request->has_priority |= code == HB_TENANT_OPTION_PRIORITY;
		return hb_tenant_options_take(COMMAND, &request->options, code, value);
	}
}

/* A program outside the MPS server has a context of its own; programs of low priority then take turns. */
static int check_own_context(struct run_request *request)
{
	if (!request->own_context)
		return -1;
	if (request->options.priority != HB_PAGE_LOW)
		return hb_cli_usage_error(COMMAND, "--own-context is for --priority low");
	if (request->options.engine != HB_ENGINE_NONE && request->options.engine != HB_ENGINE_TURNS)
		return hb_cli_usage_error(COMMAND, "--own-context and this --engine exclude each other");
	request->options.engine = HB_ENGINE_TURNS;
	return -1;
}

static int read_command_line(int argc, char **argv, struct run_request *request)
{
	static const struct option options[] = {
		HB_TENANT_OPTION_ROWS,
		{"elastic", no_argument, NULL, OPTION_ELASTIC},
		{"engine", required_argument, NULL, OPTION_ENGINE},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"gpus", required_argument, NULL, OPTION_GPUS},
		{"no-signs", no_argument, NULL, OPTION_NO_SIGNS},
		{"or-alone", no_argument, NULL, OPTION_OR_ALONE},
		{"oversubscribe", no_argument, NULL, OPTION_OVERSUBSCRIBE},
		{"own-context", no_argument, NULL, OPTION_OWN_CONTEXT},
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
	if (request->options.flags & HB_REGISTER_ELASTIC && request->options.priority != HB_PAGE_LOW)
		return hb_cli_usage_error(COMMAND,
					  "--elastic and --oversubscribe are for --priority low: memory of high "
					  "priority never moves");
	request->command = argv + optind;
	return check_own_context(request);
}

/* Stores the command for `hb status`: as many of its words as fit. */
static void describe_command(struct run_request *request)
{
	size_t used = 0, size = sizeof request->shown;
	for (char **word = request->command; *word && used < size; word++)
		used += (size_t)snprintf(request->shown + used, size - used, "%s%s", used ? " " : "", *word);
	request->options.command = request->shown;
}

/* --- registering --------------------------------------------------------------------------- */

static int left_ms(int64_t until_ns)
{
	int64_t left_ns = until_ns - hb_clock_now_ns();
	return left_ns > 0 ? (int)(left_ns / HB_NS_PER_MS) : 0;
}

/* One connection, where wanted one placement, and one registration. */
static int register_once(struct run_request *request, int64_t until_ns, char path[HB_PATH_MAX],
			 struct hb_membership *member, char *environment, size_t size, struct hb_error *error)
{
	struct hb_tenant_options options = request->options;
	options.flags |= HB_REGISTER_CREATE;
	int socket = hb_daemon_link_until(until_ns, options.flags & HB_REGISTER_SIMULATED, path, error);
	if (socket < 0)
		return socket;
	hb_client_limit(socket, request->or_alone ? left_ms(until_ns) : REGISTER_LIMIT_MS);
	int result = request->n_gpus ? hb_run_place(&options, request->n_gpus, socket, &request->placed, error) : 0;
	if (result == 0)
		result = hb_client_register(socket, &options, member, environment, size, error);
	close(socket);
	return result;
}

static int register_tenant(struct run_request *request, char path[HB_PATH_MAX], char *environment, size_t size,
			   struct hb_error *error)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	unsigned char *token = request->options.token;
	int limit_ms = request->or_alone ? ALONE_LIMIT_MS : HB_LINK_LIMIT_MS;
	int64_t until_ns = hb_clock_now_ns() + limit_ms * HB_NS_PER_MS;
	if (getrandom(token, HB_TOKEN_BYTES, 0) != HB_TOKEN_BYTES)
		return hb_error_set(error, -EIO, "the system gave no random numbers");
	int result, tries = 0;
	do {
		/* A daemon of the release before supervision ends the connection at a flag that it does not know. */
		if (tries == REGISTER_TRIES - 1)
			request->options.flags &= ~(uint32_t)HB_REGISTER_SUPERVISED;
		result = register_once(request, until_ns, path, &member, environment, size, error);
	} while (hb_daemon_gone(result) && ++tries < REGISTER_TRIES && left_ms(until_ns) > 0);
	if (hb_daemon_gone(result) && request->options.flags & HB_REGISTER_ELASTIC)
		hb_error_set(
			error, result,
			"the daemon ended the connection: one of an earlier release does not know "
			"--elastic or --oversubscribe, so end it with its tenants, or run the command without the option");
	if (result == 0 && member.page->priority != request->options.priority)
		fprintf(stderr,
			"hb run: priority high was not granted, so the command has priority low; `hb status` names the rule\n");
	if (result == 0 && member.page->priority == HB_PAGE_HIGH && member.page->low_minimum_ppm)
		fprintf(stderr,
			"hb run: low priority has a guaranteed minimum of %u %% of the GPU; while requests leave it less, "
			"they take longer, and `hb status` says whether the objective can be kept\n",
			member.page->low_minimum_ppm / 10000);
	/* The tenant exists as long as this process; it needs neither the mapping nor the connection. */
	if (result == 0 && request->options.flags & HB_REGISTER_SUPERVISED)
		request->page_fd = fcntl(member.page_fd, F_DUPFD_CLOEXEC, 3);
	hb_membership_fini(&member);
	HB_FAULT(run_enrolled);
	return result;
}

static void print_gpu_missing(const char *started)
{
	if (access("/dev/nvidiactl", F_OK) < 0 && access("/dev/dxg", F_OK) < 0)
		fprintf(stderr,
			"hb run: there is no NVIDIA GPU here (no /dev/nvidiactl); `hb doctor` says what to do, --gpu sim "
			"simulates a GPU%s\n",
			started);
}

/* Warns when the command runs in a place that the user may not expect. */
static void print_warnings(bool simulated)
{
	static const char system_socket[] = HB_SYSTEM_DIR "/" HB_SOCKET_NAME;
	if (simulated) {
		fprintf(stderr, "hb run: the GPU is simulated, times come from a model\n");
		return;
	}
	print_gpu_missing("; the command is started anyway");
	if (access(system_socket, F_OK) == 0 && access(system_socket, W_OK) < 0)
		fprintf(stderr,
			"hb run: only group hummingbird may use this machine's daemon (adduser NAME hummingbird); "
			"this command uses another daemon, which cannot protect it from the tenants of the first\n");
}

/* Only if it is installed will the daemon expect that the tenant's first process is a supervisor. */
static void find_supervisor(struct run_request *request)
{
	if (request->options.priority == HB_PAGE_LOW && request->options.engine != HB_ENGINE_TURNS &&
	    hb_install_program("hb-supervisor", request->supervisor, sizeof request->supervisor) == 0)
		request->options.flags |= HB_REGISTER_SUPERVISED;
}

/* Returns an exit status after a message. */
static int execute_command(struct run_request *request)
{
	const char *inside_mps = getenv("HB_MPS");
	if (!(request->options.flags & HB_REGISTER_SUPERVISED) || !inside_mps || strcmp(inside_mps, "1") != 0)
		return hb_run_execute(request->command);
	char fd[16];
	size_t n = 0;
	while (request->command[n])
		n++;
	char **arguments = calloc(n + 3, sizeof *arguments);
	if (arguments) {
		snprintf(fd, sizeof fd, "%d", request->page_fd);
		arguments[0] = (char *)(uintptr_t) "hb-supervisor";
		arguments[1] = fd;
		memcpy(arguments + 2, request->command, n * sizeof *arguments);
		fcntl(request->page_fd, F_SETFD, 0);
		execv(request->supervisor, arguments);
	}
	fprintf(stderr, "hb run: %s: %s\n", request->supervisor, strerror(errno));
	return HB_RUN_FAILED;
}

/* Makes the command a tenant, or with --or-alone prepares it to run without Hummingbird. */
static int prepare_command(struct run_request *request, struct hb_error *error)
{
	bool simulated = request->options.flags & HB_REGISTER_SIMULATED;
	char path[HB_PATH_MAX], environment[4096] = "\0";
	int result = register_tenant(request, path, environment, sizeof environment, error);
	if (result < 0 && request->or_alone) {
		fprintf(stderr, "hb run: the command runs without Hummingbird, because of --or-alone: %s\n",
			error->text);
		return hb_run_set_environment_alone(simulated, error);
	}
	if (result == -EOPNOTSUPP && !simulated)
		print_gpu_missing(""); /* which may be why MPS is missing */
	if (result < 0)
		return result;
	bool signs = request->options.priority == HB_PAGE_HIGH && !request->no_signs;
	result = hb_run_set_environment(&request->options, path, environment, signs, error);
	if (result == 0 && request->n_gpus)
		result = hb_run_set_visible(&request->placed, error);
	if (result == 0)
		print_warnings(simulated);
	return result;
}

int hb_cmd_run(int argc, char **argv)
{
	struct run_request request = {.page_fd = -1};
	struct hb_error error = {""};
	hb_tenant_options_init(&request.options);
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	describe_command(&request);
	find_supervisor(&request);
	if (prepare_command(&request, &error) < 0)
		return report_failure(&error);
	HB_FAULT(run_ready);
	return execute_command(&request);
}
