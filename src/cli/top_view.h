/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats the lines of `hb top` for any width. top_screen.c paints them on a terminal, cmd_top.c prints them. The style of
 * a line says how a terminal may highlight it.
 */
#ifndef HB_CLI_TOP_VIEW_H
#define HB_CLI_TOP_VIEW_H

#include "cli/column_help.h"
#include "cli/top_model.h"

#define HB_TOP_LINE_MAX 512

enum hb_top_style {
	HB_TOP_PLAIN,
	HB_TOP_HEAD,     /* column titles */
	HB_TOP_SELECTED, /* the tenant that keys act on */
	HB_TOP_BAD,      /* misses its SLO, or a policy that failed */
	HB_TOP_SOFT,     /* explanations */
};

typedef void hb_top_line(void *argument, enum hb_top_style style, const char *text);

/* Emits the daemon, its GPUs, the titles and the tenants, in lines of at most `width` bytes. `selected` is an id, 0 = none. */
void hb_top_view_list(const struct hb_top_model *model, uint32_t selected, int width, hb_top_line *line,
		      void *argument);
/* The columns of the list, and the words of a GPU's line, with their help. */
#define HB_TOP_COLUMNS 18
extern const struct hb_column_help hb_top_columns[HB_TOP_COLUMNS];
/* Emits the help of all columns. */
void hb_top_view_columns(int width, hb_top_line *line, void *argument);
/* Emits a text on as many lines as it needs. */
void hb_top_view_text(const char *text, int width, hb_top_line *line, void *argument);
/* Emits the details of one tenant and its latency histogram, in at most `height` lines. */
void hb_top_view_tenant(const struct hb_top_tenant *tenant, int width, int height, hb_top_line *line, void *argument);

#endif
