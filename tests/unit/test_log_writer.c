/* SPDX-License-Identifier: Apache-2.0 */
/* A log whose reader hangs does not delay the threads that log; lines for which the buffer has no room are counted. */
#include "base/log.h"
#include "daemon/log_writer.h"
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES 5000

static int saved_stderr, reader;

/* Standard error is a pipe that is full. */
static int set_up(void **state)
{
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
	while (write(ends[1], "x", 1) == 1)
		;
	assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
	saved_stderr = dup(STDERR_FILENO);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[1]);
	reader = ends[0];
	return 0;
}

/* Reads until every line has arrived or was counted as lost. */
static unsigned count_lost_lines(unsigned n)
{
	FILE *file = fdopen(reader, "r");
	char *line = NULL;
	size_t size = 0;
	unsigned lost = 0;
	assert_non_null(file);
	for (unsigned seen = 0; seen + lost < n && getline(&line, &size, file) > 0;) {
		unsigned more;
		seen += strstr(line, "this is line number") != NULL;
		if (sscanf(line, "hbd: warning: %u lines of the log were lost", &more) == 1)
			lost += more;
	}
	free(line);
	fclose(file);
	return lost;
}

static void log_a_lot(void)
{
	for (int i = 0; i < LINES; i++)
		hb_log_error("this is line number %d of a program that logs more than anybody reads", i);
}

static void a_reader_that_hangs_delays_nobody(void **state)
{
	assert_int_equal(hb_log_writer_start(), 0);
	log_a_lot(); /* returns */
	assert_in_range(count_lost_lines(LINES), 1, LINES);
}

static int tear_down(void **state)
{
	hb_log_writer_stop();
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_reader_that_hangs_delays_nobody, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
