/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports requests and takeover faults of this process to the daemon through the
 * tenant page (struct hb_page_requests). decide/process_foresight.c infers when a
 * request begins, and decide/spatial_high.c does so in the spatial engine. A process without a daemon writes to the
 * private record of shim_tenant.c instead.
 */
#ifndef HB_SHIM_PAGE_REQUESTS_H
#define HB_SHIM_PAGE_REQUESTS_H

#include "shim/takeover.h"

/* Posts a request that has ended. Only one thread may post at a time (the lock of shim_foresight.c). Times as in struct hb_page_request. */
void hb_page_requests_post(int64_t begin_ns, int64_t end_ns, int64_t deadline_ns, uint32_t flags);
/* The same with the delay caused by LP; negative = not known. */
void hb_page_requests_post_harm(int64_t begin_ns, int64_t end_ns, int64_t deadline_ns, uint32_t flags, int64_t harm_ns);

/* Shows a request as running, unless one is shown already; ends the display of the request that began at begin_ns. */
void hb_page_requests_begin(int64_t begin_ns, int64_t deadline_ns);
void hb_page_requests_end(int64_t begin_ns);

/* Switches takeovers off for this process. Only the first fault is recorded. */
void hb_takeover_set_fault(enum hb_takeover_fault fault);
bool hb_takeover_has_fault(void);
const char *hb_takeover_fault_text(enum hb_takeover_fault fault);

#endif
