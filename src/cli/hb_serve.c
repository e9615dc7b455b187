/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-serve, the program that `hb serve` executes: an inference server for a folder of models, with two priorities and
 * deadlines. main() reads the options, starts HTTP and gRPC (src/server) and waits for a signal.
 */
#include "base/clock.h"
#include "base/http_address.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/serve_security.h"
#include "server/backends/worker_process.h"
#include "server/grpc/kserve_grpc.h"
#include "server/http/kserve_http.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define COMMAND "serve"
#define DRAIN_MOST_NS (3600 * HB_NS_PER_S)
#define DESCRIPTORS_BESIDE 256 /* open files of models, workers and the server itself */

static const char usage[] = "usage: hb serve --models FOLDER [OPTION...]\n"
			    "\n"
			    "Serves the models of a folder over KServe v2. Requests have a priority and a\n"
			    "deadline (request parameters `priority`, `deadline`, `timeout`; microseconds).\n"
			    "\n"
			    "  --models FOLDER      has a folder for each model, with a model.yaml\n"
			    "  --http ADDRESS:PORT  address of HTTP and metrics (default 127.0.0.1:8000;\n"
			    "                       port 0 = any free port; none = only --http-socket)\n"
			    "  --grpc ADDRESS:PORT  address of gRPC (default 127.0.0.1:8001), or none\n"
			    "  --threads N          threads for HTTP (default 2)\n"
			    "  --connections N      connections at the same time (default 16384)\n"
			    "  --connections-per-client N\n"
			    "                       connections of one client: a user of this machine, an\n"
			    "                       address, or a /64 network of IPv6 (default: a quarter\n"
			    "                       of --connections)\n"
			    "  --body SIZE          size of the largest request (default 256MiB)\n"
			    "  --memory SIZE        memory of all requests together (default 1GiB); further\n"
			    "                       requests are refused\n"
			    "  --idle DURATION      close a connection after this time without data, or\n"
			    "                       without a complete request (default 60s)\n"
			    "  --queue N            requests of each priority that may wait or run at the\n"
			    "                       same time (default 4096); further requests are refused\n"
			    "  --drain DURATION     time that running batches get when their model is unloaded,\n"
			    "                       and all requests when the server ends (default 10s)\n"
			    "  --late HIGH[,LOW]    what to do with requests that will miss their deadline:\n"
			    "                       reject (default) or downgrade\n"
			    "  --policy NAME        the policy that chooses the next request (default ours)\n"
			    "  --gpu WHERE          sim: workers use the simulated driver; none: workers see no\n"
			    "                       GPU (default: the machine's GPU, if it has one)\n"
			    "  --gpus N             GPUs to use, each with a replica of every model that\n"
			    "                       model.yaml does not restrict (default: all GPUs\n"
			    "                       of the machine, or 1 with --gpu)\n" HB_SECURITY_USAGE
			    "  --demands FILE       keep the measured demands of models in this file (default\n"
			    "                       serve-demands.json in the state folder); none: measure nothing\n"
			    "  --journal FILE       write when each batch started, paused and ended\n"
			    "  --speed FACTOR       speed of the simulated GPU of platform trace (default 1)\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 ended by a signal, 1 could not start, 2 bad command line\n";

enum serve_option_code {
	OPTION_MODELS = 256,
	OPTION_HTTP,
	OPTION_GRPC,
	OPTION_THREADS,
	OPTION_CONNECTIONS,
	OPTION_CLIENT_CONNECTIONS,
	OPTION_BODY,
	OPTION_MEMORY,
	OPTION_IDLE,
	OPTION_QUEUE,
	OPTION_DRAIN,
	OPTION_LATE,
	OPTION_POLICY,
	OPTION_GPU,
	OPTION_GPUS,
	OPTION_SPEED,
	OPTION_JOURNAL,
	OPTION_DEMANDS
};

struct serve_options {
	struct hb_dispatch_config dispatch;
	struct hb_kserve_http_config http;
	struct hb_kserve_grpc_config grpc;
	struct hb_memory_budget memory;
	struct serve_security security;
};

static int parse_address(const char *text, struct sockaddr_storage *out, const char **what)
{
	static struct hb_error error;
	*what = error.text;
	if (strcmp(text, "none") == 0) {
		memset(out, 0, sizeof(*out)); /* AF_UNSPEC */
		return 0;
	}
	return hb_http_address_parse(text, out, &error);
}

static int parse_late(const char *text, enum hb_scheduler_late *late)
{
	char copy[64], *rest = NULL;
	int n = 0;
	if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
		return -EINVAL;
	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		if (n == HB_SCHEDULER_PRIORITIES || (strcmp(word, "reject") != 0 && strcmp(word, "downgrade") != 0))
			return -EINVAL;
		late[n++] = strcmp(word, "reject") == 0 ? HB_SCHEDULER_REJECT : HB_SCHEDULER_DOWNGRADE;
	}
	if (n == 1)
		late[HB_SCHEDULER_LOW] = late[HB_SCHEDULER_HIGH];
	return n ? 0 : -EINVAL;
}

static int parse_count(const char *text, unsigned long most, uint32_t *out)
{
	char *end = NULL;
	unsigned long value = strtoul(text, &end, 10);
	if (end == text || *end || value < 1 || value > most)
		return -EINVAL;
	*out = (uint32_t)value;
	return 0;
}

static int parse_speed(const char *text, double *out)
{
	char *end = NULL;
	double value = strtod(text, &end);
	if (end == text || *end || !(value >= 0.001 && value <= 100))
		return -EINVAL;
	*out = value;
	return 0;
}

static int parse_size(const char *text, uint64_t *out)
{
	uint64_t bytes = 0;
	if (hb_bytes_parse(text, &bytes, NULL) < 0 || bytes == 0)
		return -EINVAL;
	*out = bytes;
	return 0;
}

static int parse_seconds(const char *text, uint32_t *out)
{
	int64_t ns = 0;
	if (hb_duration_parse(text, &ns, NULL) < 0 || ns < HB_NS_PER_S || ns > 3600 * HB_NS_PER_S)
		return -EINVAL;
	*out = (uint32_t)(ns / HB_NS_PER_S);
	return 0;
}

/* Returns 0, or -EINVAL with a description of the option's values in *what. */
static int store_option(int code, struct serve_options *settings, const char **what)
{
	int result;
	switch (code) {
	case OPTION_MODELS:
		settings->dispatch.models = optarg;
		return 0;
	case OPTION_HTTP:
		return parse_address(optarg, &settings->http.address, what);
	case OPTION_GRPC:
		return parse_address(optarg, &settings->grpc.address, what);
	case OPTION_THREADS:
		*what = "--threads takes a number, 1 to 64";
		return parse_count(optarg, 64, &settings->http.threads);
	case OPTION_CONNECTIONS:
		*what = "--connections takes a number, 1 to 1000000";
		return parse_count(optarg, 1000000, &settings->http.connections);
	case OPTION_CLIENT_CONNECTIONS:
		*what = "--connections-per-client takes a number, 1 to 1000000";
		return parse_count(optarg, 1000000, &settings->http.client_connections);
	case OPTION_BODY:
		*what = "--body takes a size, as in 64MiB";
		result = parse_size(optarg, &settings->http.body_bytes);
		settings->grpc.body_bytes = settings->http.body_bytes;
		return result;
	case OPTION_MEMORY:
		*what = "--memory takes a size, as in 4GiB";
		return parse_size(optarg, &settings->memory.limit_bytes);
	case OPTION_IDLE:
		*what = "--idle takes a duration, 1s to 1h";
		result = parse_seconds(optarg, &settings->http.idle_s);
		settings->grpc.idle_s = settings->http.idle_s;
		return result;
	case OPTION_QUEUE:
		*what = "--queue takes a number, 1 to 1000000";
		return parse_count(optarg, 1000000, &settings->dispatch.queue_max);
	case OPTION_DRAIN:
		*what = "--drain takes a duration, 0s to 1h";
		return hb_duration_parse(optarg, &settings->dispatch.drain_ns, NULL) < 0 ||
				       settings->dispatch.drain_ns > DRAIN_MOST_NS
			       ? -EINVAL
			       : 0;
	case OPTION_LATE:
		*what = "--late takes reject or downgrade, for high and low priority";
		return parse_late(optarg, settings->dispatch.late);
	case OPTION_GPU:
		*what = "--gpu takes sim or none";
		settings->dispatch.gpu = strcmp(optarg, "sim") == 0 ? HB_WORKER_GPU_SIM : HB_WORKER_GPU_NONE;
		return strcmp(optarg, "sim") == 0 || strcmp(optarg, "none") == 0 ? 0 : -EINVAL;
	case OPTION_GPUS:
		*what = "--gpus takes a number, 1 to 16";
		return parse_count(optarg, HB_ROUTE_GPUS_MAX, &settings->dispatch.n_gpus);
	case OPTION_JOURNAL:
		settings->dispatch.journal = optarg;
		return 0;
	case OPTION_DEMANDS:
		settings->dispatch.demands = optarg;
		return 0;
	case OPTION_SPEED:
		*what = "--speed takes a factor, 0.001 to 100";
		return parse_speed(optarg, &settings->dispatch.speed);
	case OPTION_POLICY:
		settings->dispatch.policy = optarg;
		return 0;
	default:
		return 0;
	}
}

static int take_option(void *argument, int code, const char *value)
{
	static struct hb_error error;
	struct serve_options *settings = argument;
	const char *what = "";
	int result = hb_serve_security_store(code, value, &settings->security, &error);
	if (result != -ENOENT)
		return result < 0 ? hb_cli_usage_error(COMMAND, "%s", error.text) : -1;
	return store_option(code, argument, &what) < 0 ? hb_cli_usage_error(COMMAND, "%s", what) : -1;
}

static int read_command_line(int argc, char **argv, struct serve_options *settings)
{
	static const struct option options[] = {
		{"models", required_argument, NULL, OPTION_MODELS},
		{"http", required_argument, NULL, OPTION_HTTP},
		{"grpc", required_argument, NULL, OPTION_GRPC},
		{"threads", required_argument, NULL, OPTION_THREADS},
		{"connections", required_argument, NULL, OPTION_CONNECTIONS},
		{"connections-per-client", required_argument, NULL, OPTION_CLIENT_CONNECTIONS},
		{"body", required_argument, NULL, OPTION_BODY},
		{"memory", required_argument, NULL, OPTION_MEMORY},
		{"idle", required_argument, NULL, OPTION_IDLE},
		{"queue", required_argument, NULL, OPTION_QUEUE},
		{"drain", required_argument, NULL, OPTION_DRAIN},
		{"late", required_argument, NULL, OPTION_LATE},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"gpus", required_argument, NULL, OPTION_GPUS},
		{"policy", required_argument, NULL, OPTION_POLICY},
		{"speed", required_argument, NULL, OPTION_SPEED},
		{"journal", required_argument, NULL, OPTION_JOURNAL},
		{"demands", required_argument, NULL, OPTION_DEMANDS},
#define HB_SECURITY_OPTION(code, name, argument) {name, argument, NULL, HB_SECURITY_##code},
#include "cli/serve_security.def"
#undef HB_SECURITY_OPTION
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, false};
	struct hb_error error;
	int status = hb_cli_read_options(&syntax, argc, argv, settings);
	if (status >= 0)
		return status;
	if (settings->memory.limit_bytes < settings->http.body_bytes)
		return hb_cli_usage_error(COMMAND,
					  "--memory must be at least --body: otherwise the largest request never fits");
	if (hb_serve_security_check(&settings->security, &settings->http.address, &settings->grpc.address, &error) < 0)
		return hb_cli_usage_error(COMMAND, "%s", error.text);
	return settings->dispatch.models ? -1 : hb_cli_usage_error(COMMAND, "--models FOLDER is required");
}

/* Raises the limit of open files to `wanted` if the system allows that. Returns the limit. */
static rlim_t raise_descriptors(rlim_t wanted)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return wanted;
	struct rlimit more = {.rlim_cur = wanted, .rlim_max = limit.rlim_max > wanted ? limit.rlim_max : wanted};
	if (limit.rlim_cur >= wanted || setrlimit(RLIMIT_NOFILE, &more) == 0)
		return wanted;
	limit.rlim_cur = limit.rlim_max; /* only root may raise the hard limit */
	setrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur;
}

/*
 * Returns how many connections HTTP and gRPC may have each, so that the server does not run out of open files: each
 * connection needs one.
 */
static uint32_t limit_connections(uint32_t connections)
{
	rlim_t wanted = 2 * (rlim_t)connections + DESCRIPTORS_BESIDE, given = raise_descriptors(wanted);
	rlim_t beside = given / 2 < DESCRIPTORS_BESIDE ? given / 2 : DESCRIPTORS_BESIDE;
	if (given >= wanted)
		return connections;
	uint32_t each = given > beside + 2 ? (uint32_t)((given - beside) / 2) : 1;
	hb_log_warning(
		"--connections %u, but this process may have %llu open files: HTTP and gRPC have at most %u "
		"connections each, and further ones are refused or wait (raise it with ulimit -Hn, or LimitNOFILE= of a "
		"service)",
		connections, (unsigned long long)given, each);
	return each;
}

/*
 * If there are files to read again, SIGHUP makes the server do so; otherwise SIGHUP ends the server, as when its terminal
 * closes.
 */
static void list_signals(sigset_t *set, bool has_files)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	if (has_files)
		sigaddset(set, SIGHUP);
}

/* Reads token file, certificate and key again. */
static void reload_files(const struct serve_security *security, struct hb_access *access, struct hb_tls *tls)
{
	struct hb_error error = {.text = ""};
	if (hb_access_reload(access, &error) < 0)
		hb_log_error("%s; the tokens stay as they were", error.text);
	else if (security->access.token_file)
		hb_log_info("read the token file again");
	if (tls && hb_tls_reload(tls, &error) < 0)
		hb_log_error("%s; the certificate stays as it was", error.text);
	else if (tls)
		hb_log_info("read certificate and key again");
}

/* Waits for SIGINT or SIGTERM. */
static void wait_for_signal(const struct serve_security *security, struct hb_access *access, struct hb_tls *tls)
{
	sigset_t set;
	int signal_number = 0;
	list_signals(&set, security->access.token_file || tls);
	while (signal_number != SIGINT && signal_number != SIGTERM)
		if (sigwait(&set, &signal_number) == 0 && signal_number == SIGHUP)
			reload_files(security, access, tls);
}

static void block_signals(const struct serve_security *security)
{
	sigset_t set;
	list_signals(&set, security->access.token_file || security->tls.cert);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int open_sockets(const struct serve_options *settings, struct hb_unix_listener **http,
			struct hb_unix_listener **grpc, struct hb_error *error)
{
	const struct serve_security *security = &settings->security;
	int result = 0;
	if (security->http_socket)
		result = hb_unix_listener_open(security->http_socket, security->socket_group, http, error);
	if (result == 0 && security->grpc_socket)
		result = hb_unix_listener_open(security->grpc_socket, security->socket_group, grpc, error);
	return result;
}

static int serve_models(struct serve_options *settings)
{
	struct hb_error error = {.text = ""};
	struct hb_access *access = NULL;
	struct hb_tls *tls = NULL;
	struct hb_unix_listener *http_socket = NULL, *grpc_socket = NULL;
	struct hb_dispatch *dispatch = NULL;
	struct hb_kserve_http *http = NULL;
	struct hb_kserve_grpc *grpc = NULL;
	settings->http.connections = settings->grpc.connections = limit_connections(settings->http.connections);
	if (!settings->http.client_connections)
		settings->http.client_connections = (settings->http.connections + 3) / 4;
	settings->grpc.client_connections = settings->http.client_connections;
	settings->http.memory = settings->grpc.memory = &settings->memory;
	block_signals(&settings->security);
	int result = hb_access_new(&settings->security.access, &access, &error);
	settings->http.access = settings->grpc.access = access;
	if (result == 0)
		result = open_sockets(settings, &http_socket, &grpc_socket, &error);
	if (result == 0 && settings->security.tls.cert)
		result = hb_tls_new(&settings->security.tls, &tls, &error);
	settings->http.tls = settings->grpc.tls = tls;
	settings->http.unix_listener = http_socket;
	settings->grpc.unix_listener = grpc_socket;
	if (result == 0)
		result = hb_dispatch_new(&settings->dispatch, &dispatch, &error);
	struct hb_shared_memory *shared_memory = hb_shared_memory_new();
	settings->http.dispatch = settings->grpc.dispatch = dispatch;
	settings->http.shared_memory = settings->grpc.shared_memory = shared_memory;
	if (result == 0)
		result = hb_kserve_http_new(&settings->http, &http, &error);
	if (result == 0)
		result = hb_kserve_grpc_new(&settings->grpc, &grpc, &error);
	if (result == 0) {
		printf("http: port %u\ngrpc: port %u\n", hb_kserve_http_port(http), hb_kserve_grpc_port(grpc));
		fflush(stdout);
		wait_for_signal(&settings->security, access, tls);
		hb_dispatch_end(dispatch, settings->dispatch.drain_ns);
	}
	hb_kserve_grpc_free(grpc);
	hb_kserve_http_free(http);
	hb_dispatch_free(dispatch);
	hb_shared_memory_free(shared_memory);
	hb_unix_listener_close(http_socket);
	hb_unix_listener_close(grpc_socket);
	hb_tls_free(tls);
	hb_access_free(access);
	return result == 0 ? HB_EXIT_OK : hb_cli_error(COMMAND, result, error.text);
}

int main(int argc, char **argv)
{
	struct serve_options settings = {
		.dispatch = {.policy = "ours", .queue_max = 4096, .drain_ns = 10 * HB_NS_PER_S, .speed = 1},
		.http = {.threads = 2, .connections = 16384, .body_bytes = UINT64_C(256) << 20, .idle_s = 60},
		.grpc = {.connections = 16384, .body_bytes = UINT64_C(256) << 20, .idle_s = 60},
		.memory = {.limit_bytes = UINT64_C(1) << 30},
		.security = {.socket_group = HB_NO_GROUP},
	};
	hb_log_name_set("hb serve");
	hb_http_address_parse("8000", &settings.http.address, NULL);
	hb_http_address_parse("8001", &settings.grpc.address, NULL);
	int result = read_command_line(argc, argv, &settings);
	return result >= 0 ? result : serve_models(&settings);
}
