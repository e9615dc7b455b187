/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is on an NVIDIA GPU and how much of its memory they take, as NVML says.
 * The library is loaded at run time and stays loaded. Called by
 * provider_nvidia.c; may take milliseconds (longer while a GPU is woken), so
 * never on an event loop. One thread at a time. Changes nothing on a GPU.
 */
#ifndef HB_GPU_NVML_H
#define HB_GPU_NVML_H

#include "gpu/provider.h"

/* As hb_provider.gpu_use. */
int hb_nvml_use(const char *uuid_text, struct hb_gpu_use *use);

#endif
