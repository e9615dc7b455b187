/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads from NVML which processes use an NVIDIA GPU and how much of its memory, and
 * waits for faults of GPUs. The library is loaded at run time and stays loaded.
 * Called by provider_nvidia.c. May take milliseconds, or longer while a GPU wakes up,
 * so never call it on an event loop. One thread at a time for each function. Changes
 * nothing on a GPU.
 */
#ifndef HB_GPU_NVML_H
#define HB_GPU_NVML_H

#include "gpu/provider.h"

/* Implements hb_provider.gpu_use. */
int hb_nvml_use(const char *uuid_text, struct hb_gpu_use *use);
/* Implements hb_provider.gpu_event, without the process: the library does not name it. */
int hb_nvml_event(const unsigned char (*uuids)[16], uint32_t n, int timeout_ms, struct hb_gpu_event *event,
		  char why[HB_GPU_WHY_MAX]);

#endif
