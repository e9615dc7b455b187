/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of device memory. Each hook claims room on the tenant's account, calls the
 * driver, and records the allocation. Host memory, imported memory and memory of
 * other processes are not counted, nor what the driver adds by rounding up.
 * hook_handles.c has virtual memory, hook_pools.c stream-ordered memory,
 * hook_memory_old.c the functions from before CUDA 3.2.
 */
#include "shim/hook_memory.h"
#include "shim/elastic.h"
#include "shim/own_handles.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"

static uint64_t current_context(void)
{
	CUcontext context = NULL;
	return HB_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? (uint64_t)(uintptr_t)context : 0;
}

CUresult hb_memory_allocated(const struct hb_claim *claim, CUresult result, enum hb_memory_kind kind, uint64_t handle)
{
	if (result != CUDA_SUCCESS)
		hb_memory_cancel(claim);
	else
		hb_memory_note(claim, kind, handle, current_context());
	hb_elastic_note_change();
	return result;
}

CUresult hb_memory_released(bool known, const struct hb_memory_entry *entry, CUresult result)
{
	if (result == CUDA_SUCCESS)
		hb_shim_count(HB_COUNT_frees, 1);
	if (known)
		hb_memory_end_free(entry, result == CUDA_SUCCESS);
	hb_elastic_note_change();
	return result;
}

unsigned hb_gpu_at(const CUmemLocation *location)
{
	const struct hb_place *place = hb_place();
	bool on_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
			 location->id < HB_PAGE_GPUS;
	return place->page && on_device ? place->gpu_of_device[location->id] : HB_PAGE_GPUS;
}

/* Like hb_memory_allocated(), but reads the handle if the driver wrote one. */
static CUresult note_allocated(const struct hb_claim *claim, CUresult result, enum hb_memory_kind kind,
			       const void *handle)
{
	return hb_memory_allocated(claim, result, kind, result == CUDA_SUCCESS ? *(const uint64_t *)handle : 0);
}

/* ---- plain, pitched, managed ---- */

/* Without room on the account, or, `claimed`, in the driver. */
static CUresult allocate_over(CUdeviceptr *pointer, size_t bytes, bool claimed)
{
	struct hb_claim claim;
	if (!hb_elastic_allocate_over(pointer, bytes, &claim)) {
		if (!claimed || hb_elastic_has_over(hb_place()))
			hb_shim_count(HB_COUNT_allocations_refused, 1);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return note_allocated(&claim, CUDA_SUCCESS, HB_MEMORY_POINTER, pointer);
}

CUresult hb_hook_cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	struct hb_claim claim;
	hb_tenant_refresh();
	if (!hb_memory_try_claim(&claim, hb_tenant_gpu(), bytes))
		return allocate_over(pointer, bytes, false);
	if (hb_elastic_allocate(pointer, bytes))
		return note_allocated(&claim, CUDA_SUCCESS, HB_MEMORY_POINTER, pointer);
	CUresult result = HB_DOUBT(HB_WITH_ROOM(&claim, HB_REAL(cuMemAlloc_v2)(pointer, bytes)));
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return note_allocated(&claim, result, HB_MEMORY_POINTER, pointer);
	hb_memory_cancel(&claim);
	return allocate_over(pointer, bytes, true);
}

/* The driver permits elements of these sizes. */
static bool allocate_pitched(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height,
			     unsigned int element_bytes)
{
	bool right = pitch && width_bytes && height &&
		     (element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
	if (!right || !hb_elastic_allocate(pointer, hb_size_pitched(width_bytes, height)))
		return false;
	*pitch = hb_size_pitched(width_bytes, 1);
	return true;
}

CUresult hb_hook_cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height,
				    unsigned int element_bytes)
{
	struct hb_claim claim;
	hb_tenant_refresh();
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), hb_size_pitched(width_bytes, height)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (allocate_pitched(pointer, pitch, width_bytes, height, element_bytes))
		return note_allocated(&claim, CUDA_SUCCESS, HB_MEMORY_POINTER, pointer);
	CUresult result = HB_DOUBT(
		HB_WITH_ROOM(&claim, HB_REAL(cuMemAllocPitch_v2)(pointer, pitch, width_bytes, height, element_bytes)));
	if (result == CUDA_SUCCESS)
		hb_memory_adjust(&claim, hb_size_times(*pitch, height));
	return note_allocated(&claim, result, HB_MEMORY_POINTER, pointer);
}

CUresult hb_hook_cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	struct hb_claim claim;
	hb_tenant_refresh();
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return note_allocated(&claim, HB_DOUBT(HB_REAL(cuMemAllocManaged)(pointer, bytes, flags)), HB_MEMORY_POINTER,
			      pointer);
}

CUresult hb_hook_cuMemFree_v2(CUdeviceptr pointer)
{
	struct hb_memory_entry entry;
	CUresult result;
	if (hb_elastic_free(pointer, &result))
		return result;
	bool known = hb_memory_begin_free(HB_MEMORY_POINTER, pointer, &entry);
	return hb_memory_released(known, &entry, HB_WIDE(HB_REAL(cuMemFree_v2)(pointer)));
}

/* ---- arrays ---- */

CUresult hb_hook_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
	struct hb_claim claim;
	uint64_t bytes = d ? hb_size_array(d->Width, d->Height, d->Format, d->NumChannels) : 0;
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return note_allocated(&claim, HB_DOUBT(HB_WITH_ROOM(&claim, HB_REAL(cuArrayCreate_v2)(array, d))),
			      HB_MEMORY_ARRAY, array);
}

CUresult hb_hook_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct hb_claim claim;
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), d ? hb_size_array3d(d, 1) : 0))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return note_allocated(&claim, HB_DOUBT(HB_WITH_ROOM(&claim, HB_REAL(cuArray3DCreate_v2)(array, d))),
			      HB_MEMORY_ARRAY, array);
}

CUresult hb_hook_cuArrayDestroy(CUarray array)
{
	struct hb_memory_entry entry;
	bool known = hb_memory_begin_free(HB_MEMORY_ARRAY, (uint64_t)(uintptr_t)array, &entry);
	return hb_memory_released(known, &entry, HB_WIDE(HB_REAL(cuArrayDestroy)(array)));
}

CUresult hb_hook_cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	struct hb_claim claim;
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), d ? hb_size_array3d(d, levels) : 0))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return note_allocated(&claim, HB_DOUBT(HB_WITH_ROOM(&claim, HB_REAL(cuMipmappedArrayCreate)(array, d, levels))),
			      HB_MEMORY_MIPMAP, array);
}

CUresult hb_hook_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct hb_memory_entry entry;
	bool known = hb_memory_begin_free(HB_MEMORY_MIPMAP, (uint64_t)(uintptr_t)array, &entry);
	return hb_memory_released(known, &entry, HB_WIDE(HB_REAL(cuMipmappedArrayDestroy)(array)));
}

/* ---- memory sizes that the program sees ---- */

/* Memory of this process that is elsewhere wants to return, so its room here is not free. */
static size_t subtract_moved(size_t driver_free)
{
	CUdevice device;
	if (!atomic_load_explicit(&hb_elastic_any, memory_order_relaxed) ||
	    HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
		return driver_free;
	size_t moved = hb_elastic_moved_bytes(device) + hb_own_unmapped_away_bytes(device);
	return driver_free > moved ? driver_free - moved : 0;
}

CUresult hb_hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	size_t driver_free = 0, driver_total = 0;
	hb_tenant_refresh();
	CUresult result = HB_REAL(cuMemGetInfo_v2)(&driver_free, &driver_total);
	if (result != CUDA_SUCCESS)
		return result;
	driver_free = subtract_moved(driver_free);
	hb_memory_info(hb_tenant_gpu(), &driver_free, &driver_total);
	/* A caller may pass NULL for one of the two. */
	if (free_bytes)
		*free_bytes = driver_free;
	if (total_bytes)
		*total_bytes = driver_total;
	return result;
}
