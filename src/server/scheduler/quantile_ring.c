/* SPDX-License-Identifier: Apache-2.0 */
/* Quantiles of the newest samples; see quantile_ring.h. */
#include "server/scheduler/quantile_ring.h"

#include <math.h>
#include <string.h>

uint32_t hb_quantile_ring_count(const struct hb_quantile_ring *ring)
{
	return ring->seen < HB_QUANTILE_RING ? (uint32_t)ring->seen : HB_QUANTILE_RING;
}

static void remove_sorted(struct hb_quantile_ring *ring, uint32_t count, float value)
{
	uint32_t at = 0;
	while (at + 1 < count && ring->sorted[at] != value)
		at++;
	memmove(&ring->sorted[at], &ring->sorted[at + 1], (count - at - 1) * sizeof *ring->sorted);
}

static void insert_sorted(struct hb_quantile_ring *ring, uint32_t count, float value)
{
	uint32_t at = count;
	for (; at > 0 && ring->sorted[at - 1] > value; at--)
		ring->sorted[at] = ring->sorted[at - 1];
	ring->sorted[at] = value;
}

bool hb_quantile_ring_add(struct hb_quantile_ring *ring, double value)
{
	float sample = (float)value;
	if (!isfinite(sample))
		return false;
	uint32_t count = hb_quantile_ring_count(ring);
	float *place = &ring->last[ring->seen % HB_QUANTILE_RING];
	if (count == HB_QUANTILE_RING)
		remove_sorted(ring, count--, *place);
	insert_sorted(ring, count, sample);
	*place = sample;
	ring->seen++;
	return true;
}

double hb_quantile_ring_get(const struct hb_quantile_ring *ring, double share, double fallback)
{
	uint32_t count = hb_quantile_ring_count(ring);
	if (!count)
		return fallback;
	double rank = ceil(share * count);
	if (!(rank > 1))
		return ring->sorted[0];
	return ring->sorted[rank >= count ? count - 1 : (uint32_t)rank - 1];
}
