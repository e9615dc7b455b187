/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process tells the daemon about requests and holds (struct
 * hb_page_signs). Alone, it goes to the private record of shim_tenant.c.
 */
#ifndef HB_SHIM_PAGE_SIGNS_H
#define HB_SHIM_PAGE_SIGNS_H

#include "shim/takeover.h"

/* One writer at a time is the caller's business (shim_foresight.c has a lock). Time stamps as in struct hb_page_request. */
void hb_page_signs_post(int64_t begin_ns, int64_t end_ns, int64_t deadline_ns, uint32_t flags);
/* The same, and what LP cost it; negative = not known. */
void hb_page_signs_post_harm(int64_t begin_ns, int64_t end_ns, int64_t deadline_ns, uint32_t flags, int64_t harm_ns);

/* A request runs from now on, unless another one does already; and the one that began then does not any more. */
void hb_page_signs_begin(int64_t begin_ns, int64_t deadline_ns);
void hb_page_signs_end(int64_t begin_ns);

/* Switches holds off for this process; the first fault is kept. */
void hb_page_signs_fault(enum hb_takeover_fault fault);
bool hb_page_signs_faulty(void);
const char *hb_takeover_fault_text(enum hb_takeover_fault fault);

#endif
