/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libnvidia-ml.so.1 for nvml.c and nvml_events.c. */
#ifndef HB_GPU_NVML_LIBRARY_H
#define HB_GPU_NVML_LIBRARY_H

#include "nvidia/nvml_abi.h"

#include <stddef.h>

struct hb_nvml_calls {
#define HB_NVML(field, wanted, name, older, params) int(*field) params;
#include "nvidia/nvml_calls.def"
};

/*
 * The functions of the library; those marked MAY can be NULL. NULL: *why says why there are none. Tried once per
 * process: a library that is missing then stays missing. Any thread.
 */
const struct hb_nvml_calls *hb_nvml_load(char *why, size_t size);
/* Returns what a result of NVML means, as text. */
const char *hb_nvml_error_text(int code);

#endif
