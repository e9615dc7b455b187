/* SPDX-License-Identifier: Apache-2.0 */
/* The help lines of table columns. A command's table of columns holds titles and help, so every column has both. */
#ifndef HB_CLI_COLUMN_HELP_H
#define HB_CLI_COLUMN_HELP_H

#include <stddef.h>
#include <stdio.h>

struct hb_column_help {
	const char *title, *help;
};

#define HB_COLUMN_HELP_MAX 8192

/*
 * Writes the text of --help: `head`, a line "  TITLE  help" for each column, and `tail`. The help line is wrapped at 85
 * columns. Returns `text`.
 */
const char *hb_column_help_text(char text[HB_COLUMN_HELP_MAX], const char *head, const struct hb_column_help *columns,
				size_t n, const char *tail);

#endif
