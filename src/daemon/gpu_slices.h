/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time slices of a GPU's tenants: what the core decided, as far as it is
 * safe on this GPU now. Written to the tenant pages; the tenants' processes set
 * the slices of their channel groups.
 */
#ifndef HB_DAEMON_GPU_SLICES_H
#define HB_DAEMON_GPU_SLICES_H

#include "daemon/gpu_record.h"

/*
 * Notes whether processes that are not managed keep the GPU busy, from the driver's
 * last answer (hb_gpu.use). Beside such a process an LP context with a tiny slice would
 * never run, so LP gets longer slices until the process is idle or has ended.
 */
void hb_gpu_note_not_managed(struct hb_gpu *gpu);

/* Brings the tenant page in line with the decisions in hb_gpu.tenants. */
void hb_gpu_set_slices(struct hb_gpu *gpu, struct hb_tenancy *tenancy);

#endif
