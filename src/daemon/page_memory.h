/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of the shared pages: makes them, takes one over from an
 * earlier daemon, hands out process slots, and repairs memory accounts after a
 * crash. Called by tenancy.c and device.c; talks to no process and no GPU.
 */
#ifndef HB_DAEMON_PAGE_MEMORY_H
#define HB_DAEMON_PAGE_MEMORY_H

#include "hummingbird/page.h"

#include <stdbool.h>
#include <stddef.h>

/* What the system calls a tenant's page among a process's descriptors. */
#define HB_PAGE_FILE "hb-tenant"

/* A new sealed page, mapped, and its descriptor. 0 or negative errno. */
int hb_page_new(uint32_t tenant, struct hb_page **page, int *fd);
int hb_gpu_page_new(const unsigned char uuid[16], struct hb_gpu_page **page, int *fd);
/*
 * Maps a tenant page that a client handed over. -EPROTO when it is not one, or
 * not sealed against shrinking: a client could then kill us with a truncated file.
 */
int hb_page_adopt(int fd, struct hb_page **page);
/* NULL and -1 are fine. */
void hb_page_free(struct hb_page *page, int fd);
void hb_gpu_page_free(struct hb_gpu_page *page, int fd);

/* Clears a slot and gives it to a process. Which ones are free is the caller's to know: what the page says is anybody's. */
void hb_page_slot_take(struct hb_page *page, uint32_t slot, uint32_t pid, uint64_t start_ticks);
void hb_page_slot_free(struct hb_page *page, uint32_t slot);

/* No living process is in the middle of a claim. */
bool hb_page_memory_settled(struct hb_page *page);

/*
 * Sets the tenant's memory sum on one GPU to that of its living processes.
 * False: a thread is in the middle of a claim, try again later. `force`: do it
 * anyway (a tenant that never comes out of a claim must not block us).
 */
bool hb_page_memory_repair(struct hb_page *page, uint32_t gpu_index, bool force);

#endif
