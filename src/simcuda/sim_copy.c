/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies. Every form becomes the three-dimensional one. The kinds of memory at its
 * two ends decide its path. Pinned host memory is copied when the GPU reaches the
 * copy. A small pageable source is staged at the call, a large one makes the call
 * wait, as in the real driver.
 */
#include "simcuda/sim_driver.h"

#include <stdlib.h>
#include <string.h>

#define STAGED_BYTES (64u << 10)

enum copy_side { SIDE_PAGEABLE, SIDE_PINNED, SIDE_GPU };

static enum copy_side side_of(const void *address)
{
	struct sim_memory memory;
	if (!sim_memory_find((uintptr_t)address, &memory))
		return SIDE_PAGEABLE;
	return sim_memory_is_host(&memory) ? SIDE_PINNED : SIDE_GPU;
}

static CUresult box_of(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t x, size_t y,
		       size_t z, size_t pitch, size_t rows, const CUDA_MEMCPY3D *copy, struct sim_box *box)
{
	char *base;
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		base = (char *)(uintptr_t)host;
		break;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		base = (char *)(uintptr_t)device;
		break;
	case CU_MEMORYTYPE_ARRAY:
		if (!array || array->magic != SIM_MAGIC_ARRAY)
			return CUDA_ERROR_INVALID_HANDLE;
		base = (char *)(uintptr_t)array->memory;
		pitch = array->pitch;
		rows = array->descriptor.Height ? array->descriptor.Height : 1;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!base)
		return CUDA_ERROR_INVALID_VALUE;
	if (!pitch)
		pitch = copy->WidthInBytes;
	if (!rows)
		rows = copy->Height;
	if (copy->Height > 1 && pitch < x + copy->WidthInBytes)
		return CUDA_ERROR_INVALID_VALUE;
	*box = (struct sim_box){base + z * pitch * rows + y * pitch + x, pitch, pitch * rows};
	return CUDA_SUCCESS;
}

/* A copy within the device moves its bytes twice at memory speed; other copies use PCIe. */
static void set_copy_cost(struct sim_task *task, enum copy_side from, enum copy_side to)
{
	uint64_t bytes = (uint64_t)task->u.copy.width * task->u.copy.height * task->u.copy.depth;
	task->u.copy.on_gpu = from == SIDE_GPU || to == SIDE_GPU;
	task->work = (struct sim_work){.bytes = bytes};
	if (from == SIDE_GPU && to == SIDE_GPU) {
		task->work.kind = HB_GPU_MODEL_KERNEL;
		task->work.duration_ns = 1500 + (int64_t)(2e9 * (double)bytes / sim.info.spec.memory_bytes_per_s);
		task->work.blocks = (uint32_t)sim.info.spec.sm_count;
		task->work.threads = 512;
		task->work.memory_share = 0.9f;
	} else {
		task->work.kind = to == SIDE_GPU ? HB_GPU_MODEL_COPY_H2D : HB_GPU_MODEL_COPY_D2H;
	}
}

CUresult sim_copy_task(const CUDA_MEMCPY3D *copy, struct sim_task **out)
{
	struct sim_task *task = sim_task_new(SIM_TASK_COPY);
	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = box_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcArray, copy->srcXInBytes,
				 copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight, copy, &task->u.copy.from);
	if (result == CUDA_SUCCESS)
		result = box_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray, copy->dstXInBytes,
				copy->dstY, copy->dstZ, copy->dstPitch, copy->dstHeight, copy, &task->u.copy.to);
	if (result == CUDA_SUCCESS && copy->srcMemoryType == CU_MEMORYTYPE_DEVICE &&
	    side_of(task->u.copy.from.base) == SIDE_PAGEABLE)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && copy->dstMemoryType == CU_MEMORYTYPE_DEVICE &&
	    side_of(task->u.copy.to.base) == SIDE_PAGEABLE)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS) {
		sim_task_free(task);
		return result;
	}
	task->u.copy.width = copy->WidthInBytes;
	task->u.copy.height = copy->Height;
	task->u.copy.depth = copy->Depth;
	task->u.copy.given = *copy;
	set_copy_cost(task, side_of(task->u.copy.from.base), side_of(task->u.copy.to.base));
	*out = task;
	return CUDA_SUCCESS;
}

/* Reads a small pageable source now. Returns false if the caller has to wait for the copy. */
static bool stage_source(struct sim_task *task)
{
	size_t bytes = task->u.copy.width * task->u.copy.height * task->u.copy.depth;
	if (side_of(task->u.copy.to.base) == SIDE_PAGEABLE)
		return false;
	if (side_of(task->u.copy.from.base) != SIDE_PAGEABLE)
		return true;
	if (bytes > STAGED_BYTES || !(task->u.copy.staging = malloc(bytes)))
		return false;
	struct sim_task gather = *task;
	gather.u.copy.to = (struct sim_box){task->u.copy.staging, task->u.copy.width,
					    task->u.copy.width * task->u.copy.height};
	sim_task_run(&gather, 0);
	task->u.copy.from = gather.u.copy.to;
	return true;
}

static CUresult run_copy(const CUDA_MEMCPY3D *copy, CUstream handle, bool async)
{
	CUstream stream;
	struct sim_task *task;
	uint64_t seq = 0;
	CUresult result = sim_stream_resolve(handle, &stream);
	if (result == CUDA_SUCCESS && !async)
		result = sim_capture_forbids_unsafe();
	if (result != CUDA_SUCCESS || !copy->WidthInBytes || !copy->Height || !copy->Depth)
		return result;
	result = sim_copy_task(copy, &task);
	if (result != CUDA_SUCCESS)
		return result;
	bool captured = atomic_load(&stream->capture) != NULL;
	bool wait = !captured && (!stage_source(task) || (!async && task->work.kind != HB_GPU_MODEL_KERNEL));
	if (!captured && !async && !task->u.copy.on_gpu)
		wait = true;
	result = sim_issue(stream, task, &seq);
	return result == CUDA_SUCCESS && wait ? sim_wait_stream(stream, seq) : result;
}

/* --- the forms -------------------------------------------------------------------------------- */

static CUDA_MEMCPY3D linear(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type, CUdeviceptr from,
			    size_t bytes)
{
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = from_type, .dstMemoryType = to_type, .WidthInBytes = bytes, .Height = 1, .Depth = 1};
	copy.srcHost = (void *)(uintptr_t)from;
	copy.srcDevice = from;
	copy.dstHost = (void *)(uintptr_t)to;
	copy.dstDevice = to;
	return copy;
}

static CUresult run_linear(CUmemorytype to_type, CUdeviceptr to, CUmemorytype from_type, CUdeviceptr from, size_t bytes,
			   CUstream stream, bool async)
{
	CUDA_MEMCPY3D copy = linear(to_type, to, from_type, from, bytes);
	return run_copy(&copy, stream, async);
}

static CUdeviceptr address_of(const void *host)
{
	return (CUdeviceptr)(uintptr_t)host;
}

CUresult sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return run_linear(CU_MEMORYTYPE_UNIFIED, dst, CU_MEMORYTYPE_UNIFIED, src, ByteCount, NULL, false);
}

CUresult sim_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return run_linear(CU_MEMORYTYPE_UNIFIED, dst, CU_MEMORYTYPE_UNIFIED, src, ByteCount, hStream, true);
}

CUresult sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return run_linear(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_HOST, address_of(srcHost), ByteCount, NULL,
			  false);
}

CUresult sim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return run_linear(CU_MEMORYTYPE_HOST, address_of(dstHost), CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount, NULL,
			  false);
}

CUresult sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return run_linear(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount, NULL, false);
}

CUresult sim_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
	return run_linear(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_HOST, address_of(srcHost), ByteCount, hStream,
			  true);
}

CUresult sim_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return run_linear(CU_MEMORYTYPE_HOST, address_of(dstHost), CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount, hStream,
			  true);
}

CUresult sim_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
	return run_linear(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount, hStream, true);
}

CUresult sim_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
			  size_t ByteCount)
{
	return sim_cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

CUresult sim_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
			       size_t ByteCount, CUstream hStream)
{
	return sim_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *p)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = p->srcXInBytes,
		.srcY = p->srcY,
		.srcMemoryType = p->srcMemoryType,
		.srcHost = p->srcHost,
		.srcDevice = p->srcDevice,
		.srcArray = p->srcArray,
		.srcPitch = p->srcPitch,
		.srcHeight = p->Height,
		.dstXInBytes = p->dstXInBytes,
		.dstY = p->dstY,
		.dstMemoryType = p->dstMemoryType,
		.dstHost = p->dstHost,
		.dstDevice = p->dstDevice,
		.dstArray = p->dstArray,
		.dstPitch = p->dstPitch,
		.dstHeight = p->Height,
		.WidthInBytes = p->WidthInBytes,
		.Height = p->Height,
		.Depth = 1,
	};
}

static CUresult run_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool async)
{
	if (!p)
		return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
	CUDA_MEMCPY3D copy = from_2d(p);
	return run_copy(&copy, stream, async);
}

CUresult sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
	return run_2d(pCopy, NULL, false);
}

CUresult sim_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
	return run_2d(pCopy, NULL, false);
}

CUresult sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return run_2d(pCopy, hStream, true);
}

static CUresult run_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool async)
{
	if (!p)
		return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
	return run_copy(p, stream, async);
}

CUresult sim_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
	return run_3d(pCopy, NULL, false);
}

CUresult sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return run_3d(pCopy, hStream, true);
}

CUresult sim_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
				   CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	CUresult result = dsts && srcs && sizes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = sim_cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream);
	return result;
}

/* --- one row of an array, as in these old forms ----------------------------------------- */

static CUresult run_array(CUarray to, size_t to_offset, CUarray from, size_t from_offset, CUdeviceptr address,
			  CUmemorytype address_type, size_t bytes, CUstream stream, bool async)
{
	CUDA_MEMCPY3D copy = linear(to ? CU_MEMORYTYPE_ARRAY : address_type, address,
				    from ? CU_MEMORYTYPE_ARRAY : address_type, address, bytes);
	copy.dstArray = to;
	copy.dstXInBytes = to ? to_offset : 0;
	copy.srcArray = from;
	copy.srcXInBytes = from ? from_offset : 0;
	return run_copy(&copy, stream, async);
}

CUresult sim_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
	return run_array(dstArray, dstOffset, NULL, 0, address_of(srcHost), CU_MEMORYTYPE_HOST, ByteCount, NULL, false);
}

CUresult sim_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
				  CUstream hStream)
{
	return run_array(dstArray, dstOffset, NULL, 0, address_of(srcHost), CU_MEMORYTYPE_HOST, ByteCount, hStream,
			 true);
}

CUresult sim_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return run_array(NULL, 0, srcArray, srcOffset, address_of(dstHost), CU_MEMORYTYPE_HOST, ByteCount, NULL, false);
}

CUresult sim_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
	return run_array(NULL, 0, srcArray, srcOffset, address_of(dstHost), CU_MEMORYTYPE_HOST, ByteCount, hStream,
			 true);
}

CUresult sim_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	return run_array(dstArray, dstOffset, NULL, 0, srcDevice, CU_MEMORYTYPE_DEVICE, ByteCount, NULL, false);
}

CUresult sim_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return run_array(NULL, 0, srcArray, srcOffset, dstDevice, CU_MEMORYTYPE_DEVICE, ByteCount, NULL, false);
}

CUresult sim_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return run_array(dstArray, dstOffset, srcArray, srcOffset, 0, CU_MEMORYTYPE_DEVICE, ByteCount, NULL, false);
}
