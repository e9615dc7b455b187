/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb top`: shows GPUs and tenants as they are now. This file reads the options and prints views; on a terminal
 * top_screen.c shows a live screen.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/sparkline.h"
#include "cli/status_source.h"
#include "cli/top_screen.h"
#include "cli/top_view.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMAND "top"
#define WIDTH_DEFAULT 132

static const char usage_head[] =
	"usage: hb top [OPTION...]\n"
	"\n"
	"Shows GPUs and tenants as they are now: SLO and attainment, requests, latency, share\n"
	"of the GPU, preemptions. On a terminal the view is live; press h for the keys\n"
	"and the meaning of the columns. Keys also change priority and SLO.\n"
	"\n"
	"  --once           print one view, with rates since each tenant started\n"
	"  --samples N      print N views, with rates over the interval between them\n"
	"  --interval TIME  time between two views (default 1s)\n"
	"  --sort KEY       sort by id, priority, requests, p99, met, share, memory or\n"
	"                   preemptions\n"
	"  --reverse        reverse the order\n"
	"  --filter WORD    show only tenants with this word in program, user or priority\n"
	"  --json           print JSON, with --once or --samples\n"
	"  --gpu sim        show the daemon for simulated GPUs\n"
	"  --from FILE      show a file that hb status --json wrote; given twice: rates\n"
	"                   between the two files\n"
	"  -h, --help\n"
	"\n"
	"columns:\n";

enum top_option_code {
	OPTION_ONCE = 256,
	OPTION_SAMPLES,
	OPTION_INTERVAL,
	OPTION_SORT,
	OPTION_REVERSE,
	OPTION_FILTER,
	OPTION_JSON,
	OPTION_GPU,
	OPTION_FROM,
};

struct top_request {
	struct hb_top_options top;
	long samples; /* 0 = live on a terminal */
	bool json;
	const char *from[2];
	int n_from;
};

/* --- options ------------------------------------------------------------------------- */

static int take_sort(struct top_request *request, const char *word)
{
	for (int i = 0; i < HB_TOP_SORT_KEYS; i++)
		if (strcmp(hb_top_sort_words[i], word) == 0) {
			request->top.sort = (enum hb_top_sort)i;
			return -1;
		}
	return hb_cli_usage_error(COMMAND, "--sort: '%s' is not a column to sort by", word);
}

static int take_interval(struct top_request *request, const char *text)
{
	struct hb_error error;
	if (hb_duration_parse(text, &request->top.interval_ns, &error) < 0)
		return hb_cli_usage_error(COMMAND, "--interval: %s", error.text);
	if (request->top.interval_ns < 50 * HB_NS_PER_MS || request->top.interval_ns > 3600 * HB_NS_PER_S)
		return hb_cli_usage_error(COMMAND, "--interval: '%s' is not between 50ms and 1h", text);
	return -1;
}

static int take_samples(struct top_request *request, const char *text)
{
	char *end = NULL;
	request->samples = strtol(text, &end, 10);
	if (*end || request->samples < 1 || request->samples > 1000000)
		return hb_cli_usage_error(COMMAND, "--samples: '%s' is not a number from 1 on", text);
	return -1;
}

static int take_option(void *argument, int code, const char *value)
{
	struct top_request *request = argument;
	switch (code) {
	case OPTION_ONCE:
		request->samples = 1;
		return -1;
	case OPTION_SAMPLES:
		return take_samples(request, value);
	case OPTION_INTERVAL:
		return take_interval(request, value);
	case OPTION_SORT:
		return take_sort(request, value);
	case OPTION_REVERSE:
		request->top.reverse = true;
		return -1;
	case OPTION_FILTER:
		if (strlen(value) >= sizeof request->top.filter)
			return hb_cli_usage_error(COMMAND, "--filter: the word is too long");
		strcpy(request->top.filter, value);
		return -1;
	case OPTION_JSON:
		request->json = true;
		return -1;
	case OPTION_GPU:
		return hb_cli_take_gpu(COMMAND, value, &request->top.simulated);
	case OPTION_FROM:
		if (request->n_from == 2)
			return hb_cli_usage_error(COMMAND, "--from: two files at most");
		request->from[request->n_from++] = value;
		return -1;
	default:
		return -1;
	}
}

static int read_command_line(int argc, char **argv, struct top_request *request)
{
	static const struct option options[] = {
		{"once", no_argument, NULL, OPTION_ONCE},
		{"samples", required_argument, NULL, OPTION_SAMPLES},
		{"interval", required_argument, NULL, OPTION_INTERVAL},
		{"sort", required_argument, NULL, OPTION_SORT},
		{"reverse", no_argument, NULL, OPTION_REVERSE},
		{"filter", required_argument, NULL, OPTION_FILTER},
		{"json", no_argument, NULL, OPTION_JSON},
		{"gpu", required_argument, NULL, OPTION_GPU},
		{"from", required_argument, NULL, OPTION_FROM},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static char usage[HB_COLUMN_HELP_MAX];
	hb_column_help_text(usage, usage_head, hb_top_columns, HB_TOP_COLUMNS, "");
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, false};
	int status = hb_cli_read_options(&syntax, argc, argv, request);
	if (status < 0 && request->json && !request->samples && !request->n_from)
		return hb_cli_usage_error(COMMAND, "--json needs --once or --samples");
	return status;
}

/* --- printing --------------------------------------------------------------------------- */

static void print_line(void *argument, enum hb_top_style style, const char *text)
{
	puts(text);
}

static int find_print_width(void)
{
	const char *columns = getenv("COLUMNS");
	long width = columns ? strtol(columns, NULL, 10) : 0;
	return width >= 20 && width < HB_TOP_LINE_MAX ? (int)width : WIDTH_DEFAULT;
}

static json_t *pack_known(double value)
{
	return value < 0 ? json_null() : json_real(value);
}

static json_t *pack_tenant(const struct hb_top_tenant *tenant)
{
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:o, s:f, s:f, s:f, s:I, s:I, s:o, s:b, s:o, s:I, s:s}", "id",
			 (int)tenant->id, "priority", tenant->priority, "user", tenant->user, "command",
			 tenant->command, "slo_ns", (json_int_t)tenant->slo_ns, "met", pack_known(tenant->met),
			 "requests_per_s", tenant->requests_s, "launches_per_s", tenant->launches_s,
			 "preemptions_per_s", tenant->preemptions_s, "p50_ns", (json_int_t)tenant->p50_ns, "p99_ns",
			 (json_int_t)tenant->p99_ns, "share", pack_known(tenant->share), "share_estimated",
			 (int)tenant->share_estimated, "unready", pack_known(tenant->unready), "memory",
			 (json_int_t)tenant->memory, "gate", tenant->gate);
}

static int print_json(const struct hb_top_model *model, struct hb_error *error)
{
	json_t *gpus = json_array(), *tenants = json_array();
	json_t *root = hb_json_pack(error, "{s:f, s:o, s:o}", "seconds", model->seconds, "gpus", gpus, "tenants",
				    tenants);
	for (size_t i = 0; root && i < model->n_gpus; i++)
		json_array_append_new(gpus,
				      json_pack("{s:s, s:s, s:o, s:b}", "uuid", model->gpus[i].uuid, "engine",
						model->gpus[i].engine, "harvest", pack_known(model->gpus[i].harvest),
						"harvest_estimated", (int)model->gpus[i].harvest_estimated));
	for (size_t i = 0; root && i < model->n_tenants; i++)
		json_array_append_new(tenants, pack_tenant(&model->tenants[i]));
	int result = hb_json_write(root, stdout, error);
	json_decref(root);
	return result;
}

/* Prints one view. Takes over the reference to `status`. */
static int print_view(const struct top_request *request, json_t *status, const json_t *before, struct hb_error *error)
{
	struct hb_top_model model;
	if (hb_top_model_make(&model, status, before) < 0) {
		json_decref(status);
		return hb_error_set(error, -ENOMEM, "out of memory");
	}
	hb_top_model_arrange(&model, request->top.filter, request->top.sort, request->top.reverse);
	int result = 0;
	if (request->json)
		result = print_json(&model, error);
	else
		hb_top_view_list(&model, 0, find_print_width(), print_line, NULL);
	hb_top_model_fini(&model);
	return result;
}

static int print_files(const struct top_request *request, struct hb_error *error)
{
	json_t *files[2] = {NULL, NULL};
	int result = 0;
	for (int i = 0; i < request->n_from && result == 0; i++)
		result = hb_status_load(request->from[i], &files[i], error);
	if (result == 0)
		result = print_view(request, json_incref(files[request->n_from - 1]),
				    request->n_from == 2 ? files[0] : NULL, error);
	json_decref(files[0]);
	json_decref(files[1]);
	return result;
}

static int print_samples(const struct top_request *request, struct hb_error *error)
{
	json_t *before = NULL;
	int result = 0;
	struct timespec pause = {.tv_sec = request->top.interval_ns / HB_NS_PER_S,
				 .tv_nsec = request->top.interval_ns % HB_NS_PER_S};
	/* Rates over an interval need a status from before the first view. */
	if (request->samples > 1)
		result = hb_status_ask(request->top.simulated, &before, error);
	for (long i = 0; i < request->samples && result == 0; i++) {
		json_t *status;
		if (before)
			nanosleep(&pause, NULL);
		result = hb_status_ask(request->top.simulated, &status, error);
		if (result == 0)
			result = print_view(request, json_incref(status), before, error);
		if (result == 0) {
			json_decref(before);
			before = request->samples > 1 ? status : (json_decref(status), NULL);
		}
		fflush(stdout);
	}
	json_decref(before);
	return result;
}

int hb_cmd_top(int argc, char **argv)
{
	struct top_request request = {.top = {.interval_ns = HB_NS_PER_S}};
	struct hb_error error = {""};
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	setlocale(LC_CTYPE, "");
	hb_sparkline_use_blocks(strcmp(nl_langinfo(CODESET), "UTF-8") == 0);
	if (request.n_from) {
		int result = print_files(&request, &error);
		return result < 0 ? hb_cli_error(COMMAND, result, error.text) : HB_EXIT_OK;
	}
	int result;
	if (request.samples)
		result = print_samples(&request, &error);
	else if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
		result = hb_top_screen_run(&request.top, &error);
	else
		return hb_cli_usage_error(COMMAND, "standard input or output is no terminal; --once prints one view");
	return result < 0 ? hb_cli_error(COMMAND, -EIO, error.text) : HB_EXIT_OK;
}
