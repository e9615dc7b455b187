/* SPDX-License-Identifier: Apache-2.0 */
/* Learns and estimates the run time alone by batch size; see solo_time.h. */
#include "server/scheduler/solo_time.h"

/*
 * Constants added to the error of a size that was not measured: between measured sizes, outside of them, or without
 * any.
 */
#define ERROR_BETWEEN 0.1
#define ERROR_OUTSIDE 0.3
#define ERROR_UNKNOWN 1.0
/* Least error of an estimate, because a few samples show no tail. */
#define ERROR_LEAST 0.02

void hb_solo_time_init(struct hb_solo_time *solo, double guess_ns)
{
	*solo = (struct hb_solo_time){.guess_ns = guess_ns > 0 ? guess_ns : 1};
}

static struct hb_estimate estimate_from_ring(const struct hb_quantile_ring *ring)
{
	double median = hb_quantile_ring_get(ring, 0.5, 1);
	double late = hb_quantile_ring_get(ring, 0.9, 1) / median - 1;
	return (struct hb_estimate){median, late > ERROR_LEAST ? late : ERROR_LEAST};
}

bool hb_solo_time_learn(struct hb_solo_time *solo, uint32_t batch, double ns)
{
	if (batch < 1 || batch > HB_SCHEDULER_BATCH_MAX || !(ns > 0))
		return false;
	if (!hb_quantile_ring_add(&solo->size[batch], ns))
		return false;
	solo->measured[batch] = estimate_from_ring(&solo->size[batch]);
	if (!solo->smallest || batch < solo->smallest)
		solo->smallest = batch;
	if (batch > solo->largest)
		solo->largest = batch;
	return true;
}

static uint32_t find_measured_below(const struct hb_solo_time *solo, uint32_t batch)
{
	while (batch > 1 && !solo->size[--batch].seen)
		continue;
	return solo->size[batch].seen ? batch : 0;
}

static uint32_t find_measured_above(const struct hb_solo_time *solo, uint32_t batch)
{
	while (!solo->size[++batch].seen)
		continue;
	return batch;
}

static struct hb_estimate extrapolate_above(const struct hb_solo_time *solo, uint32_t batch)
{
	uint32_t largest = solo->largest, before = find_measured_below(solo, largest);
	struct hb_estimate last = solo->measured[largest];
	double proportion = last.ns / largest, slope = proportion;
	if (before) {
		slope = (last.ns - solo->measured[before].ns) / (largest - before);
		slope = slope < 0 ? 0 : slope > proportion ? proportion : slope;
	}
	return (struct hb_estimate){last.ns + slope * (batch - largest), last.error + ERROR_OUTSIDE};
}

struct hb_estimate hb_solo_time_get(const struct hb_solo_time *solo, uint32_t batch)
{
	if (!solo->largest || batch < 1)
		return (struct hb_estimate){solo->guess_ns, ERROR_UNKNOWN};
	batch = batch < HB_SCHEDULER_BATCH_MAX ? batch : HB_SCHEDULER_BATCH_MAX;
	if (solo->size[batch].seen)
		return solo->measured[batch];
	if (batch > solo->largest)
		return extrapolate_above(solo, batch);
	if (batch < solo->smallest) {
		struct hb_estimate small = solo->measured[solo->smallest];
		small.error += ERROR_OUTSIDE;
		return small;
	}
	uint32_t low = find_measured_below(solo, batch), high = find_measured_above(solo, batch);
	struct hb_estimate a = solo->measured[low], b = solo->measured[high];
	double part = (double)(batch - low) / (high - low);
	double error = a.error > b.error ? a.error : b.error;
	return (struct hb_estimate){a.ns + part * (b.ns - a.ns), error + ERROR_BETWEEN};
}
