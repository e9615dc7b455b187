/* SPDX-License-Identifier: Apache-2.0 */
/* Prints facts about traces for `hb trace info`, as tables for a terminal or as JSON. Used by cmd_trace.c only. */
#ifndef HB_CLI_TRACE_INFO_OUTPUT_H
#define HB_CLI_TRACE_INFO_OUTPUT_H

#include "trace/trace_info.h"

#include <stdio.h>

/* Prints tables. `info` has one entry for each workload of the set. */
void hb_trace_info_table(FILE *out, const struct hb_trace_set *set, const struct hb_workload_info *info,
			 const char *gpu);
/* Prints one JSON object. Returns 0, -EIO or -ENOMEM. */
int hb_trace_info_json(FILE *out, const struct hb_trace_set *set, const struct hb_workload_info *info, const char *gpu,
		       char *const *paths, int n_paths, struct hb_error *error);

#endif
