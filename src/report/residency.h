/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a kernel really ran: its span without the times in which another context
 * had the GPU. Derived from the switches among a result's spans, for whatever
 * shows kernels.
 */
#ifndef HB_SIM_RESIDENCY_H
#define HB_SIM_RESIDENCY_H

#include "sim/result.h"

#include <stdbool.h>

struct hb_residency;

/* NULL = out of memory. Refers to the result's spans, which must outlive it. */
struct hb_residency *hb_residency_new(const struct hb_sim_result *result);
void hb_residency_free(struct hb_residency *residency);

/* Begin with { .span = ... }; each call gives the next piece in which the span's kernel had the GPU, false after the last. */
struct hb_span_piece {
	const struct hb_span *span;
	int64_t start_ns, end_ns;
	size_t next; /* switch to look at next */
	bool begun;
};
bool hb_residency_piece(const struct hb_residency *residency, struct hb_span_piece *piece);

#endif
