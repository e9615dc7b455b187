/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's part of the guaranteed minimum of LP (`low_minimum`; core/low_minimum.h): reports LP's progress to the core,
 * and says whether HP's objectives can be kept beside the minimum.
 *
 * Progress is estimated from launches: LP's launches in a tick, divided by those in ticks without any HP work. As long as
 * no such tick was seen with the present LP tenants, nothing is reported.
 */
#ifndef HB_DAEMON_GPU_MINIMUM_H
#define HB_DAEMON_GPU_MINIMUM_H

#include "daemon/gpu_record.h"

/* As configured; 0 = none. */
uint32_t hb_low_minimum_ppm(const struct hb_daemon *daemon);
/* Every HB_TICK_MS. */
void hb_gpu_minimum_tick(struct hb_gpu *gpu, int64_t now_ns);
/* Writes what the minimum means for the tenant; false = nothing. *kept: it is in force (LP), or the objective can be kept (HP). */
bool hb_gpu_minimum_describe(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, bool *kept, char *text,
			     size_t size);

#endif
