/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a signal would end a process: tried on processes that handle signals in each way, and compared with the kernel. */
#include "base/signal_action.h"
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void do_nothing(int signal)
{
}

static void leave_default(void)
{
}

static void catch_it(void)
{
	signal(SIGTERM, do_nothing);
}

static void ignore_it(void)
{
	signal(SIGTERM, SIG_IGN);
}

static void set_blocked(int how)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(how, &set, NULL);
}

static void block_it(void)
{
	set_blocked(SIG_BLOCK);
}

static pthread_barrier_t ready;

static void *wait_unblocked(void *argument)
{
	set_blocked(SIG_UNBLOCK);
	pthread_barrier_wait(&ready);
	for (;;)
		pause();
	return NULL;
}

static void block_it_in_one_thread_only(void)
{
	pthread_t thread;
	set_blocked(SIG_BLOCK);
	pthread_barrier_init(&ready, NULL, 2);
	pthread_create(&thread, NULL, wait_unblocked, NULL);
	pthread_barrier_wait(&ready);
}

/* Starts a process that handles SIGTERM in this way and then waits. */
static pid_t start(void (*prepare)(void))
{
	int ends[2];
	char byte;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		prepare();
		if (write(ends[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	close(ends[1]);
	return child;
}

/* Sends SIGTERM, and SIGKILL if that is expected not to end the process. Returns the signal that ended it. */
static int end_process(pid_t child, bool killed)
{
	int status;
	assert_int_equal(kill(child, SIGTERM), 0);
	if (!killed)
		assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	return WTERMSIG(status);
}

static void the_answer_is_what_the_kernel_does(void **state)
{
	static const struct {
		void (*prepare)(void);
		bool killed;
	} cases[] = {
		{leave_default, true},
		{catch_it, false},
		{ignore_it, false},
		{block_it, false},
		{block_it_in_one_thread_only, true},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		pid_t child = start(cases[i].prepare);
		assert_int_equal(hb_signal_kills(child, SIGTERM), cases[i].killed);
		assert_true(hb_signal_kills(child, SIGKILL));
		assert_true(hb_signal_kills(child, SIGINT));
		assert_false(hb_signal_kills(child, SIGTSTP));
		assert_int_equal(end_process(child, cases[i].killed), cases[i].killed ? SIGTERM : SIGKILL);
		assert_false(hb_signal_kills(child, SIGTERM));
	}
}

static bool is_in_sigwait(pid_t child)
{
	char path[40], place[64] = "";
	snprintf(path, sizeof path, "/proc/%d/wchan", (int)child);
	FILE *file = fopen(path, "r");
	bool is = file && fgets(place, sizeof place, file) && strstr(place, "sigtimedwait");
	if (file)
		fclose(file);
	return is;
}

/* The kernel shows the signal as not blocked meanwhile. */
static void a_signal_that_is_waited_for_does_not_end_a_process(void **state)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pid_t child = fork();
	if (child == 0) {
		block_it();
		for (;;)
			sigwaitinfo(&set, NULL);
	}
	int tries = 1000;
	while (!is_in_sigwait(child) && --tries)
		usleep(10000);
	bool seen = tries > 0, kills = hb_signal_kills(child, SIGTERM);
	assert_true(hb_signal_kills(child, SIGKILL));
	assert_int_equal(end_process(child, false), SIGKILL);
	if (!seen) /* a kernel that does not say where a process waits */
		skip();
	assert_false(kills);
}

static void signals_that_stop_or_continue_do_not_end_a_process(void **state)
{
	static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
	for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
		assert_false(hb_signal_is_deadly(harmless[i]));
	static const int deadly[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGKILL, SIGUSR1, SIGSEGV};
	for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
		assert_true(hb_signal_is_deadly(deadly[i]));
	assert_true(hb_signal_is_deadly(SIGRTMAX));
	assert_false(hb_signal_is_deadly(0));
	assert_false(hb_signal_is_deadly(65));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_answer_is_what_the_kernel_does),
		cmocka_unit_test(a_signal_that_is_waited_for_does_not_end_a_process),
		cmocka_unit_test(signals_that_stop_or_continue_do_not_end_a_process),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
