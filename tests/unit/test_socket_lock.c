/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process holds the lock of a socket. A holder that does not run is replaced, one that runs never is, and of several
 * processes that replace a holder one wins.
 */
#include "base/clock.h"
#include "daemon/socket_lock.h"
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], socket_path[96];

static int set_up(void **state)
{
	strcpy(dir, "/tmp/hb-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(socket_path, sizeof socket_path, "%s/hbd.sock", dir);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	return system(command);
}

/* In a child: takes the lock and reports the result in a byte. */
static struct hb_socket_lock *take_in_child(int report)
{
	struct hb_error error;
	struct hb_socket_lock *lock = NULL;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int result = hb_socket_lock_take(socket_path, &lock, &error);
	char byte = result == 0 ? 'y' : result == -EADDRINUSE ? 'n' : '?';
	if (write(report, &byte, 1) != 1)
		_exit(1);
	return lock;
}

/* Starts a process that takes the lock. *report receives the byte. `alive`: it has a heartbeat. */
static pid_t start_holder(int *report, bool alive)
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child) {
		close(ends[1]);
		*report = ends[0];
		return child;
	}
	struct hb_socket_lock *lock = take_in_child(ends[1]);
	while (lock) {
		if (alive)
			hb_socket_lock_beat(lock, hb_clock_now_ns());
		poll(NULL, 0, 10);
	}
	_exit(0);
}

static char result_of(int report)
{
	char byte = 0;
	assert_int_equal(read(report, &byte, 1), 1);
	close(report);
	return byte;
}

static void end_child(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void a_holder_that_runs_keeps_the_lock(void **state)
{
	int report;
	pid_t holder = start_holder(&report, true);
	assert_int_equal(result_of(report), 'y');
	for (int i = 0; i < 3; i++) {
		pid_t second = start_holder(&report, true);
		assert_int_equal(result_of(report), 'n');
		end_child(second);
	}
	assert_int_equal(waitpid(holder, NULL, WNOHANG), 0);
	end_child(holder);
	pid_t next = start_holder(&report, true);
	assert_int_equal(result_of(report), 'y');
	end_child(next);
}

static void a_stopped_holder_is_replaced(void **state)
{
	int report, status;
	pid_t holder = start_holder(&report, true);
	assert_int_equal(result_of(report), 'y');
	kill(holder, SIGSTOP);
	pid_t next = start_holder(&report, true);
	assert_int_equal(result_of(report), 'y');
	assert_int_equal(waitpid(holder, &status, 0), holder);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	end_child(next);
}

/*
 * Like a process that waits in the kernel in spite of SIGKILL: it is killed, but its lock stays, because a child of it has
 * the same open file. The child stands for a process that runs again after all.
 */
static pid_t start_undying_holder(int *report, int *resume)
{
	int ends[2], go[2];
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(go), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child) {
		close(ends[1]);
		close(go[0]);
		*report = ends[0];
		*resume = go[1];
		return child;
	}
	struct hb_socket_lock *lock = take_in_child(ends[1]);
	close(go[1]);
	if (fork() > 0)
		for (;;)
			pause();
	char byte;
	ssize_t n = read(go[0], &byte, 1); /* until the test says so, or has ended */
	hb_socket_lock_check(lock);
	/* Not reached, because another process has the lock. */
	_exit(n == 1 && write(ends[1], "!", 1) == 1 ? 1 : 0);
}

static void of_several_processes_one_replaces_a_holder(void **state)
{
	enum { N = 4 };
	int own, reports[N], resume, winners = 0;
	pid_t takers[N];
	pid_t holder = start_undying_holder(&own, &resume);
	char byte;
	assert_int_equal(read(own, &byte, 1), 1);
	assert_int_equal(byte, 'y');
	for (int i = 0; i < N; i++)
		takers[i] = start_holder(&reports[i], true);
	for (int i = 0; i < N; i++) {
		byte = result_of(reports[i]);
		assert_true(byte == 'y' || byte == 'n');
		winners += byte == 'y';
	}
	assert_int_equal(winners, 1);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	assert_int_equal(write(resume, "g", 1), 1);
	assert_int_equal(read(own, &byte, 1), 0); /* the old holder has ended without a further word */
	/* The lock that is left behind does not count. */
	pid_t late = start_holder(&reports[0], true);
	assert_int_equal(result_of(reports[0]), 'n');
	end_child(late);
	for (int i = 0; i < N; i++)
		end_child(takers[i]);
	late = start_holder(&reports[0], true);
	assert_int_equal(result_of(reports[0]), 'y');
	end_child(late);
	close(own);
	close(resume);
}

static void a_lock_of_another_kind_is_left_alone(void **state)
{
	char path[128];
	struct hb_error error;
	struct hb_socket_lock *lock;
	snprintf(path, sizeof path, "%s.lock", socket_path);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(hb_socket_lock_take(socket_path, &lock, &error), -ELOOP);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(hb_socket_lock_take(socket_path, &lock, &error), -EISDIR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_holder_that_runs_keeps_the_lock, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_stopped_holder_is_replaced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(of_several_processes_one_replaces_a_holder, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_lock_of_another_kind_is_left_alone, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
