/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time slices of libcuda's channel groups, set from inside the process that
 * owns them. The driver accepts a control only through the open file that made
 * the object, so the watch learns file, client and handle by looking over
 * libcuda's shoulder: its import of ioctl is redirected to a function that
 * forwards every call untouched and notes channel groups as they come and go.
 *
 * Compiled into the shim, which runs in tenants and in the MPS server. Slices
 * come from the tenant's page and results go there (struct hb_page_group). A
 * group is set as soon as libcuda schedules it, again when libcuda changes it,
 * and whenever hb_rm_watch_apply() finds new slices on the page. Everything is
 * read back. It never fails a call of libcuda's and never calls CUDA.
 *
 * One watch a process. Any thread; after fork the child starts empty (it has no
 * CUDA state of its own) and stays harmless.
 */
#ifndef HB_GPU_NVIDIA_RM_H
#define HB_GPU_NVIDIA_RM_H

#include "hummingbird/page.h"

#include <stdbool.h>
#include <stddef.h>

typedef int hb_rm_ioctl(int fd, unsigned long request, ...);

/*
 * Starts watching `library` (a handle from dlopen). `forward` carries the calls
 * out; NULL = the C library's ioctl; the simulated driver brings its own. 0 or
 * negative errno of hb_import_redirect(). Call it right after dlopen, before the
 * library's first call.
 */
int hb_rm_watch_install(void *library, hb_rm_ioctl *forward);

/*
 * Slices come from this page and reports go to its slot from now on; groups
 * seen before are reported and set too. NULL: no page, groups are only remembered.
 */
void hb_rm_watch_attach(struct hb_page *page, uint32_t slot);

/*
 * Brings every group to the slices the page asks for. Costs a few loads when
 * nothing has changed, else about 0.2 ms a group, so call it where the
 * application waits anyway (context creation, synchronize, allocation, the wait
 * at a gate), never on a launch that goes straight through.
 */
void hb_rm_watch_apply(void);

/*
 * For a process that never calls cuInit, as the MPS server: `seen` is called,
 * without any lock of the watch, inside the driver's control calls, once there
 * are groups. It must not call CUDA.
 */
void hb_rm_watch_tell(void (*seen)(void));

/* The UUIDs of the GPUs that groups were made on, asked of the resource manager. Number written, at most `max`. */
size_t hb_rm_watch_uuids(unsigned char (*uuids)[16], size_t max);

/* Groups known, and of those how many have the slice they should. For `hb doctor` and tests. */
void hb_rm_watch_count(size_t *groups, size_t *set);

#endif
