/* SPDX-License-Identifier: Apache-2.0 */
/* Runs parts of `hb doctor` as child processes; see doctor_trial.h. */
#include "cli/doctor_trial.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIAL_TEXT_MAX 65536
#define ARGUMENTS_MAX 16

static void become_trial(const char *const *arguments, bool simulated, int out)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	dup2(out, STDOUT_FILENO);
	if (simulated && null >= 0)
		dup2(null, STDERR_FILENO); /* hides the message of hb run that the GPU is simulated */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(arguments[0], (char **)(uintptr_t)arguments);
	_exit(127);
}

/* Reads the child's output until the child ends. Returns the length, or -ETIMEDOUT after limit_ns. */
static int read_trial(int fd, int64_t limit_ns, char *text, size_t size)
{
	size_t used = 0;
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	int64_t end_ns = hb_clock_now_ns() + limit_ns;
	while (used < size - 1) {
		int64_t left_ns = end_ns - hb_clock_now_ns();
		if (left_ns <= 0 || poll(&ready, 1, (int)(left_ns / HB_NS_PER_MS) + 1) == 0)
			return -ETIMEDOUT;
		ssize_t n = read(fd, text + used, size - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	text[used] = '\0';
	return (int)used;
}

/* Kills the child, in whatever state it is, and waits for its end. */
static void end_trial(pid_t child)
{
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Runs `arguments` and reads the JSON object that the program prints. */
static json_t *run_trial(const char *const *arguments, bool simulated, int64_t limit_ns, struct hb_error *error)
{
	static char text[TRIAL_TEXT_MAX];
	json_t *answer = NULL;
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0) {
		hb_error_set(error, -errno, "cannot run a trial: %s", strerror(errno));
		return NULL;
	}
	pid_t child = fork();
	if (child == 0)
		become_trial(arguments, simulated, ends[1]);
	close(ends[1]);
	int length = child > 0 ? read_trial(ends[0], limit_ns, text, sizeof text) : -errno;
	close(ends[0]);
	if (child > 0)
		end_trial(child);
	if (length == -ETIMEDOUT)
		hb_error_set(error, length, "no answer within %lld ms; the trial was killed",
			     (long long)(limit_ns / HB_NS_PER_MS));
	else if (length <= 0)
		hb_error_set(error, -EIO, "the trial program printed nothing; see the message above");
	else
		hb_json_parse(text, (size_t)length, "the trial program", &answer, error);
	return answer;
}

/* Stores the path of this program; "" without /proc, in which case the trial fails. */
static void read_own_path(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	path[n > 0 ? n : 0] = '\0';
}

json_t *hb_trial_inside(const char *priority, bool simulated, int64_t limit_ns, struct hb_error *error)
{
	const char *arguments[ARGUMENTS_MAX];
	char program[PATH_MAX];
	size_t n = 0;
	read_own_path(program);
	arguments[n++] = program;
	arguments[n++] = "run";
	arguments[n++] = "--priority";
	arguments[n++] = priority;
	if (simulated) {
		arguments[n++] = "--gpu";
		arguments[n++] = "sim";
	}
	arguments[n++] = "--";
	arguments[n++] = program;
	arguments[n++] = "doctor";
	arguments[n++] = "--inside";
	arguments[n] = NULL;
	return run_trial(arguments, simulated, limit_ns, error);
}

/* Runs a trial that needs no daemon. */
static json_t *run_plain_trial(const char *option, bool simulated, int64_t limit_ns, struct hb_error *error)
{
	char program[PATH_MAX];
	read_own_path(program);
	const char *const arguments[] = {program, "doctor", option, simulated ? "--gpu" : NULL, "sim", NULL};
	return run_trial(arguments, simulated, limit_ns, error);
}

json_t *hb_trial_slice(bool simulated, int64_t limit_ns, struct hb_error *error)
{
	return run_plain_trial("--slice", simulated, limit_ns, error);
}

json_t *hb_trial_masks(bool simulated, int64_t limit_ns, struct hb_error *error)
{
	return run_plain_trial("--masks", simulated, limit_ns, error);
}

json_t *hb_trial_gpcs(bool simulated, int64_t limit_ns, struct hb_error *error)
{
	return run_plain_trial("--gpcs", simulated, limit_ns, error);
}
