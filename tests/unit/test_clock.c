/* SPDX-License-Identifier: Apache-2.0 */
/* The clock goes forward, and stands still when a test says so. */
#include "base/clock.h"
#include "unit.h"

#include <pthread.h>

static void running_clock_never_goes_back(void **state)
{
	int64_t last_ns = hb_clock_now_ns();
	assert_true(last_ns > 0);
	for (int i = 0; i < 10000; i++) {
		int64_t now_ns = hb_clock_now_ns();
		assert_true(now_ns >= last_ns);
		last_ns = now_ns;
	}
}

static void stopped_clock_moves_only_by_warps(void **state)
{
	hb_clock_stop(5 * HB_NS_PER_S);
	assert_int_equal(hb_clock_now_ns(), 5 * HB_NS_PER_S);
	assert_int_equal(hb_clock_now_ns(), 5 * HB_NS_PER_S);
	hb_clock_warp(HB_NS_PER_MS);
	assert_int_equal(hb_clock_now_ns(), 5 * HB_NS_PER_S + HB_NS_PER_MS);
	hb_clock_warp(0);
	assert_int_equal(hb_clock_now_ns(), 5 * HB_NS_PER_S + HB_NS_PER_MS);
	hb_clock_resume();
	assert_int_not_equal(hb_clock_now_ns(), 5 * HB_NS_PER_S + HB_NS_PER_MS);
}

static void *read_clock(void *out_ns)
{
	*(int64_t *)out_ns = hb_clock_now_ns();
	return NULL;
}

static void other_threads_see_the_stopped_clock(void **state)
{
	pthread_t thread;
	int64_t seen_ns = 0;
	hb_clock_stop(42);
	assert_int_equal(pthread_create(&thread, NULL, read_clock, &seen_ns), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	hb_clock_resume();
	assert_int_equal(seen_ns, 42);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(running_clock_never_goes_back),
		cmocka_unit_test(stopped_clock_moves_only_by_warps),
		cmocka_unit_test(other_threads_see_the_stopped_clock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
