/* SPDX-License-Identifier: Apache-2.0 */
/* See process.h. */
#include "daemon/process.h"

#include "base/clock.h"
#include "base/proc_stat.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int hb_process_open(pid_t pid)
{
	int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (pidfd >= 0)
		return pidfd;
	return pid > 0 ? -errno : -ESRCH;
}

/* The pid may belong to another process by now, and a pidfd does not change its process. */
int hb_process_kill(pid_t pid, uint64_t start_ticks)
{
	int pidfd = hb_process_open(pid);
	if (pidfd < 0)
		return pidfd;
	int result = -ESRCH;
	if (hb_process_start_ticks(pid) == start_ticks)
		result = syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 ? -errno : 0;
	close(pidfd);
	return result;
}

bool hb_process_lives(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};
	return poll(&end, 1, 0) <= 0; /* an interrupted call says nothing */
}

FILE *hb_process_file(pid_t pid, const char *file)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	return fopen(path, "re");
}

uint64_t hb_process_start_ticks(pid_t pid)
{
	return hb_proc_start_ticks(pid);
}

uint64_t hb_process_image(pid_t pid)
{
	char line[HB_PROC_STAT_LINE];
	const char *field = hb_proc_stat(pid, 28, line);
	return field ? strtoull(field, NULL, 10) : 0;
}

pid_t hb_process_parent(pid_t pid)
{
	char line[HB_PROC_STAT_LINE];
	const char *field = hb_proc_stat(pid, 4, line);
	return field ? (pid_t)strtol(field, NULL, 10) : 0;
}

bool hb_process_is_stopped(pid_t pid)
{
	char line[HB_PROC_STAT_LINE];
	const char *state = hb_proc_stat(pid, 3, line);
	return state && (*state == 'T' || *state == 't');
}

bool hb_process_user(pid_t pid, uid_t *uid, gid_t *gid)
{
	/* The owner of /proc/PID is root for programs without core dumps, so the user is read from the file. */
	char line[256];
	unsigned real, effective, found = 0;
	FILE *file = hb_process_file(pid, "status");
	while (file && found < 2 && fgets(line, sizeof line, file)) {
		if (sscanf(line, "Uid: %u %u", &real, &effective) == 2)
			*uid = effective;
		else if (sscanf(line, "Gid: %u %u", &real, &effective) == 2)
			*gid = effective;
		else
			continue;
		found++;
	}
	if (file)
		fclose(file);
	return found == 2;
}

bool hb_process_has_own_pids(pid_t pid)
{
	/* The kernel lists the process's pid in the namespace of this /proc, then in each namespace below it. */
	char line[256];
	int inside = 0;
	FILE *file = hb_process_file(pid, "status");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "NSpid: %*d %d", &inside) == 1)
			break;
	if (file)
		fclose(file);
	return inside > 0;
}

/* --- the environment --------------------------------------------------------------------- */

/*
 * The environment lies in the memory of the process. To read it, the kernel waits while a thread of the process has its
 * memory locked, and such a thread may wait for a file that the process serves itself. So a thread of the daemon reads,
 * and the loop waits for it for a limited time.
 */
#define READ_LIMIT_NS (200 * HB_NS_PER_MS)
#define READERS_MAX 4 /* threads that may wait at the same time; with more, the answer is no */

struct environment_reader {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int n_users; /* the thread and the caller */
	bool ended, found;
	pid_t pid;
	char variable[256];
};

static _Atomic int n_readers;

static bool find_variable(pid_t pid, const char *variable)
{
	char *entry = NULL;
	size_t size = 0;
	bool found = false;
	FILE *file = hb_process_file(pid, "environ");
	while (file && !found && getdelim(&entry, &size, '\0', file) > 0)
		found = strcmp(entry, variable) == 0;
	free(entry);
	if (file)
		fclose(file);
	return found;
}

/* Called with the lock held, which this function releases. */
static void drop_reader(struct environment_reader *reader)
{
	bool last = --reader->n_users == 0;
	pthread_mutex_unlock(&reader->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&reader->lock);
	pthread_cond_destroy(&reader->changed);
	free(reader);
}

static void *run_reader(void *argument)
{
	struct environment_reader *reader = argument;
	bool found = find_variable(reader->pid, reader->variable);
	n_readers--;
	pthread_mutex_lock(&reader->lock);
	reader->ended = true;
	reader->found = found;
	pthread_cond_signal(&reader->changed);
	drop_reader(reader);
	return NULL;
}

static struct environment_reader *new_reader(pid_t pid, const char *variable)
{
	struct environment_reader *made = calloc(1, sizeof *made);
	if (!made)
		return NULL;
	hb_condition_init(&made->changed);
	pthread_mutex_init(&made->lock, NULL);
	made->n_users = 1;
	made->pid = pid;
	snprintf(made->variable, sizeof made->variable, "%s", variable);
	return made;
}

static bool start_reader(struct environment_reader *reader)
{
	n_readers++;
	if (hb_thread_start(NULL, 0, run_reader, reader) == 0)
		return true;
	n_readers--;
	return false;
}

bool hb_process_began_with(pid_t pid, const char *variable)
{
	int64_t until_ns = hb_clock_now_ns() + READ_LIMIT_NS;
	struct environment_reader *reader = n_readers < READERS_MAX && strlen(variable) < sizeof reader->variable
						    ? new_reader(pid, variable)
						    : NULL;
	if (!reader)
		return false;
	pthread_mutex_lock(&reader->lock);
	bool waits = start_reader(reader);
	reader->n_users += waits;
	while (waits && !reader->ended)
		waits = hb_condition_wait_until(&reader->changed, &reader->lock, until_ns);
	bool found = reader->ended && reader->found;
	drop_reader(reader);
	return found;
}
