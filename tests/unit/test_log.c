/* SPDX-License-Identifier: Apache-2.0 */
/* The log: what is silent by default, what a line looks like, and that a flood becomes a line a period. */
#include "base/log.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	unsigned lines;
	char last[2048];
} seen;

static void remember(void *argument, enum hb_log_level level, const char *line)
{
	seen.lines++;
	snprintf(seen.last, sizeof seen.last, "%s", line);
}

static int catch_lines(void **state)
{
	memset(&seen, 0, sizeof seen);
	hb_log_sink_set(remember, NULL);
	return 0;
}

static int release_lines(void **state)
{
	hb_log_sink_set(NULL, NULL);
	hb_log_name_set("hb");
	hb_log_level_set(HB_LOG_WARNING);
	return 0;
}

/* Must run first: the level is read from the environment once. */
static void level_comes_from_the_environment(void **state)
{
	setenv("HB_LOG", "info", 1);
	assert_true(hb_log_enabled(HB_LOG_INFO));
	assert_false(hb_log_enabled(HB_LOG_DEBUG));
}

static void warnings_pass_and_infos_do_not(void **state)
{
	int evaluated = 0;
	hb_log_level_set(HB_LOG_WARNING);
	hb_log_info("%d", ++evaluated);
	assert_int_equal(seen.lines, 0);
	assert_int_equal(evaluated, 0);
	hb_log_warning("tenant %d is late", 3);
	assert_string_equal(seen.last, "hb: warning: tenant 3 is late");
	hb_log_level_set(HB_LOG_DEBUG);
	hb_log_name_set("hbd");
	hb_log_debug("x");
	assert_string_equal(seen.last, "hbd: debug: x");
}

static void long_lines_are_cut_and_errno_is_kept(void **state)
{
	char text[5000];
	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	errno = EXDEV;
	hb_log_error("%s", text);
	assert_int_equal(errno, EXDEV);
	assert_in_range(strlen(seen.last), 1000, 1023);
}

static void lines_go_to_stderr_whole(void **state)
{
	int ends[2], saved = dup(STDERR_FILENO);
	char got[64] = "";
	assert_int_equal(pipe(ends), 0);
	hb_log_sink_set(NULL, NULL);
	dup2(ends[1], STDERR_FILENO);
	hb_log_error("one");
	dup2(saved, STDERR_FILENO);
	assert_int_equal(read(ends[0], got, sizeof got - 1), 15);
	assert_string_equal(got, "hb: error: one\n");
	close(ends[0]);
	close(ends[1]);
	close(saved);
}

static void a_flood_passes_once_a_period_and_is_counted(void **state)
{
	struct hb_log_limit limit = {.period_ns = 1000};
	uint64_t dropped = 99;
	assert_true(hb_log_limit_pass(&limit, 5000, &dropped));
	assert_int_equal(dropped, 0);
	for (int64_t now_ns = 5000; now_ns < 6000; now_ns += 10)
		assert_false(hb_log_limit_pass(&limit, now_ns, &dropped));
	assert_true(hb_log_limit_pass(&limit, 6000, &dropped));
	assert_int_equal(dropped, 100);
	assert_false(hb_log_limit_pass(&limit, 6999, &dropped));
	assert_true(hb_log_limit_pass(&limit, 7000, &dropped));
	assert_int_equal(dropped, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(level_comes_from_the_environment, catch_lines, release_lines),
		cmocka_unit_test_setup_teardown(warnings_pass_and_infos_do_not, catch_lines, release_lines),
		cmocka_unit_test_setup_teardown(long_lines_are_cut_and_errno_is_kept, catch_lines, release_lines),
		cmocka_unit_test_setup_teardown(lines_go_to_stderr_whole, catch_lines, release_lines),
		cmocka_unit_test(a_flood_passes_once_a_period_and_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
