/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files with hooks of device memory share: hook_memory.c (the forms of
 * today), hook_memory_old.c (those of before CUDA 3.2), hook_pools.c
 * (stream-ordered pools and graphs).
 */
#ifndef HB_SHIM_HOOK_MEMORY_H
#define HB_SHIM_HOOK_MEMORY_H

#include "shim/memory_account.h"
#include "shim/shim.h"

#define HB_PITCH_BYTES 512 /* what drivers align pitches to; corrected when the real one is known */

/* The end of every allocation that dies with its context. `handle` counts when the driver agreed. Returns `result`. */
CUresult hb_memory_allocated(const struct hb_claim *claim, CUresult result, enum hb_memory_kind kind, uint64_t handle);
/* The end of every release: `known` says that entry was taken from the table before the call. Returns `result`. */
CUresult hb_memory_released(bool known, const struct hb_memory_entry *entry, CUresult result);

/* Sizes; all saturate at UINT64_MAX, which fits nowhere. */
uint64_t hb_size_times(uint64_t a, uint64_t b);
uint64_t hb_size_pitched(uint64_t width_bytes, uint64_t height);
uint64_t hb_size_array(uint64_t width, uint64_t height, CUarray_format format, unsigned channels);
uint64_t hb_size_array3d(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels);

/* The page's index of the GPU that a location names; HB_PAGE_GPUS: the host, or a GPU that is not on the page. */
unsigned hb_gpu_at(const CUmemLocation *location);

#endif
