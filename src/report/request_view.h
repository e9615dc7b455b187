/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to look at closely, the same under every mode where arrivals are
 * the same: the most typical of those whose spans were kept. Caller: the report.
 */
#ifndef HB_SIM_REQUEST_VIEW_H
#define HB_SIM_REQUEST_VIEW_H

#include "report/output.h"

/* Chooses views[i], a whole request of the first HP program in the spans of result i; NULL where there is none. */
void hb_request_views_choose(const struct hb_report *report, const struct hb_span **views);

#endif
