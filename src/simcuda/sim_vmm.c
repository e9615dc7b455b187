/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual-memory interface. Physical memory is a memfd, a reservation is an
 * unreadable mapping, and mapping places one over the other. Device memory is
 * accounted at its creation and returned with its last handle and mapping.
 */
#include "simcuda/sim_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY ((size_t)2 << 20)

struct physical_memory {
	uint64_t handle;
	int fd, gpu; /* gpu -1: host memory */
	size_t bytes;
	uint32_t users; /* handles and mappings */
	uint32_t handles;
	CUmemAllocationProp properties;
	struct physical_memory *next;
};

struct vmm_mapping {
	uintptr_t base;
	size_t bytes;
	struct physical_memory *physical;
	CUmemAccess_flags access;
	struct vmm_mapping *next;
};

struct vmm_reservation {
	uintptr_t base;
	size_t bytes;
	struct vmm_reservation *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct physical_memory *physicals;
static struct vmm_mapping *mappings;
static struct vmm_reservation *reservations;

int sim_location_gpu(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_valid(location->id))
		return sim_gpu_of(location->id);
	return -1;
}

static struct physical_memory *find_physical(uint64_t handle)
{
	for (struct physical_memory *at = physicals; at; at = at->next)
		if (at->handle == handle && at->handles)
			return at;
	return NULL;
}

static void release_physical(struct physical_memory *physical)
{
	if (--physical->users)
		return;
	for (struct physical_memory **at = &physicals; *at; at = &(*at)->next)
		if (*at == physical) {
			*at = physical->next;
			break;
		}
	if (physical->gpu >= 0)
		sim_memory_charge(physical->gpu, -(int64_t)physical->bytes);
	close(physical->fd);
	free(physical);
}

CUresult sim_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					   CUmemAllocationGranularity_flags option)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!granularity || !prop))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*granularity = GRANULARITY;
	return result;
}

static CUresult adopt_memory(int fd, size_t bytes, int gpu, const CUmemAllocationProp *properties,
			     CUmemGenericAllocationHandle *handle)
{
	struct physical_memory *physical = calloc(1, sizeof *physical);
	if (!physical)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*physical = (struct physical_memory){.handle = atomic_fetch_add(&sim.unique, 1) + 1,
					     .fd = fd,
					     .gpu = gpu,
					     .bytes = bytes,
					     .users = 1,
					     .handles = 1,
					     .properties = *properties};
	*handle = physical->handle;
	pthread_mutex_lock(&lock);
	physical->next = physicals;
	physicals = physical;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			 unsigned long long flags)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || !prop || flags || !size || size % GRANULARITY || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !sim_device_valid(prop->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	int gpu = sim_location_gpu(&prop->location);
	if (gpu >= 0 && (result = sim_memory_charge(gpu, (int64_t)size)) != CUDA_SUCCESS)
		return result;
	int fd = memfd_create("hb-simcuda-memory", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		result = adopt_memory(fd, size, gpu, prop, handle);
	}
	if (result != CUDA_SUCCESS) {
		if (fd >= 0)
			close(fd);
		if (gpu >= 0)
			sim_memory_charge(gpu, -(int64_t)size);
	}
	return result;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	struct physical_memory *physical = find_physical(handle);
	if (physical) {
		physical->handles--;
		release_physical(physical);
	}
	pthread_mutex_unlock(&lock);
	return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				 unsigned long long flags)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!ptr || !size || size % GRANULARITY || flags || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	size_t unit = alignment > GRANULARITY ? alignment : GRANULARITY;
	struct vmm_reservation *reservation = calloc(1, sizeof *reservation);
	char *raw = mmap(NULL, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED || !reservation) {
		free(reservation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	uintptr_t base = ((uintptr_t)raw + unit - 1) / unit * unit;
	if (base > (uintptr_t)raw)
		munmap(raw, base - (uintptr_t)raw);
	munmap((char *)base + size, (uintptr_t)raw + unit - base);
	*reservation = (struct vmm_reservation){.base = base, .bytes = size};
	pthread_mutex_lock(&lock);
	reservation->next = reservations;
	reservations = reservation;
	pthread_mutex_unlock(&lock);
	*ptr = base;
	return CUDA_SUCCESS;
}

static bool any_mapped(uintptr_t base, size_t bytes)
{
	for (struct vmm_mapping *at = mappings; at; at = at->next)
		if (at->base < base + bytes && base < at->base + at->bytes)
			return true;
	return false;
}

CUresult sim_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (struct vmm_reservation **at = &reservations; *at; at = &(*at)->next) {
		struct vmm_reservation *found = *at;
		if (found->base != ptr || found->bytes != size || any_mapped(found->base, size))
			continue;
		*at = found->next;
		munmap((void *)found->base, size);
		free(found);
		result = CUDA_SUCCESS;
		break;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static bool is_reserved(uintptr_t base, size_t bytes)
{
	for (struct vmm_reservation *at = reservations; at; at = at->next)
		if (base >= at->base && base + bytes <= at->base + at->bytes)
			return true;
	return false;
}

static CUresult map_physical(uintptr_t base, size_t bytes, size_t offset, struct physical_memory *physical)
{
	struct vmm_mapping *mapping = calloc(1, sizeof *mapping);
	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (mmap((void *)base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, (off_t)offset) == MAP_FAILED) {
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	struct sim_memory memory = {.base = base,
				    .size = bytes,
				    .gpu = physical->gpu,
				    .kind = physical->gpu >= 0 ? SIM_MEMORY_VMM : SIM_MEMORY_HOST};
	CUresult result = sim_memory_add(&memory);
	if (result != CUDA_SUCCESS) {
		free(mapping);
		return result;
	}
	*mapping = (struct vmm_mapping){.base = base, .bytes = bytes, .physical = physical, .next = mappings};
	physical->users++;
	mappings = mapping;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		      unsigned long long flags)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	struct physical_memory *physical = find_physical(handle);
	if (!physical || flags || !size || offset > physical->bytes || size > physical->bytes - offset ||
	    !is_reserved((uintptr_t)ptr, size) || any_mapped((uintptr_t)ptr, size))
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = map_physical((uintptr_t)ptr, size, offset, physical);
	pthread_mutex_unlock(&lock);
	return result;
}

static void unmap_range(struct vmm_mapping **at)
{
	struct vmm_mapping *mapping = *at;
	struct sim_memory memory;
	*at = mapping->next;
	(void)mmap((void *)mapping->base, mapping->bytes, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	sim_memory_remove(mapping->base, &memory);
	release_physical(mapping->physical);
	free(mapping);
}

CUresult sim_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	bool any = false;
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	for (struct vmm_mapping **at = &mappings; *at;) {
		if ((*at)->base >= ptr && (*at)->base + (*at)->bytes <= ptr + size) {
			unmap_range(at);
			any = true;
		} else {
			at = &(*at)->next;
		}
	}
	pthread_mutex_unlock(&lock);
	return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	bool any = false;
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!desc || !count))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	int protection = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
			 : desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
									   : PROT_NONE;
	pthread_mutex_lock(&lock);
	for (struct vmm_mapping *at = mappings; at; at = at->next) {
		if (at->base < ptr || at->base + at->bytes > ptr + size)
			continue;
		any = mprotect((void *)at->base, at->bytes, protection) == 0;
		at->access = desc->flags;
	}
	pthread_mutex_unlock(&lock);
	return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!flags || !location))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (struct vmm_mapping *at = mappings; at; at = at->next)
		if (ptr >= at->base && ptr < at->base + at->bytes) {
			*flags = at->access;
			result = CUDA_SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	struct physical_memory *physical = find_physical(handle);
	if (physical && prop)
		*prop = physical->properties;
	pthread_mutex_unlock(&lock);
	return physical && prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && !handle)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (struct vmm_mapping *at = mappings; at; at = at->next)
		if ((uintptr_t)addr >= at->base && (uintptr_t)addr < at->base + at->bytes) {
			*handle = at->physical->handle;
			at->physical->users++;
			at->physical->handles++;
			result = CUDA_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult sim_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
					  CUmemAllocationHandleType handleType, unsigned long long flags)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!shareableHandle || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	struct physical_memory *physical = find_physical(handle);
	int fd = physical ? fcntl(physical->fd, F_DUPFD_CLOEXEC, 3) : -1;
	pthread_mutex_unlock(&lock);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)shareableHandle = fd;
	return CUDA_SUCCESS;
}

/* Imported memory stays accounted to the process that created it. */
CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					    CUmemAllocationHandleType shHandleType)
{
	struct stat status;
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	int given = (int)(intptr_t)osHandle;
	if (!handle || fstat(given, &status) < 0 || !S_ISREG(status.st_mode))
		return CUDA_ERROR_INVALID_VALUE;
	int fd = fcntl(given, F_DUPFD_CLOEXEC, 3);
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	result = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM
			: adopt_memory(fd, (size_t)status.st_size, -1, &properties, handle);
	if (result != CUDA_SUCCESS && fd >= 0)
		close(fd);
	return result;
}
