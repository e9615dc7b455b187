/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the help lines of table columns; see column_help.h. */
#include "cli/column_help.h"

#include <string.h>

#define TITLE_WIDTH 14
#define LINE_WIDTH 85

static size_t append_column(char *text, size_t size, const struct hb_column_help *column)
{
	const char *help = column->help;
	size_t room = LINE_WIDTH - TITLE_WIDTH - 3, used = 0;
	const char *title = column->title;
	while (*help && used < size) {
		size_t n = strlen(help);
		if (n > room)
			for (n = room; n > 0 && help[n] != ' '; n--)
				;
		n = n ? n : strlen(help);
		used += (size_t)snprintf(text + used, size - used, "  %-*s %.*s\n", TITLE_WIDTH, title, (int)n, help);
		help += n + (help[n] == ' ');
		title = "";
	}
	return used < size ? used : size;
}

const char *hb_column_help_text(char text[HB_COLUMN_HELP_MAX], const char *head, const struct hb_column_help *columns,
				size_t n, const char *tail)
{
	size_t used = (size_t)snprintf(text, HB_COLUMN_HELP_MAX, "%s", head);
	for (size_t i = 0; i < n && used < HB_COLUMN_HELP_MAX; i++)
		used += append_column(text + used, HB_COLUMN_HELP_MAX - used, &columns[i]);
	if (used < HB_COLUMN_HELP_MAX)
		snprintf(text + used, HB_COLUMN_HELP_MAX - used, "%s", tail);
	return text;
}
