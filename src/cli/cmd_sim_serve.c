/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb sim-serve`: compares serving policies in virtual time on the GPU model. Every policy gets the same inference
 * requests, which have two priorities and deadlines. src/simserving/serving_run.c runs one case; this file reads the
 * options and runs the cases in order.
 */
#include "base/parse_number.h"
#include "base/paths.h"
#include "cli/cli.h"
#include "simserving/serving_models.h"
#include "simserving/serving_output.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "sim-serve"
#define TRACE "traces/h200-pytorch-2.11.csv.gz"
#define LIST_MAX 32
#define ROWS_MAX 4096
#define TRAFFIC_MAX 8

static const char help[] = "usage: hb sim-serve [OPTION...]\n"
			   "\n"
			   "Compares serving policies: how many inference requests of two priorities miss their\n"
			   "deadlines, for each policy and load? The requests are for six models that were derived\n"
			   "from recorded kernel traces; they run on a model of the GPU. Every policy gets the same\n"
			   "requests.\n"
			   "\n"
			   "  --policy NAME[,NAME...]|all  the policies to compare (default all)\n"
			   "  --load PERCENT[,...]  request rates, as a share of the rate that the GPU can serve\n"
			   "                        (default 60,70,80,90,100,110)\n"
			   "  --capacity N          the request rate that is 100 % (default: measured without\n"
			   "                        batching, with queues that are never empty)\n"
			   "  --traffic KIND[,KIND] poisson, bursts (default both), or trace:FILE: the arrival\n"
			   "                        times of FILE, made as frequent as the load says (a table\n"
			   "                        with the column arrival_s first, or one time on each line)\n"
			   "  --high PERCENT        share of requests that have high priority (default 40)\n"
			   "  --deadlines H,L       deadlines of high and low priority, as multiples of the latency\n"
			   "                        alone (default 4,8)\n"
			   "  --concurrency N       batches that run at the same time, for policies that need a\n"
			   "                        number (default 2)\n"
			   "  --seconds N           simulated time of each run (default 10)\n"
			   "  --seeds N             runs of each case, with other arrivals (default 1)\n"
			   "  --models NAME[,...]   the models of src/simserving/serving_models.def to serve\n"
			   "                        (default: the usual six)\n"
			   "  --gpu NAME            the GPU: a file of data/gpus, or a path (default h200)\n"
			   "  --link GB/S           bandwidth of the host link in each direction, for GPUs that\n"
			   "                        share a link (default: the GPU's own)\n"
			   "  --demand KIND         where the predictor knows the models' demand for the GPU from:\n"
			   "                        known (their recorded kernels, default), or measured (run times\n"
			   "                        alone, on fewer SMs, and beside a bandwidth-bound program),\n"
			   "                        or typed (the same for all: the defaults of model.yaml)\n"
			   "  --errors              also run the predictor with parts switched off; needs --json\n"
			   "  --json                one object\n"
			   "\n"
			   "example:\n"
			   "  hb sim-serve --policy ours,preempt --load 90,100 --traffic bursts\n";

struct serving_command {
	struct hb_serving_run_options run;
	const char *policies[LIST_MAX];
	double loads[LIST_MAX];
	const char *traffic[TRAFFIC_MAX];
	uint32_t n_policies, n_loads, n_traffic, seeds;
	bool json, help;
};

enum {
	POLICY = 1,
	CAPACITY,
	LOAD,
	TRAFFIC,
	HIGH,
	DEADLINES,
	CONCURRENCY,
	SECONDS,
	SEEDS,
	MODELS,
	GPU,
	LINK,
	DEMAND,
	ERRORS,
	JSON,
	HELP
};

static const struct option long_options[] = {
	{"policy", required_argument, NULL, POLICY},
	{"capacity", required_argument, NULL, CAPACITY},
	{"load", required_argument, NULL, LOAD},
	{"traffic", required_argument, NULL, TRAFFIC},
	{"high", required_argument, NULL, HIGH},
	{"deadlines", required_argument, NULL, DEADLINES},
	{"concurrency", required_argument, NULL, CONCURRENCY},
	{"seconds", required_argument, NULL, SECONDS},
	{"seeds", required_argument, NULL, SEEDS},
	{"models", required_argument, NULL, MODELS},
	{"gpu", required_argument, NULL, GPU},
	{"link", required_argument, NULL, LINK},
	{"demand", required_argument, NULL, DEMAND},
	{"errors", no_argument, NULL, ERRORS},
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, HELP},
	{NULL, 0, NULL, 0},
};

static int take_number(const char *option, const char *text, double least, double most, double *number)
{
	return hb_cli_parse_number(COMMAND, option, text, least, most, number);
}

/* Returns the next word of a list with commas and moves *list behind it; NULL after the last word. Writes to the list. */
static char *take_next_word(char **list)
{
	char *word = *list;
	if (!word)
		return NULL;
	char *comma = strchr(word, ',');
	*list = comma ? comma + 1 : NULL;
	if (comma)
		*comma = '\0';
	return word;
}

static int take_policies(struct serving_command *command, char *list)
{
	command->n_policies = 0;
	for (const char *const *name = hb_scheduler_policy_names; strcmp(list, "all") == 0 && *name; name++)
		command->policies[command->n_policies++] = *name;
	if (command->n_policies)
		return HB_EXIT_OK;
	for (char *word; (word = take_next_word(&list)) && command->n_policies < LIST_MAX;) {
		uint32_t i = 0;
		while (hb_scheduler_policy_names[i] && strcmp(hb_scheduler_policy_names[i], word) != 0)
			i++;
		if (!hb_scheduler_policy_names[i])
			return hb_cli_usage_error(
				COMMAND,
				"--policy %s: no such policy; known: ours, ours-no-transfer, "
				"ours-no-interference, ours-no-preemption, fifo, priority-fifo, edf, clockwork, preempt, "
				"separate",
				word);
		command->policies[command->n_policies++] = hb_scheduler_policy_names[i];
	}
	return HB_EXIT_OK;
}

static int take_models(struct serving_command *command, const char *list)
{
	char copy[256], *rest = copy;
	snprintf(copy, sizeof copy, "%s", list);
	for (char *word; (word = take_next_word(&rest));)
		if (!hb_serving_model_known(word))
			return hb_cli_usage_error(COMMAND, "--models %s: no such model", word);
	command->run.models = list;
	return HB_EXIT_OK;
}

static int take_loads(struct serving_command *command, char *list)
{
	command->n_loads = 0;
	for (char *word; (word = take_next_word(&list)) && command->n_loads < LIST_MAX;) {
		double percent = 0;
		int code = take_number("load", word, 1, 1000, &percent);
		if (code)
			return code;
		command->loads[command->n_loads++] = percent / 100;
	}
	return HB_EXIT_OK;
}

static int take_traffic(struct serving_command *command, char *list)
{
	command->n_traffic = 0;
	for (char *word; (word = take_next_word(&list)) && command->n_traffic < TRAFFIC_MAX;) {
		if (strcmp(word, "bursts") != 0 && strcmp(word, "poisson") != 0 &&
		    (strncmp(word, "trace:", 6) != 0 || !word[6]))
			return hb_cli_usage_error(COMMAND, "--traffic %s: must be poisson, bursts or trace:FILE", word);
		command->traffic[command->n_traffic++] = word;
	}
	return HB_EXIT_OK;
}

static int take_deadlines(struct serving_command *command, char *list)
{
	char *high = take_next_word(&list);
	if (!list)
		return hb_cli_usage_error(COMMAND, "--deadlines %s: give two factors, for example 4,8", high);
	int code = take_number("deadlines", high, 1, 1e6, &command->run.deadline_factor[HB_SCHEDULER_HIGH]);
	return code ? code : take_number("deadlines", list, 1, 1e6, &command->run.deadline_factor[HB_SCHEDULER_LOW]);
}

static int take_demand(struct serving_command *command, const char *value)
{
	static const char *const sources[] = {
		[HB_DEMAND_KNOWN] = "known", [HB_DEMAND_MEASURED] = "measured", [HB_DEMAND_TYPED] = "typed"};
	for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
		if (strcmp(value, sources[i]) != 0)
			continue;
		command->run.demand = (enum hb_demand_source)i;
		return HB_EXIT_OK;
	}
	return hb_cli_usage_error(COMMAND, "--demand %s: must be known, measured or typed", value);
}

static int take_option(struct serving_command *command, int option, char *value)
{
	double number = 0;
	int code = HB_EXIT_OK;
	switch (option) {
	case POLICY:
		return take_policies(command, value);
	case CAPACITY:
		return take_number("capacity", value, 1, 1e6, &command->run.capacity_per_s);
	case LOAD:
		return take_loads(command, value);
	case TRAFFIC:
		return take_traffic(command, value);
	case HIGH:
		code = take_number("high", value, 1, 99, &number);
		command->run.high_share = number / 100;
		return code;
	case DEADLINES:
		return take_deadlines(command, value);
	case CONCURRENCY:
		code = take_number("concurrency", value, 1, HB_SCHEDULER_FLIGHTS_MAX, &number);
		command->run.config.concurrency = (uint32_t)number;
		return code;
	case SECONDS:
		return take_number("seconds", value, 0.1, 3600, &command->run.seconds);
	case SEEDS:
		code = take_number("seeds", value, 1, 100, &number);
		command->seeds = (uint32_t)number;
		return code;
	case MODELS:
		return take_models(command, value);
	case GPU:
		command->run.gpu = value;
		return HB_EXIT_OK;
	case LINK:
		code = take_number("link", value, 0.1, 1000, &number);
		command->run.link_bytes_per_s = number * 1e9;
		return code;
	case DEMAND:
		return take_demand(command, value);
	case ERRORS:
		command->run.errors = true;
		return HB_EXIT_OK;
	case JSON:
		command->json = true;
		return HB_EXIT_OK;
	case HELP:
		command->help = true;
		return HB_EXIT_OK;
	default:
		return hb_cli_usage_error(COMMAND, "bad option");
	}
}

static int parse_command(struct serving_command *command, int argc, char **argv)
{
	static char all[] = "all";
	*command = (struct serving_command){.loads = {0.6, 0.7, 0.8, 0.9, 1.0, 1.1},
					    .n_loads = 6,
					    .traffic = {"poisson", "bursts"},
					    .n_traffic = 2,
					    .seeds = 1};
	hb_serving_run_options_init(&command->run);
	take_policies(command, all);
	int option, code = HB_EXIT_OK;
	opterr = 0;
	while (!code && (option = getopt_long(argc, argv, ":", long_options, NULL)) != -1)
		code = option == '?' || option == ':' ? hb_cli_option_refused(COMMAND, long_options, argc, argv, option)
						      : take_option(command, option, optarg);
	if (!code && optind < argc)
		code = hb_cli_usage_error(COMMAND, "unexpected '%s'", argv[optind]);
	if (!code && command->run.errors && !command->json)
		code = hb_cli_usage_error(COMMAND, "--errors needs --json");
	size_t rows = (size_t)command->n_policies * command->n_loads * command->n_traffic * command->seeds;
	if (!code && rows > ROWS_MAX)
		code = hb_cli_usage_error(COMMAND, "%zu runs: at most %d", rows, ROWS_MAX);
	return code;
}

static int run_all_cases(struct serving_command *command, struct hb_serving_row *rows, size_t *n,
			 struct hb_error *error)
{
	struct hb_serving_run_options *run = &command->run;
	int rc = run->capacity_per_s > 0 ? 0 : hb_serving_capacity(run, &run->capacity_per_s, error);
	for (uint32_t traffic = 0; traffic < command->n_traffic; traffic++)
		for (uint32_t load = 0; load < command->n_loads; load++)
			for (uint32_t seed = 1; seed <= command->seeds; seed++)
				for (uint32_t policy = 0; policy < command->n_policies && !rc; policy++) {
					struct hb_serving_row *row = &rows[*n];
					run->config.policy = row->policy = command->policies[policy];
					run->load = row->load = command->loads[load];
					run->traffic = row->traffic = command->traffic[traffic];
					run->seed = row->seed = seed;
					rc = hb_serving_run(run, &row->result, error);
					*n += !rc;
				}
	return rc;
}

static int run_command(struct serving_command *command)
{
	struct hb_error error = {""};
	struct hb_trace_set traces = {0};
	char path[PATH_MAX];
	size_t n = 0, most = (size_t)command->n_policies * command->n_loads * command->n_traffic * command->seeds;
	struct hb_serving_row *rows = calloc(most + 1, sizeof *rows); /* + 1: calloc() of no bytes may return NULL */
	int rc = rows ? hb_path_data(TRACE, path, sizeof path, &error) : hb_error_set(&error, -ENOMEM, "out of memory");
	rc = rc ? rc : hb_trace_read_csv(path, &traces, &error);
	command->run.traces = &traces;
	rc = rc ? rc : run_all_cases(command, rows, &n, &error);
	if (!rc && command->json)
		rc = hb_serving_json_write(stdout, &command->run, rows, n, &error);
	else if (!rc)
		hb_serving_table_write(stdout, rows, n);
	hb_trace_set_fini(&traces);
	command->run.traces = NULL;
	free(rows);
	return rc ? hb_cli_error(COMMAND, rc, error.text) : HB_EXIT_OK;
}

int hb_cmd_sim_serve(int argc, char **argv)
{
	struct serving_command command;
	int code = parse_command(&command, argc, argv);
	if (!code && command.help)
		fputs(help, stdout);
	else if (!code)
		code = run_command(&command);
	return code;
}
