/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GPU in the daemon: made when the first tenant uses it, serves its tenants
 * by polling, deciding and applying (hb_gpu_poll, hb_gpu_decide), and changes
 * its engine when its tenants require another one.
 */
#ifndef HB_DAEMON_GPU_H
#define HB_DAEMON_GPU_H

#include "daemon/gpu_record.h"

/* The GPU with this UUID, made when it is new. 0; -ENOSPC = HB_GPUS_MAX others are in use; other negative errno. */
int hb_gpu_find_or_add(struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES], struct hb_gpu **gpu);
void hb_gpu_free(struct hb_gpu *gpu);

/* A tenant begins to use the GPU, which has this index on the tenant's page. 0 or negative errno. */
int hb_gpu_add(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t gpu_index, int64_t now_ns);
/* The tenant has ended. */
void hb_gpu_remove(struct hb_gpu *gpu, struct hb_tenancy *tenancy, int64_t now_ns);
/* The tenant's SLO or weight has changed, and with `new_priority` also its priority. */
void hb_gpu_change(struct hb_gpu *gpu, struct hb_tenancy *tenancy, bool new_priority, int64_t now_ns);
/* A process got a slot: it begins with the gate and the time slices of its tenant. */
void hb_gpu_join(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t slot);

/*
 * Serving the GPU takes two steps; between them the daemon posts the requests
 * that the tenants' processes reported (request_rings.h).
 */
/* First step: posts what the gates show. */
void hb_gpu_poll(struct hb_gpu *gpu, int64_t now_ns);
/* Second step: lets timers run and writes what the core decided to the pages. */
void hb_gpu_decide(struct hb_gpu *gpu, int64_t now_ns);
/* Every HB_TICK_MS: activity, allowances, time slices. */
void hb_gpu_tick(struct hb_gpu *gpu, int64_t now_ns);

/* Makes a new core when the tenants or the MPS server's state require another engine. */
void hb_gpu_choose_engine(struct hb_gpu *gpu, int64_t now_ns);

#endif
