/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Priorities that single launches request inside the MPS server. They are limited
 * to the program's half of the range, like those of its streams
 * (hook_stream_priority.c implements this). Called by forward.c and split_launch.c.
 * No lock, no allocation; the caller's structures are not changed.
 */
#ifndef HB_SHIM_PRIORITY_H
#define HB_SHIM_PRIORITY_H

#include "nvidia/cuda_abi.h"

#include <stdint.h>

/* CUDA has fewer kinds of attributes. A launch with more attributes than this is not changed. */
#define HB_PRIORITY_ATTRIBUTES 24

struct hb_priority_copy {
	CUlaunchConfig config;
	CUlaunchAttribute attributes[HB_PRIORITY_ATTRIBUTES];
};

/* Returns `config`, or `copy` with the permitted priority. */
const CUlaunchConfig *hb_priority_config(const CUlaunchConfig *config, struct hb_priority_copy *copy);
/* Returns where the launch continues: `target`, the driver's function, or a function that limits the priority before it. */
void *hb_priority_way(unsigned fn, const uint64_t *args, void *target);

#endif
