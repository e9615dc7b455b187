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

/* A context is created that is never polled: green contexts, and those of OpenGL and VDPAU. No memory moves from now on. */
void hb_drain_note_unknown_context(void);
/* Whether this context is polled. */
bool hb_drain_knows_context(CUcontext context);

/*
 * For the thread that moves memory, while calls are held back (hold.h) and no stream captures: CUDA_SUCCESS if all work that
 * this process has given to its GPUs is done, CUDA_ERROR_NOT_READY, or another error. `first`: the first query since the calls
 * are held. Leaves no context current.
 */
CUresult hb_drain_query_all(bool first);
/* Returns a context on this device; NULL: there is none. */
CUcontext hb_drain_context_on(CUdevice device);

void hb_drain_leave_in_child(void);

#endif
