/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact quantiles of the last HB_QUANTILE_RING samples. Older samples are
 * forgotten, so a change is learned within that many samples, and one outlier
 * does not move the median. Fixed size, no allocation. Samples that are not
 * finite are ignored.
 */
#ifndef HB_SCHEDULER_QUANTILE_RING_H
#define HB_SCHEDULER_QUANTILE_RING_H

#include <stdbool.h>
#include <stdint.h>

#define HB_QUANTILE_RING 32

struct hb_quantile_ring {
	uint64_t seen;
	float last[HB_QUANTILE_RING]; /* the newest samples, in order of arrival */
	float sorted[HB_QUANTILE_RING];
};

/* Adds a sample; a zeroed struct is an empty ring. False: the sample was ignored. */
bool hb_quantile_ring_add(struct hb_quantile_ring *ring, double value);
uint32_t hb_quantile_ring_count(const struct hb_quantile_ring *ring);
/* Returns the sample of rank ceil(share * count); `fallback` if the ring is empty. */
double hb_quantile_ring_get(const struct hb_quantile_ring *ring, double share, double fallback);

#endif
