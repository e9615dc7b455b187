/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of the shared pages: makes pages, maps one that an earlier
 * daemon made, gives slots to processes, and repairs memory sums after a crash.
 * Uses no process and no GPU.
 */
#ifndef HB_DAEMON_PAGE_MEMORY_H
#define HB_DAEMON_PAGE_MEMORY_H

#include "hummingbird/page.h"

#include <stdbool.h>
#include <stddef.h>

/* Name of a tenant page's memfd, as /proc/PID/fd shows it. */
#define HB_PAGE_FILE "hb-tenant"

/* Makes a sealed page and maps it. *fd = its descriptor. 0 or negative errno. */
int hb_page_new(uint32_t tenant, struct hb_page **page, int *fd);
/* The same for a GPU page, which only this mapping can write to. */
int hb_gpu_page_new(const unsigned char uuid[16], struct hb_gpu_page **page, int *fd);
/* The same, but also writable for others: for one tenant of the previous release (previous_page.h). */
int hb_previous_gpu_page_new(const unsigned char uuid[16], struct hb_gpu_page **page, int *fd);
/*
 * Whether a descriptor is a memfd that is sealed like a page. For a descriptor that a client sent this is the first
 * question: every other call could wait for the file system that the file is on, which may be the client's own.
 */
bool hb_page_is_sealed(int fd);
/*
 * Maps a tenant page that a client handed over. -EPROTO when it is no tenant
 * page, or not sealed against shrinking: a client could truncate such a file and
 * so kill the daemon.
 */
int hb_page_adopt(int fd, struct hb_page **page);
/* NULL and -1 are allowed. */
void hb_page_free(struct hb_page *page, int fd);
void hb_gpu_page_free(struct hb_gpu_page *page, int fd);

/* Clears a slot and gives it to a process. The caller knows which slots are free; tenants can write to the page. */
void hb_page_slot_take(struct hb_page *page, uint32_t slot, uint32_t pid, uint64_t start_ticks);
void hb_page_slot_free(struct hb_page *page, uint32_t slot);

/* Whether no process is between claiming memory and allocating it. */
bool hb_page_memory_settled(struct hb_page *page);

/*
 * Sets the tenant's memory sum on one GPU to the sum of its running processes.
 * False: a process is changing the sum, try again later. `force`: set the sum
 * nevertheless, so that a faulty tenant cannot prevent the repair for ever.
 */
bool hb_page_memory_repair(struct hb_page *page, uint32_t gpu_index, bool force);

#endif
