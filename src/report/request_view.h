/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to look at closely, the same under every mode where arrivals are
 * the same: the most typical of those whose spans were kept. Caller: the report.
 */
#ifndef HB_SIM_REQUEST_VIEW_H
#define HB_SIM_REQUEST_VIEW_H

#include "report/output.h"
#include "report/residency.h"

/* Chooses views[i], a whole request of the first HP program in the spans of result i; NULL where there is none. */
void hb_request_views_choose(const struct hb_report *report, const struct hb_span **views);

/* What happened between the request's arrival and end, in ns. */
struct hb_request_costs {
	int64_t high_ns;   /* kernels and copies of its program */
	int64_t others_ns; /* kernels and copies of all others */
	int64_t switch_ns; /* context switches, */
	unsigned switches; /* how many */
	int64_t hold_ns;   /* holds of its program */
	int64_t gated_ns;  /* others waiting at the gate */
};
struct hb_request_costs hb_request_costs_of(const struct hb_sim_result *result, const struct hb_residency *residency,
					    const struct hb_span *request);

#endif
