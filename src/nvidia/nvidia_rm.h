/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets the time slices of libcuda's channel groups, from inside the process that
 * owns them. The driver accepts a control only through the open file that created
 * the object, so the watch must learn file, client and handle: libcuda's import of
 * ioctl is redirected to a function that forwards every call unchanged and records
 * channel groups as they are created and freed.
 *
 * Compiled into the shim, which runs in tenants and in the MPS server. Time slices
 * come from the tenant's page and results go there (struct hb_page_group). A group's
 * slice is set as soon as libcuda schedules the group, again when libcuda changes
 * it, and when hb_rm_watch_apply() finds new values on the page. Each value is read
 * back. The watch never fails a call of libcuda and never calls CUDA.
 *
 * One watch per process, used by any thread. A forked child has no CUDA state; its
 * watch starts empty.
 */
#ifndef HB_GPU_NVIDIA_RM_H
#define HB_GPU_NVIDIA_RM_H

#include "hummingbird/page.h"

#include <stdbool.h>
#include <stddef.h>

typedef int hb_rm_ioctl(int fd, unsigned long request, ...);

/*
 * Starts to watch `library` (a handle from dlopen); call it right after dlopen,
 * before the library's first call. `forward` carries out the calls; NULL = the C
 * library's ioctl (the simulated driver has its own). Returns 0 or a negative errno
 * of hb_import_redirect().
 */
int hb_rm_watch_install(void *library, hb_rm_ioctl *forward);

/*
 * Takes time slices from this page and reports to its slot from now on, also for
 * groups seen before. NULL: no page; groups are only recorded.
 */
void hb_rm_watch_attach(struct hb_page *page, uint32_t slot);

/*
 * Sets the time slices of all groups to those on the page. Costs a few loads if
 * nothing has changed, else about 0.2 ms per group, so call it where the application
 * waits anyway (context creation, synchronize, allocation, the wait at a gate), never
 * in a launch that goes through.
 */
void hb_rm_watch_apply(void);

/*
 * For the MPS server, which never calls cuInit: once there are groups, `seen` is
 * called inside the driver's control calls, without a lock of the watch. It must not
 * call CUDA.
 */
void hb_rm_watch_notify(void (*seen)(void));

/* Asks the resource manager for the UUIDs of the GPUs that have groups. Returns how many were written, at most `max`. */
size_t hb_rm_watch_uuids(unsigned char (*uuids)[16], size_t max);

/* Counts the known groups, and those that have the wanted time slice. For `hb doctor` and tests. */
void hb_rm_watch_count(size_t *groups, size_t *set);

#endif
