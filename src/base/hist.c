/* SPDX-License-Identifier: Apache-2.0 */
/* Counts durations in a log-linear histogram; see hist.h for the bucket layout and its error bound. */
#include "base/hist.h"

#include <string.h>

#define EXACT (INT64_C(1) << HB_HIST_EXACT_BITS)
#define PER_OCTAVE (EXACT / 2)

static unsigned find_bucket(int64_t value_ns)
{
	if (value_ns < EXACT)
		return value_ns < 0 ? 0 : (unsigned)value_ns;
	if (value_ns >> HB_HIST_TOP_BITS)
		return HB_HIST_BUCKETS - 1;
	/* 0 for values that need one bit more than the exact ones: buckets of 2 ns. */
	unsigned octave = 63u - (unsigned)__builtin_clzll((uint64_t)value_ns) - HB_HIST_EXACT_BITS;
	unsigned within = (unsigned)((value_ns >> (octave + 1)) - PER_OCTAVE);
	return (unsigned)EXACT + octave * (unsigned)PER_OCTAVE + within;
}

/* Returns the value that a bucket represents. */
static int64_t compute_bucket_middle_ns(unsigned bucket)
{
	if (bucket < EXACT)
		return bucket;
	unsigned octave = (bucket - (unsigned)EXACT) / (unsigned)PER_OCTAVE;
	int64_t within = (bucket - (unsigned)EXACT) % (unsigned)PER_OCTAVE;
	return ((within + PER_OCTAVE) << (octave + 1)) + (INT64_C(1) << octave);
}

void hb_hist_init(struct hb_hist *hist)
{
	memset(hist, 0, sizeof *hist);
}

void hb_hist_record(struct hb_hist *hist, int64_t value_ns)
{
	if (value_ns < 0)
		value_ns = 0;
	if (!hist->count || value_ns < hist->min_ns)
		hist->min_ns = value_ns;
	if (!hist->count || value_ns > hist->max_ns)
		hist->max_ns = value_ns;
	hist->count++;
	hist->sum_ns += (uint64_t)value_ns;
	hist->buckets[find_bucket(value_ns)]++;
}

void hb_hist_merge(struct hb_hist *into, const struct hb_hist *from)
{
	if (!from->count)
		return;
	if (!into->count || from->min_ns < into->min_ns)
		into->min_ns = from->min_ns;
	if (!into->count || from->max_ns > into->max_ns)
		into->max_ns = from->max_ns;
	into->count += from->count;
	into->sum_ns += from->sum_ns;
	for (unsigned i = 0; i < HB_HIST_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

/* Returns ceil(share * count), limited to 1..count. */
static uint64_t compute_rank(uint64_t count, double share)
{
	if (!(share > 0))
		return 1;
	double exact = share * (double)count;
	if (exact >= (double)count)
		return count;
	uint64_t rank = (uint64_t)exact;
	/* 0.99 * 100 may come out a rounding error above 99: that is still rank 99. */
	if (exact - (double)rank > 1e-9 * exact)
		rank++;
	return rank ? rank : 1;
}

int64_t hb_hist_percentile(const struct hb_hist *hist, double share)
{
	if (!hist->count)
		return 0;
	uint64_t rank = compute_rank(hist->count, share);
	if (rank == hist->count)
		return hist->max_ns;
	uint64_t seen = 0;
	unsigned bucket = 0;
	while ((seen += hist->buckets[bucket]) < rank)
		bucket++;
	int64_t value_ns = compute_bucket_middle_ns(bucket);
	if (value_ns < hist->min_ns)
		return hist->min_ns;
	return value_ns > hist->max_ns ? hist->max_ns : value_ns;
}

uint64_t hb_hist_count_at_most(const struct hb_hist *hist, int64_t value_ns)
{
	if (value_ns < 0)
		return 0;
	unsigned last = find_bucket(value_ns);
	uint64_t seen = 0;
	for (unsigned i = 0; i <= last; i++)
		seen += hist->buckets[i];
	return seen;
}

void hb_hist_cumulate(const struct hb_hist *hist, const int64_t *bounds_ns, size_t n, uint64_t *at_most)
{
	/* Skips the buckets below the smallest sample, whose pages may never have been touched. */
	unsigned bucket = hist->count ? find_bucket(hist->min_ns) : HB_HIST_BUCKETS;
	uint64_t seen = 0;
	for (size_t i = 0; i < n; i++) {
		unsigned last = bounds_ns[i] < 0 ? 0 : find_bucket(bounds_ns[i]);
		while (bucket <= last && seen < hist->count)
			seen += hist->buckets[bucket++];
		at_most[i] = bounds_ns[i] < 0 ? 0 : seen;
	}
}
