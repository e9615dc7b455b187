/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver's one device and its memory: handles that are never the same
 * twice, nothing behind them. Names in HB_FAKE_REFUSE (separated by commas) run
 * out of memory instead. Captures: one stream at a time can record.
 */
#include "fake_driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
#include "shim/cuda_calls.h"
void hb_fake_set_busy(int is_busy);
#pragma GCC visibility pop

static _Atomic(uint64_t) next_handle = 0x700000000000;
static _Atomic(CUstream) recording;
static int context_object;

/* Called `name`: counted, and perhaps refused. */
static CUresult enter(const char *name)
{
	const char *refused = getenv("HB_FAKE_REFUSE");
	const char *found = refused ? strstr(refused, name) : NULL;
	hb_fake_count(name);
	if (!found || (found[strlen(name)] != '\0' && found[strlen(name)] != ','))
		return CUDA_SUCCESS;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult give(const char *name, void *handle_out)
{
	CUresult result = enter(name);
	if (result == CUDA_SUCCESS)
		*(uint64_t *)handle_out = atomic_fetch_add(&next_handle, 0x1000000);
	return result;
}

CUresult cuDeviceGetCount(int *count)
{
	*count = 1;
	return enter("cuDeviceGetCount");
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return enter("cuDeviceGet");
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	memcpy(uuid->bytes, HB_FAKE_UUID, sizeof(uuid->bytes));
	return enter("cuDeviceGetUuid_v2");
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	*device = 0;
	return enter("cuCtxGetDevice");
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = (CUcontext)&context_object;
	return enter("cuCtxGetCurrent");
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	return enter("cuCtxDestroy_v2");
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	CUresult result = enter("cuMemGetInfo_v2");
	if (!free_bytes || !total_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*free_bytes = HB_FAKE_FREE;
	*total_bytes = HB_FAKE_TOTAL;
	return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	return give("cuMemAlloc_v2", pointer);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	*pitch = (width + HB_FAKE_PITCH - 1) / HB_FAKE_PITCH * HB_FAKE_PITCH;
	return give("cuMemAllocPitch_v2", pointer);
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	return give("cuMemAllocManaged", pointer);
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	return enter("cuMemFree_v2");
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return give("cuMemAllocAsync", pointer);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return give("cuMemAllocAsync_ptsz", pointer);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return give("cuMemAllocFromPoolAsync", pointer);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	return enter("cuMemFreeAsync");
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	return give("cuMemPoolCreate", pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	return enter("cuMemPoolDestroy");
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
	return give("cuArrayCreate_v2", array);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	return give("cuArray3DCreate_v2", array);
}

CUresult cuArrayDestroy(CUarray array)
{
	return enter("cuArrayDestroy");
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
	return give("cuMipmappedArrayCreate", array);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	return enter("cuMipmappedArrayDestroy");
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	return give("cuMemCreate", handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return enter("cuMemRelease");
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	return enter("cuMemMap");
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	return enter("cuMemUnmap");
}

/* ---- streams and what is asked about them ---- */

static atomic_bool busy;

void hb_fake_set_busy(int is_busy)
{
	atomic_store(&busy, is_busy != 0);
}

static CUresult query(const char *name)
{
	CUresult result = enter(name);
	return atomic_load(&busy) ? CUDA_ERROR_NOT_READY : result;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return give("cuStreamCreate", stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	return enter("cuStreamDestroy_v2");
}

CUresult cuStreamQuery(CUstream stream)
{
	return query("cuStreamQuery");
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	return give("cuEventCreate", event);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return enter("cuEventRecord");
}

CUresult cuEventQuery(CUevent event)
{
	return query("cuEventQuery");
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	return enter("cuCtxSetCurrent");
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	*context = (CUcontext)&context_object;
	return enter("cuDevicePrimaryCtxRetain");
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	atomic_store(&recording, stream);
	return enter("cuStreamBeginCapture_v2");
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	bool is = stream && atomic_load(&recording) == stream;
	*status = is ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return enter("cuStreamIsCapturing");
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	atomic_store(&recording, NULL);
	return enter("cuStreamEndCapture");
}
