/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports to the daemon when no work of this process is left on the GPU. While LP
 * tenants take turns, and in the spatial engine, the next tenant may start only
 * when the work of the last one is done, and only the process itself can see that.
 *
 * Every LP process has one thread for this. While such an engine is in use, the
 * thread asks the driver every few ms whether streams are idle; otherwise it
 * sleeps. Launches are not affected. The thread makes only calls that do not
 * block, and none while a stream captures.
 */
#ifndef HB_SHIM_DRAIN_H
#define HB_SHIM_DRAIN_H

#include "nvidia/cuda_abi.h"
#include "shim/shim_tenant.h"

#include <stdbool.h>

/* Starts the thread if this process needs it; cheap if the thread runs or is not needed. */
void hb_drain_start_if_needed(const struct hb_place *place);

/* Adds a context whose streams are polled. */
void hb_drain_add_context(CUcontext context, CUdevice device);
/* Before a call that may destroy the context, and after it by its outcome. The context is not polled in between. */
void hb_drain_context_leaves(CUcontext context);
void hb_drain_context_stays(CUcontext context);
void hb_drain_context_gone(CUcontext context);
/* Adds a stream that was created. */
void hb_drain_add_stream(CUstream stream);
/* Before the driver destroys a stream. */
void hb_drain_forget_stream(CUstream stream);

/* Before a capture begins: waits some microseconds until no poll is in progress. */
void hb_drain_yield_to_capture(void);

void hb_drain_leave_in_child(void);

#endif
