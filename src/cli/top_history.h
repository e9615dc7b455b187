/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `hb top` about the last minutes, from "history" in the status (daemon/usage_history.h). */
#ifndef HB_CLI_TOP_HISTORY_H
#define HB_CLI_TOP_HISTORY_H

#include "cli/top_model.h"

#define HB_TOP_HISTORY_MAX 640

/*
 * Formats "  last 5 min: high <bars> 31 %  low <bars> 60 %" of a GPU, at most `width` characters wide; the numbers are those
 * of the last step. "" if the status has no history yet. Returns `text`.
 */
const char *hb_top_history_gpu(const json_t *gpu, int width, char text[HB_TOP_HISTORY_MAX]);

/*
 * Formats one line of a tenant: "<bars> up to 5.4ms, SLO 5ms". `what` is "p50", "p99", "share", or a count of
 * the history ("launches"). The full height is the largest value, the SLO if that is larger, or 100 %. "" if there is nothing to draw. Returns `text`.
 */
const char *hb_top_history_tenant(const struct hb_top_tenant *tenant, const json_t *use, const char *what, int width,
				  char text[HB_TOP_HISTORY_MAX]);

#endif
