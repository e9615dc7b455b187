/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors, colours and suggestions for every command; see cli.h. Writes to
 * stderr only.
 */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Longer words are not worth a suggestion. */
#define WORD_MAX 63
#define OPTIONS_MAX 32

static void error_begin(const char *command)
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
	error_begin(command);
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
	error_begin(command);
	fprintf(stderr, "%s\n", text);
	/* What a better command line or a better file would cure is the caller's to mend. */
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

static size_t min_of(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Edits (insert, delete, replace) that turn `a` into `b`; SIZE_MAX for long words. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t n = strlen(b);
	size_t row[WORD_MAX + 1];
	if (n > WORD_MAX || strlen(a) > WORD_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t replace = diagonal + (a[i - 1] != b[j - 1]);
			diagonal = row[j];
			row[j] = min_of(replace, min_of(row[j], row[j - 1]) + 1);
		}
	}
	return row[n];
}

const char *hb_cli_nearest(const char *text, const char *const *names, size_t n)
{
	size_t length = strlen(text);
	size_t best = length / 3 + 2;
	const char *nearest = NULL;
	for (size_t i = 0; i < n; i++) {
		size_t distance = edit_distance(text, names[i]);
		/* A word begun right and left unfinished counts as one slip. */
		if (length >= 3 && strncmp(text, names[i], length) == 0)
			distance = 1;
		if (distance < best) {
			best = distance;
			nearest = names[i];
		}
	}
	return nearest;
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
	const char *nearest = hb_cli_nearest(name, names, n);
	return nearest ? hb_cli_usage_error(command, "no option '%s'; did you mean '--%s'?", word, nearest)
		       : hb_cli_usage_error(command, "no option '%s'", word);
}

int hb_cli_next_option(const char *command, const char *usage, const char *letters, const struct option *options,
		       int argc, char **argv, int *status)
{
	opterr = 0;
	int code = getopt_long(argc, argv, letters, options, NULL);
	if (code == ':' || code == '?') {
		*status = hb_cli_option_refused(command, options, argc, argv, code);
		return -1;
	}
	if (code == 'h') {
		fputs(usage, stdout);
		*status = HB_EXIT_OK;
		return -1;
	}
	return code;
}

int hb_cli_take_gpu(const char *command, const char *value, bool *simulated)
{
	*simulated = strcmp(value, "sim") == 0;
	return *simulated ? -1 : hb_cli_usage_error(command, "--gpu: '%s'; only sim can be given", value);
}
