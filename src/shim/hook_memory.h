/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the hooks of device memory: hook_memory.c (current functions),
 * hook_memory_old.c (functions from before CUDA 3.2) and hook_pools.c
 * (stream-ordered pools and graphs).
 */
#ifndef HB_SHIM_HOOK_MEMORY_H
#define HB_SHIM_HOOK_MEMORY_H

#include "shim/memory_account.h"
#include "shim/shim.h"

#define HB_PITCH_BYTES \
	512 /* alignment of pitches that a claim assumes; corrected when the driver has returned the real pitch */

/* Ends an allocation that is freed with its context; `handle` is valid if the driver succeeded. Returns `result`. */
CUresult hb_memory_allocated(const struct hb_claim *claim, CUresult result, enum hb_memory_kind kind, uint64_t handle);
/* Ends a free. `known`: the entry was taken from the table before the call. Returns `result`. */
CUresult hb_memory_released(bool known, const struct hb_memory_entry *entry, CUresult result);

/* Sizes in bytes. All saturate at UINT64_MAX, which fits nowhere. */
uint64_t hb_size_times(uint64_t a, uint64_t b);
uint64_t hb_size_pitched(uint64_t width_bytes, uint64_t height);
uint64_t hb_size_array(uint64_t width, uint64_t height, CUarray_format format, unsigned channels);
uint64_t hb_size_array3d(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

/* Returns the page's index of a location's GPU; HB_PAGE_GPUS: the host, or a GPU that is not on the page. */
unsigned hb_gpu_at(const CUmemLocation *location);

#endif
