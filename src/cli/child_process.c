/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs and waits for them; see child_process.h. */
#include "cli/child_process.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Makes standard input a pipe that holds the whole input, or nothing. Returns 0 or a negative errno. */
static int give_input(const char *input)
{
	int ends[2];
	size_t length = input ? strlen(input) : 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	if (length && write(ends[1], input, length) != (ssize_t)length)
		return -EIO;
	close(ends[1]);
	dup2(ends[0], STDIN_FILENO);
	return 0;
}

static void become_program(const struct hb_child *child, int out)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (out >= 0) {
		dup2(out, STDOUT_FILENO);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	if (child->errors == HB_CHILD_ERRORS_READ)
		dup2(STDOUT_FILENO, STDERR_FILENO);
	else if (child->errors == HB_CHILD_ERRORS_HIDDEN && null >= 0)
		dup2(null, STDERR_FILENO);
	if (give_input(child->input) == 0)
		execvp(child->arguments[0], (char **)(uintptr_t)child->arguments);
	_exit(127);
}

/* Reads until the end of the output. Returns the length, or -ETIMEDOUT. */
static int read_output(int fd, int64_t limit_ns, char *text, size_t size)
{
	size_t used = 0;
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	int64_t end_ns = hb_clock_now_ns() + limit_ns;
	int result = 0;
	while (used < size - 1 && result == 0) {
		int64_t left_ns = end_ns - hb_clock_now_ns();
		ssize_t n = 0;
		if (left_ns <= 0 || poll(&ready, 1, (int)(left_ns / HB_NS_PER_MS) + 1) == 0)
			result = -ETIMEDOUT;
		else if ((n = read(fd, text + used, size - 1 - used)) == 0 || (n < 0 && errno != EINTR))
			break;
		used += n > 0 ? (size_t)n : 0;
	}
	text[used] = '\0';
	return result < 0 ? result : (int)used;
}

static int wait_for_end(pid_t pid)
{
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int hb_child_read(const struct hb_child *child, char *text, size_t size)
{
	int ends[2];
	text[0] = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid == 0)
		become_program(child, ends[1]);
	int failed = errno;
	close(ends[1]);
	int length = pid > 0 ? read_output(ends[0], child->limit_ns, text, size) : -failed;
	close(ends[0]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		wait_for_end(pid);
	}
	return length;
}

int hb_child_run(const struct hb_child *child)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		become_program(child, -1);
	return pid > 0 ? wait_for_end(pid) : -errno;
}

void hb_child_own_path(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	path[n > 0 ? n : 0] = '\0';
}
