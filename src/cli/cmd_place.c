/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb place`: which jobs to put together on the GPUs of a cluster. src/cluster chooses; this file reads the options and the
 * input. Talks to no daemon.
 */
#include "base/json.h"
#include "base/parse_number.h"
#include "base/paths.h"
#include "cli/cli.h"
#include "cluster/pairing.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND "place"

static const char usage[] =
	"usage: hb place [OPTION...] [FILE]\n"
	"\n"
	"Chooses a GPU of a cluster for each job: which jobs to put together, so that jobs of low\n"
	"priority are as fast as possible and those of high priority keep their attainment. It\n"
	"predicts both from rows measured on one H200 and rows of hb sim, and from what the\n"
	"daemons of the nodes measured. It starts nothing: schedulers, their scripts and people\n"
	"use the answer, which is JSON.\n"
	"\n"
	"FILE, by default the standard input, has nodes and jobs:\n"
	"\n"
	"  {\"nodes\": [{\"name\": \"n1\", \"gpus\": 2, \"memory\": \"141GiB\"},\n"
	"             {\"name\": \"n2\", \"status\": ANSWER OF hb status --json}],\n"
	"   \"jobs\": [{\"name\": \"chat\", \"priority\": \"high\", \"program\": \"llama8_decode_b8\",\n"
	"             \"duty\": 0.2, \"memory\": \"20GiB\"},\n"
	"            {\"name\": \"training\", \"priority\": \"low\", \"memory\": \"40GiB\"}]}\n"
	"\n"
	"  --within POINTS   attainment that a job of high priority may lose if it has no key\n"
	"                    \"within\" and its daemon measured no objective (default 1)\n"
	"  --prefer sharing  a job of low priority gets a GPU of its own only where it may share\n"
	"                    none (default)\n"
	"  --prefer speed    it gets the GPU on which it is fastest\n"
	"  --options N       lists the N best nodes for each job of low priority, with weights\n"
	"                    for a scheduler\n"
	"  --pairs FILE      rows of pairs (default: those of an H200)\n"
	"  -h, --help\n"
	"\n"
	"exit status: 0 answered, also if jobs have to wait; 1 a file could not be read; 2 bad\n"
	"command line or bad input\n";

struct place_request {
	struct hb_pairing pairing;
	const char *pairs;
};

enum { WITHIN = 1, PREFER, OPTIONS, PAIRS };

static int take_place_option(void *argument, int code, const char *value)
{
	struct place_request *request = argument;
	double number = 0;
	switch (code) {
	case WITHIN:
		if (hb_cli_parse_number(COMMAND, "within", value, 0, 100, &number))
			return HB_EXIT_USAGE;
		request->pairing.most_loss = number / 100;
		return -1;
	case PREFER:
		if (strcmp(value, "sharing") != 0 && strcmp(value, "speed") != 0)
			return hb_cli_usage_error(COMMAND, "--prefer %s: must be sharing or speed", value);
		request->pairing.prefers_sharing = strcmp(value, "sharing") == 0;
		return -1;
	case OPTIONS:
		if (!hb_number_parse(value, &number) || !(number >= 0 && number <= HB_PAIRING_NODES_MAX) ||
		    number != (uint32_t)number)
			return hb_cli_usage_error(COMMAND, "--options %s: must be a whole number from 0 to %u", value,
						  HB_PAIRING_NODES_MAX);
		request->pairing.n_options = (uint32_t)number;
		return -1;
	default:
		request->pairs = value;
		return -1;
	}
}

static int answer(struct place_request *request, const char *file, struct hb_pair_model *model, struct hb_error *error)
{
	char path[PATH_MAX];
	json_t *input = NULL, *output = NULL;
	const char *origin = strcmp(file, "-") == 0 ? "/dev/stdin" : file;
	int rc = request->pairs ? 0 : hb_path_data("traces/h200-pairs.csv", path, sizeof path, error);
	rc = rc ? rc : hb_pair_model_read(model, request->pairs ? request->pairs : path, error);
	rc = rc ? rc : hb_json_load(origin, &input, error);
	rc = rc ? rc : hb_pairing_read(&request->pairing, input, origin, error);
	if (!rc && hb_pairing_choose(&request->pairing))
		rc = hb_error_set(error, -ENOMEM, "out of memory");
	rc = rc ? rc : hb_pairing_pack(&request->pairing, &output, error);
	rc = rc ? rc : hb_json_write(output, stdout, error);
	json_decref(output);
	json_decref(input);
	hb_pairing_fini(&request->pairing);
	return rc;
}

/* A terminal and /dev/null give no input: both are character devices. */
static bool has_standard_input(void)
{
	struct stat input;
	return fstat(STDIN_FILENO, &input) == 0 && !S_ISCHR(input.st_mode);
}

int hb_cmd_place(int argc, char **argv)
{
	static const struct option options[] = {
		{"within", required_argument, NULL, WITHIN},
		{"prefer", required_argument, NULL, PREFER},
		{"options", required_argument, NULL, OPTIONS},
		{"pairs", required_argument, NULL, PAIRS},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {.command = COMMAND,
						    .usage = usage,
						    .letters = "h",
						    .options = options,
						    .take = take_place_option,
						    .words = true};
	struct place_request request = {.pairing = {.most_loss = 0.01, .prefers_sharing = true}};
	struct hb_error error = {""};
	int code = hb_cli_read_options(&syntax, argc, argv, &request);
	if (code >= 0)
		return code;
	if (argc - optind > 1)
		return hb_cli_usage_error(COMMAND, "unexpected '%s'", argv[optind + 1]);
	if (optind == argc && !has_standard_input())
		return hb_cli_usage_error(COMMAND,
					  "no FILE is given; give a FILE with nodes and jobs, or write them to "
					  "the standard input");
	struct hb_pair_model *model = calloc(1, sizeof *model);
	int rc = model ? 0 : hb_error_set(&error, -ENOMEM, "out of memory");
	request.pairing.model = model;
	rc = rc ? rc : answer(&request, optind < argc ? argv[optind] : "-", model, &error);
	free(model);
	return rc ? hb_cli_error(COMMAND, rc, error.text) : HB_EXIT_OK;
}
