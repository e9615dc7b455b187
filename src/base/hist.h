/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-linear histogram of durations in ns: fixed memory (128 KiB), no
 * allocation, three significant digits.
 *
 * Values below 1024 ns have a bucket each and are exact. Above, every power of
 * two is cut into 512 equal buckets and a bucket stands for its middle, so a
 * percentile differs from the sample of that rank by at most 1/1024 (0.098 %)
 * of it. Count, sum, minimum and maximum are exact. Values of 2^40 ns (18
 * minutes) and over share the last bucket; negative ones count as 0.
 *
 * One writer at a time; readers need the writer's lock or a merged copy.
 */
#ifndef HB_BASE_HIST_H
#define HB_BASE_HIST_H

#include <stddef.h>
#include <stdint.h>

#define HB_HIST_EXACT_BITS 10
#define HB_HIST_TOP_BITS 40
#define HB_HIST_BUCKETS \
	((1 << HB_HIST_EXACT_BITS) + ((HB_HIST_TOP_BITS - HB_HIST_EXACT_BITS) << (HB_HIST_EXACT_BITS - 1)))

struct hb_hist {
	uint64_t count;
	uint64_t sum_ns;
	int64_t min_ns, max_ns; /* meaningless while count is 0 */
	uint64_t buckets[HB_HIST_BUCKETS];
};

/* Empties the histogram. A zeroed struct is also a valid empty histogram. */
void hb_hist_init(struct hb_hist *hist);
void hb_hist_record(struct hb_hist *hist, int64_t value_ns);
void hb_hist_merge(struct hb_hist *into, const struct hb_hist *from);

/*
 * Returns the value of the sample of rank ceil(share * count), so 0.5 = median of an
 * odd number, 1 = maximum. A share outside 0..1 is clipped. Returns 0 when empty.
 */
int64_t hb_hist_percentile(const struct hb_hist *hist, double share);
/* Counts the samples of at most `value_ns`, to the resolution above. */
uint64_t hb_hist_count_at_most(const struct hb_hist *hist, int64_t value_ns);
/* Counts for n ascending bounds in one pass: at_most[i] belongs to bounds_ns[i]. */
void hb_hist_cumulate(const struct hb_hist *hist, const int64_t *bounds_ns, size_t n, uint64_t *at_most);

#endif
