/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a GPU's gates are polled, and what the shims of its tenants report by
 * ringing their tenant's doorbell instead.
 */
#ifndef HB_DAEMON_GPU_POLL_H
#define HB_DAEMON_GPU_POLL_H

#include "daemon/gpu_record.h"

/* Interval of polling where no shim reports changes; short beside a turn of 50 ms. */
#define HB_POLL_NS (2 * HB_NS_PER_MS)

/* When the GPU has to be served next; HB_TIME_NEVER = not before something happens. */
int64_t hb_gpu_next_poll_ns(const struct hb_gpu *gpu, int64_t now_ns);
/* Tells the shims, through the GPU page, what to report by their doorbells. Call it after serving the GPU or changing its tenants. */
void hb_gpu_update_doorbell(struct hb_gpu *gpu);
/* Before the page of the tenant with this index is unmapped: ends the thread that listens to its doorbell. */
void hb_gpu_close_doorbell(struct hb_gpu *gpu, uint32_t index);

#endif
