/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of `hb top`: made here for any width, shown by top_screen.c on a
 * terminal or printed by cmd_top.c. Pure text; a style says what a line is, for
 * terminals that can show it.
 */
#ifndef HB_CLI_TOP_VIEW_H
#define HB_CLI_TOP_VIEW_H

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

/* The daemon, its GPUs, the titles, the tenants; `selected` 0 = none. Lines are at most `width` bytes. */
void hb_top_view_list(const struct hb_top_model *model, uint32_t selected, int width, hb_top_line *line,
		      void *argument);
/* One text, on as many lines as it takes. */
void hb_top_view_text(const char *text, int width, hb_top_line *line, void *argument);
/* One tenant with its latency histogram, in at most `height` lines. */
void hb_top_view_tenant(const struct hb_top_tenant *tenant, int width, int height, hb_top_line *line, void *argument);

#endif
