/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's calls on physical handles that the shim has replaced by numbers of its own (own_handles.h,
 * docs/decisions/0045-own-handles.md). own_lists.c has the lists of them.
 */
#include "shim/own_handles_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "shim/shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The upper 16 bits of numbers. A driver's handle is a pointer or a small index, and user addresses never have these bits. */
#define NUMBERS UINT64_C(0x4842)
#define NUMBER_SHIFT 48

/* How long a call tries to bring memory home, and when it tries again. */
#define HOME_MOST_NS (3 * HB_NS_PER_S)
#define HOME_AGAIN_NS HB_NS_PER_MS

/* Held during calls of the program on its handles, driver calls included. Not taken by look-ups, nor by the moving thread. */
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool no_more;       /* further handles are the driver's */
static _Atomic(uint64_t) counter; /* not reset in a forked child, so that its numbers differ from the parent's */

static bool looks_like_number(CUmemGenericAllocationHandle handle)
{
	return handle >> NUMBER_SHIFT == NUMBERS;
}

/* Whether the shim has given this number, now or before. Everything else belongs to the driver. */
static bool is_number(CUmemGenericAllocationHandle handle)
{
	uint64_t place = handle & ((UINT64_C(1) << NUMBER_SHIFT) - 1);
	return looks_like_number(handle) && place && place <= atomic_load(&counter);
}

static struct hb_granules *granules_of(const struct own_handle *own)
{
	return hb_elastic_granules(own->device);
}

/* Gives the memory back after the last reference and the last mapping. */
static void end_if_unused(struct own_handle *own)
{
	if (own->references || own->n_mappings)
		return;
	hb_own_remove_handle(own);
	hb_granules_return_piece(granules_of(own), &own->piece);
	free(own);
}

/* ---- moving, and staying ---- */

/* Waits for the end of a move that copies. */
static void stop_moving(struct own_mapping *mapping)
{
	struct hb_granules_piece piece;
	mapping->stopped = mapping->moves;
	if (!mapping->moves)
		return;
	if (hb_granules_disown(granules_of(mapping->handle), mapping->base, &piece))
		hb_own_set_piece(mapping->handle, &piece);
	hb_own_set_moves(mapping, false);
}

/* Its device has access. Without memory for the shim's tables it does not move. */
static void let_move(struct own_mapping *mapping)
{
	hb_own_set_moves(mapping, !mapping->handle->stays && hb_granules_adopt(granules_of(mapping->handle),
									       mapping->base, &mapping->handle->piece));
}

static CUresult give_access(const struct own_handle *own, CUdeviceptr address)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, own->device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return HB_REAL(cuMemSetAccess)(address, own->piece.bytes, &access, 1);
}

/* The memory is mapped at the address, and the device has access. */
static CUresult move_home(struct own_handle *own, CUdeviceptr address)
{
	struct hb_granules *granules = granules_of(own);
	struct hb_granules_piece piece;
	if (!hb_granules_adopt(granules, address, &own->piece))
		return CUDA_ERROR_OUT_OF_MEMORY;
	(void)hb_granules_pin(granules, address, HB_STAY_SHARED); /* so that no order moves it away again */
	const struct hb_elastic_found found = {.device = own->device, .range.base = address};
	const int64_t until_ns = hb_clock_now_ns() + HOME_MOST_NS;
	CUresult result = hb_elastic_bring_home(&found);
	while (result == CUDA_ERROR_NOT_READY && hb_clock_now_ns() < until_ns) { /* work in flight may end soon */
		nanosleep(&(struct timespec){.tv_nsec = HOME_AGAIN_NS}, NULL);
		result = hb_elastic_bring_home(&found);
	}
	if (hb_granules_disown(granules, address, &piece))
		hb_own_set_piece(own, &piece);
	return result;
}

/* Moves under an address of the shim. */
static CUresult move_unmapped_home(struct own_handle *own)
{
	CUdeviceptr address;
	size_t bytes = own->piece.bytes;
	CUresult result = HB_REAL(cuMemAddressReserve)(&address, bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = HB_REAL(cuMemMap)(address, bytes, 0, own->piece.handle, 0);
	if (result == CUDA_SUCCESS) {
		result = give_access(own, address);
		if (result == CUDA_SUCCESS)
			result = move_home(own, address);
		/* If this fails twice, some memory is lost to the process, but none of its bytes. */
		if (HB_REAL(cuMemUnmap)(address, bytes) != CUDA_SUCCESS)
			(void)HB_REAL(cuMemUnmap)(address, bytes);
	}
	if (HB_REAL(cuMemAddressFree)(address, bytes) != CUDA_SUCCESS)
		(void)HB_REAL(cuMemAddressFree)(address, bytes);
	return result;
}

/* To copy, the device needs access. If the program has given it none yet, the shim does; the program would do so next. */
static CUresult move_mapped_home(struct own_handle *own, const struct own_mapping *mapping)
{
	CUresult result = mapping->stopped ? CUDA_SUCCESS : give_access(own, mapping->base);
	return result == CUDA_SUCCESS ? move_home(own, mapping->base) : result;
}

/* From now on the memory is on its own device, and stays. An error: it is elsewhere and cannot return now. */
static CUresult keep_handle_home(struct own_handle *own)
{
	CUresult result = CUDA_SUCCESS;
	if (own->stays)
		return result;
	struct own_mapping *mapping = own->n_mappings ? hb_own_find_mapping(own->base) : NULL;
	if (mapping)
		stop_moving(mapping);
	if (!hb_own_is_home(own))
		result = mapping ? move_mapped_home(own, mapping) : move_unmapped_home(own);
	hb_own_set_stays(own, result == CUDA_SUCCESS);
	if (result != CUDA_SUCCESS)
		hb_log_warning(
			"elastic memory: %zu bytes that the program created with cuMemCreate are in memory of the host or "
			"of another GPU and could not return, so they cannot be shared or mapped twice now",
			own->piece.bytes);
	if (mapping && mapping->stopped)
		let_move(mapping);
	hb_elastic_note_change();
	return result;
}

CUresult hb_own_keep_home(CUdeviceptr address, size_t bytes)
{
	struct own_mapping *mapping;
	CUresult result = CUDA_SUCCESS;
	if (!hb_own_has_any())
		return result;
	pthread_mutex_lock(&calls);
	for (size_t i = hb_own_find_first(address);
	     result == CUDA_SUCCESS && (mapping = hb_own_mapping_in(i, address, bytes)); i++)
		result = keep_handle_home(mapping->handle);
	pthread_mutex_unlock(&calls);
	return result;
}

/* ---- create, release, retain ---- */

/* Only memory of a kind that the shim can create again exactly may move. */
static bool can_move(size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUmemAllocationProp known = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = prop->requestedHandleTypes,
				     .location = prop->location,
				     .allocFlags.gpuDirectRDMACapable = prop->allocFlags.gpuDirectRDMACapable};
	return bytes % HB_GRANULE_UNIT == 0 && bytes <= HB_GRANULE_BYTES_MAX && !flags && prop->type == known.type &&
	       prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !prop->win32HandleMetaData &&
	       !(prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) &&
	       memcmp(&prop->allocFlags, &known.allocFlags, sizeof(known.allocFlags)) == 0;
}

/* Replaces the driver's handle, if it can be. */
static void give_number(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop)
{
	struct own_handle *own = calloc(1, sizeof(*own));
	if (!own)
		return;
	*own = (struct own_handle){
		.number = NUMBERS << NUMBER_SHIFT | (1 + atomic_fetch_add(&counter, 1)),
		.properties = *prop,
		.device = prop->location.id,
		.piece = {*handle,
			  bytes,
			  prop->location,
			  {prop->requestedHandleTypes, prop->allocFlags.gpuDirectRDMACapable}},
		.references = 1,
	};
	(void)HB_REAL(cuMemGetAllocationPropertiesFromHandle)(&own->properties, *handle);
	CUmemGenericAllocationHandle number = own->number;
	pthread_mutex_lock(&calls);
	if (hb_own_add_handle(own)) {
		*handle = number;
	} else {
		free(own);
	}
	pthread_mutex_unlock(&calls);
}

static void explain_once(void)
{
	static atomic_flag explained = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set(&explained))
		hb_log_warning(
			"elastic memory: the program has looked up functions for physical memory that this version of "
			"Hummingbird does not know, so memory that it creates with cuMemCreate stays on the GPU");
}

CUresult hb_own_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		       unsigned long long flags)
{
	CUresult result = HB_REAL(cuMemCreate)(handle, bytes, prop, flags);
	if (result == CUDA_SUCCESS && looks_like_number(*handle))
		atomic_store(&no_more, true); /* the driver uses such numbers itself */
	if (result != CUDA_SUCCESS || !can_move(bytes, prop, flags) || !hb_elastic_prepare(prop->location.id))
		return result;
	if (atomic_load_explicit(&no_more, memory_order_relaxed))
		explain_once();
	else
		give_number(handle, bytes, prop);
	return result;
}

CUresult hb_own_release(CUmemGenericAllocationHandle handle)
{
	if (!is_number(handle))
		return HB_REAL(cuMemRelease)(handle);
	pthread_mutex_lock(&calls);
	struct own_handle *own = hb_own_find_handle(handle);
	if (own) {
		own->references--;
		end_if_unused(own);
	}
	pthread_mutex_unlock(&calls);
	return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult hb_own_retain(CUmemGenericAllocationHandle *handle, void *address)
{
	if (!hb_own_has_any())
		return HB_REAL(cuMemRetainAllocationHandle)(handle, address);
	pthread_mutex_lock(&calls);
	struct own_mapping *mapping = handle ? hb_own_find_mapping((CUdeviceptr)(uintptr_t)address) : NULL;
	CUresult result = CUDA_SUCCESS;
	if (mapping) {
		mapping->handle->references++;
		*handle = mapping->handle->number;
	} else {
		result = HB_REAL(cuMemRetainAllocationHandle)(handle, address);
	}
	pthread_mutex_unlock(&calls);
	return result;
}

/* ---- map, unmap, access ---- */

static bool is_inside(const struct own_mapping *mapping, CUdeviceptr address, size_t bytes)
{
	return mapping->base >= address && mapping->bytes <= bytes && mapping->base - address <= bytes - mapping->bytes;
}

static CUresult map_own(struct own_handle *own, CUdeviceptr address, size_t bytes, size_t offset,
			unsigned long long flags)
{
	bool whole = !offset && bytes == own->piece.bytes && !flags;
	CUresult result = whole && !own->n_mappings ? CUDA_SUCCESS : keep_handle_home(own);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMemMap)(address, bytes, offset, own->piece.handle, flags);
	if (result == CUDA_SUCCESS && !hb_own_add_mapping(own, address, bytes)) {
		(void)HB_REAL(cuMemUnmap)(address, bytes);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

CUresult hb_own_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		    unsigned long long flags)
{
	if (!is_number(handle))
		return HB_REAL(cuMemMap)(address, bytes, offset, handle, flags);
	pthread_mutex_lock(&calls);
	struct own_handle *own = hb_own_find_handle(handle);
	CUresult result = own ? map_own(own, address, bytes, offset, flags) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&calls);
	return result;
}

CUresult hb_own_unmap(CUdeviceptr address, size_t bytes)
{
	struct own_mapping *mapping;
	if (!hb_own_has_any())
		return HB_REAL(cuMemUnmap)(address, bytes);
	pthread_mutex_lock(&calls);
	size_t first = hb_own_find_first(address), i;
	for (i = first; (mapping = hb_own_mapping_in(i, address, bytes)); i++)
		stop_moving(mapping);
	CUresult result = HB_REAL(cuMemUnmap)(address, bytes);
	for (i = first; (mapping = hb_own_mapping_in(i, address, bytes));) {
		if (result == CUDA_SUCCESS && is_inside(mapping, address, bytes)) {
			struct own_handle *own = mapping->handle;
			hb_own_remove_mapping(i);
			end_if_unused(own);
			continue;
		}
		if (mapping->stopped)
			let_move(mapping);
		i++;
	}
	pthread_mutex_unlock(&calls);
	return result;
}

/* Whether the call gives the access with which memory can move. */
static bool is_usual_access(const struct own_mapping *mapping, CUdeviceptr address, size_t bytes,
			    const CUmemAccessDesc *descs, size_t n)
{
	return descs && n == 1 && descs->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       descs->location.id == mapping->handle->device && descs->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
	       is_inside(mapping, address, bytes);
}

CUresult hb_own_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t n)
{
	struct own_mapping *mapping;
	CUresult result = CUDA_SUCCESS;
	if (!hb_own_has_any())
		return HB_REAL(cuMemSetAccess)(address, bytes, descs, n);
	pthread_mutex_lock(&calls);
	size_t first = hb_own_find_first(address), end = first;
	for (; result == CUDA_SUCCESS && (mapping = hb_own_mapping_in(end, address, bytes)); end++)
		if (is_usual_access(mapping, address, bytes, descs, n))
			stop_moving(mapping);
		else
			result = keep_handle_home(mapping->handle);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMemSetAccess)(address, bytes, descs, n);
	for (size_t i = first; i < end; i++) {
		mapping = hb_own_mapping_in(i, address, bytes);
		if (!mapping->moves && (mapping->stopped || result == CUDA_SUCCESS))
			let_move(mapping);
	}
	pthread_mutex_unlock(&calls);
	hb_elastic_note_change();
	return result;
}

/* ---- handles ---- */

CUresult hb_own_get_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	if (!is_number(handle))
		return HB_REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
	pthread_mutex_lock(&calls);
	const struct own_handle *own = prop ? hb_own_find_handle(handle) : NULL;
	if (own)
		*prop = own->properties;
	pthread_mutex_unlock(&calls);
	return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult hb_own_export(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
		       unsigned long long flags)
{
	if (!is_number(handle))
		return HB_REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
	pthread_mutex_lock(&calls);
	struct own_handle *own = hb_own_find_handle(handle);
	CUresult result = own ? keep_handle_home(own) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMemExportToShareableHandle)(shareable, own->piece.handle, type, flags);
	pthread_mutex_unlock(&calls);
	return result;
}

CUresult hb_own_bind_multicast(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
			       CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
			       unsigned long long flags)
{
	if (!is_number(handle))
		return HB_REAL(cuMulticastBindMem)(multicast, multicast_offset, handle, offset, bytes, flags);
	pthread_mutex_lock(&calls);
	struct own_handle *own = hb_own_find_handle(handle);
	CUresult result = own ? keep_handle_home(own) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMulticastBindMem)(multicast, multicast_offset, own->piece.handle, offset, bytes,
						     flags);
	pthread_mutex_unlock(&calls);
	return result;
}

/* ---- functions that the shim does not know ---- */

static bool begins_with(const char *symbol, const char *begin)
{
	return strncmp(symbol, begin, strlen(begin)) == 0;
}

void hb_own_note_unknown(const char *symbol, bool known)
{
	static const char *const takes_handles[] = {
		"cuMemCreate",
		"cuMemRelease",
		"cuMemRetainAllocationHandle",
		"cuMemMap",
		"cuMemUnmap",
		"cuMemSetAccess",
		"cuMemGetAllocationPropertiesFromHandle",
		"cuMemExportToShareableHandle",
		"cuMulticast",
	};
	bool may = !known && (begins_with(symbol, "cuMem") || begins_with(symbol, "cuLogicalEndpoint"));
	for (size_t i = 0; i < sizeof(takes_handles) / sizeof(takes_handles[0]); i++)
		may |= begins_with(symbol, takes_handles[i]);
	if (may)
		atomic_store(&no_more, true);
}

/* ---- fork ---- */

void hb_own_leave_in_child(void)
{
	pthread_mutex_init(&calls, NULL);
	hb_own_lists_leave_in_child();
}
