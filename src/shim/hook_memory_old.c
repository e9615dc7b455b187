/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of the allocation functions from before CUDA 3.2, with 32-bit pointers and
 * sizes, which drivers still export. They are accounted like the current ones,
 * whether or not a 64-bit driver supports them.
 */
#include "shim/hook_memory.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"

CUresult hb_hook_cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
	struct hb_claim claim;
	hb_tenant_refresh();
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = HB_DOUBT(HB_REAL(cuMemAlloc)(pointer, bytes));
	return hb_memory_allocated(&claim, result, HB_MEMORY_POINTER, result == CUDA_SUCCESS ? *pointer : 0);
}

CUresult hb_hook_cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width_bytes,
				 unsigned int height, unsigned int element_bytes)
{
	struct hb_claim claim;
	hb_tenant_refresh();
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), hb_size_pitched(width_bytes, height)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = HB_DOUBT(HB_REAL(cuMemAllocPitch)(pointer, pitch, width_bytes, height, element_bytes));
	if (result == CUDA_SUCCESS)
		hb_memory_adjust(&claim, hb_size_times(*pitch, height));
	return hb_memory_allocated(&claim, result, HB_MEMORY_POINTER, result == CUDA_SUCCESS ? *pointer : 0);
}

CUresult hb_hook_cuMemFree(CUdeviceptr_v1 pointer)
{
	struct hb_memory_entry entry;
	bool known = hb_memory_begin_free(HB_MEMORY_POINTER, pointer, &entry);
	return hb_memory_released(known, &entry, HB_WIDE(HB_REAL(cuMemFree)(pointer)));
}

CUresult hb_hook_cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	struct hb_claim claim;
	uint64_t bytes = d ? hb_size_array(d->Width, d->Height, d->Format, d->NumChannels) : 0;
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = HB_DOUBT(HB_REAL(cuArrayCreate)(array, d));
	return hb_memory_allocated(&claim, result, HB_MEMORY_ARRAY,
				   result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*array : 0);
}

CUresult hb_hook_cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	struct hb_claim claim;
	uint64_t bytes = 0;
	if (d) {
		const CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = d->Width,
						      .Height = d->Height,
						      .Depth = d->Depth,
						      .Format = d->Format,
						      .NumChannels = d->NumChannels,
						      .Flags = d->Flags};
		bytes = hb_size_array3d(&wide, 1);
	}
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = HB_DOUBT(HB_REAL(cuArray3DCreate)(array, d));
	return hb_memory_allocated(&claim, result, HB_MEMORY_ARRAY,
				   result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*array : 0);
}

CUresult hb_hook_cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
	unsigned driver_free = 0, driver_total = 0;
	hb_tenant_refresh();
	CUresult result = HB_REAL(cuMemGetInfo)(&driver_free, &driver_total);
	if (result != CUDA_SUCCESS)
		return result;
	size_t free_now = driver_free, total = driver_total;
	hb_memory_info(hb_tenant_gpu(), &free_now, &total); /* only makes them smaller */
	if (free_bytes)
		*free_bytes = (unsigned)free_now;
	if (total_bytes)
		*total_bytes = (unsigned)total;
	return result;
}
