/* SPDX-License-Identifier: Apache-2.0 */
/* See disconnect_watch.h. */
#include "server/http/disconnect_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* A descriptor that is closed comes back as another connection's, so an event counts for the turn it was asked for in. */
struct place {
	struct hb_inference *infer;
	uint32_t turn;
};

struct hb_disconnect_watch {
	struct hb_dispatch *dispatch;
	pthread_mutex_t lock;
	pthread_t thread;
	int epoll, bell;
	uint32_t n;
	struct place *of_fd;
};

static uint64_t token(int fd, uint32_t turn)
{
	return (uint64_t)turn << 32 | (uint32_t)fd;
}

/* NULL: that turn is over. Events come in lots, and what is done about one may end the turn of the next. */
static struct hb_inference *take(struct hb_disconnect_watch *watch, uint64_t of)
{
	pthread_mutex_lock(&watch->lock);
	const struct place *place = &watch->of_fd[(uint32_t)of];
	struct hb_inference *infer = place->turn == of >> 32 ? place->infer : NULL;
	if (infer)
		atomic_fetch_add(&infer->holders, 1);
	pthread_mutex_unlock(&watch->lock);
	return infer;
}

static void *run(void *argument)
{
	struct hb_disconnect_watch *watch = argument;
	struct epoll_event events[32];
	for (;;) {
		int n = epoll_wait(watch->epoll, events, 32, -1);
		for (int i = 0; i < n; i++) {
			if (events[i].data.u64 == token(watch->bell, 0))
				return NULL;
			struct hb_inference *infer = take(watch, events[i].data.u64);
			if (infer)
				hb_dispatch_cancel(watch->dispatch, infer);
			hb_inference_free(infer);
		}
	}
}

static bool start(struct hb_disconnect_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN};
	watch->epoll = epoll_create1(EPOLL_CLOEXEC);
	watch->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event.data.u64 = token(watch->bell, 0);
	return watch->of_fd && watch->epoll >= 0 && watch->bell >= 0 &&
	       epoll_ctl(watch->epoll, EPOLL_CTL_ADD, watch->bell, &event) == 0 &&
	       pthread_create(&watch->thread, NULL, run, watch) == 0;
}

static void release(struct hb_disconnect_watch *watch)
{
	if (watch->epoll >= 0)
		close(watch->epoll);
	if (watch->bell >= 0)
		close(watch->bell);
	pthread_mutex_destroy(&watch->lock);
	free(watch->of_fd);
	free(watch);
}

struct hb_disconnect_watch *hb_disconnect_watch_new(struct hb_dispatch *dispatch)
{
	struct hb_disconnect_watch *watch = calloc(1, sizeof(*watch));
	struct rlimit limit;
	if (!watch)
		return NULL;
	watch->dispatch = dispatch;
	watch->epoll = watch->bell = -1;
	pthread_mutex_init(&watch->lock, NULL);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		watch->n = limit.rlim_cur > 1 << 20 ? 1 << 20 : (uint32_t)limit.rlim_cur;
	watch->of_fd = calloc(watch->n ? watch->n : 1, sizeof(*watch->of_fd));
	if (!start(watch)) {
		release(watch);
		return NULL;
	}
	return watch;
}

void hb_disconnect_watch_free(struct hb_disconnect_watch *watch)
{
	if (!watch)
		return;
	while (eventfd_write(watch->bell, 1) != 0 && errno == EINTR)
		;
	pthread_join(watch->thread, NULL);
	release(watch);
}

void hb_disconnect_watch_add(struct hb_disconnect_watch *watch, int fd, struct hb_inference *infer)
{
	struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT};
	if (fd < 0 || (uint32_t)fd >= watch->n)
		return;
	atomic_fetch_add(&infer->holders, 1);
	pthread_mutex_lock(&watch->lock);
	watch->of_fd[fd].infer = infer;
	event.data.u64 = token(fd, ++watch->of_fd[fd].turn);
	pthread_mutex_unlock(&watch->lock);
	epoll_ctl(watch->epoll, EPOLL_CTL_ADD, fd, &event);
}

void hb_disconnect_watch_forget(struct hb_disconnect_watch *watch, int fd)
{
	if (fd < 0 || (uint32_t)fd >= watch->n)
		return;
	epoll_ctl(watch->epoll, EPOLL_CTL_DEL, fd, NULL);
	pthread_mutex_lock(&watch->lock);
	struct hb_inference *infer = watch->of_fd[fd].infer;
	watch->of_fd[fd].infer = NULL;
	pthread_mutex_unlock(&watch->lock);
	hb_inference_free(infer);
}
