/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of `hb` share: the table's function type, exit codes and
 * the way a usage error is told. Included by main.c and every cmd_*.c; nothing
 * outside src/cli may include it.
 */
#ifndef HB_CLI_CLI_H
#define HB_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct option;

enum hb_exit {
	HB_EXIT_OK = 0,
	HB_EXIT_FAILURE = 1, /* the machine or a file would not let us */
	HB_EXIT_USAGE = 2,   /* bad command line or bad input; the message names it */
};

/* argv[0] is the command's name; getopt is ready for a first call. Returns an enum hb_exit. */
typedef int hb_cmd_function(int argc, char **argv);

#define HB_COMMAND(name, function, help) hb_cmd_function function;
#include "cli/commands.def"
#undef HB_COMMAND

/* Says "hb COMMAND: message" and where help is, on stderr; returns HB_EXIT_USAGE. */
int hb_cli_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same without the line about help, for files and values; returns HB_EXIT_FAILURE or, for -EINVAL and the like, HB_EXIT_USAGE. */
int hb_cli_error(const char *command, int code, const char *text);

/* May escape sequences be written to `out`? No when it is no terminal, NO_COLOR is set, or TERM is dumb. */
bool hb_cli_colors(FILE *out);

/*
 * What getopt_long() did not take (`result`: ':' = a value is missing, else an unknown option), told with the word and the
 * option of the table that was probably meant; returns HB_EXIT_USAGE.
 */
int hb_cli_option_refused(const char *command, const struct option *options, int argc, char **argv, int result);

/*
 * The code of the next option, its value in `optarg`. Negative: there is none, or the command is over with *status, an enum
 * hb_exit: an option was refused, or -h printed `usage`. `letters` and `options` are getopt_long()'s; "h" is help.
 */
int hb_cli_next_option(const char *command, const char *usage, const char *letters, const struct option *options,
		       int argc, char **argv, int *status);

/* The options of a command. */
struct hb_cli_syntax {
	const char *command, *usage;
	const char *letters;          /* getopt_long()'s; "h" is help */
	const struct option *options; /* getopt_long()'s */
	int (*take)(void *argument, int code,
		    const char *value); /* takes one option: -1, or an exit status that ends the command */
	bool words;                     /* arguments may follow the options, from optind on */
};
/* Gives every option to syntax->take: -1, or an enum hb_exit when the command is over. */
int hb_cli_read_options(const struct hb_cli_syntax *syntax, int argc, char **argv, void *argument);

/* The value of --gpu: only sim. -1, or an enum hb_exit after a message. */
int hb_cli_take_gpu(const char *command, const char *value, bool *simulated);

#endif
