/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files of this folder share: JSON of results and of the page, and the choice of the best mode. */
#ifndef HB_SIM_REPORT_PARTS_H
#define HB_SIM_REPORT_PARTS_H

#include "base/json.h"
#include "report/output.h"

/*
 * Packs a string of JSON from a text of a file or a command line (result_json.c). JSON takes UTF-8 only: in a text that
 * is not UTF-8 all bytes above 127 become '?'.
 */
json_t *hb_text_pack(const char *text);
/* Packs one element of `hb sim --json`, with `latencies` of every request (result_json.c); NULL with *error set. */
json_t *hb_result_json_pack(const struct hb_sim_result *result, bool latencies, struct hb_error *error);

/*
 * Packs the data of the page (report_json.c). Returns 0 with a new reference in *data, or a negative errno with *error
 * set.
 */
int hb_report_json_pack(const struct hb_report *report, json_t **data, struct hb_error *error);

/* Returns the mode to prefer (result_reading.c); NULL when no mode shares the GPU. */
const struct hb_sim_result *hb_result_best(const struct hb_sim_result *results, size_t n);

#endif
