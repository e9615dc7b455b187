/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of virtual memory: physical handles (cuMemCreate) and their mappings. The
 * account counts a physical handle while it is retained or mapped. In an elastic
 * process the handle may be a number of the shim (own_handles.h), so each call that may
 * take or return such a number is here. cuMemMapArrayAsync() needs no hook, because
 * handles for arrays get no number. Multicast objects and imported memory keep the
 * driver's handles.
 */
#include "shim/elastic.h"
#include "shim/hook_memory.h"
#include "shim/own_handles.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"

CUresult hb_hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
			     unsigned long long flags)
{
	struct hb_claim claim;
	hb_tenant_refresh();
	if (!hb_memory_claim(&claim, prop ? hb_gpu_at(&prop->location) : HB_PAGE_GPUS, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = HB_DOUBT(HB_WITH_ROOM(&claim, hb_own_create(handle, bytes, prop, flags)));
	if (result == CUDA_SUCCESS)
		hb_memory_note(&claim, HB_MEMORY_PHYSICAL, *handle, 0);
	else
		hb_memory_cancel(&claim);
	hb_elastic_note_change();
	return result;
}

CUresult hb_hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	uint64_t serial = hb_memory_serial(handle);
	CUresult result = HB_WIDE(hb_own_release(handle));
	if (result == CUDA_SUCCESS) {
		hb_shim_count(HB_COUNT_frees, 1);
		hb_memory_add_references(handle, serial, -1);
	}
	hb_elastic_note_change();
	return result;
}

CUresult hb_hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	struct hb_elastic_found found;
	if (hb_elastic_find((CUdeviceptr)(uintptr_t)address, &found))
		return CUDA_ERROR_INVALID_VALUE; /* as for memory of cuMemAlloc */
	CUresult result = hb_own_retain(handle, address);
	if (result == CUDA_SUCCESS)
		hb_memory_add_references(*handle, hb_memory_serial(*handle), +1);
	return result;
}

/* The reference is added before the call, so that a release in another thread does not count as the last one. */
CUresult hb_hook_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
			  unsigned long long flags)
{
	struct hb_memory_entry replaced, mapping = {.handle = address,
						    .owner = handle,
						    .serial = hb_memory_serial(handle),
						    .kind = HB_MEMORY_MAPPING,
						    .gpu = HB_PAGE_GPUS};
	hb_memory_add_references(handle, mapping.serial, +1);
	CUresult result = HB_DOUBT(hb_own_map(address, bytes, offset, handle, flags));
	if (result != CUDA_SUCCESS)
		hb_memory_add_references(handle, mapping.serial, -1);
	else if (mapping.serial && hb_memory_table_put(&mapping, &replaced) && replaced.kind != HB_MEMORY_NONE)
		hb_memory_add_references(replaced.owner, replaced.serial, -1);
	return result;
}

CUresult hb_hook_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	struct hb_memory_entry mapping;
	hb_memory_table_mark(address, bytes, true);
	CUresult result = HB_WIDE(hb_own_unmap(address, bytes));
	if (result != CUDA_SUCCESS)
		hb_memory_table_mark(address, bytes, false);
	while (result == CUDA_SUCCESS && hb_memory_table_take_marked(address, bytes, &mapping))
		hb_memory_add_references(mapping.owner, mapping.serial, -1);
	hb_elastic_note_change();
	return result;
}

CUresult hb_hook_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t n)
{
	return HB_WIDE(hb_own_set_access(address, bytes, descs, n));
}

/* The driver knows no access while the memory behind the address is exchanged. */
CUresult hb_hook_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)
{
	struct hb_own_found found;
	bool moves = flags && location && hb_own_find(pointer, &found) && found.moves;
	if (!moves || location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id != found.device)
		return HB_REAL(cuMemGetAccess)(flags, location, pointer);
	*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return CUDA_SUCCESS;
}

/* ---- handles ---- */

CUresult hb_hook_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	return hb_own_get_properties(prop, handle);
}

CUresult hb_hook_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
					      CUmemAllocationHandleType type, unsigned long long flags)
{
	return hb_own_export(shareable, handle, type, flags);
}

CUresult hb_hook_cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
				    CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
				    unsigned long long flags)
{
	return hb_own_bind_multicast(multicast, multicast_offset, handle, offset, bytes, flags);
}

CUresult hb_hook_cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
				     CUdeviceptr address, size_t bytes, unsigned long long flags)
{
	CUresult result = hb_own_keep_home(address, bytes);
	return result == CUDA_SUCCESS ? HB_REAL(cuMulticastBindAddr)(multicast, multicast_offset, address, bytes, flags)
				      : result;
}
