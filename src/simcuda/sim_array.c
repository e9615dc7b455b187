/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: pitched memory with a shape, for copies. There are no textures. Also contains calls that are always refused. */
#include "simcuda/sim_driver.h"

#include <stdlib.h>

static size_t element_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

CUresult sim_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (!pHandle || !pAllocateArray || !pAllocateArray->Width)
		return CUDA_ERROR_INVALID_VALUE;
	size_t element = element_bytes(pAllocateArray->Format) * pAllocateArray->NumChannels;
	if (!element || pAllocateArray->NumChannels > 4 || pAllocateArray->NumChannels == 3)
		return CUDA_ERROR_INVALID_VALUE;
	CUarray array = calloc(1, sizeof *array);
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->magic = SIM_MAGIC_ARRAY;
	array->descriptor = *pAllocateArray;
	array->pitch = element * pAllocateArray->Width;
	array->bytes = array->pitch * (pAllocateArray->Height ? pAllocateArray->Height : 1) *
		       (pAllocateArray->Depth ? pAllocateArray->Depth : 1);
	result = sim_memory_new(context, SIM_MEMORY_DEVICE, array->bytes, NULL, &array->memory);
	if (result != CUDA_SUCCESS) {
		free(array);
		return result;
	}
	*pHandle = array;
	return CUDA_SUCCESS;
}

CUresult sim_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	if (!pAllocateArray)
		return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
	const CUDA_ARRAY3D_DESCRIPTOR descriptor = {pAllocateArray->Width,  pAllocateArray->Height,      0,
						    pAllocateArray->Format, pAllocateArray->NumChannels, 0};
	return sim_cuArray3DCreate_v2(pHandle, &descriptor);
}

static CUresult check_array(CUarray array)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return array && array->magic == SIM_MAGIC_ARRAY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuArrayDestroy(CUarray hArray)
{
	CUresult result = check_array(hArray);
	if (result != CUDA_SUCCESS)
		return result;
	result = sim_cuMemFree_v2(hArray->memory);
	hArray->magic = SIM_MAGIC_DEAD;
	free(hArray);
	return result;
}

CUresult sim_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUresult result = check_array(hArray);
	if (result == CUDA_SUCCESS && !pArrayDescriptor)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*pArrayDescriptor = hArray->descriptor;
	return result;
}

CUresult sim_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUresult result = check_array(hArray);
	if (result == CUDA_SUCCESS && !pArrayDescriptor)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){hArray->descriptor.Width, hArray->descriptor.Height,
							    hArray->descriptor.Format, hArray->descriptor.NumChannels};
	return result;
}

/* --- between processes: memory of this driver belongs to one process ------------------------------------ */

CUresult sim_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	return sim_unsupported("cuIpcGetMemHandle");
}

CUresult sim_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return sim_unsupported("cuIpcOpenMemHandle");
}

CUresult sim_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	return sim_unsupported("cuIpcCloseMemHandle");
}

CUresult sim_cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	return sim_unsupported("cuIpcGetEventHandle");
}

CUresult sim_cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	return sim_unsupported("cuIpcOpenEventHandle");
}
