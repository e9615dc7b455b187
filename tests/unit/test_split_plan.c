/* SPDX-License-Identifier: Apache-2.0 */
/* Parts are complete waves within the allowed time, cover the grid, and cost no more than their share. */
#include "split_plan.h"

#include "base/rng.h"

#include "unit.h"

static const struct hb_split_question usual = {.duration_ns = 2000000,
					       .allowed_ns = 200000,
					       .n_blocks = 5280,
					       .n_threads = 1024,
					       .n_resident = 264,
					       .cost_percent = HB_SPLIT_COST_PERCENT};

static void a_long_kernel_is_split_into_parts_of_two_waves(void **state)
{
	struct hb_split_plan plan;
	assert_int_equal(hb_split_plan(&usual, &plan), HB_SPLIT_none);
	assert_int_equal(plan.n_parts, 10); /* 20 waves of 100 us */
	assert_int_equal(plan.n_blocks_each, 528);
	assert_int_equal(plan.part_ns, 200000);
}

static void a_grid_that_fits_at_once_is_not_split(void **state)
{
	struct hb_split_plan plan;
	struct hb_split_question question = usual;
	question.n_blocks = question.n_resident;
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_resident);
	question.n_blocks++;
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_none);
	question.n_resident = 0; /* unknown */
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_resident);
}

static void a_short_kernel_is_not_split(void **state)
{
	struct hb_split_plan plan;
	struct hb_split_question question = usual;
	question.duration_ns = question.allowed_ns;
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_brief);
}

/* 2 ms of a million blocks: a part would cost 0.6 to 1.25 ms. */
static void parts_cost_no_more_than_allowed(void **state)
{
	struct hb_split_plan plan;
	struct hb_split_question question = usual;
	question.n_blocks = 1000000;
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_costly);
	question.n_blocks = 26400; /* 35 us per part: five of them */
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_none);
	assert_int_equal(plan.n_parts, 5);
	question.cost_percent = 1000000; /* at any cost */
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_none);
	assert_int_equal(plan.n_parts, 10); /* 100 waves, ten per part */
}

/* A wave that is longer than allowed is one part. */
static void a_part_is_at_least_one_wave(void **state)
{
	struct hb_split_plan plan;
	struct hb_split_question question = usual;
	question.allowed_ns = 1000;
	assert_int_equal(hb_split_plan(&question, &plan), HB_SPLIT_none);
	assert_int_equal(plan.n_blocks_each, 264);
	assert_int_equal(plan.n_parts, 20);
}

static void any_plan_covers_the_grid(void **state)
{
	struct hb_rng rng;
	hb_rng_init(&rng, 7, 1);
	for (int i = 0; i < 20000; i++) {
		struct hb_split_plan plan;
		struct hb_split_question question = {
			.duration_ns = (int64_t)(hb_rng_u64(&rng) % 5000000),
			.allowed_ns = (int64_t)(hb_rng_u64(&rng) % 500000),
			.n_blocks = (uint32_t)(hb_rng_u64(&rng) >> (hb_rng_u64(&rng) % 32 + 32)),
			.n_threads = (uint32_t)(hb_rng_u64(&rng) % 1024 + 1),
			.n_resident = (uint32_t)(hb_rng_u64(&rng) % 4000),
			.cost_percent = (uint32_t)(hb_rng_u64(&rng) % 1000000),
		};
		if (hb_split_plan(&question, &plan) != HB_SPLIT_none)
			continue;
		assert_true(plan.n_parts >= 2);
		assert_true((uint64_t)plan.n_parts * plan.n_blocks_each >= question.n_blocks);
		assert_true((uint64_t)(plan.n_parts - 1) * plan.n_blocks_each < question.n_blocks);
		assert_int_equal(plan.n_blocks_each % question.n_resident, 0);
	}
}

/* The first part goes at once, each other one when no more than the lead time is left of the previous. */
static void parts_are_issued_shortly_before_the_previous_one_ends(void **state)
{
	struct hb_split_clock clock = {0};
	int64_t now_ns = 1000000;
	assert_int_equal(hb_split_wait_ns(&clock, now_ns), 0);
	hb_split_issued(&clock, now_ns, 200000);
	assert_int_equal(hb_split_wait_ns(&clock, now_ns), 200000 - HB_SPLIT_LEAD_NS);
	now_ns += 200000 - HB_SPLIT_LEAD_NS;
	assert_int_equal(hb_split_wait_ns(&clock, now_ns), 0);
	hb_split_issued(&clock, now_ns, 200000); /* the part follows the previous one */
	assert_int_equal(clock.drained_ns, 1400000);
	now_ns = 5000000; /* late: nothing is in flight, and lost time is not caught up */
	hb_split_issued(&clock, now_ns, 200000);
	assert_int_equal(clock.drained_ns, 5200000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_long_kernel_is_split_into_parts_of_two_waves),
		cmocka_unit_test(a_grid_that_fits_at_once_is_not_split),
		cmocka_unit_test(a_short_kernel_is_not_split),
		cmocka_unit_test(parts_cost_no_more_than_allowed),
		cmocka_unit_test(a_part_is_at_least_one_wave),
		cmocka_unit_test(any_plan_covers_the_grid),
		cmocka_unit_test(parts_are_issued_shortly_before_the_previous_one_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
