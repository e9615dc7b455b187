/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of the report that have files of their own; used by report.c only, and what both it and the table say. */
#ifndef HB_SIM_REPORT_PARTS_H
#define HB_SIM_REPORT_PARTS_H

#include "report/output.h"

#include <stdio.h>

/* The table of all modes (report_table.c). */
void hb_report_table_write(FILE *out, const struct hb_sim_result *results, size_t n);
/* The timeline section, nothing when no spans were kept (report_timeline.c). 0 or -ENOMEM. */
int hb_report_timeline_write(FILE *out, const struct hb_report *report);

/* The mode to prefer (result_reading.c); NULL when nothing is shared. */
const struct hb_sim_result *hb_result_best(const struct hb_sim_result *results, size_t n);

#endif
