/* SPDX-License-Identifier: Apache-2.0 */
/* For programs in which every test has a daemon of its own, `daemon_`: it runs when the test begins and has gone after it. */
#ifndef HB_TESTS_ONE_DAEMON_H
#define HB_TESTS_ONE_DAEMON_H

#include "daemon_harness.h"

static struct daemon daemon_;

static int daemon_set_up(void **state)
{
	daemon_start(&daemon_, HBD, NULL);
	return 0;
}

static int daemon_tear_down(void **state)
{
	daemon_clean(&daemon_);
	return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, daemon_set_up, daemon_tear_down)

#endif
