/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the commands of `hb`: the type of a command's function, exit codes, error messages and option parsing.
 * Included by main.c and every cmd_*.c; no file outside src/cli may include it.
 */
#ifndef HB_CLI_CLI_H
#define HB_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct option;

enum hb_exit {
	HB_EXIT_OK = 0,
	HB_EXIT_FAILURE = 1, /* the machine, the daemon or a file prevented it */
	HB_EXIT_USAGE = 2,   /* bad command line or bad input; the message names it */
};

/* Runs a command. argv[0] is the command's name; getopt() has not been called yet. Returns an enum hb_exit. */
typedef int hb_cmd_function(int argc, char **argv);

#define HB_COMMAND(name, function, help) hb_cmd_function function;
#include "cli/commands.def"
#undef HB_COMMAND

/* Prints "hb COMMAND: message" and a hint at --help to stderr. Returns HB_EXIT_USAGE. */
int hb_cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Prints "hb COMMAND: text" to stderr. Returns HB_EXIT_USAGE when `code` is an error of the user's input (-EINVAL,
 * -ENOENT and similar), else HB_EXIT_FAILURE.
 */
int hb_cli_error(const char *command, int code, const char *text);

/*
 * Returns whether escape sequences may be written to `out`: not when it is no terminal, NO_COLOR is set, or TERM is
 * dumb.
 */
bool hb_cli_colors(FILE *out);

/*
 * Prints an error for an option that getopt_long() refused: `result` is ':' when a value is missing, else the option is
 * unknown, and the message names the most similar one. Returns HB_EXIT_USAGE.
 */
int hb_cli_option_refused(const char *command, const struct option *options, int argc, char **argv, int result);

/* Parses the number that was given to --OPTION. Returns HB_EXIT_OK, or HB_EXIT_USAGE after a message. */
int hb_cli_parse_number(const char *command, const char *option, const char *text, double least, double most,
			double *number);

/* The options of a command. */
struct hb_cli_syntax {
	const char *command, *usage;
	const char *letters;          /* getopt_long()'s; "h" is help */
	const struct option *options; /* getopt_long()'s */
	int (*take)(void *argument, int code,
		    const char *value); /* stores one option; returns -1, or an exit status that ends the command */
	bool words;                     /* arguments may follow the options; the first is argv[optind] */
};
/* Gives every option to syntax->take: -1, or an enum hb_exit when the command is over. */
int hb_cli_read_options(const struct hb_cli_syntax *syntax, int argc, char **argv, void *argument);

/* Takes the value of --gpu, which can only be "sim": -1, or an enum hb_exit after a message. */
int hb_cli_take_gpu(const char *command, const char *value, bool *simulated);

#endif
