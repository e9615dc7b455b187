/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock that makes a daemon the only one of its socket: the file SOCKET.lock. It contains the holder's process and
 * heartbeat, so that a new daemon can take the socket from a holder that does not run any more but cannot end either: one
 * that waits in the kernel keeps its locks in spite of SIGKILL. Each holder locks another byte of the file, the one of
 * the present generation. The process that replaces a holder raises the generation; the old byte is never used again.
 */
#ifndef HB_DAEMON_SOCKET_LOCK_H
#define HB_DAEMON_SOCKET_LOCK_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct hb_socket_lock;

/*
 * Takes the lock of this socket. A holder that has written no heartbeat for 5 s is ended with SIGKILL; if it keeps the
 * lock even then, it is replaced. -EADDRINUSE: another daemon serves the socket.
 */
int hb_socket_lock_take(const char *socket_path, struct hb_socket_lock **lock, struct hb_error *error);
/* NULL is allowed here and below. */
void hb_socket_lock_release(struct hb_socket_lock *lock);
/*
 * Ends this process at once if another daemon has taken the lock, which can happen to a process that was stopped for a
 * long time: the pages and the socket are the other daemon's now. Any thread.
 */
void hb_socket_lock_check(const struct hb_socket_lock *lock);
/* Tells other daemons that this one runs. One thread. */
void hb_socket_lock_beat(struct hb_socket_lock *lock, int64_t now_ns);

#endif
