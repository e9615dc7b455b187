/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening Unix socket: the kernel names the user of each client (SO_PEERCRED), and the socket's mode says who may
 * connect. Opened by hb_serve.c, used by both protocols.
 */
#ifndef HB_SERVER_UNIX_LISTENER_H
#define HB_SERVER_UNIX_LISTENER_H

#include "base/error.h"

#include <sys/types.h>

#define HB_NO_GROUP ((gid_t)-1)

struct hb_unix_listener;

/*
 * Opens a socket at the path, with mode 0600, or 0660 and the group if there is one. A socket that an ended server left is
 * replaced; nothing else is. The lock PATH.lock shows whether a server uses the path. Returns 0, or negative errno with
 * *error.
 */
int hb_unix_listener_open(const char *path, gid_t group, struct hb_unix_listener **out, struct hb_error *error);
/* Returns the listening descriptor, which stays the listener's. */
int hb_unix_listener_fd(const struct hb_unix_listener *listener);
/* Closes the socket and removes its path. NULL is allowed. */
void hb_unix_listener_close(struct hb_unix_listener *listener);

#endif
