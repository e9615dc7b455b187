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

/*
 * The request that a descriptor belongs to. The system reuses the numbers of closed descriptors, so each addition has a
 * serial number, and an event counts only for the serial number with which it was requested.
 */
struct watched_socket {
	struct hb_inference *infer;
	uint32_t serial;
};

struct hb_disconnect_watch {
	struct hb_dispatch *dispatch;
	pthread_mutex_t lock; /* guards sockets[] */
	pthread_t thread;
	int epoll, stop; /* stop: an eventfd that ends the thread */
	uint32_t n;
	struct watched_socket *sockets; /* array indexed by descriptor */
};

static uint64_t make_token(int fd, uint32_t serial)
{
	return (uint64_t)serial << 32 | (uint32_t)fd;
}

/*
 * Returns the request of an event, held for the caller. Returns NULL if the socket is no longer watched for this
 * request: handling an earlier event of the same batch may have removed the socket.
 */
static struct hb_inference *take_request(struct hb_disconnect_watch *watch, uint64_t token)
{
	pthread_mutex_lock(&watch->lock);
	const struct watched_socket *socket = &watch->sockets[(uint32_t)token];
	struct hb_inference *infer = socket->serial == token >> 32 ? socket->infer : NULL;
	if (infer)
		atomic_fetch_add(&infer->holders, 1);
	pthread_mutex_unlock(&watch->lock);
	return infer;
}

static void *watch_sockets(void *argument)
{
	struct hb_disconnect_watch *watch = argument;
	struct epoll_event events[32];
	for (;;) {
		int n = epoll_wait(watch->epoll, events, 32, -1);
		for (int i = 0; i < n; i++) {
			if (events[i].data.u64 == make_token(watch->stop, 0))
				return NULL;
			struct hb_inference *infer = take_request(watch, events[i].data.u64);
			if (infer)
				hb_dispatch_cancel(watch->dispatch, infer);
			hb_inference_free(infer);
		}
	}
}

static bool start_thread(struct hb_disconnect_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN};
	watch->epoll = epoll_create1(EPOLL_CLOEXEC);
	watch->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event.data.u64 = make_token(watch->stop, 0);
	return watch->sockets && watch->epoll >= 0 && watch->stop >= 0 &&
	       epoll_ctl(watch->epoll, EPOLL_CTL_ADD, watch->stop, &event) == 0 &&
	       pthread_create(&watch->thread, NULL, watch_sockets, watch) == 0;
}

static void free_watch(struct hb_disconnect_watch *watch)
{
	if (watch->epoll >= 0)
		close(watch->epoll);
	if (watch->stop >= 0)
		close(watch->stop);
	pthread_mutex_destroy(&watch->lock);
	free(watch->sockets);
	free(watch);
}

struct hb_disconnect_watch *hb_disconnect_watch_new(struct hb_dispatch *dispatch)
{
	struct hb_disconnect_watch *watch = calloc(1, sizeof(*watch));
	struct rlimit limit;
	if (!watch)
		return NULL;
	watch->dispatch = dispatch;
	watch->epoll = watch->stop = -1;
	pthread_mutex_init(&watch->lock, NULL);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		watch->n = limit.rlim_cur > 1 << 20 ? 1 << 20 : (uint32_t)limit.rlim_cur;
	watch->sockets = calloc(watch->n ? watch->n : 1, sizeof(*watch->sockets));
	if (!start_thread(watch)) {
		free_watch(watch);
		return NULL;
	}
	return watch;
}

void hb_disconnect_watch_free(struct hb_disconnect_watch *watch)
{
	if (!watch)
		return;
	while (eventfd_write(watch->stop, 1) != 0 && errno == EINTR)
		;
	pthread_join(watch->thread, NULL);
	free_watch(watch);
}

void hb_disconnect_watch_add(struct hb_disconnect_watch *watch, int fd, struct hb_inference *infer)
{
	struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT};
	if (fd < 0 || (uint32_t)fd >= watch->n)
		return;
	atomic_fetch_add(&infer->holders, 1);
	pthread_mutex_lock(&watch->lock);
	watch->sockets[fd].infer = infer;
	event.data.u64 = make_token(fd, ++watch->sockets[fd].serial);
	pthread_mutex_unlock(&watch->lock);
	epoll_ctl(watch->epoll, EPOLL_CTL_ADD, fd, &event);
}

void hb_disconnect_watch_remove(struct hb_disconnect_watch *watch, int fd)
{
	if (fd < 0 || (uint32_t)fd >= watch->n)
		return;
	epoll_ctl(watch->epoll, EPOLL_CTL_DEL, fd, NULL);
	pthread_mutex_lock(&watch->lock);
	struct hb_inference *infer = watch->sockets[fd].infer;
	watch->sockets[fd].infer = NULL;
	pthread_mutex_unlock(&watch->lock);
	hb_inference_free(infer);
}
