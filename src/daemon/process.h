/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads facts about a process from /proc, and opens pidfds. The kernel may give a
 * pid to another process at any time. What was read is true of the process
 * behind a pidfd if that process still runs afterwards.
 */
#ifndef HB_DAEMON_PROCESS_H
#define HB_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Opens a pidfd of the process that has the pid now. Negative errno; -ESRCH: there is no such process. */
int hb_process_open(pid_t pid);
/* Sends SIGKILL to the process that had the pid when it started at start_ticks. 0, or negative errno; -ESRCH: it has ended. */
int hb_process_kill(pid_t pid, uint64_t start_ticks);
/* Whether the process still runs. */
bool hb_process_lives(int pidfd);

/* Opens /proc/PID/FILE. NULL = it cannot be read. */
FILE *hb_process_file(pid_t pid, const char *file);
/* Returns the start time in clock ticks since boot; 0 = no such process. */
uint64_t hb_process_start_ticks(pid_t pid);
/* Returns the address of the stack, which changes when the process executes another program; 0 = not permitted, or ended. */
uint64_t hb_process_image(pid_t pid);
/* Returns the pid of its parent; 0 = no such process. */
pid_t hb_process_parent(pid_t pid);
/* Whether a signal or a debugger has stopped the process. */
bool hb_process_is_stopped(pid_t pid);
/* Reads the effective user and group. False: no such process. */
bool hb_process_user(pid_t pid, uid_t *uid, gid_t *gid);
/* Whether the process is in a pid namespace below the one of /proc, as in most containers. */
bool hb_process_has_own_pids(pid_t pid);
/* Whether the process was started with NAME=VALUE in its environment. False also if it delays the reading by 0.2 s. */
bool hb_process_began_with(pid_t pid, const char *variable);

#endif
