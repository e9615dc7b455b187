/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictors to compare with (simserving/comparators.h) learn a slowdown that is linear in their features. The static
 * regression keeps what it learned from the first batches; the others follow a change.
 */
#include "simserving/comparators.h"

#include "base/rng.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>

#define ALONE_NS 1e6

static struct hb_comparators comparators;
static struct hb_predictor *predictor;
static struct hb_rng rng;
static int64_t now_ns;

static int make(void **state)
{
	static const struct hb_scheduler_model model = {.name = "m", .max_items = 8, .run_guess_ns = ALONE_NS};
	(void)state;
	hb_comparators_init(&comparators);
	predictor = calloc(1, sizeof *predictor);
	hb_predictor_init(predictor, (struct hb_predictor_parts){true, true});
	assert_int_equal(hb_predictor_add_model(predictor, &model), 0);
	hb_predictor_profiled(predictor, 0, 1, (const double[HB_STAGES]){0, ALONE_NS, 0});
	hb_rng_init(&rng, 1, 0);
	now_ns = 0;
	return 0;
}

static int release(void **state)
{
	(void)state;
	free(predictor);
	return 0;
}

/* Runs one batch in slot 0 beside one in slot 1 that demands `other` of the SMs; it takes 1 + slope * other times as long. */
static void run_batch(double other, double slope, double errors[HB_COMPARATORS])
{
	double took_ns = ALONE_NS * (1 + slope * other);
	predictor->flights[0].flow = (struct hb_flow){.live = true, .items = 1, .sm = 0.5, .memory = 0.2};
	predictor->flights[1].flow = (struct hb_flow){.live = other > 0, .items = 1, .sm = other, .memory = 0.1};
	hb_comparators_begin(&comparators, predictor, now_ns, 0);
	now_ns += (int64_t)took_ns;
	const double *predicted_ns = hb_comparators_end(&comparators, now_ns, 0, false);
	for (int i = 0; i < HB_COMPARATORS; i++)
		errors[i] = fabs(predicted_ns[i] - took_ns) / took_ns;
}

static void run_batches(int n, double slope, double errors[HB_COMPARATORS])
{
	for (int i = 0; i < n; i++)
		run_batch(0.1 + 0.9 * hb_rng_double(&rng), slope, errors);
	run_batch(0.5, slope, errors);
}

static void a_batch_alone_takes_its_time_alone(void **state)
{
	double errors[HB_COMPARATORS];
	(void)state;
	run_batches(100, 2, errors);
	run_batch(0, 2, errors);
	for (int i = 0; i < HB_COMPARATORS; i++)
		assert_float_equal(errors[i], 0, 1e-9);
}

static void a_linear_slowdown_is_learned_from_demands(void **state)
{
	double errors[HB_COMPARATORS];
	(void)state;
	run_batch(0.5, 2, errors);
	for (int i = 0; i < HB_COMPARATORS; i++)
		assert_float_equal(errors[i], 0.5, 1e-9); /* nothing is known: as if alone */
	run_batches(3000, 2, errors);
	assert_true(errors[HB_COMPARED_REGRESSION] < 0.01 && errors[HB_COMPARED_SGD] < 0.05);
	/* The mean of batches beside one other knows nothing of its demand. */
	run_batch(1, 2, errors);
	assert_true(errors[HB_COMPARED_REGRESSION] < 0.01 && errors[HB_COMPARED_SGD] < 0.05 &&
		    errors[HB_COMPARED_EWMA] > 0.1);
}

static void only_the_static_regression_misses_a_change(void **state)
{
	double errors[HB_COMPARATORS];
	(void)state;
	run_batches(600, 2, errors);
	run_batches(3000, 0.5, errors);
	assert_true(errors[HB_COMPARED_REGRESSION] > 0.5);
	assert_true(errors[HB_COMPARED_SGD] < 0.05);
	for (int i = 0; i < 50; i++)
		run_batch(0.5, 0.5, errors);
	assert_true(errors[HB_COMPARED_EWMA] < 0.01);
	/* Another model gets the number: its times are not known. */
	hb_comparators_replace(&comparators, 0);
	run_batch(0.5, 0.5, errors);
	assert_float_equal(errors[HB_COMPARED_EWMA], 0.2, 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_batch_alone_takes_its_time_alone, make, release),
		cmocka_unit_test_setup_teardown(a_linear_slowdown_is_learned_from_demands, make, release),
		cmocka_unit_test_setup_teardown(only_the_static_regression_misses_a_change, make, release),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
