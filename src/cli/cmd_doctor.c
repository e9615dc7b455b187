/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb doctor`: tries every mechanism on this machine and reports what works, what does not, and what to do. Child
 * processes try the mechanisms that touch the GPU; they are killed when they take too long (doctor_trial.h). Two examples:
 * `hb doctor --slice` sets a time slice on a context of its own, and `hb run ... -- hb doctor --inside` creates a context
 * as a tenant of each priority.
 */
#include "base/clock.h"
#include "base/install_path.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/daemon_link.h"
#include "cli/doctor_channels.h"
#include "cli/doctor_fix.h"
#include "cli/doctor_gpcs.h"
#include "cli/doctor_inside.h"
#include "cli/doctor_masks.h"
#include "cli/doctor_slice.h"
#include "cli/doctor_trial.h"
#include "cli/status_fields.h"
#include "gpu/provider.h"
#include "nvidia/channel_find.h"
#include "nvidia/mask_states.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "doctor"
#define PROBES_MAX 32
#define CHANNEL_PAGES 80u
#define TRIAL_LIMIT_NS (60 * HB_NS_PER_S) /* the GPU may have to wake up, and the MPS server to start */

static const char usage[] = "usage: hb doctor [OPTION...]\n"
			    "\n"
			    "Tries every mechanism on this machine and reports what works, what does not, and\n"
			    "what to do.\n"
			    "\n"
			    "  --gpu sim     use the simulated GPU, not the real one\n"
			    "  --quick       run nothing on the GPU\n"
			    "  --limit TIME  time limit of a trial, e.g. 20s (default 60s)\n"
			    "  --json        print the results as JSON\n"
			    "  --channels    only map which addresses share a memory channel; this uses the\n"
			    "                GPU until all pages are mapped or the limit is over\n"
			    "  --pages N     with --channels: pages of 2 MiB to map (default 80)\n"
			    "  --fix         print what can be repaired (groups, MPS, limits, packages) and the\n"
			    "                commands that do it; nothing is tried\n"
			    "  --yes         with --fix: run these commands\n"
			    "  -h, --help\n"
			    "\n"
			    "exit status: 0 everything required works (--fix: nothing is left to repair),\n"
			    "1 something required does not work (--fix: something is left), 2 bad command line\n";

enum doctor_option_code {
	OPTION_GPU = 256,
	OPTION_QUICK,
	OPTION_LIMIT,
	OPTION_JSON,
	OPTION_INSIDE,
	OPTION_SLICE,
	OPTION_MASKS,
	OPTION_GPCS,
	OPTION_CHANNELS,
	OPTION_PAGES,
	OPTION_FIX,
	OPTION_YES
};

struct doctor_request {
	bool simulated, quick, json, inside, slice, masks, gpcs, channels, fix, yes;
	uint32_t pages;   /* for channels; 0 = CHANNEL_PAGES */
	int64_t limit_ns; /* time limit of one trial */
};

struct doctor_report {
	struct hb_probe probes[PROBES_MAX];
	size_t n;
};

static struct hb_probe *add_probe(struct doctor_report *report, const char *name, bool required)
{
	static struct hb_probe spill;
	struct hb_probe *probe = report->n < PROBES_MAX ? &report->probes[report->n++] : &spill;
	memset(probe, 0, sizeof *probe);
	snprintf(probe->name, sizeof probe->name, "%s", name);
	probe->required = required;
	return probe;
}

/* --- checks that do not touch the GPU -------------------------------------------------- */

static void probe_shim(struct doctor_report *report)
{
	struct hb_probe *probe = add_probe(report, "shim", true);
	char path[PATH_MAX] = "";
	probe->works = hb_install_shim_dir(path, sizeof path - 16) == 0 &&
		       access(strcat(path, "/libcuda.so.1"), R_OK) == 0;
	snprintf(probe->found, sizeof probe->found, "%.440s%s", *path ? path : "the shim (libcuda.so.1)",
		 probe->works ? "" : " does not exist");
	if (!probe->works)
		strcpy(probe->remedy, "install it, or set HB_SHIM_DIR to its folder");
}

static void probe_machine(struct doctor_report *report, const struct hb_provider *provider)
{
	for (size_t i = 0; provider->probes[i] && report->n < PROBES_MAX; i++) {
		struct hb_probe *probe = &report->probes[report->n++];
		*probe = (struct hb_probe){.works = false};
		provider->probes[i](probe);
	}
}

static void probe_daemon(struct doctor_report *report, bool simulated)
{
	struct hb_probe *probe = add_probe(report, "daemon", true);
	struct hb_error error = {""};
	char path[HB_PATH_MAX];
	int socket = hb_daemon_link(simulated, true, path, &error);
	probe->works = socket >= 0;
	snprintf(probe->found, sizeof probe->found, "%.470s", probe->works ? path : error.text);
	if (socket >= 0)
		close(socket);
	else
		strcpy(probe->remedy,
		       "fix what the message names, or set HB_SOCKET or XDG_RUNTIME_DIR to another place; "
		       "`hbd --foreground` says more");
}

/* --- trials on the GPU ---------------------------------------------------------------------- */

static void try_slice(struct doctor_report *report, const struct doctor_request *request)
{
	struct hb_error error = {""};
	json_t *answer = hb_trial_slice(request->simulated, request->limit_ns, &error);
	struct hb_probe *probe = add_probe(report, "time-slice control", true);
	probe->works = json_is_true(json_object_get(answer, "works"));
	snprintf(probe->found, sizeof probe->found, "%.158s", answer ? hb_status_text(answer, "found") : error.text);
	if (!probe->works && answer)
		strcpy(probe->remedy,
		       "without time slices no tenant is preferred to another: see docs/limits.md, 'What must work'");
	else if (!probe->works)
		strcpy(probe->remedy, "read the kernel's log (dmesg); a GPU that does not answer may need its driver "
				      "reloaded");
	json_decref(answer);
}

/*
 * Adds the check of SM masks, which are not required: only the spatial engine uses them, and it also works without
 * them.
 */
static void try_masks(struct doctor_report *report, const struct doctor_request *request)
{
	struct hb_error error = {""};
	json_t *answer = hb_trial_masks(request->simulated, request->limit_ns, &error);
	struct hb_probe *probe = add_probe(report, "SM masks", false);
	char version[64] = "";
	probe->works = json_is_true(json_object_get(answer, "works"));
	hb_provider_of(request->simulated)->driver_version(version, sizeof version);
	bool known = hb_mask_driver_is_known(version);
	snprintf(probe->found, sizeof probe->found, "%.158s%s%s%s",
		 answer ? hb_status_text(answer, "found") : error.text, known ? "" : "; driver ", known ? "" : version,
		 known ? "" : " is new to Hummingbird");
	if (!probe->works && known)
		strcpy(probe->remedy,
		       "without them low priority waits in the spatial engine while a request is served");
	else if (!probe->works)
		snprintf(probe->remedy, sizeof probe->remedy,
			 "the daemon refuses the spatial engine with this driver, unless its configuration has "
			 "`trusted_driver: %s`",
			 version);
	json_decref(answer);
}

/* Adds the check of GPCs, which is not required: if the GPCs are unknown, masks are spread over all SMs. */
static void try_gpcs(struct doctor_report *report, const struct doctor_request *request)
{
	struct hb_error error = {""};
	json_t *answer = hb_trial_gpcs(request->simulated, request->limit_ns, &error);
	struct hb_probe *probe = add_probe(report, "masks of full GPCs", false);
	probe->works = json_is_true(json_object_get(answer, "works"));
	snprintf(probe->found, sizeof probe->found, "%.158s", answer ? hb_status_text(answer, "found") : error.text);
	if (!probe->works)
		strcpy(probe->remedy, "masks are then spread over all GPCs, even with `masks: gpcs`");
	json_decref(answer);
}

/* Adds a warning, not an error, when processes on the GPU are not managed. */
static void add_not_managed(struct doctor_report *report, const json_t *answer)
{
	const json_t *gpu, *entry;
	size_t i, j, n = 0;
	char *at = NULL;
	struct hb_probe *probe = add_probe(report, "all managed", false);
	probe->works = true;
	strcpy(probe->found, "every process on the GPU is a tenant");
	json_array_foreach(json_object_get(answer, "gpus"), i, gpu)
	{
		if (*hb_status_text(gpu, "uncovered_why")) {
			probe->works = false;
			snprintf(probe->found, sizeof probe->found, "%.158s", hb_status_text(gpu, "uncovered_why"));
			strcpy(probe->remedy, "programs that were started without hb run cannot be listed");
		}
		json_array_foreach(json_object_get(gpu, "uncovered"), j, entry)
		{
			at = n++ ? at : probe->found;
			int room = (int)(probe->found + sizeof probe->found - at);
			int length = snprintf(at, (size_t)room, "%s%.32s (pid %d)", n > 1 ? ", " : "",
					      hb_status_text(entry, "name"),
					      (int)json_integer_value(json_object_get(entry, "pid")));
			at += length < room ? length : room - 1;
		}
	}
	if (n == 0)
		return;
	probe->works = false;
	strcpy(probe->remedy, "the driver shares the GPU with them, without priority, limit or reserve; "
			      "start them with hb run");
}

static void add_context_memory(struct doctor_report *report, const char *priority, const json_t *use)
{
	char name[32], memory[HB_UNITS_TEXT_MAX];
	const json_t *bytes = json_object_get(use, "memory_overhead");
	snprintf(name, sizeof name, "%s: context memory", priority);
	struct hb_probe *probe = add_probe(report, name, false);
	probe->works = json_is_integer(bytes);
	if (probe->works) {
		hb_bytes_format((uint64_t)json_integer_value(bytes), memory);
		snprintf(probe->found, sizeof probe->found, "%s in addition to the tenant's own allocations", memory);
	} else {
		snprintf(probe->found, sizeof probe->found, "%.158s", hb_status_text(use, "memory_overhead_why"));
		strcpy(probe->remedy, "it is never limited; leave room for it beside limits and reserve");
	}
}

static void add_mechanism(struct doctor_report *report, const char *priority, const json_t *entry)
{
	char name[32];
	snprintf(name, sizeof name, "%s: %s", priority, hb_status_text(entry, "mechanism"));
	/* Time slices of compute groups are required: without them high priority has no effect. */
	struct hb_probe *probe = add_probe(report, name,
					   strcmp(hb_status_text(entry, "mechanism"), "compute slice") == 0);
	probe->works = json_is_true(json_object_get(entry, "enforced"));
	snprintf(probe->found, sizeof probe->found, "%s", hb_status_text(entry, "why"));
	if (!probe->works)
		strcpy(probe->remedy, "the driver's default slices are used; hb status --json has the details");
}

static void try_priority(struct doctor_report *report, const char *priority, const struct doctor_request *request,
			 bool last)
{
	struct hb_error error = {""};
	char name[32];
	const json_t *entry;
	size_t i;
	json_t *answer = hb_trial_inside(priority, request->simulated, request->limit_ns, &error);
	const char *failed = answer ? hb_status_text(answer, "error") : error.text;
	snprintf(name, sizeof name, "%s: CUDA context", priority);
	struct hb_probe *probe = add_probe(report, name, true);
	probe->works = !*failed;
	snprintf(probe->found, sizeof probe->found, "%.150s",
		 *failed ? failed : "created through the shim, known to the daemon");
	if (*failed)
		strcpy(probe->remedy, "fix the errors above first; then try the program without hb run");
	/* The program sees all GPUs, and makes a context on the first one. */
	const json_t *use = json_array_get(json_object_get(json_object_get(answer, "tenant"), "gpus"), 0);
	json_array_foreach(json_object_get(use, "mechanisms"), i, entry) add_mechanism(report, priority, entry);
	if (use)
		add_context_memory(report, priority, use);
	if (last && !*failed)
		add_not_managed(report, answer);
	json_decref(answer);
}

/* --- printing ------------------------------------------------------------------------------ */

static bool has_all_needed(const struct doctor_report *report)
{
	bool well = true;
	for (size_t i = 0; i < report->n; i++)
		well = well && (report->probes[i].works || !report->probes[i].required);
	return well;
}

static void print_text(const struct doctor_report *report)
{
	for (size_t i = 0; i < report->n; i++) {
		const struct hb_probe *probe = &report->probes[i];
		printf("%-7s %-22s %s\n",
		       probe->works      ? "ok"
		       : probe->required ? "MISSING"
					 : "without",
		       probe->name, probe->found);
		if (probe->remedy[0])
			printf("        %-22s -> %s\n", "", probe->remedy);
	}
	puts(has_all_needed(report) ? "everything that is required works" : "something that is required does not work");
}

static int print_json(const struct doctor_report *report, struct hb_error *error)
{
	json_t *probes = json_array();
	json_t *root = hb_json_pack(error, "{s:i, s:b, s:o}", "version", 1, "works", (int)has_all_needed(report),
				    "probes", probes);
	for (size_t i = 0; root && i < report->n; i++) {
		const struct hb_probe *probe = &report->probes[i];
		json_array_append_new(probes, hb_json_pack(error, "{s:s, s:b, s:b, s:s, s:s}", "name", probe->name,
							   "works", (int)probe->works, "required", (int)probe->required,
							   "found", probe->found, "remedy", probe->remedy));
	}
	int result = hb_json_write(root, stdout, error);
	json_decref(root);
	return result;
}

/* --- command ---------------------------------------------------------------------------------- */

static int take_limit(struct doctor_request *request, const char *value)
{
	struct hb_error error;
	if (hb_duration_parse(value, &request->limit_ns, &error) < 0 || request->limit_ns <= 0)
		return hb_cli_usage_error(COMMAND, "--limit: '%s' is not a time such as 20s", value);
	return -1;
}

static int take_pages(struct doctor_request *request, const char *value)
{
	char *end;
	errno = 0;
	unsigned long pages = strtoul(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || errno || pages < 1 || pages > HB_CHANNEL_PAGES_MOST)
		return hb_cli_usage_error(COMMAND, "--pages: '%s' is not a number from 1 to %u", value,
					  HB_CHANNEL_PAGES_MOST);
	request->pages = (uint32_t)pages;
	return -1;
}

static int take_option(void *argument, int code, const char *value)
{
	struct doctor_request *request = argument;
	switch (code) {
	case OPTION_GPU:
		return hb_cli_take_gpu(COMMAND, value, &request->simulated);
	case OPTION_LIMIT:
		return take_limit(request, value);
	case OPTION_QUICK:
		request->quick = true;
		return -1;
	case OPTION_JSON:
		request->json = true;
		return -1;
	case OPTION_INSIDE:
		request->inside = true;
		return -1;
	case OPTION_SLICE:
		request->slice = true;
		return -1;
	case OPTION_MASKS:
		request->masks = true;
		return -1;
	case OPTION_GPCS:
		request->gpcs = true;
		return -1;
	case OPTION_CHANNELS:
		request->channels = true;
		return -1;
	case OPTION_PAGES:
		return take_pages(request, value);
	case OPTION_FIX:
		request->fix = true;
		return -1;
	case OPTION_YES:
		request->yes = true;
		return -1;
	default:
		return -1;
	}
}

static int read_command_line(int argc, char **argv, struct doctor_request *request)
{
	static const struct option options[] = {
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"quick", no_argument, NULL, OPTION_QUICK},
		{"limit", required_argument, NULL, OPTION_LIMIT},
		{"json", no_argument, NULL, OPTION_JSON},
		{"inside", no_argument, NULL, OPTION_INSIDE},
		{"slice", no_argument, NULL, OPTION_SLICE},
		{"masks", no_argument, NULL, OPTION_MASKS},
		{"gpcs", no_argument, NULL, OPTION_GPCS},
		{"channels", no_argument, NULL, OPTION_CHANNELS},
		{"pages", required_argument, NULL, OPTION_PAGES},
		{"fix", no_argument, NULL, OPTION_FIX},
		{"yes", no_argument, NULL, OPTION_YES},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, false};
	int status = hb_cli_read_options(&syntax, argc, argv, request);
	if (status < 0 && request->yes && !request->fix)
		return hb_cli_usage_error(COMMAND, "--yes needs --fix");
	if (status < 0 && request->fix && request->json)
		return hb_cli_usage_error(COMMAND, "--fix prints no JSON");
	if (status < 0 && request->pages && !request->channels)
		return hb_cli_usage_error(COMMAND, "--pages needs --channels");
	return status;
}

int hb_cmd_doctor(int argc, char **argv)
{
	struct doctor_request request = {.limit_ns = TRIAL_LIMIT_NS};
	struct doctor_report report = {.n = 0};
	struct hb_error error = {""};
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	if (request.inside)
		return hb_doctor_inside();
	if (request.slice)
		return hb_doctor_slice(request.simulated);
	if (request.masks)
		return hb_doctor_masks(request.simulated);
	if (request.gpcs)
		return hb_doctor_gpcs(request.simulated);
	if (request.channels)
		return hb_doctor_channels(request.simulated, request.json,
					  request.pages ? request.pages : CHANNEL_PAGES, request.limit_ns);
	if (request.fix)
		return hb_doctor_fix(request.simulated, request.yes);
	probe_machine(&report, hb_provider_of(request.simulated));
	probe_shim(&report);
	bool ready = has_all_needed(&report);
	fflush(stdout);
	if (ready && !request.quick)
		try_slice(&report, &request);
	if (has_all_needed(&report) && !request.quick)
		try_masks(&report, &request);
	if (has_all_needed(&report) && !request.quick && report.probes[report.n - 1].works)
		try_gpcs(&report, &request);
	if (ready && !request.quick)
		probe_daemon(&report, request.simulated);
	if (has_all_needed(&report) && !request.quick) {
		try_priority(&report, "high", &request, false);
		try_priority(&report, "low", &request, true);
	}
	if (request.json && print_json(&report, &error) < 0)
		return hb_cli_error(COMMAND, -EIO, error.text);
	if (!request.json)
		print_text(&report);
	return has_all_needed(&report) ? HB_EXIT_OK : HB_EXIT_FAILURE;
}
