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
	void *request; /* NULL = none */
	const struct hb_disconnect_kind *kind;
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

/* ---- the kinds of requests ---- */

static void hold_inference(void *request)
{
	atomic_fetch_add(&((struct hb_inference *)request)->holders, 1);
}

static void free_inference(void *request)
{
	hb_inference_free(request);
}

static void cancel_inference(struct hb_dispatch *dispatch, void *request)
{
	hb_dispatch_cancel(dispatch, request);
}

const struct hb_disconnect_kind hb_disconnect_inference = {hold_inference, free_inference, cancel_inference};

static void hold_load(void *request)
{
	atomic_fetch_add(&((struct hb_load *)request)->holders, 1);
}

static void free_load(void *request)
{
	hb_load_free(request);
}

static void cancel_load(struct hb_dispatch *dispatch, void *request)
{
	hb_dispatch_cancel_load(dispatch, request);
}

const struct hb_disconnect_kind hb_disconnect_load = {hold_load, free_load, cancel_load};

/* ---- the watch ---- */

/*
 * Returns the request of an event, held for the caller, and its kind. Returns NULL if the socket is no longer watched for
 * this request: handling an earlier event of the same batch may have removed the socket.
 */
static void *take_request(struct hb_disconnect_watch *watch, uint64_t token, const struct hb_disconnect_kind **kind)
{
	pthread_mutex_lock(&watch->lock);
	const struct watched_socket *socket = &watch->sockets[(uint32_t)token];
	void *request = socket->serial == token >> 32 ? socket->request : NULL;
	*kind = socket->kind;
	if (request)
		socket->kind->hold(request);
	pthread_mutex_unlock(&watch->lock);
	return request;
}

static void handle_end(struct hb_disconnect_watch *watch, uint64_t token)
{
	const struct hb_disconnect_kind *kind;
	void *request = take_request(watch, token, &kind);
	if (!request)
		return;
	kind->cancel(watch->dispatch, request);
	kind->release(request);
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
			handle_end(watch, events[i].data.u64);
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

void hb_disconnect_watch_add(struct hb_disconnect_watch *watch, int fd, void *request,
			     const struct hb_disconnect_kind *kind)
{
	struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT};
	if (fd < 0 || (uint32_t)fd >= watch->n)
		return;
	kind->hold(request);
	pthread_mutex_lock(&watch->lock);
	watch->sockets[fd].request = request;
	watch->sockets[fd].kind = kind;
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
	void *request = watch->sockets[fd].request;
	const struct hb_disconnect_kind *kind = watch->sockets[fd].kind;
	watch->sockets[fd].request = NULL;
	pthread_mutex_unlock(&watch->lock);
	if (request)
		kind->release(request);
}
