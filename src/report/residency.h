/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds when a kernel really ran: its span without the times in which another context had the GPU. It uses the context
 * switches among the result's spans. Callers: the timeline and the report.
 */
#ifndef HB_SIM_RESIDENCY_H
#define HB_SIM_RESIDENCY_H

#include "sim/result.h"

#include <stdbool.h>

struct hb_residency;

/* Returns NULL when out of memory. Uses the result's spans, which must exist until hb_residency_free(). */
struct hb_residency *hb_residency_new(const struct hb_sim_result *result);
void hb_residency_free(struct hb_residency *residency);

/*
 * An interval in which the span's kernel had the GPU. Begin with { .span = ... }; each call of hb_residency_piece() finds
 * the next interval and returns false after the last one.
 */
struct hb_span_piece {
	const struct hb_span *span;
	int64_t start_ns, end_ns;
	size_t next; /* index of the next switch to check */
	bool begun;
};
bool hb_residency_piece(const struct hb_residency *residency, struct hb_span_piece *piece);

#endif
