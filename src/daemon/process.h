/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc tells of a process, and pidfds. A pid may be given to another
 * process at any time: what was read of it holds for the process behind a pidfd
 * if that still lives afterwards. Used by peer.c, tenancy.c and device.c.
 */
#ifndef HB_DAEMON_PROCESS_H
#define HB_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* A pidfd of whatever process has the pid now; negative errno, -ESRCH: there is none. */
int hb_process_open(pid_t pid);
bool hb_process_lives(int pidfd);

/* /proc/PID/FILE; NULL = cannot be read. */
FILE *hb_process_file(pid_t pid, const char *file);
/* When it started, in clock ticks since boot; 0 = no such process. */
uint64_t hb_process_start_ticks(pid_t pid);
/* Where its stack began: another number once it has executed another program; 0 = we may not know, or it has ended. */
uint64_t hb_process_image(pid_t pid);
/* Stopped by a signal or a debugger. */
bool hb_process_is_stopped(pid_t pid);
/* Its effective user and group. False: no such process. */
bool hb_process_user(pid_t pid, uid_t *uid, gid_t *gid);
/* NAME=VALUE was in the environment that it was started with. */
bool hb_process_began_with(pid_t pid, const char *variable);

#endif
