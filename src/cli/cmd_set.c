/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb set`: changes the terms of a tenant that runs, and shows what holds now.
 * Whose tenants one may change, and how far, the daemon decides.
 */
#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/daemon_link.h"
#include "cli/tenant_options_cli.h"
#include "decide/defaults.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "set"

static const char usage[] = "usage: hb set TENANT OPTION...\n"
			    "\n"
			    "Changes the terms of a tenant while it runs, and shows what holds then. TENANT is\n"
			    "the id in `hb status`. Its user may change it within the daemon's rules, root may\n"
			    "change any tenant beyond them.\n"
			    "\n"
			    "  --slo OBJECTIVE      10ms, p99<10ms, auto, none\n"
			    "  --memory SIZE        most GPU memory on each GPU, none = no limit; what it holds\n"
			    "                       already it keeps\n"
			    "  --pcie-weight N      its share of PCIe among programs of low priority, 1 to 1000\n"
			    "  --priority high|low\n"
			    "  --gpu sim            a tenant of the daemon for simulated GPUs\n"
			    "  --json               what holds, as in `hb status --json`\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 done, 1 refused or no daemon answers, 2 bad command line\n";

enum option_code {
	OPTION_PRIORITY = 256,
	OPTION_SLO,
	OPTION_MEMORY,
	OPTION_WEIGHT,
	OPTION_GPU,
	OPTION_JSON,
};

struct request {
	struct hb_tenant_options wish;
	uint32_t tenant;
	uint32_t fields; /* enum hb_set_fields */
	bool json, simulated;
};

/* Each takes its value into the wish: -1, or the exit status. */
static int take_memory(struct request *request, const char *value)
{
	request->fields |= HB_SET_MEMORY;
	request->wish.memory_bytes = 0;
	return strcmp(value, "none") == 0 ? -1 : hb_tenant_options_take_memory(COMMAND, &request->wish, value);
}

static int take_slo(struct request *request, const char *value)
{
	request->fields |= HB_SET_SLO;
	int status = hb_tenant_options_take_slo(COMMAND, &request->wish, value);
	if (!request->wish.attainment_ppm)
		request->wish.attainment_ppm = HB_DEFAULT_ATTAINMENT_PPM;
	return status;
}

static int take_option(struct request *request, int code, const char *value)
{
	switch (code) {
	case OPTION_PRIORITY:
		request->fields |= HB_SET_PRIORITY;
		return hb_tenant_options_take_priority(COMMAND, &request->wish, value);
	case OPTION_SLO:
		return take_slo(request, value);
	case OPTION_MEMORY:
		return take_memory(request, value);
	case OPTION_WEIGHT:
		request->fields |= HB_SET_WEIGHT;
		return hb_tenant_options_take_weight(COMMAND, &request->wish, value);
	case OPTION_GPU:
		return hb_cli_take_gpu(COMMAND, value, &request->simulated);
	case OPTION_JSON:
		request->json = true;
		return -1;
	default:
		return -1;
	}
}

static int take_tenant(struct request *request, const char *text)
{
	char *end;
	errno = 0;
	unsigned long number = strtoul(text, &end, 10);
	if (*end || end == text || text[0] == '-' || errno || number == 0 || number > UINT32_MAX)
		return hb_cli_usage_error(COMMAND, "'%s' is no tenant's id; `hb status` shows them", text);
	request->tenant = (uint32_t)number;
	return -1;
}

static int read_command_line(int argc, char **argv, struct request *request)
{
	static const struct option options[] = {
		{"priority", required_argument, NULL, OPTION_PRIORITY},
		{"slo", required_argument, NULL, OPTION_SLO},
		{"memory", required_argument, NULL, OPTION_MEMORY},
		{"pcie-weight", required_argument, NULL, OPTION_WEIGHT},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"json", no_argument, NULL, OPTION_JSON},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int code, status = -1;
	while (status < 0 && (code = hb_cli_next_option(COMMAND, usage, ":h", options, argc, argv, &status)) >= 0)
		status = take_option(request, code, optarg);
	if (status >= 0)
		return status;
	if (optind + 1 != argc)
		return hb_cli_usage_error(COMMAND, optind == argc ? "no tenant is given" : "one tenant at a time");
	status = take_tenant(request, argv[optind]);
	if (status < 0 && !request->fields)
		return hb_cli_usage_error(COMMAND, "nothing to change is given");
	return status;
}

/* --- what holds now ------------------------------------------------------------------------- */

static int64_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void print_terms(const json_t *tenant)
{
	char slo[HB_UNITS_TEXT_MAX] = "none", memory[HB_UNITS_TEXT_MAX] = "not limited";
	int64_t slo_ns = number_of(tenant, "slo_asked_ns"), bytes = number_of(tenant, "memory_limit");
	if (slo_ns > 0)
		hb_duration_format(slo_ns, slo);
	else if (slo_ns < 0)
		strcpy(slo, "auto");
	if (bytes)
		hb_bytes_format((uint64_t)bytes, memory);
	printf("tenant %lld: priority %s, slo %s", (long long)number_of(tenant, "id"),
	       json_string_value(json_object_get(tenant, "priority")), slo);
	if (slo_ns)
		printf(" for %g %% of requests", (double)number_of(tenant, "attainment_asked_ppm") / 1e4);
	printf(", memory %s, PCIe weight %lld\n", memory, (long long)number_of(tenant, "pcie_weight"));
}

static json_t *find_tenant(const json_t *root, uint32_t id)
{
	json_t *tenant;
	size_t i;
	json_array_foreach(json_object_get(root, "tenants"), i,
			   tenant) if (number_of(tenant, "id") == id) return tenant;
	return NULL;
}

static int show(const struct request *request, int socket, struct hb_error *error)
{
	char *text;
	json_t *root;
	int result = hb_client_status(socket, &text, error);
	if (result < 0)
		return result;
	result = hb_json_parse(text, strlen(text), "the daemon's answer", &root, error);
	free(text);
	if (result < 0)
		return result;
	json_t *tenant = find_tenant(root, request->tenant);
	if (!tenant)
		result = hb_error_set(error, -ESRCH, "tenant %u has just ended", request->tenant);
	else if (request->json)
		result = hb_json_write(tenant, stdout, error);
	else
		print_terms(tenant);
	json_decref(root);
	return result;
}

static int change(const struct request *request, struct hb_error *error)
{
	char path[HB_PATH_MAX];
	const struct hb_tenant_options *wish = &request->wish;
	const struct hb_msg_set message = {.tenant = request->tenant,
					   .fields = request->fields,
					   .priority = wish->priority,
					   .attainment_ppm = wish->attainment_ppm,
					   .slo_ns = wish->slo_ns,
					   .memory_bytes = wish->memory_bytes,
					   .pcie_weight = wish->pcie_weight};
	int socket = hb_daemon_link(request->simulated, false, path, error);
	if (socket < 0)
		return socket;
	int result = hb_client_set(socket, &message, error);
	if (result == 0)
		result = show(request, socket, error);
	close(socket);
	return result;
}

int hb_cmd_set(int argc, char **argv)
{
	struct request request = {.tenant = 0};
	struct hb_error error = {""};
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	return change(&request, &error) < 0 ? hb_cli_error(COMMAND, -EIO, error.text) : HB_EXIT_OK;
}
