/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gates of a GPU's tenants, in both directions: polls what the processes'
 * gates show and posts it to the core, and writes the core's decisions (gates
 * and time slices) to the tenant pages.
 */
#ifndef HB_DAEMON_GPU_GATES_H
#define HB_DAEMON_GPU_GATES_H

#include "daemon/gpu_record.h"

/* Posts what the gates of all tenants show: busy, idle, drained, waiting. */
void hb_gpu_poll_gates(struct hb_gpu *gpu, int64_t now_ns);
/* Writes the decisions that hb_gpu_post() and hb_gpu_step() noted. */
void hb_gpu_apply(struct hb_gpu *gpu);
/* Posts `drained` for the gates that were just closed while nothing was in flight: no process will report that. */
void hb_gpu_post_empty(struct hb_gpu *gpu, int64_t now_ns);
/* A process got a slot on the tenant page, or is held or no longer held: its gate becomes as the core decided, or closed. */
void hb_gpu_set_gate_of_process(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint32_t slot);
/* Launches so far of all processes of the tenant with this index. */
uint64_t hb_gpu_count_launches(const struct hb_gpu *gpu, uint32_t index);
/* Whether a poll saw the tenant launch something on this GPU at or after since_ns. */
bool hb_gpu_launched_since(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, int64_t since_ns);

#endif
