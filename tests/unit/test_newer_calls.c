/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that old kernels lack. The build runs this test twice: as it is, and under as-old-kernel. */
#include "base/newer_calls.h"
#include "unit.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FIRST 100
#define NEXT 101
#define LAST 300

static int open_descriptors(void **state)
{
	static const int numbers[] = {FIRST, NEXT, LAST};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		assert_int_equal(dup2(STDERR_FILENO, numbers[i]), numbers[i]);
	return 0;
}

static void closes_a_range(void **state)
{
	hb_close_range(FIRST, NEXT);
	assert_int_equal(fcntl(FIRST, F_GETFD), -1);
	assert_int_equal(fcntl(NEXT, F_GETFD), -1);
	assert_int_equal(fcntl(LAST, F_GETFD), 0);
}

static void closes_all_from_one_on(void **state)
{
	hb_close_range(NEXT, UINT_MAX);
	assert_int_equal(fcntl(FIRST, F_GETFD), 0);
	assert_int_equal(fcntl(NEXT, F_GETFD), -1);
	assert_int_equal(fcntl(LAST, F_GETFD), -1);
}

static void marks_a_range_for_exec(void **state)
{
	hb_close_range_at_exec(NEXT, UINT_MAX);
	assert_int_equal(fcntl(FIRST, F_GETFD), 0);
	assert_int_equal(fcntl(NEXT, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(LAST, F_GETFD), FD_CLOEXEC);
}

static void waits_for_an_event_or_the_limit(void **state)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, got = {0};
	struct timespec limit = {.tv_nsec = 200000}, before, after;
	int epoll = epoll_create1(0), bell = eventfd(0, 0);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, bell, &event), 0);

	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(hb_epoll_wait(epoll, &got, 1, &limit), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	int64_t waited_ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
	assert_true(waited_ns >= limit.tv_nsec);

	eventfd_write(bell, 1);
	assert_int_equal(hb_epoll_wait(epoll, &got, 1, &limit), 1);
	assert_int_equal(got.data.u64, 7);
	assert_int_equal(hb_epoll_wait(epoll, &got, 1, NULL), 1);
	close(bell);
	close(epoll);
	assert_int_equal(hb_epoll_wait(epoll, &got, 1, &limit), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(closes_a_range, open_descriptors),
		cmocka_unit_test_setup(closes_all_from_one_on, open_descriptors),
		cmocka_unit_test_setup(marks_a_range_for_exec, open_descriptors),
		cmocka_unit_test(waits_for_an_event_or_the_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
