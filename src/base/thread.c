/* SPDX-License-Identifier: Apache-2.0 */
/* See thread.h. */
#include "base/thread.h"

#include "base/clock.h"

#include <signal.h>
#include <time.h>

int hb_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *argument), void *argument)
{
	pthread_t detached;
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_attr_init(&attributes);
	if (stack_bytes)
		pthread_attr_setstacksize(&attributes, stack_bytes);
	if (!thread)
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it */
	int result = pthread_create(thread ? thread : &detached, &attributes, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return -result;
}

void hb_condition_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

bool hb_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_ns)
{
	const struct timespec until = {.tv_sec = until_ns / HB_NS_PER_S, .tv_nsec = until_ns % HB_NS_PER_S};
	return pthread_cond_timedwait(condition, mutex, &until) == 0;
}
