/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon of the system is started by root. Once it has its socket, log, lock and metrics port, it continues as user
 * `hummingbird` without any capability, and a helper process (helper.h) keeps the rights of root. Called by hbd.c and
 * daemon_loop.c.
 */
#ifndef HB_DAEMON_PRIVILEGES_H
#define HB_DAEMON_PRIVILEGES_H

#include <stddef.h>
#include <sys/types.h>

#define HB_DAEMON_USER "hummingbird"

/*
 * Whether this process can continue as HB_DAEMON_USER: it is root, /etc/passwd has the user, and a process of the user can read
 * /proc of others. -1: it cannot, and *why says why in a constant text. Call it before the process has threads.
 */
int hb_privileges_check(const char **why);
/*
 * Gives up every way to get rights that the process has not: programs that it starts get none either. Call it before the
 * process has threads, and after the helper was started. 0 or negative errno.
 */
int hb_privileges_limit(void);
/* Reads the ids of HB_DAEMON_USER. 0 or -ENOENT. */
int hb_privileges_user(uid_t *uid, gid_t *gid);
/* Continues as HB_DAEMON_USER, in all threads. 0, or negative errno: the process must end, because some rights may be left. */
int hb_privileges_drop(void);

#endif
