/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from /proc how a process handles signals; see signal_action.h. */
#include "base/signal_action.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIGNALS 64
#define THREADS_READ_MOST 1024

bool hb_signal_is_deadly(int signal)
{
	switch (signal) {
	case SIGCHLD:
	case SIGCONT:
	case SIGURG:
	case SIGWINCH:
	case SIGSTOP:
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
		return false;
	default:
		return signal >= 1 && signal <= SIGNALS;
	}
}

/* Reads a set of signals, e.g. "SigCgt:\t0000000000000002". */
static bool read_set(const char *status, const char *name, uint64_t *set)
{
	const char *line = strstr(status, name);
	char *end;
	if (!line)
		return false;
	*set = strtoull(line + strlen(name), &end, 16);
	return *end == '\n';
}

struct signal_sets {
	uint64_t blocked, ignored, caught;
};

static bool read_status(const char *path, struct signal_sets *sets)
{
	char status[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, status, sizeof status - 1);
	close(fd);
	status[n > 0 ? n : 0] = '\0';
	return read_set(status, "\nSigBlk:", &sets->blocked) && read_set(status, "\nSigIgn:", &sets->ignored) &&
	       read_set(status, "\nSigCgt:", &sets->caught);
}

/*
 * While a thread waits in sigwait(), the kernel shows the signals that it waits for as not blocked. They do not end the
 * process, and which ones they are is not known.
 */
static bool waits_for_signals(pid_t pid, const char *thread)
{
	char path[300], place[64] = "";
	snprintf(path, sizeof path, "/proc/%d/task/%s/wchan", (int)pid, thread);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, place, sizeof place - 1);
	close(fd);
	return n > 0 && strstr(place, "sigtimedwait");
}

/*
 * The kernel gives a signal for the process to any thread that does not block it. A process with more than
 * THREADS_READ_MOST threads counts as one that does not block the signal.
 */
static bool all_threads_block(pid_t pid, uint64_t signal_bit)
{
	unsigned n = 0;
	char path[300];
	struct signal_sets sets;
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	bool blocked = threads != NULL;
	for (struct dirent *entry; blocked && (entry = readdir(threads));) {
		snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)pid, entry->d_name);
		blocked = n++ < THREADS_READ_MOST &&
			  (entry->d_name[0] == '.' || !read_status(path, &sets) || sets.blocked & signal_bit ||
			   waits_for_signals(pid, entry->d_name));
	}
	if (threads)
		closedir(threads);
	return blocked;
}

bool hb_signal_kills(pid_t pid, int signal)
{
	char path[48];
	struct signal_sets sets;
	if (!hb_signal_is_deadly(signal))
		return false;
	uint64_t bit = (uint64_t)1 << (signal - 1);
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (!read_status(path, &sets) || (sets.ignored | sets.caught) & bit)
		return false;
	return signal == SIGKILL || !all_threads_block(pid, bit);
}
