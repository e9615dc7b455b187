/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that are newer than the oldest systems that Hummingbird runs on (Linux 5.3, glibc 2.28), each with
 * another way to the same result where the kernel lacks it. All are safe in a signal handler and between fork and exec.
 */
#ifndef HB_BASE_NEWER_CALLS_H
#define HB_BASE_NEWER_CALLS_H

#include <sys/epoll.h>
#include <time.h>

/*
 * Closes the open descriptors `first` to `last` (UINT_MAX = all from `first` on). A kernel older than 5.9 has no call for
 * that: then descriptors above this process's limit of open files stay open.
 */
void hb_close_range(unsigned first, unsigned last);

/* The same for exec(): the descriptors are closed when the process executes another program. */
void hb_close_range_at_exec(unsigned first, unsigned last);

/* epoll_wait() with a limit in nanoseconds; NULL = none. Returns the number of events, or -1 with errno set. */
int hb_epoll_wait(int epoll, struct epoll_event *events, int max, const struct timespec *limit);

#endif
