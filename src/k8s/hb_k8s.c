/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-k8s: what a node of Kubernetes needs besides the daemon. `hb-k8s device-plugin` offers priorities as resources of the
 * node. It needs no connection to the API server. `hb-k8s dra` (dra_command.c) serves ResourceClaims.
 */
#include "base/hb-version.h"
#include "base/log.h"
#include "grpc/rpc_link.h"
#include "k8s/device_plugin.h"
#include "k8s/k8s_command.h"
#include "k8s/node_loop.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESOURCES_MAX 16

static const char usage[] =
	"usage: hb-k8s device-plugin [OPTION...]\n"
	"       hb-k8s dra --node NAME [OPTION...]\n"
	"\n"
	"Offers the priorities of Hummingbird to the kubelet of this node: containers request\n"
	"hummingbird.dev/high or hummingbird.dev/low. Needs the system's daemon (hbd --system) and\n"
	"the file that `hb cdi generate` wrote. `hb-k8s dra` serves ResourceClaims in its place;\n"
	"`hb-k8s dra --help` explains its options.\n"
	"\n"
	"  --resource NAME=COUNT\n"
	"                   each GPU offers COUNT units of hummingbird.dev/NAME (0 to 64). NAME is a\n"
	"                   device of the CDI file. Default: high=1 and low=4\n"
	"  --answer cdi|mounts\n"
	"                   what the kubelet gets for a container: the name of a CDI device (default;\n"
	"                   Kubernetes 1.28 or newer), or mounts and variables\n"
	"  --grant none|cdi|variable\n"
	"                   also gives the container the GPUs of its units: with NVIDIA's CDI devices\n"
	"                   nvidia.com/gpu=UUID, or with NVIDIA_VISIBLE_DEVICES. Default: none, the pod\n"
	"                   requests nvidia.com/gpu itself\n"
	"  --cdi FILE       default /etc/cdi/hummingbird.json\n"
	"  --kubelet FOLDER default /var/lib/kubelet/device-plugins\n"
	"  --gpu sim        for simulated GPUs\n"
	"  --help, --version\n"
	"\n"
	"HB_SOCKET names the daemon's socket, HB_LOG the level of the log (default: info).\n"
	"\n"
	"exit status: 0 ended by a signal, 1 failed, 2 bad command line\n";

struct k8s_resource {
	char name[HB_K8S_RESOURCE_NAME];
	uint32_t units;
	struct hb_device_plugin *plugin;
};

struct k8s_node {
	struct hb_node_loop loop;
	struct hb_plugin_config config;
	bool simulated;
	char complaint[sizeof(struct hb_error)];
	struct k8s_resource resources[RESOURCES_MAX];
	size_t n_resources;
};

/* ---- the command line ---- */

int hb_k8s_usage_error(const char *format, ...)
{
	va_list arguments;
	fputs("hb-k8s: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputs("\n'hb-k8s --help' explains the options\n", stderr);
	return 2;
}

/* The part of a resource's name after the slash, which is also a name of a CDI device. */
static bool is_resource_name(const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
			return false;
	return n && n < HB_K8S_RESOURCE_NAME && isalpha((unsigned char)name[0]) && isalnum((unsigned char)name[n - 1]);
}

static int take_resource(struct k8s_node *node, const char *value)
{
	char name[HB_K8S_RESOURCE_NAME + 1], *end;
	const char *equals = strchr(value, '=');
	snprintf(name, sizeof(name), "%.*s", (int)(equals ? equals - value : 0), value);
	if (!equals || !is_resource_name(name))
		return hb_k8s_usage_error(
			"--resource: '%s' is not NAME=COUNT; a name begins with a letter, and letters, digits and "
			"the characters _-. follow",
			value);
	unsigned long units = strtoul(equals + 1, &end, 10);
	if (!isdigit((unsigned char)equals[1]) || *end || units > HB_K8S_UNITS_MAX)
		return hb_k8s_usage_error("--resource: '%s': the count is not a number from 0 to 64", value);
	size_t i = 0;
	while (i < node->n_resources && strcmp(node->resources[i].name, name) != 0)
		i++;
	if (i == RESOURCES_MAX)
		return hb_k8s_usage_error("--resource: '%s': there are more than 16 resources", value);
	node->n_resources += i == node->n_resources;
	strcpy(node->resources[i].name, name);
	node->resources[i].units = (uint32_t)units;
	return -1;
}

static int take_choice(const char *option, const char *value, const char *const *choices, int *chosen)
{
	for (int i = 0; choices[i]; i++)
		if (strcmp(value, choices[i]) == 0) {
			*chosen = i;
			return -1;
		}
	return hb_k8s_usage_error("--%s: '%s' is not one of the values", option, value);
}

static int take_grant(struct k8s_node *node, const char *value)
{
	static const char *const grants[] = {"none", "cdi", "variable", NULL};
	int chosen = HB_GRANT_NONE, status = take_choice("grant", value, grants, &chosen);
	node->config.grant = (enum hb_gpu_grant)chosen;
	return status;
}

static int take_answer(struct k8s_node *node, const char *value)
{
	static const char *const answers[] = {"cdi", "mounts", NULL};
	int chosen = 0, status = take_choice("answer", value, answers, &chosen);
	node->config.answers_mounts = chosen == 1;
	return status;
}

static int take_kubelet(struct k8s_node *node, const char *value)
{
	/* "/hummingbird-NAME.sock" follows; resources with longer names have a message of their own. */
	if (value[0] != '/' || strlen(value) + sizeof("/hummingbird-high.sock") > HB_RPC_SOCKET_PATH_MAX)
		return hb_k8s_usage_error("--kubelet: '%s' is not an absolute path of at most 85 bytes", value);
	node->config.kubelet_folder = value;
	return -1;
}

int hb_k8s_take_gpu(const char *value, bool *simulated)
{
	*simulated = strcmp(value, "sim") == 0;
	return *simulated ? -1 : hb_k8s_usage_error("--gpu: '%s' is not sim", value);
}

static int take_option(struct k8s_node *node, int code, const char *value)
{
	switch (code) {
	case 'r':
		return take_resource(node, value);
	case 'a':
		return take_answer(node, value);
	case 'n':
		return take_grant(node, value);
	case 'k':
		return take_kubelet(node, value);
	case 'g':
		return hb_k8s_take_gpu(value, &node->simulated);
	case 'c':
		node->config.cdi_file = value;
		return -1;
	case 'h':
		fputs(usage, stdout);
		return 0;
	case 'V':
		puts("hb-k8s " HB_VERSION);
		return 0;
	default:
		fputs("'hb-k8s --help' explains the options\n", stderr);
		return 2;
	}
}

/* Returns -1 to continue, else the exit status. */
static int read_command_line(int argc, char **argv, struct k8s_node *node)
{
	static const struct option options[] = {
		{"resource", required_argument, NULL, 'r'},
		{"answer", required_argument, NULL, 'a'},
		{"grant", required_argument, NULL, 'n'},
		{"kubelet", required_argument, NULL, 'k'},
		{"gpu", required_argument, NULL, 'g'},
		{"cdi", required_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int code, status = -1;
	take_resource(node, "high=1");
	take_resource(node, "low=4");
	while (status < 0 && (code = getopt_long(argc, argv, "h", options, NULL)) != -1)
		status = take_option(node, code, optarg);
	if (status >= 0)
		return status;
	if (optind + 1 != argc || strcmp(argv[optind], "device-plugin") != 0)
		return hb_k8s_usage_error("the command is `device-plugin` or `dra`, not '%s'",
					  optind < argc ? argv[argc - 1] : "");
	if (node->config.answers_mounts && node->config.grant == HB_GRANT_CDI)
		return hb_k8s_usage_error("--grant cdi needs --answer cdi");
	return -1;
}

/* ---- the loop ---- */

static void read_view(struct hb_node_loop *loop)
{
	const struct k8s_node *node = loop->argument;
	hb_node_view_read(&loop->next, node->config.cdi_file, node->simulated);
}

static void complain_of_view(struct hb_node_loop *loop)
{
	struct k8s_node *node = loop->argument;
	if (!loop->view.error.text[0])
		node->complaint[0] = '\0';
	hb_node_loop_complain(node->complaint, &loop->view.error);
}

static void check_plugins(struct hb_node_loop *loop)
{
	struct k8s_node *node = loop->argument;
	for (size_t i = 0; i < node->n_resources; i++)
		if (node->resources[i].plugin)
			hb_device_plugin_check(node->resources[i].plugin);
}

static void close_plugins(struct hb_node_loop *loop)
{
	struct k8s_node *node = loop->argument;
	for (size_t i = 0; i < node->n_resources; i++)
		if (node->resources[i].plugin)
			hb_device_plugin_close(node->resources[i].plugin);
}

static int run_node(struct k8s_node *node)
{
	static const struct hb_node_loop_calls calls = {read_view, complain_of_view, check_plugins, close_plugins};
	node->loop.calls = &calls;
	node->loop.argument = node;
	if (hb_node_loop_begin(&node->loop) != 0)
		return 1;
	for (size_t i = 0; i < node->n_resources; i++)
		if (node->resources[i].units)
			node->resources[i].plugin = hb_device_plugin_new(&node->loop.loop, &node->config,
									 &node->loop.view, node->resources[i].name,
									 node->resources[i].units);
	hb_node_loop_run(&node->loop);
	for (size_t i = 0; i < node->n_resources; i++)
		hb_device_plugin_free(node->resources[i].plugin);
	hb_node_loop_end(&node->loop);
	return 0;
}

int main(int argc, char **argv)
{
	static struct k8s_node node = {.config = {.kubelet_folder = "/var/lib/kubelet/device-plugins",
						  .cdi_file = "/etc/cdi/hummingbird.json"}};
	hb_log_name_set("hb-k8s");
	if (!getenv("HB_LOG"))
		hb_log_level_set(HB_LOG_INFO);
	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && strcmp(argv[1], "dra") == 0)
		return hb_k8s_dra(argc - 1, argv + 1);
	int status = read_command_line(argc, argv, &node);
	return status >= 0 ? status : run_node(&node);
}
