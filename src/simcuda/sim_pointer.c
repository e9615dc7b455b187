/* SPDX-License-Identifier: Apache-2.0 */
/* Pointer attributes, and hints for managed memory. */
#include "simcuda/sim_driver.h"

#include <string.h>

/* The real driver answers these also for reserved addresses, where nothing is mapped yet. */
static bool get_range_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr, bool mapped)
{
	uintptr_t base;
	size_t bytes;
	if (!sim_vmm_find_reservation((uintptr_t)ptr, &base, &bytes))
		return false;
	if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		*(CUdeviceptr *)data = base;
	else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		*(size_t *)data = bytes;
	else if (attribute == CU_POINTER_ATTRIBUTE_MAPPED)
		*(int *)data = mapped;
	else
		return false;
	return true;
}

static int device_of(const struct sim_memory *memory)
{
	return memory->context ? memory->context->device : sim_device_of(memory->gpu);
}

static CUresult get_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct sim_memory memory;
	bool known = sim_memory_find((uintptr_t)ptr, &memory);
	if ((!known || memory.kind == SIM_MEMORY_VMM) && get_range_attribute(data, attribute, ptr, known))
		return CUDA_SUCCESS;
	if (!known)
		return CUDA_ERROR_INVALID_VALUE;
	bool host = sim_memory_is_host(&memory);
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = memory.context;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host && memory.kind != SIM_MEMORY_MANAGED)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*(int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = memory.unique;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)data = memory.kind == SIM_MEMORY_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = device_of(&memory);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = memory.base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = memory.size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)data = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = memory.pool;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(CUmemAccess_flags *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data = memory.kind == SIM_MEMORY_VMM ? memory.flags : 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult sim_cuPointerGetAttribute(void *data, CUpointer_attribute attrib, CUdeviceptr ptr)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return data ? get_pointer_attribute(data, attrib, ptr) : CUDA_ERROR_INVALID_VALUE;
}

/* For memory that CUDA does not know, all answers are empty and the call succeeds. */
CUresult sim_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
				    CUdeviceptr ptr)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < numAttributes; i++) {
		if (get_pointer_attribute(data[i], attributes[i], ptr) == CUDA_SUCCESS)
			continue;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
		    attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED || attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED)
			*(int *)data[i] = 0;
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT ||
			 attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
			 attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			*(void **)data[i] = NULL;
	}
	return CUDA_SUCCESS;
}

CUresult sim_cuPointerSetAttribute(const void *value, CUpointer_attribute attrib, CUdeviceptr ptr)
{
	struct sim_memory memory;
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!value || attrib != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !sim_memory_find((uintptr_t)ptr, &memory))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* --- managed memory: hints have no effect, because there is only one memory ------------- */

static CUresult accept_hint(CUdeviceptr address, size_t count)
{
	struct sim_memory memory;
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!count || !sim_memory_find((uintptr_t)address, &memory) || memory.kind != SIM_MEMORY_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	return address + count <= memory.base + memory.size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
	return accept_hint(devPtr, count);
}

CUresult sim_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	return accept_hint(devPtr, count);
}

static CUresult accept_prefetch(CUdeviceptr address, size_t count, CUstream handle)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(handle, &stream);
	if (result == CUDA_SUCCESS)
		result = accept_hint(address, count);
	if (result != CUDA_SUCCESS)
		return result;
	struct sim_task *task = sim_task_new(SIM_TASK_EMPTY);
	return task ? sim_issue(stream, task, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
				   CUstream hStream)
{
	return accept_prefetch(devPtr, count, hStream);
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return accept_prefetch(devPtr, count, hStream);
}

CUresult sim_cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute_id, CUdeviceptr devPtr,
				    size_t count)
{
	CUresult result = accept_hint(devPtr, count);
	if (result == CUDA_SUCCESS && (!data || dataSize < 4))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		memset(data, attribute_id == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ? 0 : 0xff, 4);
	return result;
}
