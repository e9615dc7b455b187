/* SPDX-License-Identifier: Apache-2.0 */
/* `hb top` on a terminal (ncurses). Used by cmd_top.c only. */
#ifndef HB_CLI_TOP_SCREEN_H
#define HB_CLI_TOP_SCREEN_H

#include "base/error.h"
#include "cli/top_model.h"

struct hb_top_options {
	bool simulated;
	int64_t interval_ns;
	enum hb_top_sort sort;
	bool reverse;
	char filter[64];
};

/*
 * Runs until the user quits. Returns 0, or a negative errno with *error: the daemon did not answer, or there is no
 * terminal.
 */
int hb_top_screen_run(const struct hb_top_options *options, struct hb_error *error);

#endif
