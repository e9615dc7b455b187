/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the spans of kernels at context switches; see residency.h. */
#include "report/residency.h"

#include <stdlib.h>

#define TENANTS_MAX (2 * HB_SIM_TENANTS_MAX)

struct hb_residency {
	uint32_t n_high;
	bool named[TENANTS_MAX]; /* a switch names this program */
	size_t n;
	const struct hb_span *switches[];
};

struct hb_residency *hb_residency_new(const struct hb_sim_result *result)
{
	size_t n = 0;
	for (size_t i = 0; i < result->n_spans; i++)
		n += result->spans[i].kind == HB_SPAN_SWITCH;
	struct hb_residency *residency = calloc(1, sizeof *residency + n * sizeof residency->switches[0]);
	if (!residency)
		return NULL;
	residency->n_high = result->n_high;
	for (size_t i = 0; i < result->n_spans; i++) {
		const struct hb_span *span = &result->spans[i];
		if (span->kind != HB_SPAN_SWITCH || span->tenant >= TENANTS_MAX)
			continue;
		residency->switches[residency->n++] = span;
		residency->named[span->tenant] = true;
	}
	return residency;
}

void hb_residency_free(struct hb_residency *residency)
{
	free(residency);
}

/*
 * Returns whether this switch gives the GPU to the tenant. Programs that share a context share the name of one of them
 * in switches.
 */
static bool gets_gpu(const struct hb_residency *residency, const struct hb_span *change, uint32_t tenant)
{
	if (tenant < TENANTS_MAX && residency->named[tenant])
		return change->tenant == tenant;
	return (change->tenant < residency->n_high) == (tenant < residency->n_high);
}

static size_t find_first_switch(const struct hb_residency *residency, int64_t start_ns)
{
	size_t low = 0;
	size_t high = residency->n;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (residency->switches[middle]->start_ns < start_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Finds the first switch within the span, from piece->next on, that gives the GPU to the tenant (or takes it away). */
static const struct hb_span *find_switch(const struct hb_residency *residency, struct hb_span_piece *piece, bool gives)
{
	for (; piece->next < residency->n; piece->next++) {
		const struct hb_span *change = residency->switches[piece->next];
		if (change->start_ns >= piece->span->end_ns)
			return NULL;
		if (gets_gpu(residency, change, piece->span->tenant) == gives)
			return change;
	}
	return NULL;
}

bool hb_residency_piece(const struct hb_residency *residency, struct hb_span_piece *piece)
{
	const struct hb_span *span = piece->span;
	if (!piece->begun) {
		/* A kernel starts while its context has the GPU. */
		piece->begun = true;
		piece->start_ns = span->start_ns;
		piece->next = find_first_switch(residency, span->start_ns);
	} else {
		const struct hb_span *back = piece->end_ns < span->end_ns ? find_switch(residency, piece, true) : NULL;
		if (!back || back->end_ns >= span->end_ns)
			return false;
		piece->start_ns = back->end_ns;
	}
	const struct hb_span *away = span->kind == HB_SPAN_KERNEL ? find_switch(residency, piece, false) : NULL;
	piece->end_ns = away ? away->start_ns : span->end_ns;
	return true;
}
