/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of the daemon's socket; see socket_lock.h. */
#include "daemon/socket_lock.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/log_writer.h"
#include "daemon/process.h"
#include "protocol/socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_MAGIC UINT64_C(0x31304b434f4c4248) /* "HBLOCK01" */
/*
 * Times are counted in steps and not read from a clock: when the whole machine pauses, the holder pauses, too, and the
 * pause counts as one step.
 */
#define STEP_NS (100 * HB_NS_PER_MS)
#define SILENT_STEPS 50 /* 5 s without a heartbeat, of which there are ten a second */
#define DEATH_STEPS 20  /* how long the kernel may take to end a process */

/* The contents of the file. The holder writes all but `generation`, which only ever rises. */
struct lock_record {
	uint64_t magic;
	_Atomic uint32_t generation;
	_Atomic uint32_t pid;
	_Atomic uint64_t start_ticks;
	_Atomic int64_t beat_ns;
};

struct hb_socket_lock {
	int fd;
	uint32_t generation; /* whose byte this process has locked */
	struct lock_record *record;
};

/* --- the file --------------------------------------------------------------------------------- */

static int open_lock_file(const char *path, struct stat *found, struct hb_error *error)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	if (fstat(fd, found) == 0 && S_ISREG(found->st_mode) && found->st_uid == geteuid() && found->st_nlink == 1)
		return fd;
	close(fd);
	return hb_error_set(error, -EPERM, "%s: it belongs to another user, or is a link; remove it", path);
}

/* Daemons of earlier releases hold a lock on the entire file, which has no contents. */
static bool prepare_record(struct hb_socket_lock *lock, bool is_new)
{
	bool alone = flock(lock->fd, LOCK_EX | LOCK_NB) == 0;
	if (is_new && (!alone || ftruncate(lock->fd, sizeof *lock->record) < 0))
		return false;
	void *mapped = mmap(NULL, sizeof *lock->record, PROT_READ | PROT_WRITE, MAP_SHARED, lock->fd, 0);
	if (mapped == MAP_FAILED)
		return false;
	lock->record = mapped;
	if (is_new || (alone && lock->record->magic != LOCK_MAGIC))
		lock->record->magic = LOCK_MAGIC;
	return lock->record->magic == LOCK_MAGIC;
}

static bool lock_byte(const struct hb_socket_lock *lock, uint32_t generation, short type)
{
	struct flock byte = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)generation, .l_len = 1};
	return fcntl(lock->fd, F_OFD_SETLK, &byte) == 0;
}

/* --- taking it ---------------------------------------------------------------------------------- */

/* Locks the byte of the present generation. False: another process has locked it. */
static bool try_lock(struct hb_socket_lock *lock)
{
	for (;;) {
		uint32_t generation = atomic_load(&lock->record->generation);
		if (!lock_byte(lock, generation, F_WRLCK))
			return false;
		if (atomic_load(&lock->record->generation) == generation) {
			lock->generation = generation;
			return true;
		}
		lock_byte(lock, generation, F_UNLCK); /* the generation has just been raised */
	}
}

static void sleep_step(void)
{
	nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
}

/* Tries for some steps. *alive = whether the holder has a heartbeat; NULL = that does not matter. */
static bool try_lock_for(struct hb_socket_lock *lock, int steps, bool *alive)
{
	int64_t beat_ns = atomic_load(&lock->record->beat_ns);
	for (int step = 0; step < steps; step++) {
		if (try_lock(lock))
			return true;
		if (alive && (*alive = atomic_load(&lock->record->beat_ns) != beat_ns))
			return false;
		sleep_step();
	}
	return false;
}

/* Sends SIGKILL to the holder. 0 also if there is no such process. */
static int kill_holder(const struct hb_socket_lock *lock, pid_t *pid)
{
	*pid = (pid_t)atomic_load(&lock->record->pid);
	int result = hb_process_kill(*pid, atomic_load(&lock->record->start_ticks));
	return result == -ESRCH ? 0 : result;
}

/* Waits for a holder that does not run. If several daemons do this, one of them gets the byte of the next generation. */
static int replace_holder(struct hb_socket_lock *lock, const char *socket_path, struct hb_error *error)
{
	bool alive = false;
	pid_t pid;
	uint32_t generation = atomic_load(&lock->record->generation);
	if (try_lock_for(lock, SILENT_STEPS, &alive))
		return 0;
	if (alive || atomic_load(&lock->record->generation) != generation)
		return hb_error_set(error, -EADDRINUSE, "%s: another daemon serves this socket; `hb status` shows it",
				    socket_path);
	int result = kill_holder(lock, &pid);
	if (result < 0)
		return hb_error_set(error, -EADDRINUSE,
				    "%s: process %d serves this socket but does not run, and cannot be ended: %s",
				    socket_path, (int)pid, strerror(-result));
	hb_log_warning("%s: the daemon of process %d did not run any more and was killed", socket_path, (int)pid);
	if (try_lock_for(lock, DEATH_STEPS, NULL))
		return 0;
	/* It waits in the kernel. It will never run again, because the signal ends it before that. */
	if (atomic_compare_exchange_strong(&lock->record->generation, &generation, generation + 1))
		hb_log_warning("%s: process %d cannot end, so its lock is passed over", socket_path, (int)pid);
	return try_lock(lock) ? 0
			      : hb_error_set(error, -EADDRINUSE, "%s: another daemon has just taken this socket over",
					     socket_path);
}

int hb_socket_lock_take(const char *socket_path, struct hb_socket_lock **lock, struct hb_error *error)
{
	char path[HB_PATH_MAX + 8];
	struct stat found;
	snprintf(path, sizeof path, "%s.lock", socket_path);
	int fd = open_lock_file(path, &found, error);
	if (fd < 0)
		return fd;
	struct hb_socket_lock *made = calloc(1, sizeof *made);
	int result = made ? 0 : hb_error_set(error, -ENOMEM, "out of memory");
	if (made)
		made->fd = fd;
	if (result == 0 && !prepare_record(made, found.st_size < (off_t)sizeof *made->record))
		result = hb_error_set(error, -EADDRINUSE, "%s: another daemon serves this socket; `hb status` shows it",
				      socket_path);
	if (result == 0 && !try_lock(made))
		result = replace_holder(made, socket_path, error);
	if (result < 0) {
		hb_socket_lock_release(made);
		if (!made)
			close(fd);
		return result;
	}
	atomic_store(&made->record->pid, (uint32_t)getpid());
	atomic_store(&made->record->start_ticks, hb_process_start_ticks(getpid()));
	hb_socket_lock_beat(made, hb_clock_now_ns());
	*lock = made;
	return 0;
}

/* --- holding it ----------------------------------------------------------------------------------- */

void hb_socket_lock_release(struct hb_socket_lock *lock)
{
	if (!lock)
		return;
	if (lock->record)
		munmap(lock->record, sizeof *lock->record);
	close(lock->fd);
	free(lock);
}

void hb_socket_lock_check(const struct hb_socket_lock *lock)
{
	if (!lock || atomic_load(&lock->record->generation) == lock->generation)
		return;
	hb_log_error("another daemon has taken the socket over: this one ends");
	hb_log_writer_stop();
	_exit(1);
}

void hb_socket_lock_beat(struct hb_socket_lock *lock, int64_t now_ns)
{
	if (lock)
		atomic_store(&lock->record->beat_ns, now_ns);
}
