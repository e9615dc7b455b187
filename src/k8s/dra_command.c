/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb-k8s dra`: a node's driver for Dynamic Resource Allocation (dra_driver.c) and its ResourceSlice (slice.c). A thread reads
 * the node and publishes, because drivers, disks and the API server may be slow; sockets are served meanwhile.
 */
#include "base/clock.h"
#include "base/hb-version.h"
#include "base/log.h"
#include "base/units.h"
#include "k8s/dra_driver.h"
#include "k8s/k8s_command.h"
#include "k8s/node_loop.h"
#include "k8s/slice.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define API_LIMIT_MS 10000
#define FOLDER_MAX 512

static const char usage[] =
	"usage: hb-k8s dra --node NAME [OPTION...]\n"
	"\n"
	"Offers the GPUs of this node to ResourceClaims (Dynamic Resource Allocation, Kubernetes 1.34\n"
	"or newer). Needs the system's daemon (hbd --system), the file that `hb cdi generate` wrote, and\n"
	"a service account that may read claims and write ResourceSlices.\n"
	"\n"
	"  --node NAME      of this node in the cluster. Default: the variable NODE_NAME\n"
	"  --high COUNT     tenants of high priority that a GPU may have (0 to 1000; default 1)\n"
	"  --low COUNT      the same for low priority (default 4)\n"
	"  --grant cdi|none whether a claim also gives its GPUs, as NVIDIA's CDI devices\n"
	"                   nvidia.com/gpu=UUID. Default: cdi\n"
	"  --idle-period DURATION\n"
	"                   how often the GPUs' idle shares are published (1s to 1h; default 60s)\n"
	"  --cdi FILE       default /etc/cdi/hummingbird.json\n"
	"  --claims FOLDER  of the claims' CDI files; default /var/run/cdi\n"
	"  --kubelet FOLDER default /var/lib/kubelet\n"
	"  --api HOST:PORT  of the API server. Default: the variables KUBERNETES_SERVICE_HOST and\n"
	"                   KUBERNETES_SERVICE_PORT\n"
	"  --credentials FOLDER\n"
	"                   of the files token and ca.crt; default\n"
	"                   /var/run/secrets/kubernetes.io/serviceaccount\n"
	"  --gpu sim        for simulated GPUs\n"
	"  --help, --version\n"
	"\n"
	"HB_SOCKET names the daemon's socket, HB_LOG the level of the log (default: info).\n"
	"\n"
	"exit status: 0 ended by a signal, 1 failed, 2 bad command line\n";

struct dra_node {
	struct hb_node_loop loop;
	struct hb_dra_config config;
	struct hb_slice_config slice;
	struct hb_claims_config claims;
	const char *cdi_file, *kubelet;
	char registry[FOLDER_MAX], plugin[FOLDER_MAX], checkpoint[FOLDER_MAX + 16], host[256], port[8];
	bool simulated;
	struct hb_slice_publisher publisher; /* the thread uses it */
	struct hb_error publish_error;
	char complaint[sizeof(struct hb_error)], publish_complaint[sizeof(struct hb_error)];
	struct hb_prepared_claims *prepared;
	struct hb_dra_driver *driver;
};

/* ---- the command line ---- */

static int take_count(const char *option, const char *value, uint32_t *count)
{
	char *end;
	unsigned long number = strtoul(value, &end, 10);
	if (!isdigit((unsigned char)value[0]) || *end || number > HB_GPU_TENANTS_MAX)
		return hb_k8s_usage_error("--%s: '%s' is not a number from 0 to %d", option, value, HB_GPU_TENANTS_MAX);
	*count = (uint32_t)number;
	return -1;
}

/* A name of an object: it becomes part of paths of the API server. */
static int take_node(struct dra_node *node, const char *value)
{
	size_t n = strlen(value);
	for (size_t i = 0; i < n; i++)
		if (!islower((unsigned char)value[i]) && !isdigit((unsigned char)value[i]) && !strchr("-.", value[i]))
			n = 0;
	if (!n || n > HB_NODE_NAME_MAX || !isalnum((unsigned char)value[0]))
		return hb_k8s_usage_error("--node: '%s' is not the name of a node", value);
	node->config.node = node->slice.node = value;
	return -1;
}

/* HOST:PORT or [ADDRESS]:PORT. */
static int take_api(struct dra_node *node, const char *value)
{
	const char *colon = strrchr(value, ':'), *host = value;
	size_t n = colon ? (size_t)(colon - value) : 0;
	if (n > 2 && value[0] == '[' && value[n - 1] == ']') {
		host++;
		n -= 2;
	}
	if (!n || n >= sizeof(node->host) || strspn(colon + 1, "0123456789") != strlen(colon + 1) || !colon[1] ||
	    strlen(colon + 1) >= sizeof(node->port) || strcspn(value, "/ \r\n@") != strlen(value))
		return hb_k8s_usage_error("--api: '%s' is not HOST:PORT", value);
	snprintf(node->host, sizeof(node->host), "%.*s", (int)n, host);
	snprintf(node->port, sizeof(node->port), "%s", colon + 1);
	return -1;
}

static int take_grant(struct dra_node *node, const char *value)
{
	node->claims.grants_gpus = strcmp(value, "cdi") == 0;
	return node->claims.grants_gpus || strcmp(value, "none") == 0
		       ? -1
		       : hb_k8s_usage_error("--grant: '%s' is not cdi or none", value);
}

static int take_idle_period(struct dra_node *node, const char *value)
{
	int64_t ns = 0;
	if (hb_duration_parse(value, &ns, NULL) < 0 || ns < HB_NS_PER_S || ns > 3600 * HB_NS_PER_S)
		return hb_k8s_usage_error("--idle-period: '%s' is not a duration from 1s to 1h", value);
	node->slice.idle_period_ns = ns;
	return -1;
}

static int take_folder(const char *option, const char *value, const char **folder)
{
	if (value[0] != '/' || strlen(value) > FOLDER_MAX - 64)
		return hb_k8s_usage_error("--%s: '%s' is not an absolute path of at most %d bytes", option, value,
					  FOLDER_MAX - 64);
	*folder = value;
	return -1;
}

static int take_option(struct dra_node *node, int code, const char *value)
{
	switch (code) {
	case 'n':
		return take_node(node, value);
	case 'H':
		return take_count("high", value, &node->slice.high);
	case 'L':
		return take_count("low", value, &node->slice.low);
	case 'r':
		return take_grant(node, value);
	case 'i':
		return take_idle_period(node, value);
	case 'c':
		return take_folder("cdi", value, &node->cdi_file);
	case 'f':
		return take_folder("claims", value, &node->claims.cdi_folder);
	case 'k':
		return take_folder("kubelet", value, &node->kubelet);
	case 'a':
		return take_api(node, value);
	case 's':
		return take_folder("credentials", value, &node->config.server.credentials);
	case 'g':
		return hb_k8s_take_gpu(value, &node->simulated);
	case 'h':
		fputs(usage, stdout);
		return 0;
	case 'V':
		puts("hb-k8s " HB_VERSION);
		return 0;
	default:
		fputs("'hb-k8s dra --help' explains the options\n", stderr);
		return 2;
	}
}

static int take_variables(struct dra_node *node)
{
	const char *name = getenv("NODE_NAME"), *host = getenv("KUBERNETES_SERVICE_HOST");
	const char *port = getenv("KUBERNETES_SERVICE_PORT");
	if (!node->config.node && (!name || !*name))
		return hb_k8s_usage_error("--node is missing, and so is the variable NODE_NAME");
	int status = node->config.node ? -1 : take_node(node, name);
	if (status >= 0 || node->host[0])
		return status;
	if (!host || !port)
		return hb_k8s_usage_error("--api is missing, and so are the variables KUBERNETES_SERVICE_HOST and "
					  "KUBERNETES_SERVICE_PORT");
	char address[sizeof(node->host) + 16];
	snprintf(address, sizeof(address), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	return take_api(node, address);
}

/* Returns -1 to continue, else the exit status. */
static int read_command_line(int argc, char **argv, struct dra_node *node)
{
	static const struct option options[] = {
		{"node", required_argument, NULL, 'n'},    {"high", required_argument, NULL, 'H'},
		{"low", required_argument, NULL, 'L'},     {"grant", required_argument, NULL, 'r'},
		{"cdi", required_argument, NULL, 'c'},     {"idle-period", required_argument, NULL, 'i'},
		{"claims", required_argument, NULL, 'f'},  {"credentials", required_argument, NULL, 's'},
		{"kubelet", required_argument, NULL, 'k'}, {"api", required_argument, NULL, 'a'},
		{"gpu", required_argument, NULL, 'g'},     {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},       {NULL, 0, NULL, 0},
	};
	int code, status = -1;
	while (status < 0 && (code = getopt_long(argc, argv, "h", options, NULL)) != -1)
		status = take_option(node, code, optarg);
	if (status < 0 && optind < argc)
		status = hb_k8s_usage_error("dra: too many arguments: '%s'", argv[optind]);
	return status < 0 ? take_variables(node) : status;
}

/* ---- the folders ---- */

static int make_folder(const char *path)
{
	if (mkdir(path, 0755) == 0 || errno == EEXIST)
		return 0;
	hb_log_error("%s: %s", path, strerror(errno));
	return -1;
}

static int open_claims(struct dra_node *node)
{
	struct hb_error error;
	char plugins[FOLDER_MAX];
	snprintf(plugins, sizeof(plugins), "%s/plugins", node->kubelet);
	snprintf(node->plugin, sizeof(node->plugin), "%s/plugins/hummingbird.dev", node->kubelet);
	snprintf(node->registry, sizeof(node->registry), "%s/plugins_registry", node->kubelet);
	snprintf(node->checkpoint, sizeof(node->checkpoint), "%s/claims.json", node->plugin);
	node->config.plugin_folder = node->plugin;
	node->config.registry_folder = node->registry;
	node->claims.checkpoint = node->checkpoint;
	node->config.server.host = node->host;
	node->config.server.port = node->port;
	node->config.server.limit_ms = API_LIMIT_MS;
	node->slice.server = node->config.server;
	if (make_folder(plugins) < 0 || make_folder(node->plugin) < 0 || make_folder(node->claims.cdi_folder) < 0)
		return -1;
	if (hb_prepared_claims_open(&node->claims, &node->prepared, &error) == 0)
		return 0;
	hb_log_error("%s; without this file, hb-k8s begins with no prepared claims", error.text);
	return -1;
}

/* ---- the loop ---- */

static void read_and_publish(struct hb_node_loop *loop)
{
	struct dra_node *node = loop->argument;
	int64_t now_ns = hb_clock_now_ns();
	hb_node_view_read(&loop->next, node->cdi_file, node->simulated);
	hb_slice_read_gpus(&node->publisher, &loop->next, node->simulated, now_ns);
	node->publish_error.text[0] = '\0';
	hb_slice_publish(&node->publisher, &loop->next, now_ns, &node->publish_error);
}

static void complain_of_errors(struct hb_node_loop *loop)
{
	struct dra_node *node = loop->argument;
	hb_node_loop_complain(node->complaint, &loop->view.error);
	hb_node_loop_complain(node->publish_complaint, &node->publish_error);
}

static void check_driver(struct hb_node_loop *loop)
{
	struct dra_node *node = loop->argument;
	hb_dra_driver_check(node->driver);
}

static void close_driver(struct hb_node_loop *loop)
{
	struct dra_node *node = loop->argument;
	hb_dra_driver_close(node->driver);
}

static int run_node(struct dra_node *node)
{
	static const struct hb_node_loop_calls calls = {read_and_publish, complain_of_errors, check_driver,
							close_driver};
	node->loop.calls = &calls;
	node->loop.argument = node;
	if (hb_node_loop_begin(&node->loop) != 0)
		return 1;
	node->publisher.config = &node->slice;
	node->driver = hb_dra_driver_new(&node->loop.loop, &node->config, &node->loop.view, node->prepared);
	hb_node_loop_run(&node->loop);
	hb_dra_driver_free(node->driver);
	hb_slice_fini(&node->publisher);
	hb_node_loop_end(&node->loop);
	return 0;
}

int hb_k8s_dra(int argc, char **argv)
{
	static struct dra_node node = {
		.cdi_file = "/etc/cdi/hummingbird.json",
		.kubelet = "/var/lib/kubelet",
		.claims = {.cdi_folder = "/var/run/cdi", .grants_gpus = true},
		.slice = {.high = 1, .low = 4, .idle_period_ns = 60 * HB_NS_PER_S},
		.config = {.server.credentials = "/var/run/secrets/kubernetes.io/serviceaccount"}};
	int status = read_command_line(argc, argv, &node);
	if (status >= 0)
		return status;
	status = open_claims(&node) < 0 ? 1 : run_node(&node);
	hb_prepared_claims_free(node.prepared);
	return status;
}
