/* SPDX-License-Identifier: Apache-2.0 */
/* See http_timeouts.h. */
#include "server/http/http_timeouts.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/kserve/transfer_rate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define LOOK_NS HB_NS_PER_S

struct hb_http_timeout {
	int fd;
	_Atomic int64_t since_ns; /* INT64_MAX = it waits for us */
	int64_t looked_ns;        /* since_ns when it was asked whether its client has gone */
	struct hb_http_timeout *next, **link;
};

struct hb_http_timeouts {
	int64_t limit_ns;
	pthread_mutex_t lock; /* guards the rest, and each peer's descriptor */
	pthread_cond_t stop;
	pthread_t thread;
	bool stopping;
	struct hb_http_timeout *first;
};

/* Its client has closed its side, and all that it sent was read. */
static bool has_ended(const struct hb_http_timeout *peer)
{
	char next;
	return recv(peer->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Asked once in each wait: an end that comes later wakes the library. */
static bool is_left(struct hb_http_timeout *peer, int64_t since_ns, int64_t now_ns)
{
	if (now_ns - since_ns < LOOK_NS || peer->looked_ns == since_ns)
		return false;
	peer->looked_ns = since_ns;
	return has_ended(peer);
}

static void look(struct hb_http_timeouts *peers)
{
	int64_t now_ns = hb_clock_now_ns();
	for (struct hb_http_timeout *peer = peers->first; peer; peer = peer->next) {
		int64_t since_ns = atomic_load_explicit(&peer->since_ns, memory_order_relaxed);
		bool late = since_ns != INT64_MAX && now_ns - since_ns > peers->limit_ns;
		if (since_ns == INT64_MAX || (!late && !is_left(peer, since_ns, now_ns)))
			continue;
		shutdown(peer->fd, SHUT_RDWR); /* the library reads its end, and closes it */
		if (late)
			hb_log_info("http: a request did not come whole in time; its connection is closed");
	}
}

static void *run(void *argument)
{
	struct hb_http_timeouts *peers = argument;
	struct timespec next;
	pthread_mutex_lock(&peers->lock);
	while (!peers->stopping) {
		clock_gettime(CLOCK_MONOTONIC, &next);
		next.tv_sec++;
		pthread_cond_timedwait(&peers->stop, &peers->lock, &next);
		look(peers);
	}
	pthread_mutex_unlock(&peers->lock);
	return NULL;
}

struct hb_http_timeouts *hb_http_timeouts_new(uint32_t idle_s)
{
	struct hb_http_timeouts *peers = calloc(1, sizeof(*peers));
	pthread_condattr_t clock;
	if (!peers)
		return NULL;
	peers->limit_ns = 2 * (int64_t)idle_s * HB_NS_PER_S;
	pthread_mutex_init(&peers->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&peers->stop, &clock);
	pthread_condattr_destroy(&clock);
	if (pthread_create(&peers->thread, NULL, run, peers) == 0)
		return peers;
	pthread_mutex_destroy(&peers->lock);
	pthread_cond_destroy(&peers->stop);
	free(peers);
	return NULL;
}

void hb_http_timeouts_free(struct hb_http_timeouts *peers)
{
	if (!peers)
		return;
	pthread_mutex_lock(&peers->lock);
	peers->stopping = true;
	pthread_cond_signal(&peers->stop);
	pthread_mutex_unlock(&peers->lock);
	pthread_join(peers->thread, NULL);
	pthread_mutex_destroy(&peers->lock);
	pthread_cond_destroy(&peers->stop);
	free(peers);
}

struct hb_http_timeout *hb_http_timeouts_add(struct hb_http_timeouts *peers, int fd)
{
	struct hb_http_timeout *peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->fd = fd;
	hb_http_timeout_start(peer);
	pthread_mutex_lock(&peers->lock);
	peer->next = peers->first;
	peer->link = &peers->first;
	if (peer->next)
		peer->next->link = &peer->next;
	peers->first = peer;
	pthread_mutex_unlock(&peers->lock);
	return peer;
}

void hb_http_timeouts_remove(struct hb_http_timeouts *peers, struct hb_http_timeout *peer)
{
	if (!peer)
		return;
	pthread_mutex_lock(&peers->lock);
	*peer->link = peer->next;
	if (peer->next)
		peer->next->link = peer->link;
	pthread_mutex_unlock(&peers->lock);
	free(peer);
}

void hb_http_timeout_start(struct hb_http_timeout *peer)
{
	if (peer)
		atomic_store_explicit(&peer->since_ns, hb_clock_now_ns(), memory_order_relaxed);
}

void hb_http_timeout_extend(struct hb_http_timeout *peer, uint64_t bytes)
{
	if (!peer)
		return;
	int64_t since_ns = hb_transfer_rate_credit(atomic_load_explicit(&peer->since_ns, memory_order_relaxed), bytes,
						   hb_clock_now_ns());
	atomic_store_explicit(&peer->since_ns, since_ns, memory_order_relaxed);
}

void hb_http_timeout_stop(struct hb_http_timeout *peer)
{
	if (peer)
		atomic_store_explicit(&peer->since_ns, INT64_MAX, memory_order_relaxed);
}
