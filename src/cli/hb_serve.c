/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-serve, which `hb serve` becomes: an inference server for a folder of models,
 * with two priorities and deadlines. Options in, front ends up, then it waits for
 * a signal. What serves is src/front; what decides is src/serve.
 */
#include "base/log.h"
#include "base/units.h"
#include "cli/cli.h"
#include "front/kserve_grpc.h"
#include "front/kserve_http.h"
#include "front/worker_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define COMMAND "serve"
#define GRACE_NS INT64_C(10000000000) /* for requests in flight when it is told to end */

static const char usage[] = "usage: hb serve --models FOLDER [OPTION...]\n"
			    "\n"
			    "Serves the models of a folder over KServe v2. Requests have a priority and a\n"
			    "deadline (request parameters `priority`, `deadline`, `timeout`; microseconds).\n"
			    "\n"
			    "  --models FOLDER      one folder a model in it, each with a model.yaml\n"
			    "  --http ADDRESS:PORT  HTTP and metrics (default 127.0.0.1:8000; port 0 = any)\n"
			    "  --threads N          that read and answer HTTP (default 2)\n"
			    "  --connections N      at one time (default 16384)\n"
			    "  --body SIZE          largest request (default 256MiB)\n"
			    "  --queue N            requests that may wait (default 4096)\n"
			    "  --late HIGH[,LOW]    what happens to requests that will miss their deadline:\n"
			    "                       reject (default) or downgrade\n"
			    "  --policy NAME        who is served next (default ours)\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 ended by a signal, 1 could not start, 2 bad command line\n";

enum option_code {
	OPTION_MODELS = 256,
	OPTION_HTTP,
	OPTION_GRPC,
	OPTION_THREADS,
	OPTION_CONNECTIONS,
	OPTION_BODY,
	OPTION_QUEUE,
	OPTION_LATE,
	OPTION_POLICY,
	OPTION_GPU
};

struct wish {
	struct hb_dispatch_config dispatch;
	struct hb_kserve_http_config http;
	struct hb_kserve_grpc_config grpc;
};

static int parse_address(const char *text, struct sockaddr_storage *out)
{
	char host[64];
	const char *colon = strrchr(text, ':');
	char *end = NULL;
	struct sockaddr_in *four = (struct sockaddr_in *)out;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	if (!colon || (size_t)(colon - text) >= sizeof(host))
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	unsigned long port = strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port > 65535)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	size_t length = strlen(host);
	if (length > 2 && host[0] == '[' && host[length - 1] == ']') {
		host[length - 1] = '\0';
		six->sin6_family = AF_INET6;
		six->sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, host + 1, &six->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	four->sin_family = AF_INET;
	four->sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &four->sin_addr) == 1 ? 0 : -EINVAL;
}

static int parse_late(const char *text, enum hb_serve_late *late)
{
	char copy[64], *rest = NULL;
	int n = 0;
	if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
		return -EINVAL;
	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		if (n == HB_SERVE_PRIORITIES || (strcmp(word, "reject") != 0 && strcmp(word, "downgrade") != 0))
			return -EINVAL;
		late[n++] = strcmp(word, "reject") == 0 ? HB_SERVE_REJECT : HB_SERVE_DOWNGRADE;
	}
	if (n == 1)
		late[HB_SERVE_LOW] = late[HB_SERVE_HIGH];
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

/* 0, or -EINVAL: *what says what the option takes. */
static int take_option(int code, struct wish *wish, const char **what)
{
	uint64_t bytes = 0;
	switch (code) {
	case OPTION_MODELS:
		wish->dispatch.models = optarg;
		return 0;
	case OPTION_HTTP:
		*what = "--http takes ADDRESS:PORT, as in 127.0.0.1:8000 or [::1]:8000";
		return parse_address(optarg, &wish->http.address);
	case OPTION_GRPC:
		*what = "--grpc takes ADDRESS:PORT, as in 127.0.0.1:8001 or [::1]:8001";
		return parse_address(optarg, &wish->grpc.address);
	case OPTION_THREADS:
		*what = "--threads takes a number, 1 to 64";
		return parse_count(optarg, 64, &wish->http.threads);
	case OPTION_CONNECTIONS:
		*what = "--connections takes a number, 1 to 1000000";
		return parse_count(optarg, 1000000, &wish->http.connections);
	case OPTION_BODY:
		*what = "--body takes a size, as in 64MiB";
		if (hb_bytes_parse(optarg, &bytes, NULL) < 0 || bytes == 0)
			return -EINVAL;
		wish->http.body_bytes = wish->grpc.body_bytes = bytes;
		return 0;
	case OPTION_QUEUE:
		*what = "--queue takes a number, 1 to 1000000";
		return parse_count(optarg, 1000000, &wish->dispatch.queue_max);
	case OPTION_LATE:
		*what = "--late takes reject or downgrade, for high and low priority";
		return parse_late(optarg, wish->dispatch.late);
	case OPTION_GPU:
		*what = "--gpu takes sim or none";
		wish->dispatch.gpu = strcmp(optarg, "sim") == 0 ? HB_WORKER_GPU_SIM : HB_WORKER_GPU_NONE;
		return strcmp(optarg, "sim") == 0 || strcmp(optarg, "none") == 0 ? 0 : -EINVAL;
	case OPTION_POLICY:
		wish->dispatch.policy = optarg;
		return 0;
	default:
		*what = "unknown option, or one without its value";
		return -EINVAL;
	}
}

static int read_command_line(int argc, char **argv, struct wish *wish)
{
	static const struct option options[] = {
		{"models", required_argument, NULL, OPTION_MODELS},
		{"http", required_argument, NULL, OPTION_HTTP},
		{"grpc", required_argument, NULL, OPTION_GRPC},
		{"threads", required_argument, NULL, OPTION_THREADS},
		{"connections", required_argument, NULL, OPTION_CONNECTIONS},
		{"body", required_argument, NULL, OPTION_BODY},
		{"queue", required_argument, NULL, OPTION_QUEUE},
		{"late", required_argument, NULL, OPTION_LATE},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"policy", required_argument, NULL, OPTION_POLICY},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const char *what = "";
	int code;
	opterr = 0;
	while ((code = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (code == 'h') {
			fputs(usage, stdout);
			return HB_EXIT_OK;
		}
		if (take_option(code, wish, &what) < 0)
			return hb_cli_usage_error(COMMAND, "%s", what);
	}
	if (optind < argc)
		return hb_cli_usage_error(COMMAND, "no arguments are taken");
	return wish->dispatch.models ? -1 : hb_cli_usage_error(COMMAND, "--models FOLDER is needed");
}

/* Ten thousand connections need as many descriptors; what the system allows is taken. */
static void raise_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void wait_for_signal(void)
{
	sigset_t set;
	int signal_number;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	while (sigwait(&set, &signal_number) != 0)
		;
}

static void block_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int serve(struct wish *wish)
{
	struct hb_error error = {.text = ""};
	struct hb_dispatch *dispatch = NULL;
	struct hb_kserve_http *http = NULL;
	struct hb_kserve_grpc *grpc = NULL;
	wish->grpc.connections = wish->http.connections;
	raise_descriptors();
	block_signals();
	int result = hb_dispatch_new(&wish->dispatch, &dispatch, &error);
	struct hb_regions *regions = hb_regions_new();
	wish->http.dispatch = wish->grpc.dispatch = dispatch;
	wish->http.regions = wish->grpc.regions = regions;
	if (result == 0)
		result = hb_kserve_http_new(&wish->http, &http, &error);
	if (result == 0)
		result = hb_kserve_grpc_new(&wish->grpc, &grpc, &error);
	if (result == 0) {
		printf("http: port %u\ngrpc: port %u\n", hb_kserve_http_port(http), hb_kserve_grpc_port(grpc));
		fflush(stdout);
		wait_for_signal();
		hb_dispatch_end(dispatch, GRACE_NS);
	}
	hb_kserve_grpc_free(grpc);
	hb_kserve_http_free(http);
	hb_dispatch_free(dispatch);
	hb_regions_free(regions);
	return result == 0 ? HB_EXIT_OK : hb_cli_error(COMMAND, result, error.text);
}

int main(int argc, char **argv)
{
	struct wish wish = {
		.dispatch = {.policy = "ours", .queue_max = 4096, .speed = 1},
		.http = {.threads = 2, .connections = 16384, .body_bytes = UINT64_C(256) << 20, .idle_s = 60},
		.grpc = {.connections = 16384, .body_bytes = UINT64_C(256) << 20, .idle_s = 60},
	};
	hb_log_name_set("hb serve");
	parse_address("127.0.0.1:8000", &wish.http.address);
	parse_address("127.0.0.1:8001", &wish.grpc.address);
	int result = read_command_line(argc, argv, &wish);
	return result >= 0 ? result : serve(&wish);
}
