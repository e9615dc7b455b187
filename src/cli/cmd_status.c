/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb status`: prints the daemon's status as a table or as JSON: GPUs, tenants, which mechanisms are enforced, and why the
 * others are not. Changes nothing.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/column_help.h"
#include "cli/status_fields.h"
#include "cli/status_requests.h"
#include "cli/status_source.h"
#include "cli/status_user_table.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "status"

static const char usage_head[] = "usage: hb status [OPTION...]\n"
				 "\n"
				 "Shows the daemon, its GPUs and its tenants: priority, engine, which mechanisms are\n"
				 "enforced, and why the others are not.\n"
				 "\n"
				 "  --json          print everything as JSON\n"
				 "  --gpu sim       show the daemon for simulated GPUs\n"
				 "  --from FILE     show a file that --json wrote; - is standard input\n"
				 "  -h, --help\n"
				 "\n"
				 "columns:\n";
static const char usage_tail[] = "\nexit status: 0 done, 1 no daemon answers, 2 bad command line\n";

/* X(format, title, help) */
#define COLUMNS(X) \
	X("%4s  ", "id", "number of the tenant, for hb set") \
	X("%-10s ", "priority", "high, low, or mps server: in it low-priority programs run") \
	X("%-7s ", "pid", "process of hb run, which becomes the command or its supervisor") \
	X("%-8s ", "user", "the tenant's user") \
	X("%-6s ", "slo", "latency objective that the tenant asked for; -: none") \
	X("%9s ", "memory", "GPU memory that the tenant has allocated, on all its GPUs") \
	X("%10s  ", "launches", "kernels and graphs that the tenant has launched") \
	X("%s\n", "command", "the command that hb run started")
static const struct hb_column_help tenant_columns[] = {
#define X(format, title, help) {title, help},
	COLUMNS(X)
#undef X
};
#define N_TENANT_COLUMNS (sizeof tenant_columns / sizeof *tenant_columns)

enum status_option_code { OPTION_JSON = 256, OPTION_GPU, OPTION_FROM };

struct status_request {
	bool json, simulated;
	const char *from;
};

static int take_option(void *argument, int code, const char *value)
{
	struct status_request *request = argument;
	if (code == OPTION_GPU)
		return hb_cli_take_gpu(COMMAND, value, &request->simulated);
	if (code == OPTION_JSON)
		request->json = true;
	else
		request->from = value;
	return -1;
}

static int read_command_line(int argc, char **argv, struct status_request *request)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, OPTION_JSON},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"from", required_argument, NULL, OPTION_FROM},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static char usage[HB_COLUMN_HELP_MAX];
	struct hb_column_help all[N_TENANT_COLUMNS + HB_STATUS_USER_COLUMNS];
	memcpy(all, tenant_columns, sizeof tenant_columns);
	memcpy(all + N_TENANT_COLUMNS, hb_status_user_columns, sizeof hb_status_user_columns);
	hb_column_help_text(usage, usage_head, all, sizeof all / sizeof *all, usage_tail);
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, false};
	return hb_cli_read_options(&syntax, argc, argv, request);
}

/* --- the table -------------------------------------------------------------------------------- */

/* The last fault in the MPS server: "process 77 (user ann, tenant 3: train) was the first to ...; 2 others lost their work". */
static void print_mps_fault(const json_t *fault)
{
	if (!json_is_object(fault))
		return;
	printf("last fault in the MPS server: ");
	if (hb_status_number(fault, "pid"))
		printf("process %lld (user %s, tenant %lld: %s) ", (long long)hb_status_number(fault, "pid"),
		       hb_status_text(fault, "user"), (long long)hb_status_number(fault, "tenant"),
		       hb_status_text(fault, "command"));
	printf("%s; other processes that lost their GPU work: %zu\n", hb_status_text(fault, "cause"),
	       json_array_size(json_object_get(fault, "harmed")));
}

static void print_daemon(const json_t *daemon)
{
	const json_t *mps = json_object_get(daemon, "mps"), *metrics = json_object_get(daemon, "metrics");
	const char *why = hb_status_text(mps, "why");
	printf("daemon %lld, %s mode, %s GPUs; MPS server for low priority: %s%s%s\n",
	       (long long)hb_status_number(daemon, "pid"), hb_status_text(daemon, "mode"),
	       hb_status_text(daemon, "gpus"), hb_status_text(mps, "state"), *why ? ", " : "", why);
	print_mps_fault(json_object_get(mps, "fault"));
	if (*hb_status_text(metrics, "address"))
		printf("live page http://%s/, metrics http://%s/metrics\n", hb_status_text(metrics, "address"),
		       hb_status_text(metrics, "address"));
	if (*hb_status_text(metrics, "why"))
		printf("no live page and metrics: %s\n", hb_status_text(metrics, "why"));
}

#define NOT_MANAGED_SHOWN 4

/* Prints "python (pid 77, 3GiB), Xorg (pid 3)", for example. */
static void print_not_managed(const json_t *gpu)
{
	const json_t *list = json_object_get(gpu, "uncovered"), *entry;
	size_t i, n = json_array_size(list);
	if (n == 0)
		return;
	printf("  %zu process%s not managed by Hummingbird: ", n, n == 1 ? "" : "es");
	json_array_foreach(list, i, entry)
	{
		char memory[HB_UNITS_TEXT_MAX] = "";
		if (i == NOT_MANAGED_SHOWN)
			break;
		if (json_is_integer(json_object_get(entry, "memory")))
			hb_bytes_format((uint64_t)hb_status_number(entry, "memory"), memory);
		printf("%s%s (pid %lld%s%s)", i ? ", " : "",
		       *hb_status_text(entry, "name") ? hb_status_text(entry, "name") : "?",
		       (long long)hb_status_number(entry, "pid"), *memory ? ", " : "", memory);
	}
	puts(n > NOT_MANAGED_SHOWN ? ", ..." : "");
	if (json_is_true(json_object_get(gpu, "busy_outside")))
		puts("  they keep the GPU busy: low priority has longer time slices meanwhile, so that it is not stopped, and high "
		     "priority waits longer; start them with hb run");
}

/* "last fault 5 min ago: Xid 31 (...), process 77 (train), tenant 3 of user ann; 2 faults so far" */
static void print_health(const json_t *health)
{
	const json_t *last = json_object_get(health, "last");
	if (json_is_true(json_object_get(health, "lost")))
		puts("  LOST: the GPU does not answer the driver; new programs on it are not scheduled, gates are open");
	if (json_is_object(last)) {
		long long seconds = (long long)(hb_status_number(last, "age_ns") / HB_NS_PER_S);
		printf("  last fault %lld %s ago: %s", seconds > 120 ? seconds / 60 : seconds,
		       seconds > 120 ? "min" : "s", hb_status_text(last, "what"));
		if (hb_status_number(last, "pid"))
			printf(", process %lld (%s)", (long long)hb_status_number(last, "pid"),
			       hb_status_text(last, "process"));
		else if (*hb_status_text(last, "process"))
			printf(", %s", hb_status_text(last, "process"));
		if (hb_status_number(last, "tenant"))
			printf(", tenant %lld of user %s", (long long)hb_status_number(last, "tenant"),
			       hb_status_text(last, "user"));
		printf("; %lld so far\n", (long long)hb_status_number(health, "faults"));
	}
	if (*hb_status_text(health, "why"))
		printf("  faults of the GPU are not reported: %s\n", hb_status_text(health, "why"));
}

static void print_gpu(const json_t *gpu)
{
	char reserve[HB_UNITS_TEXT_MAX], used[HB_UNITS_TEXT_MAX];
	hb_bytes_format((uint64_t)hb_status_number(gpu, "reserve"), reserve);
	hb_bytes_format((uint64_t)hb_status_number(gpu, "low_memory"), used);
	printf("%s%s%s: engine %s, policy %s, %lld high, %lld low; %s reserved for high, low holds %s\n",
	       hb_status_text(gpu, "uuid"), *hb_status_text(gpu, "name") ? " " : "", hb_status_text(gpu, "name"),
	       hb_status_text(gpu, "engine"), hb_status_text(gpu, "policy"), (long long)hb_status_number(gpu, "high"),
	       (long long)hb_status_number(gpu, "low"), reserve, used);
	if (*hb_status_text(gpu, "ejected"))
		printf("  policy ejected: %s\n", hb_status_text(gpu, "ejected"));
	print_health(json_object_get(gpu, "health"));
	if (*hb_status_text(gpu, "uncovered_why"))
		printf("  not all processes on the GPU are known: %s\n", hb_status_text(gpu, "uncovered_why"));
	print_not_managed(gpu);
}

static void print_mechanism(const json_t *entry)
{
	printf("        %-14s %-13s %s\n", hb_status_text(entry, "mechanism"),
	       json_is_true(json_object_get(entry, "enforced")) ? "enforced" : "not enforced",
	       hb_status_text(entry, "why"));
}

/* Prints the memory of contexts and modules, which the tenant did not allocate itself. */
static void print_overhead(const json_t *use)
{
	char memory[HB_UNITS_TEXT_MAX] = "not known";
	const char *why = hb_status_text(use, "memory_overhead_why");
	if (json_is_integer(json_object_get(use, "memory_overhead")))
		hb_bytes_format((uint64_t)hb_status_number(use, "memory_overhead"), memory);
	else if (!*why)
		return;
	printf("        %-14s %s%s%s\n", "own contexts", memory, *why ? ": " : "", why);
}

static void print_gpu_use(const json_t *tenant, const json_t *use, bool several)
{
	const json_t *entry;
	size_t i;
	if (several)
		printf("      on %s\n", hb_status_text(use, "gpu"));
	json_array_foreach(json_object_get(use, "mechanisms"), i, entry) print_mechanism(entry);
	print_overhead(use);
	hb_status_print_requests(tenant, use);
	if (*hb_status_text(use, "engine_advice"))
		printf("        %-14s %s\n", "engine", hb_status_text(use, "engine_advice"));
	if (strcmp(hb_status_text(use, "gate"), "open") != 0)
		printf("        %-14s %s\n", "gate", hb_status_text(use, "gate"));
}

/* "container 4f5e6d7c8b9a, pod 1b2c..., Slurm job 4711" */
static void print_place(const json_t *place)
{
	static const char *const known[][2] = {
		{"container", "container"}, {"pod", "pod"}, {"namespace", "namespace"}, {"slurm_job", "Slurm job"}};
	const char *separator = "";
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		const char *text = hb_status_text(place, known[i][0]);
		if (!*text)
			continue;
		if (!*separator)
			printf("        %-14s ", "runs in");
		/* Twelve digits of a container are what its runtime shows. */
		printf("%s%s %.*s", separator, known[i][1], i == 0 ? 12 : 64, text);
		separator = ", ";
	}
	if (*separator)
		putchar('\n');
}

/* The GPUs that the daemon chose for `hb run --gpus`. */
static void print_placement(const json_t *placement)
{
	if (!json_is_object(placement))
		return;
	printf("        %-14s %s%s\n", "placed on", hb_status_text(placement, "text"),
	       json_is_true(json_object_get(placement, "waiting")) ? "; not all of them are in use yet" : "");
}

static void print_placements(const json_t *placements)
{
	const json_t *entry;
	size_t i;
	json_array_foreach(placements, i, entry) printf(
		"placed for a program of %s that has not started (%lld s left): %s\n", hb_status_text(entry, "user"),
		(long long)(hb_status_number(entry, "left_ns") / HB_NS_PER_S), hb_status_text(entry, "text"));
}

static void print_tenant(const json_t *tenant)
{
	const json_t *uses = json_object_get(tenant, "gpus"), *use;
	const json_t *counters = json_object_get(tenant, "counters");
	char slo[HB_UNITS_TEXT_MAX], memory[HB_UNITS_TEXT_MAX];
	int64_t used = 0;
	size_t i;
	json_array_foreach(uses, i, use) used += hb_status_number(use, "memory_used");
	hb_status_format_slo(tenant, "-", slo);
	hb_bytes_format((uint64_t)used, memory);
	printf("%4lld  %-10s %-7lld %-8s %-6s %9s %10lld  %s\n", (long long)hb_status_number(tenant, "id"),
	       hb_status_text(tenant, "priority"), (long long)hb_status_number(tenant, "pid"),
	       hb_status_text(tenant, "user"), slo, memory,
	       (long long)(hb_status_number(counters, "kernels") + hb_status_number(counters, "graphs")),
	       hb_status_text(tenant, "command"));
	if (*hb_status_text(tenant, "reduced"))
		printf("        note: %s\n", hb_status_text(tenant, "reduced"));
	print_place(json_object_get(tenant, "place"));
	print_placement(json_object_get(tenant, "placement"));
	if (*hb_status_text(tenant, "engine_why"))
		printf("        %-14s %s\n", "engine", hb_status_text(tenant, "engine_why"));
	if (hb_status_number(tenant, "memory_limit"))
		print_mechanism(json_object_get(tenant, "memory"));
	json_array_foreach(uses, i, use) print_gpu_use(tenant, use, json_array_size(uses) > 1);
	hb_status_print_takeovers(tenant);
	if (json_array_size(uses) == 0)
		puts("        no GPU in use yet");
}

static void print_tenants(const json_t *root)
{
	const json_t *entry, *tenants = json_object_get(root, "tenants");
	size_t i;
	if (json_array_size(tenants) == 0) {
		puts("no tenants");
		return;
	}
	putchar('\n');
#define X(format, title, help) printf(format, title);
	COLUMNS(X)
#undef X
	json_array_foreach(tenants, i, entry) print_tenant(entry);
}

static void print_table(const json_t *root)
{
	const json_t *entry;
	size_t i;
	print_daemon(json_object_get(root, "daemon"));
	json_array_foreach(json_object_get(root, "gpus"), i, entry) print_gpu(entry);
	print_tenants(root);
	print_placements(json_object_get(root, "placements"));
	hb_status_print_users(root);
}

int hb_cmd_status(int argc, char **argv)
{
	struct status_request request = {.json = false};
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
