/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out which SMs of a GPU belong to the same GPC, for `masks: gpcs`. A
 * child process (`hb doctor --gpcs`, nvidia/gpc_trial.h) measures it once for
 * each GPU, in a CUDA context of its own. The result goes to the GPU page, where
 * the tenants' processes compare it with what they measure themselves. If
 * anything fails, masks stay spread over all GPCs and the page says why.
 */
#ifndef HB_DAEMON_GPC_LAYOUT_H
#define HB_DAEMON_GPC_LAYOUT_H

#include "daemon/gpu_record.h"
#include "nvidia/gpc_states.h"

/* Starts the child process, unless that was done before. Does nothing while another trial runs. */
void hb_gpc_layout_find(struct hb_gpu *gpu);

/*
 * Reads what the child process wrote about the GPU with this UUID. Fills gpc_of, which must be zero, if the result is
 * HB_GPC_KNOWN. Anything that is not understood counts as HB_GPC_NO_TRIAL.
 */
enum hb_gpc_state hb_gpc_layout_read(const char *output, const unsigned char *uuid, unsigned char *gpc_of);

#endif
