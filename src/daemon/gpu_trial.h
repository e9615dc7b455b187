/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a part of `hb doctor` as a child process on one GPU, in a CUDA context of its
 * own: what might crash or hang must not do so in the daemon or in a tenant. The child
 * is killed at a time limit. One trial at a time for each GPU. Used by gpc_layout.c and
 * mask_guard.c.
 */
#ifndef HB_DAEMON_GPU_TRIAL_H
#define HB_DAEMON_GPU_TRIAL_H

#include "daemon/gpu_record.h"

/* Gets what the child wrote; text that is not JSON = it crashed, hung, or could not start. gpu->trial is NULL again. */
typedef void hb_gpu_trial_ended(struct hb_gpu *gpu, const char *output);

/* `option` is a constant such as "--gpcs". 0, -EBUSY (a trial runs), or another negative errno. */
int hb_gpu_trial_start(struct hb_gpu *gpu, const char *option, hb_gpu_trial_ended *ended);
/* Kills the child process if one runs; `ended` is not called. Call it before the GPU's record is freed. */
void hb_gpu_trial_cancel(struct hb_gpu *gpu);

#endif
