/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the serving predictor: recursive least squares, quantiles, times alone. */
#include "base/rng.h"
#include "server/scheduler/demand.h"
#include "server/scheduler/quantile_ring.h"
#include "server/scheduler/rls.h"
#include "server/scheduler/solo_time.h"
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define N 4

static const double truth[N] = {0.3, -0.2, 1.5, 0.05};

static double sample(struct hb_rng *rng, const double *w, double noise, double *x)
{
	double y = noise * (hb_rng_double(rng) - 0.5);
	for (int i = 0; i < N; i++) {
		x[i] = hb_rng_double(rng);
		y += w[i] * x[i];
	}
	return y;
}

static double furthest(const struct hb_rls *rls, const double *w)
{
	double most = 0;
	for (int i = 0; i < N; i++)
		most = fmax(most, fabs(rls->w[i] - w[i]));
	return most;
}

static void assert_sound(const struct hb_rls *rls)
{
	for (uint32_t i = 0; i < rls->n; i++) {
		assert_true(isfinite(rls->w[i]));
		assert_true(rls->p[i][i] > 0 && rls->p[i][i] <= rls->p0 * (1 + 1e-9));
		for (uint32_t j = 0; j < rls->n; j++)
			assert_true(rls->p[i][j] == rls->p[j][i] && isfinite(rls->p[i][j]));
	}
}

static void least_squares_converge_on_the_truth(void **state)
{
	struct hb_rls rls;
	struct hb_rng rng;
	double x[N];
	hb_rng_init(&rng, 1, 1);
	hb_rls_init(&rls, N, 0.998, 10);
	assert_true(furthest(&rls, truth) > 1); /* the initial weights are wrong */
	for (int i = 0; i < 2000; i++) {
		double y = sample(&rng, truth, 0.1, x);
		assert_true(hb_rls_update(&rls, x, y));
		assert_sound(&rls);
	}
	assert_true(furthest(&rls, truth) < 0.05);
}

static void least_squares_forget(void **state)
{
	static const double changed[N] = {1.3, 0.4, 0.1, 0.7};
	struct hb_rls forgets, keeps;
	struct hb_rng rng;
	double x[N];
	hb_rng_init(&rng, 2, 1);
	hb_rls_init(&forgets, N, 0.99, 10);
	hb_rls_init(&keeps, N, 1, 10);
	for (int i = 0; i < 4000; i++) {
		double y = sample(&rng, i < 3000 ? truth : changed, 0.02, x);
		hb_rls_update(&forgets, x, y);
		hb_rls_update(&keeps, x, y);
	}
	assert_true(furthest(&forgets, changed) < 0.05);
	assert_true(furthest(&keeps, changed) > 0.3); /* without forgetting, old samples outweigh the change */
}

static void least_squares_refuse_values_that_are_not_finite(void **state)
{
	static const double bad[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300};
	struct hb_rls rls, before;
	double x[N] = {1, 1, 1, 1};
	hb_rls_init(&rls, N, 0.99, 10);
	hb_rls_update(&rls, x, 2);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		before = rls;
		x[2] = bad[i];
		assert_false(hb_rls_update(&rls, x, 1));
		x[2] = 1;
		assert_false(hb_rls_update(&rls, x, bad[i]));
		assert_int_equal(rls.refused, before.refused + 2);
		assert_memory_equal(rls.w, before.w, sizeof rls.w);
		assert_memory_equal(rls.p, before.p, sizeof rls.p);
	}
}

/* Without the bound, every sample with x = 0 would multiply P by 1/0.9 until it overflows. */
static void least_squares_stay_bounded_when_samples_repeat(void **state)
{
	struct hb_rls rls;
	struct hb_rng rng;
	double zero[N] = {0}, same[N] = {0.5, 0.5, 0, 0}, x[N];
	hb_rls_init(&rls, N, 0.9, 10);
	for (int i = 0; i < 100000; i++) {
		assert_true(hb_rls_update(&rls, i % 2 ? zero : same, 1));
		assert_sound(&rls);
	}
	assert_true(fabs(hb_rls_predict(&rls, same)) > 0.4);
	hb_rng_init(&rng, 3, 1);
	for (int i = 0; i < 1000; i++) {
		double y = sample(&rng, truth, 0, x);
		hb_rls_update(&rls, x, y);
	}
	assert_true(furthest(&rls, truth) < 0.01);
}

static void least_squares_stay_finite_for_any_samples(void **state)
{
	struct hb_rls rls;
	struct hb_rng rng;
	hb_rng_init(&rng, 4, 1);
	hb_rls_init(&rls, N, 0.95, 1e4);
	for (int i = 0; i < 200000; i++) {
		double x[N];
		for (int k = 0; k < N; k++)
			x[k] = (hb_rng_double(&rng) - 0.5) * pow(10, (double)hb_rng_below(&rng, 18) - 9);
		if (hb_rng_below(&rng, 8) == 0)
			x[hb_rng_below(&rng, N)] = x[0];
		hb_rls_update(&rls, x, (hb_rng_double(&rng) - 0.5) * 1e6);
		assert_sound(&rls);
	}
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void quantiles_are_exact_for_the_newest_samples(void **state)
{
	struct hb_quantile_ring ring = {0};
	struct hb_rng rng;
	float last[HB_QUANTILE_RING], sorted[HB_QUANTILE_RING];
	hb_rng_init(&rng, 5, 1);
	assert_true(hb_quantile_ring_get(&ring, 0.5, -7) == -7);
	for (int i = 0; i < 1000; i++) {
		float value = (float)hb_rng_below(&rng, 50); /* many equal values */
		last[i % HB_QUANTILE_RING] = value;
		assert_true(hb_quantile_ring_add(&ring, value));
		assert_false(hb_quantile_ring_add(&ring, NAN));
		uint32_t n = hb_quantile_ring_count(&ring);
		for (uint32_t k = 0; k < n; k++)
			sorted[k] = last[k];
		qsort(sorted, n, sizeof *sorted, compare);
		assert_true(hb_quantile_ring_get(&ring, 0, 0) == sorted[0]);
		assert_true(hb_quantile_ring_get(&ring, 1, 0) == sorted[n - 1]);
		assert_true(hb_quantile_ring_get(&ring, 0.5, 0) == sorted[(n + 1) / 2 - 1]);
		assert_true(hb_quantile_ring_get(&ring, 0.9, 0) == sorted[(uint32_t)ceil(0.9 * n) - 1]);
	}
}

static void times_alone_are_interpolated_between_measured_sizes(void **state)
{
	struct hb_solo_time solo;
	hb_solo_time_init(&solo, 5e6);
	assert_true(hb_solo_time_get(&solo, 3).ns == 5e6);
	assert_true(hb_solo_time_get(&solo, 3).error >= 0.5); /* a guess has a large error */
	hb_solo_time_learn(&solo, 2, 1e6);
	assert_true(hb_solo_time_get(&solo, 2).ns == 1e6);
	assert_true(hb_solo_time_get(&solo, 1).ns == 1e6);
	assert_true(hb_solo_time_get(&solo, 6).ns == 3e6); /* one measured size: in proportion */
	hb_solo_time_learn(&solo, 6, 1.4e6);
	assert_true(fabs(hb_solo_time_get(&solo, 3).ns - 1.1e6) < 1);
	assert_true(fabs(hb_solo_time_get(&solo, 8).ns - 1.6e6) < 1); /* two sizes: on their line */
	assert_true(hb_solo_time_get(&solo, 4).error > hb_solo_time_get(&solo, 2).error);
	assert_true(hb_solo_time_get(&solo, 8).error > hb_solo_time_get(&solo, 4).error);
	hb_solo_time_learn(&solo, 4, 1.3e6); /* a measured size is not interpolated any more */
	assert_true(fabs(hb_solo_time_get(&solo, 4).ns - 1.3e6) < 1);
}

static void times_alone_refuse_impossible_values_and_ignore_outliers(void **state)
{
	struct hb_solo_time solo;
	hb_solo_time_init(&solo, 1e6);
	assert_false(hb_solo_time_learn(&solo, 0, 1e6));
	assert_false(hb_solo_time_learn(&solo, HB_SCHEDULER_BATCH_MAX + 1, 1e6));
	assert_false(hb_solo_time_learn(&solo, 1, 0));
	assert_false(hb_solo_time_learn(&solo, 1, -1));
	assert_false(hb_solo_time_learn(&solo, 1, NAN));
	for (int i = 0; i < 20; i++)
		hb_solo_time_learn(&solo, 1, i % 5 ? 2e6 : 90e6);
	assert_true(hb_solo_time_get(&solo, 1).ns == 2e6);
	for (int i = 0; i < HB_QUANTILE_RING; i++) /* a lasting change is learned */
		hb_solo_time_learn(&solo, 1, 3e6);
	assert_true(hb_solo_time_get(&solo, 1).ns == 3e6);
}

static void demands_follow_from_run_times(void **state)
{
	/* Half of the SMs are used, so an eighth of them takes four times as long; a fifth of the time waits for memory. */
	struct hb_demand_times times = {
		.alone = 10, .limited = 40, .sm_part = 0.125, .beside = 20, .beside_memory = 20.8};
	double sm = 7, memory = 7;
	assert_int_equal(hb_demand_infer(&times, &sm, &memory), 0);
	assert_true(fabs(sm - 0.5) < 1e-9 && fabs(memory - 0.2) < 1e-9);
	/* Shares stay between 0 and 1 when times are disturbed. */
	times.limited = 1000;
	times.beside_memory = 15;
	assert_int_equal(hb_demand_infer(&times, &sm, &memory), 0);
	assert_true(sm == 1 && memory == 0);
	double *const all[] = {&times.alone, &times.limited, &times.sm_part, &times.beside, &times.beside_memory};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		double before = *all[i], impossible[] = {0, -1, NAN, INFINITY};
		for (size_t k = 0; k < 4; k++) {
			*all[i] = impossible[k];
			assert_int_equal(hb_demand_infer(&times, &sm, &memory), -EINVAL);
			assert_true(sm == 1 && memory == 0);
		}
		*all[i] = before;
	}
}

static void copied_bytes_follow_from_the_time_of_each_further_item(void **state)
{
	const struct hb_demand_link link = {.latency_ns = 10, .bytes_per_ns = 50};
	assert_true(hb_demand_infer_transfer(&link, (double[]){1000, 8000}, 8, 100) == 50000);
	assert_true(hb_demand_infer_transfer(&link, (double[]){1010, 0}, 1, 100) == 50000);
	/* The times of small copies are mostly latency. */
	assert_true(hb_demand_infer_transfer(&link, (double[]){1000, 900}, 8, 100) == 100);
	assert_true(hb_demand_infer_transfer(&link, (double[]){NAN, 0}, 1, 100) == 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copied_bytes_follow_from_the_time_of_each_further_item),
		cmocka_unit_test(demands_follow_from_run_times),
		cmocka_unit_test(least_squares_converge_on_the_truth),
		cmocka_unit_test(least_squares_forget),
		cmocka_unit_test(least_squares_refuse_values_that_are_not_finite),
		cmocka_unit_test(least_squares_stay_bounded_when_samples_repeat),
		cmocka_unit_test(least_squares_stay_finite_for_any_samples),
		cmocka_unit_test(quantiles_are_exact_for_the_newest_samples),
		cmocka_unit_test(times_alone_are_interpolated_between_measured_sizes),
		cmocka_unit_test(times_alone_refuse_impossible_values_and_ignore_outliers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
