/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools and stream-ordered allocation. Memory is allocated at once
 * and freed when the stream reaches the free, so a pool never has idle memory and
 * needs no trimming.
 */
#include "simcuda/sim_driver.h"

#include <stdlib.h>

struct CUmemPoolHandle_st {
	uint32_t magic;
	CUdevice device;
	_Atomic int64_t used, high;
	_Atomic uint64_t settings[CU_MEMPOOL_ATTR_USED_MEM_HIGH + 1];
};

static struct CUmemPoolHandle_st default_pools[SIM_GPUS];
static CUmemoryPool _Atomic current_pools[SIM_GPUS]; /* NULL = the default pool */

static CUmemoryPool default_pool(CUdevice device)
{
	CUmemoryPool pool = &default_pools[device];
	pthread_mutex_lock(&sim.lock);
	if (!pool->magic) {
		pool->magic = SIM_MAGIC_POOL;
		pool->device = device;
		for (int i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; i < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
		     i++)
			pool->settings[i] = 1;
	}
	pthread_mutex_unlock(&sim.lock);
	return pool;
}

static CUresult check_pool(CUmemoryPool pool)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return pool && pool->magic == SIM_MAGIC_POOL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sim_pool_used(CUmemoryPool pool, int64_t bytes)
{
	int64_t used = atomic_fetch_add(&pool->used, bytes) + bytes;
	int64_t high = atomic_load(&pool->high);
	while (used > high && !atomic_compare_exchange_weak(&pool->high, &high, used))
		;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && !sim_device_valid(dev))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS && !pool_out)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*pool_out = default_pool(dev);
	return result;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	CUresult result = sim_cuDeviceGetDefaultMemPool(pool, dev);
	CUmemoryPool current = result == CUDA_SUCCESS ? atomic_load(&current_pools[dev]) : NULL;
	if (current)
		*pool = current;
	return result;
}

CUresult sim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CUresult result = check_pool(pool);
	if (result == CUDA_SUCCESS && !sim_device_valid(dev))
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		atomic_store(&current_pools[dev], pool);
	return result;
}

CUresult sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device_valid(poolProps->location.id))
		return CUDA_ERROR_INVALID_VALUE;
	CUmemoryPool made = calloc(1, sizeof *made);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->magic = SIM_MAGIC_POOL;
	made->device = poolProps->location.id;
	*pool = made;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = check_pool(pool);
	if (result != CUDA_SUCCESS)
		return result;
	if (pool == &default_pools[pool->device])
		return CUDA_ERROR_NOT_PERMITTED;
	if (atomic_load(&current_pools[pool->device]) == pool)
		atomic_store(&current_pools[pool->device], NULL);
	/* Memory that is still allocated refers to the pool, so an unusable pool object stays until the process ends. */
	pool->magic = SIM_MAGIC_DEAD;
	if (atomic_load(&pool->used) == 0)
		free(pool);
	return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	return check_pool(pool);
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = check_pool(pool);
	if (result == CUDA_SUCCESS && !value)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	if (attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES && attr < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		atomic_store(&pool->settings[attr], (uint64_t)(*(int *)value != 0));
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		atomic_store(&pool->settings[attr], *(uint64_t *)value);
	else if ((attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) &&
		 *(uint64_t *)value == 0)
		atomic_store(&pool->high, atomic_load(&pool->used));
	else
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = check_pool(pool);
	if (result == CUDA_SUCCESS && !value)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	switch (attr) {
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(uint64_t *)value = (uint64_t)atomic_load(&pool->used);
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(uint64_t *)value = (uint64_t)atomic_load(&pool->high);
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(uint64_t *)value = atomic_load(&pool->settings[attr]);
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = (int)atomic_load(&pool->settings[attr]);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult sim_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult result = check_pool(pool);
	return result == CUDA_SUCCESS && count && !map ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult sim_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	CUresult result = check_pool(memPool);
	if (result == CUDA_SUCCESS && (!flags || !location))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return result;
}

static CUresult allocate_from_pool(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(handle, &stream);
	if (result == CUDA_SUCCESS && !address)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	if (!pool)
		result = sim_cuDeviceGetMemPool(&pool, stream->context->device);
	if (result == CUDA_SUCCESS)
		result = sim_memory_new(stream->context, SIM_MEMORY_DEVICE, bytes, pool, address);
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(SIM_TASK_ALLOC) : NULL;
	if (result != CUDA_SUCCESS || !task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	task->u.memory.address = *address;
	return sim_issue(stream, task, NULL);
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return allocate_from_pool(dptr, bytesize, NULL, hStream);
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	CUresult result = check_pool(pool);
	return result == CUDA_SUCCESS ? allocate_from_pool(dptr, bytesize, pool, hStream) : result;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	CUstream stream;
	struct sim_memory memory;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result != CUDA_SUCCESS || !dptr)
		return result;
	if (!sim_memory_find((uintptr_t)dptr, &memory) || memory.base != dptr || memory.kind != SIM_MEMORY_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_task *task = sim_task_new(SIM_TASK_FREE);
	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	task->u.memory.address = dptr;
	return sim_issue(stream, task, NULL);
}
