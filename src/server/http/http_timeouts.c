/* SPDX-License-Identifier: Apache-2.0 */
/* See http_timeouts.h. */
#include "server/http/http_timeouts.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/kserve/transfer_rate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

#define END_CHECK_AFTER_NS HB_NS_PER_S

struct hb_http_timeout {
	int fd;
	_Atomic int64_t since_ns; /* start of the current wait for the client; INT64_MAX = the client waits for us */
	atomic_bool answers;      /* the server waits until the client has taken its answer, not for a request */
	int64_t checked_ns;       /* since_ns of the last wait in which the end of the stream was checked */
	struct hb_http_timeout *next, **link;
};

struct hb_http_timeouts {
	int64_t limit_ns;
	pthread_mutex_t lock; /* guards the rest, and the descriptors */
	pthread_cond_t stop;
	pthread_t thread;
	bool stopping;
	struct hb_http_timeout *first;
};

/* Returns whether the client has closed its side and all that it sent was read. */
static bool has_ended(const struct hb_http_timeout *timeout)
{
	char next;
	return recv(timeout->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/*
 * Checks for an unnoticed end of the stream once in each wait for a request; an end that arrives after the check wakes the
 * library.
 */
static bool has_ended_unnoticed(struct hb_http_timeout *timeout, int64_t since_ns, int64_t now_ns)
{
	if (now_ns - since_ns < END_CHECK_AFTER_NS || timeout->checked_ns == since_ns ||
	    atomic_load_explicit(&timeout->answers, memory_order_relaxed))
		return false;
	timeout->checked_ns = since_ns;
	return has_ended(timeout);
}

static void check_connections(struct hb_http_timeouts *timeouts)
{
	int64_t now_ns = hb_clock_now_ns();
	for (struct hb_http_timeout *timeout = timeouts->first; timeout; timeout = timeout->next) {
		int64_t since_ns = atomic_load_explicit(&timeout->since_ns, memory_order_relaxed);
		bool late = since_ns != INT64_MAX && now_ns - since_ns > timeouts->limit_ns;
		if (since_ns == INT64_MAX || (!late && !has_ended_unnoticed(timeout, since_ns, now_ns)))
			continue;
		shutdown(timeout->fd, SHUT_RDWR); /* the library reads an end and closes the connection */
		if (late)
			hb_log_info(
				"http: closed a connection: its request did not arrive, or its answer was not taken, in time");
	}
}

static void *check_every_second(void *argument)
{
	struct hb_http_timeouts *timeouts = argument;
	pthread_mutex_lock(&timeouts->lock);
	while (!timeouts->stopping) {
		hb_condition_wait_until(&timeouts->stop, &timeouts->lock, hb_clock_now_ns() + HB_NS_PER_S);
		check_connections(timeouts);
	}
	pthread_mutex_unlock(&timeouts->lock);
	return NULL;
}

static void free_timeouts(struct hb_http_timeouts *timeouts)
{
	pthread_mutex_destroy(&timeouts->lock);
	pthread_cond_destroy(&timeouts->stop);
	free(timeouts);
}

struct hb_http_timeouts *hb_http_timeouts_new(uint32_t idle_s)
{
	struct hb_http_timeouts *timeouts = calloc(1, sizeof(*timeouts));
	if (!timeouts)
		return NULL;
	timeouts->limit_ns = 2 * (int64_t)idle_s * HB_NS_PER_S;
	pthread_mutex_init(&timeouts->lock, NULL);
	hb_condition_init(&timeouts->stop);
	if (pthread_create(&timeouts->thread, NULL, check_every_second, timeouts) == 0)
		return timeouts;
	free_timeouts(timeouts);
	return NULL;
}

void hb_http_timeouts_free(struct hb_http_timeouts *timeouts)
{
	if (!timeouts)
		return;
	pthread_mutex_lock(&timeouts->lock);
	timeouts->stopping = true;
	pthread_cond_signal(&timeouts->stop);
	pthread_mutex_unlock(&timeouts->lock);
	pthread_join(timeouts->thread, NULL);
	free_timeouts(timeouts);
}

struct hb_http_timeout *hb_http_timeouts_add(struct hb_http_timeouts *timeouts, int fd)
{
	struct hb_http_timeout *timeout = calloc(1, sizeof(*timeout));
	if (!timeout)
		return NULL;
	timeout->fd = fd;
	hb_http_timeout_start(timeout);
	pthread_mutex_lock(&timeouts->lock);
	timeout->next = timeouts->first;
	timeout->link = &timeouts->first;
	if (timeout->next)
		timeout->next->link = &timeout->next;
	timeouts->first = timeout;
	pthread_mutex_unlock(&timeouts->lock);
	return timeout;
}

void hb_http_timeouts_remove(struct hb_http_timeouts *timeouts, struct hb_http_timeout *timeout)
{
	if (!timeout)
		return;
	pthread_mutex_lock(&timeouts->lock);
	*timeout->link = timeout->next;
	if (timeout->next)
		timeout->next->link = timeout->link;
	pthread_mutex_unlock(&timeouts->lock);
	free(timeout);
}

static void start_wait(struct hb_http_timeout *timeout, bool answers)
{
	if (!timeout)
		return;
	atomic_store_explicit(&timeout->answers, answers, memory_order_relaxed);
	atomic_store_explicit(&timeout->since_ns, hb_clock_now_ns(), memory_order_relaxed);
}

void hb_http_timeout_start(struct hb_http_timeout *timeout)
{
	start_wait(timeout, false);
}

void hb_http_timeout_start_answer(struct hb_http_timeout *timeout)
{
	start_wait(timeout, true);
}

void hb_http_timeout_extend(struct hb_http_timeout *timeout, uint64_t bytes)
{
	if (!timeout)
		return;
	int64_t since_ns = atomic_load_explicit(&timeout->since_ns, memory_order_relaxed);
	since_ns = hb_transfer_rate_credit(since_ns, bytes, hb_clock_now_ns());
	atomic_store_explicit(&timeout->since_ns, since_ns, memory_order_relaxed);
}

void hb_http_timeout_stop(struct hb_http_timeout *timeout)
{
	if (timeout)
		atomic_store_explicit(&timeout->since_ns, INT64_MAX, memory_order_relaxed);
}
