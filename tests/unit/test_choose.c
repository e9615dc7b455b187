/* SPDX-License-Identifier: Apache-2.0 */
/* `auto` tries both engines, keeps the one that is better, and tries the other again, more rarely where it hurt HP. */
#include "core/engine_auto_rule.h"
#include "unit.h"

#define TARGET 990000

/* What the engines show: attainment and LP throughput. */
struct world {
	uint32_t attainment_ppm[HB_ENGINE_AUTO_ENGINES], low_ppm[HB_ENGINE_AUTO_ENGINES];
};

/* Lives one after another; how many of them were spatial. */
static uint32_t live(struct hb_choose *choose, const struct world *world, uint32_t lives, bool spatial_works)
{
	uint32_t spatial = 0;
	for (uint32_t i = 0; i < lives; i++) {
		enum hb_engine_auto_choice engine = hb_engine_auto_next(choose, TARGET, spatial_works);
		spatial += engine == HB_ENGINE_AUTO_SPATIAL;
		hb_engine_auto_note(choose, engine, world->attainment_ppm[engine], world->low_ppm[engine], TARGET,
				    false);
	}
	return spatial;
}

static void test_both_are_tried_temporal_first(void **state)
{
	(void)state;
	struct hb_choose choose = {0};
	assert_int_equal(hb_engine_auto_next(&choose, TARGET, true), HB_ENGINE_AUTO_TEMPORAL);
	hb_engine_auto_note(&choose, HB_ENGINE_AUTO_TEMPORAL, 990000, 540000, TARGET, false);
	assert_int_equal(hb_engine_auto_next(&choose, TARGET, true), HB_ENGINE_AUTO_SPATIAL);
}

static void test_more_throughput_wins(void **state)
{
	(void)state;
	struct hb_choose choose = {0};
	struct world world = {{990000, 987000}, {540000, 800000}};
	live(&choose, &world, 2, true);
	assert_int_equal(live(&choose, &world, 100, true), 100 - 100 / (HB_ENGINE_AUTO_AGAIN + 1));
}

static void test_attainment_comes_first(void **state)
{
	(void)state;
	struct hb_choose choose = {0};
	struct world world = {{990000, 970000}, {540000, 900000}};
	live(&choose, &world, 2, true);
	assert_int_equal(choose.current, HB_ENGINE_AUTO_TEMPORAL);
	uint32_t early = live(&choose, &world, 200, true), late = live(&choose, &world, 200, true);
	assert_true(early > 0);
	assert_true(late < early);
	/* Neither keeps it: the better one. */
	struct hb_choose poor = {0};
	struct world both = {{900000, 950000}, {540000, 400000}};
	live(&poor, &both, 3, true);
	assert_int_equal(poor.current, HB_ENGINE_AUTO_SPATIAL);
}

static void test_a_small_difference_changes_nothing(void **state)
{
	(void)state;
	struct hb_choose choose = {0};
	struct world world = {{990000, 990000}, {540000, 550000}};
	live(&choose, &world, 3, true);
	assert_int_equal(choose.current, HB_ENGINE_AUTO_TEMPORAL);
}

static void test_programs_change(void **state)
{
	(void)state;
	struct hb_choose choose = {0};
	struct world before = {{990000, 990000}, {540000, 500000}}, after = {{990000, 990000}, {540000, 800000}};
	live(&choose, &before, 10, true);
	assert_int_equal(choose.current, HB_ENGINE_AUTO_TEMPORAL);
	live(&choose, &after, 4 * HB_ENGINE_AUTO_AGAIN, true);
	assert_int_equal(choose.current, HB_ENGINE_AUTO_SPATIAL);
}

static void test_never_where_it_does_not_work(void **state)
{
	(void)state;
	struct hb_choose choose = {0};
	struct world world = {{990000, 990000}, {540000, 800000}};
	assert_int_equal(live(&choose, &world, 100, false), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_are_tried_temporal_first),
		cmocka_unit_test(test_more_throughput_wins),
		cmocka_unit_test(test_attainment_comes_first),
		cmocka_unit_test(test_a_small_difference_changes_nothing),
		cmocka_unit_test(test_programs_change),
		cmocka_unit_test(test_never_where_it_does_not_work),
	};
	return cmocka_run_group_tests(tests, 0, 0);
}
