/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb status`: the daemon's view as a table or as JSON. Shows what is enforced
 * and what is not, and why. Changes nothing.
 */
#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/status_requests.h"
#include "cli/status_source.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "status"

static const char usage[] = "usage: hb status [OPTION...]\n"
			    "\n"
			    "Shows the daemon, its GPUs and tenants: priority, engine, what is enforced and\n"
			    "what is not, and why.\n"
			    "\n"
			    "  --json          everything, as JSON\n"
			    "  --gpu sim       the daemon for simulated GPUs\n"
			    "  --from FILE     show a file that --json wrote, - = standard input\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 done, 1 no daemon answers, 2 bad command line\n";

enum option_code { OPTION_JSON = 256, OPTION_GPU, OPTION_FROM };

struct request {
	bool json, simulated;
	const char *from;
};

static int read_command_line(int argc, char **argv, struct request *request)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, OPTION_JSON},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"from", required_argument, NULL, OPTION_FROM},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int code, status = -1;
	while (status < 0 && (code = hb_cli_next_option(COMMAND, usage, ":h", options, argc, argv, &status)) >= 0) {
		if (code == OPTION_JSON)
			request->json = true;
		else if (code == OPTION_FROM)
			request->from = optarg;
		else
			status = hb_cli_take_gpu(COMMAND, optarg, &request->simulated);
	}
	if (status < 0 && optind < argc)
		return hb_cli_usage_error(COMMAND, "no arguments are taken");
	return status;
}

/* --- reading fields; a field that is missing is shown as nothing ------------------------------ */

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static int64_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* --- the table -------------------------------------------------------------------------------- */

static void print_daemon(const json_t *daemon)
{
	const json_t *mps = json_object_get(daemon, "mps"), *metrics = json_object_get(daemon, "metrics");
	const char *why = text_of(mps, "why");
	printf("daemon %lld, %s mode, %s GPUs; MPS server for low priority: %s%s%s\n",
	       (long long)number_of(daemon, "pid"), text_of(daemon, "mode"), text_of(daemon, "gpus"),
	       text_of(mps, "state"), *why ? ", " : "", why);
	if (*text_of(metrics, "address"))
		printf("live page http://%s/, metrics http://%s/metrics\n", text_of(metrics, "address"),
		       text_of(metrics, "address"));
	if (*text_of(metrics, "why"))
		printf("no live page and metrics: %s\n", text_of(metrics, "why"));
}

#define UNCOVERED_SHOWN 4

/* "python (pid 77, 3GiB), Xorg (pid 3)" */
static void print_uncovered(const json_t *gpu)
{
	const json_t *list = json_object_get(gpu, "uncovered"), *entry;
	size_t i, n = json_array_size(list);
	if (n == 0)
		return;
	printf("  %zu process%s without Hummingbird: ", n, n == 1 ? "" : "es");
	json_array_foreach(list, i, entry)
	{
		char memory[HB_UNITS_TEXT_MAX] = "";
		if (i == UNCOVERED_SHOWN)
			break;
		if (json_is_integer(json_object_get(entry, "memory")))
			hb_bytes_format((uint64_t)number_of(entry, "memory"), memory);
		printf("%s%s (pid %lld%s%s)", i ? ", " : "", *text_of(entry, "name") ? text_of(entry, "name") : "?",
		       (long long)number_of(entry, "pid"), *memory ? ", " : "", memory);
	}
	puts(n > UNCOVERED_SHOWN ? ", ..." : "");
}

static void print_gpu(const json_t *gpu)
{
	char reserve[HB_UNITS_TEXT_MAX], used[HB_UNITS_TEXT_MAX];
	hb_bytes_format((uint64_t)number_of(gpu, "reserve"), reserve);
	hb_bytes_format((uint64_t)number_of(gpu, "low_memory"), used);
	printf("%s%s%s: engine %s, policy %s, %lld high, %lld low; %s reserved for high, low holds %s\n",
	       text_of(gpu, "uuid"), *text_of(gpu, "name") ? " " : "", text_of(gpu, "name"), text_of(gpu, "engine"),
	       text_of(gpu, "policy"), (long long)number_of(gpu, "high"), (long long)number_of(gpu, "low"), reserve,
	       used);
	if (*text_of(gpu, "ejected"))
		printf("  policy ejected: %s\n", text_of(gpu, "ejected"));
	if (*text_of(gpu, "uncovered_why"))
		printf("  not all processes on the GPU are known: %s\n", text_of(gpu, "uncovered_why"));
	print_uncovered(gpu);
}

static void print_mechanism(const json_t *entry)
{
	printf("        %-14s %-13s %s\n", text_of(entry, "mechanism"),
	       json_is_true(json_object_get(entry, "enforced")) ? "enforced" : "not enforced", text_of(entry, "why"));
}

/* Memory beside what the tenant holds: contexts and modules. */
static void print_overhead(const json_t *use)
{
	char memory[HB_UNITS_TEXT_MAX] = "not known";
	const char *why = text_of(use, "memory_overhead_why");
	if (json_is_integer(json_object_get(use, "memory_overhead")))
		hb_bytes_format((uint64_t)number_of(use, "memory_overhead"), memory);
	else if (!*why)
		return;
	printf("        %-14s %s%s%s\n", "own contexts", memory, *why ? ": " : "", why);
}

static void print_use(const json_t *tenant, const json_t *use, bool several)
{
	const json_t *entry;
	size_t i;
	if (several)
		printf("      on %s\n", text_of(use, "gpu"));
	json_array_foreach(json_object_get(use, "mechanisms"), i, entry) print_mechanism(entry);
	print_overhead(use);
	hb_status_print_requests(tenant, use);
	if (strcmp(text_of(use, "gate"), "open") != 0)
		printf("        %-14s %s\n", "gate", text_of(use, "gate"));
}

static void format_slo(const json_t *tenant, char text[HB_UNITS_TEXT_MAX])
{
	int64_t slo_ns = number_of(tenant, "slo_asked_ns");
	if (slo_ns > 0)
		hb_duration_format(slo_ns, text);
	else
		strcpy(text, slo_ns < 0 ? "auto" : "-");
}

static void print_tenant(const json_t *tenant)
{
	const json_t *uses = json_object_get(tenant, "gpus"), *use;
	const json_t *counters = json_object_get(tenant, "counters");
	char slo[HB_UNITS_TEXT_MAX], memory[HB_UNITS_TEXT_MAX];
	int64_t used = 0;
	size_t i;
	json_array_foreach(uses, i, use) used += number_of(use, "memory_used");
	format_slo(tenant, slo);
	hb_bytes_format((uint64_t)used, memory);
	printf("%4lld  %-10s %-7lld %-8s %-6s %9s %10lld  %s\n", (long long)number_of(tenant, "id"),
	       text_of(tenant, "priority"), (long long)number_of(tenant, "pid"), text_of(tenant, "user"), slo, memory,
	       (long long)(number_of(counters, "kernels") + number_of(counters, "graphs")), text_of(tenant, "command"));
	if (*text_of(tenant, "reduced"))
		printf("        note: %s\n", text_of(tenant, "reduced"));
	if (*text_of(tenant, "engine_why"))
		printf("        %-14s %s\n", "engine", text_of(tenant, "engine_why"));
	if (number_of(tenant, "memory_limit"))
		print_mechanism(json_object_get(tenant, "memory"));
	json_array_foreach(uses, i, use) print_use(tenant, use, json_array_size(uses) > 1);
	hb_status_print_holds(tenant);
	if (json_array_size(uses) == 0)
		puts("        no GPU in use yet");
}

static void print_table(const json_t *root)
{
	const json_t *entry, *tenants = json_object_get(root, "tenants");
	size_t i;
	print_daemon(json_object_get(root, "daemon"));
	json_array_foreach(json_object_get(root, "gpus"), i, entry) print_gpu(entry);
	if (json_array_size(tenants) == 0) {
		puts("no tenants");
		return;
	}
	printf("\n%4s  %-10s %-7s %-8s %-6s %9s %10s  %s\n", "id", "priority", "pid", "user", "slo", "memory",
	       "launches", "command");
	json_array_foreach(tenants, i, entry) print_tenant(entry);
}

int hb_cmd_status(int argc, char **argv)
{
	struct request request = {.json = false};
	struct hb_error error = {""};
	json_t *root;
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	int result = request.from ? hb_status_load(request.from, &root, &error)
				  : hb_status_ask(request.simulated, &root, &error);
	if (result < 0)
		return hb_cli_error(COMMAND, request.from ? result : -EIO, error.text);
	if (request.json)
		result = hb_json_write(root, stdout, &error);
	else
		print_table(root);
	json_decref(root);
	return result < 0 ? hb_cli_error(COMMAND, result, error.text) : HB_EXIT_OK;
}
