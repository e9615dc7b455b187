/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether tenants may use SM masks with the driver of this machine. Masks use a
 * callback of the driver that NVIDIA does not document; in another version it could do
 * anything. On versions that were tried on real GPUs (nvidia/mask_drivers.def) each process
 * tries masks itself. On others a child process tries them first, once, on the first GPU
 * that needs the spatial engine; until it has ended, masks are off, which is safe. If
 * it fails, masks stay off and new tenants are refused the spatial engine. The
 * configuration can trust a version.
 */
#ifndef HB_DAEMON_MASK_GUARD_H
#define HB_DAEMON_MASK_GUARD_H

#include "base/error.h"
#include "daemon/gpu_record.h"
#include "nvidia/mask_states.h"

/* Writes to the GPU page whether processes may try masks, and starts the trial if the GPU needs it. */
void hb_mask_guard_apply(struct hb_gpu *gpu);
/* 0, or -EOPNOTSUPP with *error: the trial failed, so the spatial engine is refused. */
int hb_mask_guard_check(const struct hb_daemon *daemon, struct hb_error *error);
/* Reads what the trial wrote. Anything that is not understood counts as TRIAL_DIED. */
enum hb_mask_state hb_mask_guard_read(const char *output);

#endif
