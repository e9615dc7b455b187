/* SPDX-License-Identifier: Apache-2.0 */
/* Gives one more user access to a file or folder, by an access control list (acl(5)). */
#ifndef HB_DAEMON_ACCESS_LIST_H
#define HB_DAEMON_ACCESS_LIST_H

#include <sys/types.h>

/*
 * Replaces the list of the file by `mode` and an entry for this user with `permissions` (4 read, 2 write, 1 search or
 * execute). 0 or negative errno; -EOPNOTSUPP: the file system has no such lists.
 */
int hb_access_list_set(const char *path, mode_t mode, uid_t uid, unsigned permissions);

#endif
