/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of the heartbeat writes while the event loop finishes turns, and stops when the loop hangs. The test sets
 * the time that the thread reads.
 */
#include "base/clock.h"
#include "daemon/heartbeat.h"
#include "unit.h"

#include <sched.h>

#define BEGIN_NS HB_NS_PER_S

static _Atomic int64_t time_ns;
static _Atomic unsigned readings;

int64_t __wrap_hb_clock_now_ns(void);
int64_t __wrap_hb_clock_now_ns(void)
{
	readings++;
	return time_ns;
}

/* Waits until the thread has used this time. */
static void set_time(int64_t now_ns)
{
	time_ns = now_ns;
	for (unsigned before = readings; readings - before < 3;)
		sched_yield();
}

static void the_heartbeat_stops_while_the_loop_hangs(void **state)
{
	struct hb_heartbeat *heartbeat;
	hb_page_i64 word = 0, gone = 0;
	time_ns = BEGIN_NS;
	assert_int_equal(hb_heartbeat_new(NULL, &heartbeat), 0);
	hb_heartbeat_set(heartbeat, 3, &word);
	hb_heartbeat_set(heartbeat, 4, &gone);
	hb_heartbeat_set(heartbeat, 4, NULL);
	set_time(BEGIN_NS + HB_HEARTBEAT_HANG_NS);
	assert_int_equal(word, BEGIN_NS + HB_HEARTBEAT_HANG_NS);
	set_time(BEGIN_NS + HB_HEARTBEAT_HANG_NS + 1);
	assert_int_equal(word, BEGIN_NS + HB_HEARTBEAT_HANG_NS);
	hb_heartbeat_turn(heartbeat);
	set_time(BEGIN_NS + HB_HEARTBEAT_HANG_NS + 2);
	assert_int_equal(word, BEGIN_NS + HB_HEARTBEAT_HANG_NS + 2);
	assert_int_equal(gone, 0);
	hb_heartbeat_free(heartbeat);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_heartbeat_stops_while_the_loop_hangs)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
