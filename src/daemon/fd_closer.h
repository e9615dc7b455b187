/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes descriptors that came from other processes, and connections with such descriptors in their queue, on threads of
 * its own. A client can send a descriptor of a file on a file system that it serves itself (FUSE), and close() of such a
 * file waits for that client, in spite of SIGKILL. A user's descriptors are closed one after the other, so that a user
 * can occupy one thread only. All functions are called in the loop, and none of them waits.
 */
#ifndef HB_DAEMON_FD_CLOSER_H
#define HB_DAEMON_FD_CLOSER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The most descriptors of one user that may wait to be closed before the daemon takes no more from that user. */
#define HB_FD_CLOSER_WAITING_MAX 1024

struct hb_fd_closer;

/* 0 or negative errno. */
int hb_fd_closer_new(struct hb_fd_closer **closer);
/* Waits up to a second for the descriptors that are still open. */
void hb_fd_closer_free(struct hb_fd_closer *closer);

/* Closes the descriptor, which came from a process of this user. Cannot fail. */
void hb_fd_closer_add(struct hb_fd_closer *closer, uid_t uid, int fd);
/* Whether a close of this user has not returned for a second, or too many wait: nothing more is accepted from the user. */
bool hb_fd_closer_is_stuck(struct hb_fd_closer *closer, uid_t uid);
/* Descriptors of all users that are not closed yet. */
uint32_t hb_fd_closer_waiting(struct hb_fd_closer *closer);
/* Starts another thread if a user's descriptors wait although the user has none that is stuck. Call it every 0.1 s. */
void hb_fd_closer_tick(struct hb_fd_closer *closer);

#endif
