/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb sim-cluster`: how many GPUs a cluster needs, and what its tenants get, for each rule of who shares a GPU with whom.
 * src/cluster replays the trace; this file reads the options and the inputs.
 */
#include "base/json.h"
#include "base/out_file.h"
#include "base/paths.h"
#include "cli/cli.h"
#include "cluster/cluster_study.h"
#include "report/output.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "sim-cluster"

static const char help[] =
	"usage: hb sim-cluster [OPTION...]\n"
	"\n"
	"Replays the pods of a cluster on GPUs, for several rules of who shares a GPU with whom:\n"
	"how many GPUs does the cluster need, what do services lose, and what do jobs get? A model\n"
	"of pairs predicts that, from rows measured on one H200 and rows of hb sim.\n"
	"\n"
	"  --rule NAME[,NAME...]|all  the rules to compare (default all); the first is always run\n"
	"  --within POINTS       attainment that services may lose, in points (default 1)\n"
	"  --gpus N              GPUs of the cluster whose GPUs are limited (default: what all pods\n"
	"                        need that are not LP)\n"
	"  --duty-factor N       every service is busy N times as much as in the fleet (default 1)\n"
	"  --copies N            the cluster has every pod N times (default 1)\n"
	"  --pods FILE           the pods, CSV or gzip (default: those of openb, Alibaba 2023)\n"
	"  --duty FILE           how busy services are (default: those of a fleet, Alibaba 2026)\n"
	"  --pairs FILE          rows of pairs (default: those of an H200)\n"
	"  --json                one object\n"
	"  --schedule FILE       CSV: when and where each pod ran under the last of the rules, with\n"
	"                        limited GPUs, where any pair may share\n"
	"  --report FILE         an HTML page with charts; it needs a browser with JavaScript and\n"
	"                        no network\n"
	"\n"
	"rules:\n"
	"  exclusive             one GPU each\n"
	"  timeslice             2 replicas by the driver's time slices\n"
	"  mps                   half a GPU each by MPS (LP may use 60 % of the SMs)\n"
	"  fgd                   best fit of the shares asked for, time slices\n"
	"  matching              matching by predicted speed, MPS without preemption\n"
	"  ours                  matching by predicted speed, temporal or spatial engine\n"
	"\n"
	"example:\n"
	"  hb sim-cluster --rule timeslice,ours --report cluster.html\n";

struct cluster_command {
	struct hb_cluster_study study;
	const char *pods, *duty, *pairs, *report, *schedule;
	uint32_t copies;
	bool json;
};

enum { RULE = 1, WITHIN, GPUS, DUTY_FACTOR, COPIES, PODS, DUTY, PAIRS, JSON, REPORT, SCHEDULE };

/* -1, or an exit status after a message; as all functions below that take a value. */
static int take_number(const char *option, const char *text, double least, double most, double *number)
{
	int code = hb_cli_parse_number(COMMAND, option, text, least, most, number);
	return code ? code : -1;
}

static int take_count(const char *option, const char *text, uint32_t most, uint32_t *count)
{
	double number = 0;
	int code = take_number(option, text, 1, most, &number);
	if (code < 0 && number != (uint32_t)number)
		code = hb_cli_usage_error(COMMAND, "--%s %s: must be a whole number", option, text);
	*count = code < 0 ? (uint32_t)number : *count;
	return code;
}

static int take_rule(struct cluster_command *command, const char *name, size_t length)
{
	for (uint32_t i = 0; i < HB_CLUSTER_RULES; i++)
		if (strlen(hb_cluster_rules[i].name) == length &&
		    strncmp(hb_cluster_rules[i].name, name, length) == 0) {
			command->study.rules |= 1u << i;
			return -1;
		}
	return hb_cli_usage_error(COMMAND,
				  "--rule %.*s: no such rule; known: exclusive, timeslice, mps, fgd, matching, ours",
				  (int)length, name);
}

static int take_rules(struct cluster_command *command, const char *list)
{
	int code = -1;
	command->study.rules = 1; /* the others are compared with it */
	if (strcmp(list, "all") == 0)
		command->study.rules = (1u << HB_CLUSTER_RULES) - 1;
	else
		for (size_t length; code < 0 && *list; list += length + (list[length] == ',')) {
			length = strcspn(list, ",");
			code = take_rule(command, list, length);
		}
	return code;
}

static int take_path(const char **path, const char *value)
{
	*path = value;
	return -1;
}

static int take_option(void *argument, int option, const char *value)
{
	struct cluster_command *command = argument;
	double number = 0;
	int code;
	switch (option) {
	case RULE:
		return take_rules(command, value);
	case WITHIN:
		code = take_number("within", value, 0, 100, &number);
		command->study.within = number / 100;
		return code;
	case GPUS:
		return take_count("gpus", value, 10000000, &command->study.n_gpus);
	case DUTY_FACTOR:
		return take_number("duty-factor", value, 0, 100, &command->study.duty_factor);
	case COPIES:
		return take_count("copies", value, 2000, &command->copies);
	case PODS:
		return take_path(&command->pods, value);
	case DUTY:
		return take_path(&command->duty, value);
	case PAIRS:
		return take_path(&command->pairs, value);
	case REPORT:
		return take_path(&command->report, value);
	case SCHEDULE:
		return take_path(&command->schedule, value);
	default: /* JSON */
		command->json = true;
		return -1;
	}
}

/* Writes the path of an input: the one that was given, or that of the file of data/. */
static int find_input(const char *given, const char *usual, char path[static PATH_MAX], struct hb_error *error)
{
	if (!given)
		return hb_path_data(usual, path, PATH_MAX, error);
	if (strlen(given) >= PATH_MAX)
		return hb_error_set(error, -ENAMETOOLONG, "%.80s...: the path is too long", given);
	memcpy(path, given, strlen(given) + 1);
	return 0;
}

static int write_schedule(const struct cluster_command *command, struct hb_error *error)
{
	struct hb_out_file file = {0};
	int rc = hb_out_file_open(&file, command->schedule, error);
	if (!rc && file.stream) {
		rc = hb_out_file_wrote(&file, hb_cluster_schedule_write(file.stream, &command->study, error), error);
		rc = rc ? rc : hb_out_file_commit(&file, error);
	}
	hb_out_file_fini(&file);
	return rc;
}

static int write_results(struct cluster_command *command, struct hb_error *error)
{
	json_t *root = NULL;
	struct hb_out_file file = {0};
	int rc = hb_cluster_study_pack(&command->study, &root, error);
	if (!rc && command->json)
		rc = hb_json_write(root, stdout, error);
	else if (!rc)
		hb_cluster_study_write(stdout, &command->study);
	rc = rc ? rc : hb_out_file_open(&file, command->report, error);
	if (!rc && file.stream) {
		rc = hb_out_file_wrote(&file, hb_page_write(file.stream, root, error), error);
		rc = rc ? rc : hb_out_file_commit(&file, error);
	}
	hb_out_file_fini(&file);
	json_decref(root);
	return rc ? rc : write_schedule(command, error);
}

static int run_command(struct cluster_command *command)
{
	struct hb_error error = {""};
	struct hb_pods pods = {0};
	double duty[HB_DUTY_STEPS];
	char path[PATH_MAX];
	struct hb_pair_model *model = calloc(1, sizeof *model);
	int rc = model ? 0 : hb_error_set(&error, -ENOMEM, "out of memory");
	rc = rc ? rc : find_input(command->pairs, "traces/h200-pairs.csv", path, &error);
	rc = rc ? rc : hb_pair_model_read(model, path, &error);
	rc = rc ? rc : find_input(command->duty, "traces/genai-2026-duty.csv", path, &error);
	rc = rc ? rc : hb_duty_read(duty, path, &error);
	rc = rc ? rc : find_input(command->pods, "traces/openb-2023-pods.csv.gz", path, &error);
	rc = rc ? rc : hb_pods_read(&pods, path, &error);
	rc = rc ? rc : hb_pods_repeat(&pods, command->copies, 0, &error);
	command->study.pods = &pods;
	command->study.duty = duty;
	command->study.model = model;
	rc = rc ? rc : hb_cluster_study_run(&command->study, &error);
	rc = rc ? rc : write_results(command, &error);
	command->study.pods = NULL;
	command->study.duty = NULL;
	command->study.model = NULL;
	hb_pods_fini(&pods);
	free(model);
	return rc ? hb_cli_error(COMMAND, rc, error.text) : HB_EXIT_OK;
}

int hb_cmd_sim_cluster(int argc, char **argv)
{
	static const struct option options[] = {
		{"rule", required_argument, NULL, RULE},
		{"within", required_argument, NULL, WITHIN},
		{"gpus", required_argument, NULL, GPUS},
		{"duty-factor", required_argument, NULL, DUTY_FACTOR},
		{"copies", required_argument, NULL, COPIES},
		{"pods", required_argument, NULL, PODS},
		{"duty", required_argument, NULL, DUTY},
		{"pairs", required_argument, NULL, PAIRS},
		{"json", no_argument, NULL, JSON},
		{"report", required_argument, NULL, REPORT},
		{"schedule", required_argument, NULL, SCHEDULE},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {
		.command = COMMAND, .usage = help, .letters = "h", .options = options, .take = take_option};
	struct cluster_command *command = malloc(sizeof *command);
	if (!command)
		return hb_cli_error(COMMAND, -ENOMEM, "out of memory");
	*command = (struct cluster_command){
		.study = {.rules = (1u << HB_CLUSTER_RULES) - 1, .within = 0.01, .duty_factor = 1}, .copies = 1};
	int code = hb_cli_read_options(&syntax, argc, argv, command);
	if (code < 0)
		code = run_command(command);
	free(command);
	return code;
}
