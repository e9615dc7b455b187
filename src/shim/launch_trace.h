/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes launches of low priority while the daemon records (see
 * hummingbird/page_trace.h). Nothing here is on the path of a launch unless
 * HB_ALERT_TRACE is set. A kernel's name is asked of the driver at its first
 * launch of a recording; every other launch costs a clock, an addition, a
 * look-up and four stores: no lock, no allocation, no system call.
 */
#ifndef HB_SHIM_LAUNCH_TRACE_H
#define HB_SHIM_LAUNCH_TRACE_H

#include "shim/shim_tenant.h"

/* From the thread of drain.c: begins or ends noting, as the page says. */
void hb_launch_trace_refresh(const struct hb_place *place);
/* A launch that goes to the driver now. */
void hb_launch_trace_note(unsigned fn, const uint64_t *args);
/* Handles are given anew after this: names are asked again. Before a module or library is unloaded. */
void hb_launch_trace_forget(void);
void hb_launch_trace_leave_in_child(void);

#endif
