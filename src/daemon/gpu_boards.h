/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boards of a GPU: one for each HP process in the spatial engine, which LP's
 * processes read at each launch (struct hb_page_board). An HP process hands its
 * board over; the daemon checks that no other process can write to it, lists it
 * on the GPU page and gives its descriptor to LP processes. A process of a tenant
 * without granted high priority is never listed.
 */
#ifndef HB_DAEMON_GPU_BOARDS_H
#define HB_DAEMON_GPU_BOARDS_H

#include "daemon/gpu_record.h"

/*
 * Lists the board of the tenant's process with this pid. `fd` stays the caller's. 0; -EPERM: the tenant is not HP; -EPROTO:
 * this is no board, or others could write to it; -EEXIST: the process has a board; -ESRCH: it has no slot; -ENOSPC: the list
 * is full; other negative errno.
 */
int hb_gpu_add_board(struct hb_gpu *gpu, struct hb_tenancy *tenancy, pid_t pid, int fd);
/* The descriptor of the board with this number, which stays the GPU's; -ENOENT. */
int hb_gpu_find_board(const struct hb_gpu *gpu, uint32_t number);
/* Takes the boards of this process off the list; slot HB_PAGE_PROCESSES: of all processes of the tenant. */
void hb_gpu_drop_boards(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t slot);
/* When the GPU is freed. */
void hb_gpu_free_boards(struct hb_gpu *gpu);

#endif
