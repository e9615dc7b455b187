/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the baselines: Orion (decide/baseline_orion.h) and REEF (decide/baseline_reef.h). */
#include "decide/baseline_orion.h"
#include "decide/baseline_reef.h"
#include "unit.h"

#define US INT64_C(1000)
#define SMS 66

static const struct hb_orion_high serving = {.present = true, .alone_ns = 4000 * US, .class = HB_CLASS_COMPUTE};

static struct hb_orion_launch launch_of(uint32_t sms, int64_t duration_ns, enum hb_class class)
{
	return (struct hb_orion_launch){.sms = sms, .duration_ns = duration_ns, .class = class};
}

static bool may_start(int64_t *used_ns, const struct hb_orion_high *high, uint32_t sms, int64_t duration_ns,
		      enum hb_class class)
{
	const struct hb_orion_launch launch = launch_of(sms, duration_ns, class);
	return hb_orion_may_start(used_ns, high, &launch, SMS);
}

static void orion_lets_everything_start_without_a_request(void **state)
{
	const struct hb_orion_high absent = {.class = HB_CLASS_COMPUTE};
	int64_t used_ns = 50 * US;
	assert_true(may_start(&used_ns, &absent, 0, 0, HB_CLASS_COMPUTE));
	assert_int_equal(used_ns, 0);
}

static void orion_spends_a_budget_of_2_5_percent_of_the_time_alone(void **state)
{
	int64_t used_ns = 0;
	assert_int_equal(hb_orion_budget_ns(4000 * US), 100 * US);
	assert_true(may_start(&used_ns, &serving, 40, 60 * US, HB_CLASS_MEMORY));
	assert_false(may_start(&used_ns, &serving, 40, 50 * US, HB_CLASS_MEMORY));
	assert_int_equal(used_ns, 60 * US);
	assert_true(may_start(&used_ns, &serving, 40, 40 * US, HB_CLASS_MEMORY));
	assert_false(may_start(&used_ns, &serving, 40, 1, HB_CLASS_MEMORY));
}

static void orion_has_a_budget_of_its_own_until_the_time_alone_is_known(void **state)
{
	assert_int_equal(hb_orion_budget_ns(0), HB_ORION_BUDGET_NS);
}

static void orion_starts_nothing_beside_a_request_that_measures_the_time_alone(void **state)
{
	struct hb_orion_high high = serving;
	int64_t used_ns = 0;
	high.measures_alone = true;
	assert_false(may_start(&used_ns, &high, 1, 1, HB_CLASS_MEMORY));
}

static void orion_refuses_large_launches_and_launches_of_the_same_kind(void **state)
{
	int64_t used_ns = 0;
	assert_true(may_start(&used_ns, &serving, SMS, US, HB_CLASS_MEMORY));
	assert_false(may_start(&used_ns, &serving, SMS + 1, US, HB_CLASS_MEMORY));
	assert_false(may_start(&used_ns, &serving, 1, US, HB_CLASS_COMPUTE));
	assert_true(may_start(&used_ns, &serving, 1, US, HB_CLASS_UNKNOWN));
	struct hb_orion_high graph = serving;
	graph.class = HB_CLASS_UNKNOWN;
	assert_true(may_start(&used_ns, &graph, 1, US, HB_CLASS_COMPUTE));
}

static void orion_never_guesses_size_or_duration(void **state)
{
	int64_t used_ns = 0;
	assert_false(may_start(&used_ns, &serving, 0, US, HB_CLASS_MEMORY));
	assert_false(may_start(&used_ns, &serving, 1, 0, HB_CLASS_MEMORY));
}

static void reef_starts_high_priority_only_when_low_priority_has_drained(void **state)
{
	struct hb_reef reef = {0};
	assert_false(hb_reef_high_may_start(&reef));
	hb_reef_update(&reef, true, true);
	assert_false(hb_reef_high_may_start(&reef));
	hb_reef_update(&reef, true, false);
	assert_true(hb_reef_high_may_start(&reef));
	/* Late low-priority work does not stop a request that runs. */
	hb_reef_update(&reef, true, true);
	assert_true(hb_reef_high_may_start(&reef));
	hb_reef_update(&reef, false, false);
	assert_false(hb_reef_high_may_start(&reef));
}

static void reef_keeps_at_most_two_low_priority_launches_in_flight(void **state)
{
	assert_true(hb_reef_low_may_start(false, 0));
	assert_true(hb_reef_low_may_start(false, 1));
	assert_false(hb_reef_low_may_start(false, 2));
	assert_false(hb_reef_low_may_start(true, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(orion_lets_everything_start_without_a_request),
		cmocka_unit_test(orion_spends_a_budget_of_2_5_percent_of_the_time_alone),
		cmocka_unit_test(orion_has_a_budget_of_its_own_until_the_time_alone_is_known),
		cmocka_unit_test(orion_starts_nothing_beside_a_request_that_measures_the_time_alone),
		cmocka_unit_test(orion_refuses_large_launches_and_launches_of_the_same_kind),
		cmocka_unit_test(orion_never_guesses_size_or_duration),
		cmocka_unit_test(reef_starts_high_priority_only_when_low_priority_has_drained),
		cmocka_unit_test(reef_keeps_at_most_two_low_priority_launches_in_flight),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
