/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells whether a signal would end a process: /proc/PID/status lists which signals
 * the process catches, ignores and blocks. The answer may be out of date as soon as
 * it is given. Used by the daemon and by the supervisor of `hb run`.
 */
#ifndef HB_BASE_SIGNAL_ACTION_H
#define HB_BASE_SIGNAL_ACTION_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether the default action of the signal ends a process. */
bool hb_signal_is_deadly(int signal);

/*
 * Whether the signal would end this process at once: it is deadly, and the process neither catches nor ignores nor blocks
 * it, nor waits for signals in all threads. False also for a process that has ended, or whose status cannot be read.
 */
bool hb_signal_kills(pid_t pid, int signal);

#endif
