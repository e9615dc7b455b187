/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the request that the report shows in detail: the most typical of the requests whose spans were kept. It is the
 * same request under every mode when the arrivals are the same. Caller: report_json.c.
 */
#ifndef HB_SIM_REQUEST_VIEW_H
#define HB_SIM_REQUEST_VIEW_H

#include "report/output.h"

/* Sets views[i] to a complete request of the first HP program in the spans of result i, or to NULL when there is none. */
void hb_request_views_choose(const struct hb_report *report, const struct hb_span **views);

#endif
