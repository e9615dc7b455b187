/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory. Device memory is host memory of this process, so a device pointer is an
 * address. The broker accounts the GPU's memory for all processes. One sorted
 * table contains every range; no other lock is taken under the table's lock.
 */
#include "simcuda/sim_driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGN_BYTES 512u
#define PITCH_BYTES 512u
#define PAGE_BYTES 4096u

static struct {
	pthread_mutex_t lock;
	struct sim_memory *ranges; /* sorted by address */
	size_t n, room;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns the index of the first range above the address. */
static size_t index_above(uintptr_t address)
{
	size_t low = 0, high = table.n;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (table.ranges[middle].base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool sim_memory_find(uintptr_t address, struct sim_memory *found)
{
	bool hit = false;
	pthread_mutex_lock(&table.lock);
	size_t i = index_above(address);
	if (i && address - table.ranges[i - 1].base < table.ranges[i - 1].size) {
		*found = table.ranges[i - 1];
		hit = true;
	}
	pthread_mutex_unlock(&table.lock);
	return hit;
}

bool sim_memory_covers(uintptr_t address, size_t bytes)
{
	struct sim_memory memory;
	while (sim_memory_find(address, &memory)) {
		size_t rest = memory.base + memory.size - address;
		if (bytes <= rest)
			return true;
		if (memory.kind != SIM_MEMORY_VMM)
			return false;
		address += rest;
		bytes -= rest;
	}
	return false;
}

bool sim_memory_is_host(const struct sim_memory *memory)
{
	return memory->kind == SIM_MEMORY_HOST || memory->kind == SIM_MEMORY_REGISTERED ||
	       (memory->kind == SIM_MEMORY_VMM && memory->gpu < 0);
}

CUresult sim_memory_add(const struct sim_memory *memory)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&table.lock);
	if (table.n == table.room) {
		size_t room = table.room ? table.room * 2 : 256;
		struct sim_memory *bigger = realloc(table.ranges, room * sizeof *bigger);
		if (bigger) {
			table.ranges = bigger;
			table.room = room;
		}
	}
	if (table.n < table.room) {
		size_t i = index_above(memory->base);
		memmove(&table.ranges[i + 1], &table.ranges[i], (table.n - i) * sizeof *table.ranges);
		table.ranges[i] = *memory;
		table.ranges[i].unique = atomic_fetch_add(&sim.unique, 1) + 1;
		table.n++;
	} else {
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&table.lock);
	return result;
}

bool sim_memory_remove(uintptr_t base, struct sim_memory *removed)
{
	bool hit = false;
	pthread_mutex_lock(&table.lock);
	size_t i = index_above(base);
	if (i && table.ranges[i - 1].base == base) {
		*removed = table.ranges[i - 1];
		memmove(&table.ranges[i - 1], &table.ranges[i], (table.n - i) * sizeof *table.ranges);
		table.n--;
		hit = true;
	}
	pthread_mutex_unlock(&table.lock);
	return hit;
}

CUresult sim_memory_charge(int gpu, int64_t bytes)
{
	struct sim_request request = {.kind = SIM_REQ_MEMORY, .gpu = (uint32_t)gpu, .bytes = bytes};
	struct sim_reply reply;
	if (!bytes)
		return CUDA_SUCCESS;
	int result = sim_request(&request, &reply);
	return result == 0 ? CUDA_SUCCESS : result == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

static bool on_gpu(enum sim_memory_kind kind)
{
	return kind == SIM_MEMORY_DEVICE || kind == SIM_MEMORY_MANAGED;
}

CUresult sim_memory_new(CUcontext context, enum sim_memory_kind kind, size_t bytes, CUmemoryPool pool,
			CUdeviceptr *address)
{
	struct sim_memory memory = {
		.kind = kind, .gpu = sim_gpu_of(context->device), .context = context, .pool = pool, .size = bytes};
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory.charged = on_gpu(kind) ? round_up(bytes, ALIGN_BYTES) : 0;
	memory.mapped = round_up(bytes, PAGE_BYTES);
	CUresult result = sim_memory_charge(memory.gpu, (int64_t)memory.charged);
	if (result != CUDA_SUCCESS)
		return result;
	void *base = mmap(NULL, memory.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			  0);
	memory.base = (uintptr_t)base;
	result = base == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : sim_memory_add(&memory);
	if (result != CUDA_SUCCESS) {
		if (base != MAP_FAILED)
			munmap(base, memory.mapped);
		sim_memory_charge(memory.gpu, -(int64_t)memory.charged);
		return result;
	}
	if (pool)
		sim_pool_used(pool, (int64_t)memory.charged);
	*address = memory.base;
	return CUDA_SUCCESS;
}

static void give_back(const struct sim_memory *memory)
{
	if (memory->mapped)
		munmap((void *)memory->base, memory->mapped);
	sim_memory_charge(memory->gpu, -(int64_t)memory->charged);
	if (memory->pool)
		sim_pool_used(memory->pool, -(int64_t)memory->charged);
}

CUresult sim_memory_delete(CUdeviceptr address)
{
	struct sim_memory memory;
	if (!sim_memory_remove((uintptr_t)address, &memory))
		return CUDA_ERROR_INVALID_VALUE;
	give_back(&memory);
	return CUDA_SUCCESS;
}

void sim_memory_of_context_end(CUcontext context)
{
	for (;;) {
		struct sim_memory memory;
		bool found = false;
		pthread_mutex_lock(&table.lock);
		for (size_t i = 0; i < table.n && !found; i++)
			if (table.ranges[i].context == context && table.ranges[i].kind != SIM_MEMORY_VMM) {
				memory = table.ranges[i];
				found = true;
			}
		pthread_mutex_unlock(&table.lock);
		if (!found)
			return;
		if (sim_memory_remove(memory.base, &memory))
			give_back(&memory);
	}
}

/* --- the calls ----------------------------------------------------------------------- */

CUresult sim_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext context;
	struct sim_reply reply;
	CUresult result = sim_current(&context);
	if (result != CUDA_SUCCESS)
		return result;
	struct sim_request request = {.kind = SIM_REQ_STATS, .gpu = (uint32_t)sim_gpu_of(context->device)};
	if (sim_request(&request, &reply) < 0)
		return CUDA_ERROR_UNKNOWN;
	if (free_bytes)
		*free_bytes = reply.memory_free;
	if (total)
		*total = reply.memory_total;
	return CUDA_SUCCESS;
}

static CUresult allocate_memory(enum sim_memory_kind kind, size_t bytes, CUdeviceptr *address)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && (!address || !bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids_unsafe();
	return result == CUDA_SUCCESS ? sim_memory_new(context, kind, bytes, NULL, address) : result;
}

CUresult sim_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	return allocate_memory(SIM_MEMORY_DEVICE, bytesize, dptr);
}

CUresult sim_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
				unsigned int ElementSizeBytes)
{
	size_t bytes, pitch = round_up(WidthInBytes, PITCH_BYTES);
	if (!pPitch || !WidthInBytes || !Height)
		return sim_ready() != CUDA_SUCCESS ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_VALUE;
	if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(pitch, Height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = allocate_memory(SIM_MEMORY_DEVICE, bytes, dptr);
	if (result == CUDA_SUCCESS)
		*pPitch = pitch;
	return result;
}

CUresult sim_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return allocate_memory(SIM_MEMORY_MANAGED, bytesize, dptr);
}

/* Waits for the device first, as the real call does, because pending work may still use the memory. */
CUresult sim_cuMemFree_v2(CUdeviceptr dptr)
{
	struct sim_memory memory;
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS || !dptr)
		return result;
	if (!sim_memory_find((uintptr_t)dptr, &memory) || memory.base != dptr || !on_gpu(memory.kind))
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_capture_forbids_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	if (memory.context->alive)
		sim_wait_context(memory.context);
	return sim_memory_delete(dptr);
}

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct sim_memory memory;
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (!sim_memory_find((uintptr_t)dptr, &memory))
		return CUDA_ERROR_NOT_FOUND;
	if (pbase)
		*pbase = memory.base;
	if (psize)
		*psize = memory.size;
	return CUDA_SUCCESS;
}

/* --- host memory ----------------------------------------------------------------------- */

CUresult sim_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	CUdeviceptr address;
	if (!pp || (Flags & ~7u))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = allocate_memory(SIM_MEMORY_HOST, bytesize, &address);
	if (result == CUDA_SUCCESS)
		*pp = (void *)(uintptr_t)address;
	return result;
}

CUresult sim_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return sim_cuMemHostAlloc(pp, bytesize, 0);
}

CUresult sim_cuMemFreeHost(void *p)
{
	struct sim_memory memory;
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS || !p)
		return result;
	if (!sim_memory_find((uintptr_t)p, &memory) || memory.base != (uintptr_t)p || memory.kind != SIM_MEMORY_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	if (memory.context->alive)
		sim_wait_context(memory.context);
	return sim_memory_delete((CUdeviceptr)(uintptr_t)p);
}

CUresult sim_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	CUcontext context;
	struct sim_memory memory = {
		.base = (uintptr_t)p, .size = bytesize, .kind = SIM_MEMORY_REGISTERED, .flags = Flags};
	struct sim_memory other;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && (!p || !bytesize))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && sim_memory_find((uintptr_t)p, &other))
		result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (result != CUDA_SUCCESS)
		return result;
	memory.context = context;
	memory.gpu = sim_gpu_of(context->device);
	return sim_memory_add(&memory);
}

CUresult sim_cuMemHostUnregister(void *p)
{
	struct sim_memory memory;
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!sim_memory_find((uintptr_t)p, &memory) || memory.base != (uintptr_t)p ||
	    memory.kind != SIM_MEMORY_REGISTERED)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	return sim_memory_delete((CUdeviceptr)(uintptr_t)p);
}

CUresult sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct sim_memory memory;
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && (!pdptr || Flags || !sim_memory_find((uintptr_t)p, &memory)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*pdptr = (CUdeviceptr)(uintptr_t)p;
	return result;
}

CUresult sim_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct sim_memory memory;
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!pFlags || !sim_memory_find((uintptr_t)p, &memory)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*pFlags = memory.flags;
	return result;
}
