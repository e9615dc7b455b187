/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb set`: changes priority, SLO or limits of a running tenant and prints them. The daemon decides which tenants a user
 * may change, and within which bounds.
 */
#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/status_fields.h"
#include "cli/status_source.h"
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
			    "Changes a running tenant, and prints its priority, SLO and limits. TENANT is the id\n"
			    "in `hb status`. The tenant's user may change it within the daemon's rules; root may\n"
			    "change every tenant without these rules.\n"
			    "\n"
			    "  --slo OBJECTIVE      10ms, p99<10ms, auto, none\n"
			    "  --memory SIZE        most memory on each GPU; none = no limit. The tenant keeps what\n"
			    "                       it has already allocated\n"
			    "  --weight N           its share of the GPU among programs of low priority, 1 to 1000\n"
			    "  --pcie-weight N      its share of PCIe among them, 1 to 1000\n"
			    "  --priority high|low\n"
			    "  --gpu sim            the tenant belongs to the daemon for simulated GPUs\n"
			    "  --json               print the tenant as in `hb status --json`\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 done, 1 the daemon refused or none answers, 2 bad command line\n";

enum set_option_code { OPTION_GPU = HB_TENANT_OPTIONS_END, OPTION_JSON };

struct set_request {
	struct hb_tenant_options options;
	uint32_t tenant;
	uint32_t fields; /* enum hb_set_fields: what to change */
	bool json, simulated;
};

static int take_option(void *argument, int code, const char *value)
{
	struct set_request *request = argument;
	switch (code) {
	case HB_TENANT_OPTION_PRIORITY:
		request->fields |= HB_SET_PRIORITY;
		break;
	case HB_TENANT_OPTION_SLO:
		request->fields |= HB_SET_SLO;
		break;
	case HB_TENANT_OPTION_MEMORY:
		request->fields |= HB_SET_MEMORY;
		request->options.memory_bytes = 0;
		if (strcmp(value, "none") == 0)
			return -1;
		break;
	case HB_TENANT_OPTION_WEIGHT:
		request->fields |= HB_SET_WEIGHT;
		break;
	case HB_TENANT_OPTION_PCIE_WEIGHT:
		request->fields |= HB_SET_PCIE_WEIGHT;
		break;
	case OPTION_GPU:
		return hb_cli_take_gpu(COMMAND, value, &request->simulated);
	default:
		request->json = true;
		return -1;
	}
	return hb_tenant_options_take(COMMAND, &request->options, code, value);
}

static int take_tenant(struct set_request *request, const char *text)
{
	char *end;
	errno = 0;
	unsigned long number = strtoul(text, &end, 10);
	if (*end || end == text || text[0] == '-' || errno || number == 0 || number > UINT32_MAX)
		return hb_cli_usage_error(COMMAND, "'%s' is not the id of a tenant; `hb status` shows the ids", text);
	request->tenant = (uint32_t)number;
	return -1;
}

static int read_command_line(int argc, char **argv, struct set_request *request)
{
	static const struct option options[] = {
		HB_TENANT_OPTION_ROWS,
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"json", no_argument, NULL, OPTION_JSON},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, true};
	int status = hb_cli_read_options(&syntax, argc, argv, request);
	if (status >= 0)
		return status;
	if (optind + 1 != argc)
		return hb_cli_usage_error(COMMAND,
					  optind == argc ? "no tenant is given" : "only one tenant can be given");
	status = take_tenant(request, argv[optind]);
	if (status < 0 && !request->fields)
		return hb_cli_usage_error(COMMAND, "no option says what to change");
	if (request->fields & HB_SET_SLO && !request->options.attainment_ppm)
		request->options.attainment_ppm = HB_DEFAULT_ATTAINMENT_PPM;
	return status;
}

/* --- the daemon ----------------------------------------------------------------------------- */

static void print_terms(const json_t *tenant)
{
	char slo[HB_UNITS_TEXT_MAX], memory[HB_UNITS_TEXT_MAX] = "not limited";
	int64_t bytes = hb_status_number(tenant, "memory_limit");
	if (bytes)
		hb_bytes_format((uint64_t)bytes, memory);
	printf("tenant %lld: priority %s, slo %s", (long long)hb_status_number(tenant, "id"),
	       hb_status_text(tenant, "priority"), hb_status_format_slo(tenant, "none", slo));
	if (hb_status_number(tenant, "slo_asked_ns"))
		printf(" for %g %% of requests", (double)hb_status_number(tenant, "attainment_asked_ppm") / 1e4);
	printf(", memory %s, weight %lld, PCIe weight %lld\n", memory, (long long)hb_status_number(tenant, "weight"),
	       (long long)hb_status_number(tenant, "pcie_weight"));
}

static int show_tenant(const struct set_request *request, struct hb_error *error)
{
	json_t *root;
	int result = hb_status_ask(request->simulated, &root, error);
	if (result < 0)
		return result;
	json_t *tenant = hb_status_find_tenant(root, request->tenant);
	if (!tenant)
		result = hb_error_set(error, -ESRCH, "tenant %u has just ended", request->tenant);
	else if (request->json)
		result = hb_json_write(tenant, stdout, error);
	else
		print_terms(tenant);
	json_decref(root);
	return result;
}

static int change_tenant(const struct set_request *request, struct hb_error *error)
{
	const struct hb_tenant_options *options = &request->options;
	const struct hb_msg_set message = {.tenant = request->tenant,
					   .fields = request->fields,
					   .priority = options->priority,
					   .attainment_ppm = options->attainment_ppm,
					   .slo_ns = options->slo_ns,
					   .memory_bytes = options->memory_bytes,
					   .weight = options->weight,
					   .pcie_weight = options->pcie_weight};
	int result = hb_status_change(request->simulated, &message, error);
	return result < 0 ? result : show_tenant(request, error);
}

int hb_cmd_set(int argc, char **argv)
{
	struct set_request request = {.tenant = 0};
	struct hb_error error = {""};
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	return change_tenant(&request, &error) < 0 ? hb_cli_error(COMMAND, -EIO, error.text) : HB_EXIT_OK;
}
