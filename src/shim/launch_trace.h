/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records LP launches into the ring of hummingbird/page_trace.h while the daemon
 * records. Not called at a launch unless HB_ALERT_TRACE is set. The driver is asked
 * for a kernel's name at its first launch of a recording. Every other launch costs
 * a clock read, an addition, a look-up and four stores: no lock, no allocation, no
 * system call.
 */
#ifndef HB_SHIM_LAUNCH_TRACE_H
#define HB_SHIM_LAUNCH_TRACE_H

#include "shim/shim_tenant.h"

/* Called by the thread of drain.c: starts or stops recording as the page requires. */
void hb_launch_trace_refresh(const struct hb_place *place);
/* Records a launch that goes to the driver now. */
void hb_launch_trace_note(unsigned fn, const uint64_t *args);
/* Before a module or library is unloaded, after which the driver may reuse its handles: forgets all names. */
void hb_launch_trace_forget(void);
void hb_launch_trace_leave_in_child(void);

#endif
