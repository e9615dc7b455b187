/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts threads that get no signals, and waits on conditions until a time of hb_clock_now_ns(). Used by the daemon, whose
 * signals are for its event loop, and by the shim, which must leave signals to the threads of the application.
 */
#ifndef HB_BASE_THREAD_H
#define HB_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Starts a thread, in which all signals are blocked. *thread is for pthread_join(); with NULL the thread is detached.
 * stack_bytes 0 = the usual size. Returns 0 or a negative errno.
 */
int hb_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *argument), void *argument);

/* Makes a condition for hb_condition_wait_until(). */
void hb_condition_init(pthread_cond_t *condition);
/*
 * Waits with the mutex held, as pthread_cond_wait() does. Returns false if `until_ns`
 * has passed without a signal; INT64_MAX = it waits for ever.
 */
bool hb_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_ns);

#endif
