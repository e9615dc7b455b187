/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error messages, colors and option parsing for every command; see cli.h.
 */
#include "cli/cli.h"

#include "base/nearest.h"
#include "base/parse_number.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTIONS_MAX 32

static void begin_error(const char *command)
{
	fflush(stdout);
	if (command)
		fprintf(stderr, "hb %s: ", command);
	else
		fputs("hb: ", stderr);
}

int hb_cli_usage_error(const char *command, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	begin_error(command);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	if (command)
		fprintf(stderr, "\n'hb %s --help' explains the options\n", command);
	else
		fputs("\n'hb --help' lists the commands\n", stderr);
	return HB_EXIT_USAGE;
}

int hb_cli_error(const char *command, int code, const char *text)
{
	begin_error(command);
	fprintf(stderr, "%s\n", text);
	/* The user can fix these errors with another command line or another file. */
	switch (code) {
	case -EINVAL:
	case -ENOENT:
	case -E2BIG:
	case -ERANGE:
	case -EISDIR:
		return HB_EXIT_USAGE;
	default:
		return HB_EXIT_FAILURE;
	}
}

bool hb_cli_colors(FILE *out)
{
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");
	if (no_color && *no_color)
		return false;
	if (!term || strcmp(term, "dumb") == 0)
		return false;
	return isatty(fileno(out)) == 1;
}

int hb_cli_option_refused(const char *command, const struct option *options, int argc, char **argv, int result)
{
	const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "";
	const char *names[OPTIONS_MAX];
	char name[64] = "";
	size_t n = 0;
	if (result == ':')
		return hb_cli_usage_error(command, "%s needs a value", word);
	for (; options[n].name && n < OPTIONS_MAX; n++)
		names[n] = options[n].name;
	sscanf(word, "--%63[^=]", name);
	const char *nearest = hb_nearest(name, names, n);
	return nearest ? hb_cli_usage_error(command, "no option '%s'; did you mean '--%s'?", word, nearest)
		       : hb_cli_usage_error(command, "no option '%s'", word);
}

/*
 * Returns the code of the next option; its value is in `optarg`. Negative: there is no further option, or the command must
 * end with *status, because an option was refused or -h printed the help.
 */
static int read_next_option(const struct hb_cli_syntax *syntax, int argc, char **argv, int *status)
{
	opterr = 0;
	int code = getopt_long(argc, argv, syntax->letters, syntax->options, NULL);
	if (code == ':' || code == '?') {
		*status = hb_cli_option_refused(syntax->command, syntax->options, argc, argv, code);
		return -1;
	}
	if (code == 'h') {
		fputs(syntax->usage, stdout);
		*status = HB_EXIT_OK;
		return -1;
	}
	return code;
}

int hb_cli_read_options(const struct hb_cli_syntax *syntax, int argc, char **argv, void *argument)
{
	int code, status = -1;
	while (status < 0 && (code = read_next_option(syntax, argc, argv, &status)) >= 0)
		status = syntax->take(argument, code, optarg);
	if (status < 0 && !syntax->words && optind < argc)
		return hb_cli_usage_error(syntax->command, "'%s': no arguments are taken", argv[optind]);
	return status;
}

int hb_cli_parse_number(const char *command, const char *option, const char *text, double least, double most,
			double *number)
{
	double value;
	if (!hb_number_parse(text, &value) || !(value >= least && value <= most))
		return hb_cli_usage_error(command, "--%s %s: must be a number from %g to %g", option, text, least,
					  most);
	*number = value;
	return HB_EXIT_OK;
}

int hb_cli_take_gpu(const char *command, const char *value, bool *simulated)
{
	*simulated = strcmp(value, "sim") == 0;
	return *simulated ? -1 : hb_cli_usage_error(command, "--gpu: '%s'; only sim can be given", value);
}
