/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Priorities that single launches ask for, inside the MPS server: kept in the
 * half of the range that belongs to the program, as those of its streams
 * (hook_stream_priority.c, which does it). Called by forward.c and
 * split_launch.c. No lock, no allocation; what the caller handed in is not changed.
 */
#ifndef HB_SHIM_PRIORITY_H
#define HB_SHIM_PRIORITY_H

#include "nvidia/cuda_abi.h"

#include <stdint.h>

/* More attributes than CUDA has kinds of; a launch with still more is left as it is. */
#define HB_PRIORITY_ATTRIBUTES 24

struct hb_priority_copy {
	CUlaunchConfig config;
	CUlaunchAttribute attributes[HB_PRIORITY_ATTRIBUTES];
};

/* `config`, or `copy` with what the launch may have. */
const CUlaunchConfig *hb_priority_config(const CUlaunchConfig *config, struct hb_priority_copy *copy);
/* Where this launch goes on: `target`, the driver's function, or one that puts its priority right on the way there. */
void *hb_priority_way(unsigned fn, const uint64_t *args, void *target);

#endif
