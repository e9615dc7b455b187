/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram against the truth: the same samples, sorted. */
#include "base/hist.h"
#include "base/rng.h"
#include "unit.h"

#include <stdlib.h>

#define SAMPLES 20000

static struct hb_hist hist, other;
static int64_t samples[SAMPLES];

static int empty_hists(void **state)
{
	hb_hist_init(&hist);
	hb_hist_init(&other);
	return 0;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* What each shape of latencies looks like is drawn here; all stay below the histogram's top. */
static int64_t draw(struct hb_rng *rng, unsigned shape)
{
	switch (shape) {
	case 0: /* every magnitude */
		return (int64_t)(hb_rng_u64(rng) >> (24 + hb_rng_below(rng, 40)));
	case 1: /* a service around 2.4 ms */
		return 2400000 + (int64_t)hb_rng_below(rng, 100000);
	case 2: /* a queue */
		return (int64_t)hb_rng_exponential(rng, 5e6);
	default: /* short and exact */
		return (int64_t)hb_rng_below(rng, 1024);
	}
}

/* The bound hist.h promises, and the one the project does: three significant digits. */
static void assert_close(int64_t got_ns, int64_t true_ns)
{
	int64_t off_ns = llabs(got_ns - true_ns);
	assert_true(off_ns * 1024 <= true_ns);
	assert_true((double)off_ns <= 0.001 * (double)true_ns);
}

static void percentiles_are_within_a_thousandth_of_the_sorted_samples(void **state)
{
	static const double shares[] = {0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1};
	for (unsigned shape = 0; shape < 4; shape++) {
		struct hb_rng rng;
		hb_rng_init(&rng, 7, shape);
		hb_hist_init(&hist);
		for (int i = 0; i < SAMPLES; i++)
			hb_hist_record(&hist, samples[i] = draw(&rng, shape));
		qsort(samples, SAMPLES, sizeof *samples, compare);
		for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
			int rank = (int)(shares[i] * SAMPLES + 0.5);
			assert_close(hb_hist_percentile(&hist, shares[i]), samples[rank ? rank - 1 : 0]);
		}
		assert_int_equal(hb_hist_percentile(&hist, 1), samples[SAMPLES - 1]);
	}
}

static void every_value_keeps_three_digits(void **state)
{
	/* Around each power of two, where buckets change width. */
	for (int bits = 0; bits < HB_HIST_TOP_BITS; bits++) {
		for (int64_t off = -3; off <= 3; off++) {
			int64_t value_ns = (INT64_C(1) << bits) + off;
			if (value_ns < 0 || value_ns >> HB_HIST_TOP_BITS)
				continue;
			hb_hist_init(&hist);
			hb_hist_record(&hist, value_ns);
			hb_hist_record(&hist, INT64_MAX / 2);
			hb_hist_record(&hist, 0);
			assert_close(hb_hist_percentile(&hist, 0.5), value_ns);
		}
	}
}

static void short_values_are_exact(void **state)
{
	for (int64_t i = 0; i < 1024; i++)
		hb_hist_record(&hist, i);
	for (int64_t i = 0; i < 1024; i++) {
		assert_int_equal(hb_hist_percentile(&hist, (double)(i + 1) / 1024), i);
		assert_int_equal(hb_hist_count_at_most(&hist, i), i + 1);
	}
}

static void count_and_extremes_are_exact(void **state)
{
	hb_hist_record(&hist, 1000003);
	hb_hist_record(&hist, 5);
	hb_hist_record(&hist, 2000000);
	assert_int_equal(hist.count, 3);
	assert_int_equal(hist.min_ns, 5);
	assert_int_equal(hist.max_ns, 2000000);
}

static void an_empty_histogram_says_zero(void **state)
{
	assert_int_equal(hb_hist_percentile(&hist, 0.99), 0);
	assert_int_equal(hb_hist_count_at_most(&hist, INT64_MAX), 0);
}

static void merging_is_recording_both(void **state)
{
	static struct hb_hist all;
	struct hb_rng rng;
	hb_rng_init(&rng, 3, 0);
	hb_hist_init(&all);
	for (int i = 0; i < SAMPLES; i++) {
		int64_t value_ns = draw(&rng, (unsigned)i % 4);
		hb_hist_record(i % 3 ? &hist : &other, value_ns);
		hb_hist_record(&all, value_ns);
	}
	hb_hist_merge(&hist, &other);
	assert_memory_equal(&hist, &all, sizeof all);
	hb_hist_init(&other);
	hb_hist_merge(&hist, &other);
	assert_memory_equal(&hist, &all, sizeof all);
	hb_hist_merge(&other, &all);
	assert_memory_equal(&other, &all, sizeof all);
}

static void values_out_of_bounds_are_counted_at_the_ends(void **state)
{
	hb_hist_record(&hist, -5);
	hb_hist_record(&hist, INT64_MAX);
	assert_int_equal(hist.count, 2);
	assert_int_equal(hist.min_ns, 0);
	assert_int_equal(hb_hist_percentile(&hist, 0.5), 0);
	assert_int_equal(hb_hist_percentile(&hist, 1), INT64_MAX);
}

static void percentile_rank_is_not_moved_by_rounding(void **state)
{
	for (int64_t i = 1; i <= 100; i++)
		hb_hist_record(&hist, i);
	for (int percent = 1; percent <= 100; percent++)
		assert_int_equal(hb_hist_percentile(&hist, percent / 100.0), percent);
	assert_int_equal(hb_hist_percentile(&hist, -1), 1);
	assert_int_equal(hb_hist_percentile(&hist, 2), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(percentiles_are_within_a_thousandth_of_the_sorted_samples, empty_hists),
		cmocka_unit_test_setup(every_value_keeps_three_digits, empty_hists),
		cmocka_unit_test_setup(short_values_are_exact, empty_hists),
		cmocka_unit_test_setup(count_and_extremes_are_exact, empty_hists),
		cmocka_unit_test_setup(an_empty_histogram_says_zero, empty_hists),
		cmocka_unit_test_setup(merging_is_recording_both, empty_hists),
		cmocka_unit_test_setup(values_out_of_bounds_are_counted_at_the_ends, empty_hists),
		cmocka_unit_test_setup(percentile_rank_is_not_moved_by_rounding, empty_hists),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
