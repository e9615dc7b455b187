/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells when a process ends, within a turn of the event loop, by its pidfd.
 * Works for processes that are not our children. Used by tenancy.c.
 */
#ifndef HB_DAEMON_PID_WATCH_H
#define HB_DAEMON_PID_WATCH_H

#include <uv.h>

struct hb_pid_watch;

/* `gone` is called once, from the loop. Keeps a descriptor of its own. 0 or negative errno. */
int hb_pid_watch_new(uv_loop_t *loop, int pidfd, void (*gone)(void *argument), void *argument,
		     struct hb_pid_watch **watch);
/* Also right inside `gone`. NULL is fine. */
void hb_pid_watch_free(struct hb_pid_watch *watch);

#endif
