/* SPDX-License-Identifier: Apache-2.0 */
/* Closes foreign descriptors on threads; see fd_closer.h. */
#include "daemon/fd_closer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define CLOSING_USERS_MAX 64 /* also the most threads, because a user occupies one at most */
#define STUCK_NS HB_NS_PER_S
#define FREE_LIMIT_NS HB_NS_PER_S
#define STACK_BYTES ((size_t)256 << 10)
#define DESCRIPTORS_MAX (1 << 20) /* of the table below; the kernel gives the lowest free number */
#define NO_FD (-1)

/* The descriptors of one user that are not closed yet. */
struct closing_user {
	uid_t uid;
	int first, last;  /* the queue, linked by hb_fd_closer.next */
	uint32_t n;       /* in the queue, and the one that a thread closes now; 0 = this entry is free */
	int64_t since_ns; /* when a thread began to close one; 0 = no thread does */
	bool reported;
};

struct hb_fd_closer {
	pthread_mutex_t lock; /* never held during a close() */
	pthread_cond_t changed;
	struct closing_user users[CLOSING_USERS_MAX];
	uint32_t turn; /* the user to look at next, so that no user waits for ever */
	uint32_t n_threads, n_idle;
	bool ending;
	bool abandoned; /* the last thread frees this record */
	int n_fds;
	int next[]; /* by descriptor: the one behind it in its queue. A table, so that adding never needs memory. */
};

/* --- the threads -------------------------------------------------------------------------- */

static struct closing_user *find_work(struct hb_fd_closer *closer)
{
	for (uint32_t i = 0; i < CLOSING_USERS_MAX; i++) {
		struct closing_user *user = &closer->users[(closer->turn + i) % CLOSING_USERS_MAX];
		if (user->n && !user->since_ns && user->first != NO_FD) {
			closer->turn = (uint32_t)(user - closer->users) + 1;
			return user;
		}
	}
	return NULL;
}

static void close_first(struct hb_fd_closer *closer, struct closing_user *user)
{
	int fd = user->first;
	user->first = closer->next[fd];
	user->since_ns = hb_clock_now_ns();
	pthread_mutex_unlock(&closer->lock);
	close(fd);
	pthread_mutex_lock(&closer->lock);
	user->since_ns = 0;
	user->n--;
	if (user->reported)
		hb_log_warning("the descriptor that user id %u sent is closed now", (unsigned)user->uid);
	user->reported = false;
}

static void free_closer(struct hb_fd_closer *closer)
{
	pthread_mutex_destroy(&closer->lock);
	pthread_cond_destroy(&closer->changed);
	free(closer);
}

static void *run_closer(void *argument)
{
	struct hb_fd_closer *closer = argument;
	pthread_mutex_lock(&closer->lock);
	for (;;) {
		struct closing_user *user = find_work(closer);
		if (user) {
			close_first(closer, user);
			continue;
		}
		if (closer->ending || closer->n_idle) /* one idle thread is enough */
			break;
		closer->n_idle++;
		pthread_cond_wait(&closer->changed, &closer->lock);
		closer->n_idle--;
	}
	bool last = --closer->n_threads == 0 && closer->abandoned;
	pthread_cond_broadcast(&closer->changed);
	pthread_mutex_unlock(&closer->lock);
	if (last)
		free_closer(closer);
	return NULL;
}

/* Called with the lock held. */
static int start_closer(struct hb_fd_closer *closer)
{
	int result = hb_thread_start(NULL, STACK_BYTES, run_closer, closer);
	closer->n_threads += result == 0;
	return result;
}

/* --- making and ending ---------------------------------------------------------------------- */

int hb_fd_closer_new(struct hb_fd_closer **closer)
{
	struct rlimit limit = {.rlim_cur = DESCRIPTORS_MAX};
	getrlimit(RLIMIT_NOFILE, &limit);
	int n_fds = limit.rlim_cur < DESCRIPTORS_MAX ? (int)limit.rlim_cur : DESCRIPTORS_MAX;
	struct hb_fd_closer *made = calloc(1, sizeof *made + (size_t)n_fds * sizeof *made->next);
	if (!made)
		return -ENOMEM;
	hb_condition_init(&made->changed);
	pthread_mutex_init(&made->lock, NULL);
	made->n_fds = n_fds;
	pthread_mutex_lock(&made->lock);
	int result = start_closer(made);
	pthread_mutex_unlock(&made->lock);
	if (result < 0) {
		free(made);
		return result;
	}
	*closer = made;
	return 0;
}

void hb_fd_closer_free(struct hb_fd_closer *closer)
{
	if (!closer)
		return;
	int64_t until_ns = hb_clock_now_ns() + FREE_LIMIT_NS;
	pthread_mutex_lock(&closer->lock);
	closer->ending = true;
	pthread_cond_broadcast(&closer->changed);
	while (closer->n_threads && hb_condition_wait_until(&closer->changed, &closer->lock, until_ns))
		;
	closer->abandoned = closer->n_threads > 0;
	bool ended = !closer->abandoned;
	pthread_mutex_unlock(&closer->lock);
	if (ended)
		free_closer(closer);
	else
		hb_log_warning("a descriptor that a client sent is still being closed");
}

/* --- what the loop asks for ------------------------------------------------------------------- */

/* The entry of this user; NULL = the user has none. */
static struct closing_user *find_user(struct hb_fd_closer *closer, uid_t uid)
{
	for (uint32_t i = 0; i < CLOSING_USERS_MAX; i++)
		if (closer->users[i].n && closer->users[i].uid == uid)
			return &closer->users[i];
	return NULL;
}

static struct closing_user *find_free_user(struct hb_fd_closer *closer)
{
	for (uint32_t i = 0; i < CLOSING_USERS_MAX; i++)
		if (!closer->users[i].n)
			return &closer->users[i];
	return NULL;
}

static struct closing_user *take_user(struct hb_fd_closer *closer, uid_t uid)
{
	struct closing_user *user = find_user(closer, uid);
	if (user)
		return user;
	user = find_free_user(closer);
	if (!user) /* every entry is in use: this user waits behind another one */
		return &closer->users[uid % CLOSING_USERS_MAX];
	*user = (struct closing_user){.uid = uid, .first = NO_FD, .last = NO_FD};
	return user;
}

void hb_fd_closer_add(struct hb_fd_closer *closer, uid_t uid, int fd)
{
	if (fd < 0 || fd >= closer->n_fds) {
		if (fd >= 0)
			close(fd);
		return;
	}
	pthread_mutex_lock(&closer->lock);
	struct closing_user *user = take_user(closer, uid);
	closer->next[fd] = NO_FD;
	if (user->first == NO_FD)
		user->first = fd;
	else
		closer->next[user->last] = fd;
	user->last = fd;
	user->n++;
	pthread_cond_signal(&closer->changed);
	pthread_mutex_unlock(&closer->lock);
}

static bool has_stuck(const struct closing_user *user, int64_t now_ns)
{
	return user->n && user->since_ns && now_ns - user->since_ns > STUCK_NS;
}

bool hb_fd_closer_is_stuck(struct hb_fd_closer *closer, uid_t uid)
{
	pthread_mutex_lock(&closer->lock);
	const struct closing_user *user = find_user(closer, uid);
	bool stuck = user ? user->n > HB_FD_CLOSER_WAITING_MAX || has_stuck(user, hb_clock_now_ns())
			  : !find_free_user(closer);
	pthread_mutex_unlock(&closer->lock);
	return stuck;
}

uint32_t hb_fd_closer_waiting(struct hb_fd_closer *closer)
{
	uint32_t n = 0;
	pthread_mutex_lock(&closer->lock);
	for (uint32_t i = 0; i < CLOSING_USERS_MAX; i++)
		n += closer->users[i].n;
	pthread_mutex_unlock(&closer->lock);
	return n;
}

void hb_fd_closer_tick(struct hb_fd_closer *closer)
{
	int64_t now_ns = hb_clock_now_ns();
	pthread_mutex_lock(&closer->lock);
	for (uint32_t i = 0; i < CLOSING_USERS_MAX; i++) {
		struct closing_user *user = &closer->users[i];
		if (!has_stuck(user, now_ns) || user->reported)
			continue;
		user->reported = true;
		hb_log_warning("a descriptor that user id %u sent cannot be closed, because its file system does not "
			       "answer: the daemon accepts nothing from this user until it does",
			       (unsigned)user->uid);
	}
	if (!closer->n_idle && closer->n_threads < CLOSING_USERS_MAX && find_work(closer))
		start_closer(closer);
	pthread_mutex_unlock(&closer->lock);
}
