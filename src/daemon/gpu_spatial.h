/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's part of the spatial engine: writes the settings to the GPU page and
 * each HP tenant's allowance to its tenant page. gpu_boards.c lists the boards; the
 * processes do everything else themselves (decide/spatial.h).
 */
#ifndef HB_DAEMON_GPU_SPATIAL_H
#define HB_DAEMON_GPU_SPATIAL_H

#include "daemon/gpu_record.h"

/* Writes the settings of the spatial engine to the GPU page. Call it again after a reload and after a change of engine. */
void hb_gpu_configure_spatial(struct hb_gpu *gpu);
/* Every HB_TICK_MS: writes the delay that LP may cause the requests of each HP tenant. */
void hb_gpu_publish_allowances(struct hb_gpu *gpu);

#endif
