/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of calls that ask about an address. The driver's answers about granules
 * (elastic.h) are those about virtual memory, and change when memory moves. The
 * program gets the answers that it would get about memory of cuMemAlloc. Calls by
 * which others get to know the memory make it stay where it is.
 */
#include "shim/elastic.h"
#include "shim/hook_memory.h"
#include "shim/memory_share.h"
#include "shim/own_handles.h"
#include "shim/takeover.h"

/* Identifiers of buffers that the driver gives count up from 1. */
#define OWN_BUFFER_IDS (UINT64_C(1) << 62)
#define HANDLE_BUFFER_IDS (UINT64_C(1) << 63)

/* ---- queries ---- */

CUresult hb_hook_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
	struct hb_elastic_found found;
	CUdeviceptr begin;
	size_t size;
	struct hb_own_found own;
	if (hb_elastic_find(pointer, &found)) {
		begin = found.range.base;
		size = found.range.bytes;
	} else if (hb_own_find(pointer, &own)) { /* the driver has no answer while the memory is exchanged */
		begin = own.base;
		size = own.bytes;
	} else if (!hb_share_find_import(pointer, &begin, &size)) {
		return HB_REAL(cuMemGetAddressRange_v2)(base, bytes, pointer);
	}
	if (base)
		*base = begin;
	if (bytes)
		*bytes = size;
	return CUDA_SUCCESS;
}

static struct hb_memory_entry entry_of(const struct hb_elastic_found *found)
{
	struct hb_memory_entry entry = {0};
	(void)hb_memory_table_get(HB_MEMORY_POINTER, found->range.base, &entry);
	return entry;
}

/* The driver answers about attributes that are the same for all memory. */
static CUresult get_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer,
			      const struct hb_elastic_found *found)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = (CUcontext)(uintptr_t)entry_of(found).owner;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = pointer;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = OWN_BUFFER_IDS + entry_of(found).serial;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)data = 0;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = 1;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = found->device;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = found->range.base;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = found->range.bytes;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)data = 1;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data = 0;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = NULL;
		break;
	default:
		return HB_REAL(cuPointerGetAttribute)(data, attribute, pointer);
	}
	return CUDA_SUCCESS;
}

/* The same for memory of the program's handles: the driver's answers about memory that is on its own device. */
static CUresult get_own_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer,
				  const struct hb_own_found *found)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = pointer;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = found->device;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = HANDLE_BUFFER_IDS + found->id;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)data = 0;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)data = 1;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = found->base;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = found->bytes;
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		if (found->handle_types) /* then they are those of memory elsewhere */
			return HB_REAL(cuPointerGetAttribute)(data, attribute, pointer);
		*(uint64_t *)data = 0;
		break;
	default:
		return HB_REAL(cuPointerGetAttribute)(data, attribute, pointer);
	}
	return CUDA_SUCCESS;
}

CUresult hb_hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	struct hb_elastic_found found;
	struct hb_own_found own;
	if (data && hb_elastic_find(pointer, &found))
		return get_attribute(data, attribute, pointer, &found);
	if (data && hb_own_find(pointer, &own))
		return get_own_attribute(data, attribute, pointer, &own);
	return HB_REAL(cuPointerGetAttribute)(data, attribute, pointer);
}

/* The driver's answers come first, also to what is no attribute. */
CUresult hb_hook_cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data,
					CUdeviceptr pointer)
{
	struct hb_elastic_found found;
	struct hb_own_found own;
	CUresult result = HB_REAL(cuPointerGetAttributes)(n, attributes, data, pointer);
	bool elastic = result == CUDA_SUCCESS && hb_elastic_find(pointer, &found);
	if (!elastic && (result != CUDA_SUCCESS || !hb_own_find(pointer, &own)))
		return result;
	for (unsigned i = 0; i < n; i++)
		if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			*(void **)data[i] = NULL;
		else if (elastic)
			(void)get_attribute(data[i], attributes[i], pointer, &found);
		else
			(void)get_own_attribute(data[i], attributes[i], pointer, &own);
	return result;
}

/* ---- calls by which others get to know the memory ---- */

/* A device that is no GPU may get to know the memory. */
static CUresult keep_home(CUdeviceptr pointer, size_t bytes)
{
	CUresult result = hb_elastic_pin(pointer, HB_STAY_DEVICE);
	return result == CUDA_SUCCESS ? hb_own_keep_home(pointer, bytes) : result;
}

/* Asks that copies of this memory are complete when they return, for devices that read it without CUDA. */
CUresult hb_hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	CUresult result = CUDA_SUCCESS;
	if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		result = keep_home(pointer, 1);
	return result == CUDA_SUCCESS ? HB_REAL(cuPointerSetAttribute)(value, attribute, pointer) : result;
}

CUresult hb_hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
					       CUmemRangeHandleType type, unsigned long long flags)
{
	CUresult result = keep_home(pointer, bytes);
	return result == CUDA_SUCCESS ? HB_REAL(cuMemGetHandleForAddressRange)(handle, pointer, bytes, type, flags)
				      : result;
}

CUresult hb_hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	struct hb_elastic_found found;
	hb_elastic_stop_allocating();
	if (!handle || !hb_elastic_find(pointer, &found))
		return HB_REAL(cuIpcGetMemHandle)(handle, pointer);
	CUresult result = hb_elastic_pin(pointer, HB_STAY_SHARED);
	return result == CUDA_SUCCESS ? hb_share_export(&found, handle) : result;
}

/* ---- access for peers ---- */

static bool get_device_of(CUcontext context, CUdevice *device)
{
	CUcontext before;
	if (HB_REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
		return false;
	bool found = HB_REAL(cuCtxGetDevice)(device) == CUDA_SUCCESS;
	HB_REAL(cuCtxPopCurrent_v2)(&before);
	return found;
}

/* The driver gives the current context access to ordinary memory of the other context, but not to granules. */
CUresult hb_hook_cuCtxEnablePeerAccess(CUcontext other, unsigned int flags)
{
	CUdevice current, owner;
	CUresult result = HB_WIDE(HB_REAL(cuCtxEnablePeerAccess)(other, flags));
	if (result != CUDA_SUCCESS || !hb_place()->page)
		return result;
	hb_elastic_stop_allocating();
	if (!get_device_of(other, &owner) || HB_REAL(cuCtxGetDevice)(&current) != CUDA_SUCCESS)
		return result;
	struct hb_granules *granules = hb_elastic_granules(owner);
	if (granules)
		result = hb_granules_share_with_peer(granules, current);
	hb_elastic_note_change();
	return result;
}
