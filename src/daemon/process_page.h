/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a tenant page among the open files of a process, which shows that the process belongs to a tenant. Needs the right to
 * read other users' processes if the process belongs to another user.
 */
#ifndef HB_DAEMON_PROCESS_PAGE_H
#define HB_DAEMON_PROCESS_PAGE_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Opens the tenant page that the process has open, and on which it has a slot. `inode` is the number of the page's file, 0 = any.
 * Returns a descriptor or negative errno; -ENOENT: the process has no such page.
 */
int hb_process_open_page(pid_t pid, uint64_t start_ticks, uint64_t inode);

#endif
