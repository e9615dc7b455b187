/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver's only device and its memory: unique handles without memory behind
 * them. With HB_FAKE_POOLS_KEEP set, pools keep their largest size until they are
 * trimmed; otherwise they keep nothing. Functions named in HB_FAKE_REFUSE (separated by
 * commas) fail with out of memory. One stream at a time can capture.
 */
#include "fake_driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
#include "shim/cuda_calls.h"
CUresult cuGreenCtxCreate(CUgreenCtx *context, void *resources, CUdevice device, unsigned int flags);
void hb_fake_set_busy(int is_busy);
#pragma GCC visibility pop

static _Atomic(uint64_t) next_handle = 0x700000000000;
static _Atomic(CUstream) recording;
static int context_object;
static int green_object;
static atomic_int primary_references;
static __thread CUcontext current;  /* context set by the thread; NULL: the default one */
static __thread CUcontext below[8]; /* the contexts under it, the top one last */
static __thread unsigned n_below;

/* Counts a call of `name`, and refuses it if HB_FAKE_REFUSE names it. */
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
	*context = current ? current : (CUcontext)&context_object;
	return enter("cuCtxGetCurrent");
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	*context = (CUcontext)&context_object;
	return enter("cuCtxCreate");
}

CUresult cuCtxDestroy(CUcontext context)
{
	return enter("cuCtxDestroy");
}

CUresult cuCtxDetach(CUcontext context)
{
	return enter("cuCtxDetach");
}

CUresult cuStreamDestroy(CUstream stream)
{
	return enter("cuStreamDestroy");
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

/* Functions from before CUDA 3.2: the lower half of a handle is unique, too. */
static CUresult give_32(const char *name, CUdeviceptr_v1 *pointer)
{
	uint64_t handle = 0;
	CUresult result = give(name, &handle);
	*pointer = (CUdeviceptr_v1)(handle >> 20 | 1u << 31);
	return result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
	return give_32("cuMemAlloc", pointer);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
			 unsigned int element)
{
	*pitch = (width + HB_FAKE_PITCH - 1) / HB_FAKE_PITCH * HB_FAKE_PITCH;
	return give_32("cuMemAllocPitch", pointer);
}

CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
	return enter("cuMemFree");
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
	*free_bytes = *total_bytes = 2u << 30;
	return enter("cuMemGetInfo");
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
	return give("cuArrayCreate", array);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
	return give("cuArray3DCreate", array);
}

/* ---- graphs ---- */

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n_dependencies,
			CUgraphNodeParams *params)
{
	return give("cuGraphAddNode", node);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			   const CUgraphEdgeData *edges, size_t n_dependencies, CUgraphNodeParams *params)
{
	return give("cuGraphAddNode_v2", node);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				size_t n_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	return give("cuGraphAddMemAllocNode", node);
}

/* HB_FAKE_GRAPHS_HOLD: bytes that graphs hold. */
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	const char *held = getenv("HB_FAKE_GRAPHS_HOLD");
	*(uint64_t *)value = held ? strtoull(held, NULL, 10) : 0;
	return enter("cuDeviceGetGraphMemAttribute");
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	return enter("cuMemFree_v2");
}

/* ---- pools ---- */

enum { N_POOLS = 8, N_SIZES = 4096 };

/* [0] is the device's default pool. */
static struct pool {
	_Atomic(uint64_t) used, reserved;
} pools[N_POOLS];
static _Atomic(unsigned) n_pools = 1;

/* By pointer: the pool to which a free returns how many bytes. */
static struct piece {
	uint64_t bytes;
	struct pool *pool;
} pieces[N_SIZES];

static struct piece *piece_at(CUdeviceptr pointer)
{
	return &pieces[pointer / 0x1000000 % N_SIZES];
}

static void settle(struct pool *pool)
{
	uint64_t used = atomic_load(&pool->used);
	if (!getenv("HB_FAKE_POOLS_KEEP") || used > atomic_load(&pool->reserved))
		atomic_store(&pool->reserved, used);
}

static CUresult give_from(struct pool *pool, const char *name, CUdeviceptr *pointer, size_t bytes)
{
	CUresult result = give(name, pointer);
	if (result != CUDA_SUCCESS)
		return result;
	*piece_at(*pointer) = (struct piece){bytes, pool};
	atomic_fetch_add(&pool->used, bytes);
	settle(pool);
	return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return give_from(&pools[0], "cuMemAllocAsync", pointer, bytes);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return give_from(&pools[0], "cuMemAllocAsync_ptsz", pointer, bytes);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return give_from((struct pool *)pool, "cuMemAllocFromPoolAsync", pointer, bytes);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	CUresult result = enter("cuMemFreeAsync");
	struct piece *piece = piece_at(pointer);
	if (result != CUDA_SUCCESS || !piece->pool)
		return result;
	atomic_fetch_sub(&piece->pool->used, piece->bytes);
	settle(piece->pool);
	piece->pool = NULL;
	return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	*pool = (CUmemoryPool)&pools[atomic_fetch_add(&n_pools, 1) % N_POOLS];
	return enter("cuMemPoolCreate");
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	return enter("cuMemPoolDestroy");
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	*pool = (CUmemoryPool)&pools[0];
	return enter("cuDeviceGetDefaultMemPool");
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct pool *pool = (struct pool *)handle;
	bool used = attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
	*(uint64_t *)value = atomic_load(used ? &pool->used : &pool->reserved);
	return enter("cuMemPoolGetAttribute");
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes)
{
	struct pool *pool = (struct pool *)handle;
	atomic_store(&pool->reserved, atomic_load(&pool->used));
	return enter("cuMemPoolTrimTo");
}

/* ---- arrays and virtual memory ---- */

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

/* ---- streams and queries about them ---- */

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
	current = context;
	return enter("cuCtxSetCurrent");
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	CUresult result = enter("cuCtxPushCurrent_v2");
	if (n_below == sizeof below / sizeof *below)
		return CUDA_ERROR_OUT_OF_MEMORY;
	below[n_below++] = current;
	current = context;
	return result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	CUresult result = enter("cuCtxPopCurrent_v2");
	if (n_below == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = current;
	current = below[--n_below];
	return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	*context = (CUcontext)&context_object;
	atomic_fetch_add(&primary_references, 1);
	return enter("cuDevicePrimaryCtxRetain");
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	atomic_fetch_sub(&primary_references, 1);
	return enter("cuDevicePrimaryCtxRelease_v2");
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = atomic_load(&primary_references) > 0;
	return enter("cuDevicePrimaryCtxGetState");
}

/* All green contexts have one address, one after the other. */
CUresult cuGreenCtxCreate(CUgreenCtx *context, void *resources, CUdevice device, unsigned int flags)
{
	*context = (CUgreenCtx)(void *)&green_object;
	atomic_fetch_add(&primary_references, 1);
	return enter("cuGreenCtxCreate");
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
	*context = (CUcontext)(void *)green;
	return enter("cuCtxFromGreenCtx");
}

CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
	CUresult result = enter("cuGreenCtxDestroy");
	atomic_fetch_sub(&primary_references, result == CUDA_SUCCESS);
	return result;
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
