/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports the end of a process, by its pidfd, as soon as the event loop runs.
 * Works for processes that are not children of the daemon. Used by tenancy.c.
 */
#ifndef HB_DAEMON_PID_WATCH_H
#define HB_DAEMON_PID_WATCH_H

#include <uv.h>

struct hb_pid_watch;

/* Calls `ended` once, in the loop. Duplicates the descriptor. 0 or negative errno. */
int hb_pid_watch_new(uv_loop_t *loop, int pidfd, void (*ended)(void *argument), void *argument,
		     struct hb_pid_watch **watch);
/* May be called inside `ended`. NULL is allowed. */
void hb_pid_watch_free(struct hb_pid_watch *watch);

#endif
