/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms and measures as JSON for the status: what `hb top` and the live page draw. */
#ifndef HB_DAEMON_STATUS_MEASURES_H
#define HB_DAEMON_STATUS_MEASURES_H

#include "daemon/gpu_measures.h"

/* {count, sum_ns, p50_ns, p99_ns, max_ns, buckets}, or null for a histogram without samples. */
struct json_t *hb_status_hist(const struct hb_hist *hist);
/* Adds what was measured of the tenant with this index, from used_ns to active_ns. */
void hb_status_add_measures(struct json_t *object, const struct hb_gpu *gpu, uint32_t tenancy);

#endif
