/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb`: finds the command in commands.def and calls it. Options before the command are options of `hb` (--help,
 * --version); the command gets all arguments after its name.
 */
#include "base/hb-version.h"
#include "base/nearest.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

struct command_row {
	const char *name;
	hb_cmd_function *run;
	const char *help;
};

static const struct command_row commands[] = {
#define HB_COMMAND(name, function, help) {name, function, help},
#include "cli/commands.def"
#undef HB_COMMAND
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(FILE *out)
{
	fputs("usage: hb COMMAND [ARGUMENT...]\n"
	      "       hb COMMAND --help\n"
	      "       hb --version\n"
	      "\n"
	      "Shares one NVIDIA GPU between programs: high-priority services keep their\n"
	      "latency, low-priority programs use the remaining time.\n"
	      "\n"
	      "commands:\n",
	      out);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\nexit status: 0 done, 1 failed, 2 bad command line or bad input\n", out);
}

static const struct command_row *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int refuse_command(const char *name)
{
	const char *names[N_COMMANDS];
	for (size_t i = 0; i < N_COMMANDS; i++)
		names[i] = commands[i].name;
	const char *nearest = hb_nearest(name, names, N_COMMANDS);
	if (nearest)
		return hb_cli_usage_error(NULL, "no command '%s'; did you mean '%s'?", name, nearest);
	return hb_cli_usage_error(NULL, "no command '%s'", name);
}

/* `hb help COMMAND` is the same as `hb COMMAND --help`. */
int hb_cmd_help(int argc, char **argv)
{
	if (argc < 2 || argv[1][0] == '-') {
		print_help(stdout);
		return HB_EXIT_OK;
	}
	const struct command_row *command = find_command(argv[1]);
	if (!command)
		return refuse_command(argv[1]);
	char option[] = "--help";
	char *arguments[] = {argv[1], option, NULL};
	return command->run(2, arguments);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return HB_EXIT_USAGE;
	}
	const char *word = argv[1];
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		print_help(stdout);
		return HB_EXIT_OK;
	}
	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
		printf("hb %s\n", HB_VERSION);
		return HB_EXIT_OK;
	}
	if (word[0] == '-')
		return hb_cli_usage_error(NULL, "no option '%s' before a command", word);
	const struct command_row *command = find_command(word);
	if (!command)
		return refuse_command(word);
	int code = command->run(argc - 1, argv + 1);
	/* Without this check the exit status would be 0 although a full disk or a closed pipe lost the output. */
	if (fflush(stdout) != 0 && code == HB_EXIT_OK) {
		perror("hb: standard output");
		return HB_EXIT_FAILURE;
	}
	return code;
}
