/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the daemon when nothing of this process is left on the GPU. While LP
 * tenants take turns (and in the spatial engine) the next one may start only
 * when the last one's work is done, and only the process itself can see that.
 * One thread, of every process of low priority, asks the driver every few ms
 * whether streams are idle while such an engine is in use, and sleeps
 * otherwise; launches are not touched. It makes only calls that do not block,
 * and none while a stream records.
 */
#ifndef HB_SHIM_DRAIN_H
#define HB_SHIM_DRAIN_H

#include "nvidia/cuda_abi.h"
#include "shim/shim_tenant.h"

#include <stdbool.h>

/* Starts the thread where it may be needed; cheap when it runs or is not needed. */
void hb_drain_start_if_needed(const struct hb_place *place);

/* Contexts and streams to look at, as they come and go. */
void hb_drain_add_context(CUcontext context, CUdevice device);
/* Around a call that may end the context: nothing of it is looked at, and its streams are not forgotten where it stays. */
void hb_drain_context_leaves(CUcontext context);
void hb_drain_context_stays(CUcontext context);
void hb_drain_context_gone(CUcontext context);
/* Forget a stream before the driver destroys it. */
void hb_drain_add_stream(CUstream stream);
void hb_drain_forget_stream(CUstream stream);

/* A capture is about to begin: waits (some microseconds) until no look at streams is under way. */
void hb_drain_yield_to_capture(void);

void hb_drain_leave_in_child(void);

#endif
