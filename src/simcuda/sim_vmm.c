/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual-memory interface. Physical memory is a memfd, a reservation is an
 * unreadable mapping, and mapping places one over the other. Memory is accounted to
 * its GPU or to the host at its creation, and returned with its last handle and
 * mapping. A new mapping has no access, as in the real driver. Every call checks its
 * complete range before it changes anything.
 */
#include "simcuda/sim_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY ((size_t)2 << 20)
#define MEMFD_NAME "hb-simcuda-memory"
#define HOST_BIT (UINT32_C(1) << 31) /* in the masks of vmm_mapping; other bits are device ordinals */
#define TABLE_SHARE 512 /* host memory is mapped in pages of 4 KiB, each with 8 bytes of page table on the GPU */

struct physical_memory {
	uint64_t handle;
	int fd;
	int gpu;     /* number of the GPU on which the memory is; -1: on the host */
	int account; /* GPU or SIM_HOST that is charged; -1: imported, so its creator is charged */
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
	uint32_t readable, writable; /* who has access */
	uint32_t tables;             /* devices on which page tables of the mapping are */
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

/* The simulated host has one NUMA node. */
static CUresult check_location(const CUmemLocation *location)
{
	switch (location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return sim_device_valid(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
	if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (properties->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return check_location(&properties->location);
}

static bool is_multiple(uint64_t value)
{
	return value % GRANULARITY == 0;
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
	if (physical->account >= 0)
		sim_memory_charge(physical->account, -(int64_t)physical->bytes);
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
		result = check_properties(prop);
	if (result == CUDA_SUCCESS)
		*granularity = GRANULARITY;
	return result;
}

/* Takes ownership of the descriptor if it succeeds. `template`: where the memory is, and what it is charged to. */
static CUresult adopt_memory(const struct physical_memory *template, CUmemGenericAllocationHandle *handle)
{
	struct physical_memory *physical = malloc(sizeof *physical);
	if (!physical)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*physical = *template;
	physical->handle = atomic_fetch_add(&sim.unique, 1) + 1;
	physical->users = physical->handles = 1;
	*handle = physical->handle;
	pthread_mutex_lock(&lock);
	physical->next = physicals;
	physicals = physical;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* The name says where the memory is, for the process that imports it. */
static int make_memfd(int gpu, size_t bytes)
{
	char name[64];
	snprintf(name, sizeof name, MEMFD_NAME ":%d", gpu);
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)bytes) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			 unsigned long long flags)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || !prop || flags || !size || !is_multiple(size))
		return CUDA_ERROR_INVALID_VALUE;
	result = check_properties(prop);
	if (result != CUDA_SUCCESS)
		return result;
	struct physical_memory made = {.gpu = sim_location_gpu(&prop->location), .bytes = size, .properties = *prop};
	made.account = made.gpu >= 0 ? made.gpu : (int)SIM_HOST;
	result = sim_memory_charge(made.account, (int64_t)size);
	if (result != CUDA_SUCCESS)
		return result;
	made.fd = make_memfd(made.gpu, size);
	result = made.fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : adopt_memory(&made, handle);
	if (result != CUDA_SUCCESS) {
		if (made.fd >= 0)
			close(made.fd);
		sim_memory_charge(made.account, -(int64_t)size);
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
	if (!ptr || !size || !is_multiple(size) || flags || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	size_t unit = alignment > GRANULARITY ? alignment : GRANULARITY;
	struct vmm_reservation *reservation = calloc(1, sizeof *reservation);
	char *raw = mmap(NULL, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED || !reservation) {
		if (raw != MAP_FAILED)
			munmap(raw, size + unit);
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

static struct vmm_reservation *find_reservation(uintptr_t base, size_t bytes)
{
	for (struct vmm_reservation *at = reservations; at; at = at->next)
		if (base >= at->base && bytes <= at->bytes && base - at->base <= at->bytes - bytes)
			return at;
	return NULL;
}

bool sim_vmm_find_reservation(uintptr_t address, uintptr_t *base, size_t *bytes)
{
	pthread_mutex_lock(&lock);
	struct vmm_reservation *found = find_reservation(address, 1);
	if (found) {
		*base = found->base;
		*bytes = found->bytes;
	}
	pthread_mutex_unlock(&lock);
	return found != NULL;
}

static bool is_inside(const struct vmm_mapping *mapping, uintptr_t base, size_t bytes)
{
	return mapping->base >= base && mapping->bytes <= bytes && mapping->base - base <= bytes - mapping->bytes;
}

/* Whether the range consists of complete mappings without a gap. */
static bool is_covered(uintptr_t base, size_t bytes)
{
	size_t covered = 0;
	for (struct vmm_mapping *at = mappings; at; at = at->next)
		if (is_inside(at, base, bytes))
			covered += at->bytes;
	return bytes && covered == bytes;
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
				    .kind = SIM_MEMORY_VMM,
				    .flags = physical->properties.requestedHandleTypes};
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
	if (!physical || flags || !size || !is_multiple(ptr | size | offset) || offset > physical->bytes ||
	    size > physical->bytes - offset || !find_reservation((uintptr_t)ptr, size) ||
	    any_mapped((uintptr_t)ptr, size))
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = map_physical((uintptr_t)ptr, size, offset, physical);
	pthread_mutex_unlock(&lock);
	return result;
}

static size_t table_bytes(const struct vmm_mapping *mapping)
{
	return mapping->physical->gpu < 0 ? mapping->bytes / TABLE_SHARE : 0;
}

/* A full GPU still has room for page tables: the driver keeps some memory for them. */
static void add_tables(struct vmm_mapping *mapping)
{
	for (int device = 0; device < (int)SIM_GPUS; device++)
		if ((mapping->readable & ~mapping->tables) >> device & 1 &&
		    sim_memory_charge(sim_gpu_of(device), (int64_t)table_bytes(mapping)) == CUDA_SUCCESS)
			mapping->tables |= UINT32_C(1) << device;
}

static void remove_tables(const struct vmm_mapping *mapping)
{
	for (int device = 0; device < (int)SIM_GPUS; device++)
		if (mapping->tables >> device & 1)
			sim_memory_charge(sim_gpu_of(device), -(int64_t)table_bytes(mapping));
}

static void unmap_range(struct vmm_mapping **at)
{
	struct vmm_mapping *mapping = *at;
	remove_tables(mapping);
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
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	bool covered = is_covered((uintptr_t)ptr, size);
	for (struct vmm_mapping **at = &mappings; covered && *at;) {
		if (is_inside(*at, (uintptr_t)ptr, size))
			unmap_range(at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&lock);
	return covered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- access ---------------------------------------------------------------------------- */

static uint32_t bit_of(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? UINT32_C(1) << location->id : HOST_BIT;
}

static CUresult check_access(const CUmemAccessDesc *desc)
{
	bool known = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
		     desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return known ? check_location(&desc->location) : CUDA_ERROR_INVALID_VALUE;
}

/* The CPU has no access to memory of a GPU. */
static bool allows_host(uintptr_t base, size_t bytes)
{
	for (struct vmm_mapping *at = mappings; at; at = at->next)
		if (is_inside(at, base, bytes) && at->physical->gpu >= 0)
			return false;
	return true;
}

/* Kernels and copies run on the CPU, so the mapping is accessible to the process if anyone has access. */
static void apply_access(struct vmm_mapping *mapping, const CUmemAccessDesc *desc)
{
	uint32_t bit = bit_of(&desc->location);
	mapping->readable &= ~bit;
	mapping->writable &= ~bit;
	if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
		mapping->readable |= bit;
	if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		mapping->writable |= bit;
	int protection = (mapping->readable ? PROT_READ : 0) | (mapping->writable ? PROT_WRITE : 0);
	(void)mprotect((void *)mapping->base, mapping->bytes, protection);
}

CUresult sim_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	bool host = false;
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!desc || !count))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		result = check_access(&desc[i]);
		host |= desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE;
	}
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	if (!is_covered((uintptr_t)ptr, size) || (host && !allows_host((uintptr_t)ptr, size)))
		result = CUDA_ERROR_INVALID_VALUE;
	for (struct vmm_mapping *at = mappings; result == CUDA_SUCCESS && at; at = at->next)
		for (size_t i = 0; i < count && is_inside(at, (uintptr_t)ptr, size); i++)
			apply_access(at, &desc[i]);
	for (struct vmm_mapping *at = mappings; result == CUDA_SUCCESS && at; at = at->next)
		if (is_inside(at, (uintptr_t)ptr, size))
			add_tables(at);
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!flags || !location))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = check_location(location);
	if (result != CUDA_SUCCESS)
		return result;
	uint32_t bit = bit_of(location);
	result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (struct vmm_mapping *at = mappings; at; at = at->next)
		if (ptr >= at->base && ptr < at->base + at->bytes) {
			*flags = at->writable & bit   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
				 : at->readable & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
						      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
			result = CUDA_SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	return result;
}

/* --- handles ----------------------------------------------------------------------------- */

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
	bool allowed = physical && physical->properties.requestedHandleTypes & (unsigned)handleType;
	int fd = allowed ? fcntl(physical->fd, F_DUPFD_CLOEXEC, 3) : -1;
	pthread_mutex_unlock(&lock);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)shareableHandle = fd;
	return CUDA_SUCCESS;
}

/* Finds out on which GPU the memory behind the descriptor is: -1 = on the host. False: it is no physical memory. */
static bool read_memfd(int fd, int *gpu)
{
	char path[64], name[128];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, name, sizeof name - 1);
	if (n < 0)
		return false;
	name[n] = '\0';
	return sscanf(name, "/memfd:" MEMFD_NAME ":%d", gpu) == 1;
}

/* Imported memory stays accounted to the process that created it. */
CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					    CUmemAllocationHandleType shHandleType)
{
	struct stat status;
	struct physical_memory imported = {
		.account = -1,
		.properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}};
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	int given = (int)(intptr_t)osHandle;
	if (!handle || fstat(given, &status) < 0 || !read_memfd(given, &imported.gpu))
		return CUDA_ERROR_INVALID_VALUE;
	imported.bytes = (size_t)status.st_size;
	imported.properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
	if (imported.gpu >= 0)
		imported.properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE,
							       sim_device_of(imported.gpu)};
	if (imported.gpu >= 0 && imported.properties.location.id < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	imported.fd = fcntl(given, F_DUPFD_CLOEXEC, 3);
	result = imported.fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : adopt_memory(&imported, handle);
	if (result != CUDA_SUCCESS && imported.fd >= 0)
		close(imported.fd);
	return result;
}
