/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of device memory: each claims room on the tenant's account, asks the
 * driver, and notes what came of it. Memory on the host, imported memory and
 * memory of another process is not counted; what the driver rounds up or keeps
 * in pools is the driver's. The forms from before CUDA 3.2, whose pointers have
 * 32 bits, pass through uncounted.
 */
#include "shim/hold.h"
#include "shim/memory_account.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

#define PITCH_BYTES 512 /* what drivers align pitches to; corrected when the real one is known */
/* CUDA_ARRAY3D_*: layers are not halved from level to level; sparse and deferred arrays have no memory of their own. */
#define ARRAY_LAYERED 0x01u
#define ARRAY_WITHOUT_MEMORY (0x40u | 0x80u)

static atomic_bool graphs_allocate; /* some graph of this process has allocation nodes */

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t current_context(void)
{
	CUcontext context = NULL;
	return HB_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? (uint64_t)(uintptr_t)context : 0;
}

/* The end of every allocation that dies with its context. `handle` is valid when the driver agreed. */
static CUresult allocated(const struct hb_claim *claim, CUresult result, enum hb_memory_kind kind, const void *handle)
{
	if (result != CUDA_SUCCESS)
		hb_memory_cancel(claim);
	else
		hb_memory_note(claim, kind, *(const uint64_t *)handle, current_context());
	return result;
}

/* ---- plain, pitched, managed ---- */

CUresult hb_hook_cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	struct hb_claim claim;
	hb_tenant_tend();
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(&claim, HB_DOUBT(HB_REAL(cuMemAlloc_v2)(pointer, bytes)), HB_MEMORY_POINTER, pointer);
}

CUresult hb_hook_cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height,
				    unsigned int element_bytes)
{
	struct hb_claim claim;
	uint64_t guess = times(width_bytes / PITCH_BYTES + (width_bytes % PITCH_BYTES != 0),
			       times(PITCH_BYTES, height));
	hb_tenant_tend();
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), guess))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = HB_DOUBT(HB_REAL(cuMemAllocPitch_v2)(pointer, pitch, width_bytes, height, element_bytes));
	if (result == CUDA_SUCCESS)
		hb_memory_adjust(&claim, times(*pitch, height));
	return allocated(&claim, result, HB_MEMORY_POINTER, pointer);
}

CUresult hb_hook_cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	struct hb_claim claim;
	hb_tenant_tend();
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(&claim, HB_DOUBT(HB_REAL(cuMemAllocManaged)(pointer, bytes, flags)), HB_MEMORY_POINTER, pointer);
}

/* The end of every release: `known` says that entry was taken from the table before the call. */
static CUresult released(bool known, const struct hb_memory_entry *entry, CUresult result)
{
	if (result == CUDA_SUCCESS)
		hb_shim_count(HB_COUNT_frees, 1);
	if (known)
		hb_memory_end_free(entry, result == CUDA_SUCCESS);
	return result;
}

CUresult hb_hook_cuMemFree_v2(CUdeviceptr pointer)
{
	struct hb_memory_entry entry;
	bool known = hb_memory_begin_free(HB_MEMORY_POINTER, pointer, &entry);
	return released(known, &entry, HB_WIDE(HB_REAL(cuMemFree_v2)(pointer)));
}

/* ---- stream-ordered ---- */

static bool is_recorded(CUstream stream, CUstream when_null)
{
	return atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0 &&
	       hb_stream_captures(stream ? stream : when_null);
}

/* A graph's memory is taken when the graph runs: here only whether it could fit. */
static bool allow_in_graph(unsigned gpu, uint64_t bytes)
{
	atomic_store_explicit(&graphs_allocate, true, memory_order_relaxed);
	return hb_memory_fits(gpu, bytes);
}

#define ALLOC_ASYNC(name, when_null) \
	CUresult hb_hook_##name(CUdeviceptr *pointer, size_t bytes, CUstream stream) \
	{ \
		struct hb_claim claim; \
		if (is_recorded(stream, when_null)) \
			return allow_in_graph(hb_tenant_gpu(), bytes) ? HB_REAL(name)(pointer, bytes, stream) \
								      : CUDA_ERROR_OUT_OF_MEMORY; \
		if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes)) \
			return CUDA_ERROR_OUT_OF_MEMORY; \
		return allocated(&claim, HB_REAL(name)(pointer, bytes, stream), HB_MEMORY_POINTER, pointer); \
	}

ALLOC_ASYNC(cuMemAllocAsync, CU_STREAM_LEGACY)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, CU_STREAM_PER_THREAD)

/* Where a pool's memory lies: its own GPU, none for a pool on the host, the current one for the driver's own pools. */
static unsigned gpu_of_pool(CUmemoryPool pool)
{
	struct hb_memory_entry entry;
	if (hb_memory_table_get(HB_MEMORY_POOL, (uint64_t)(uintptr_t)pool, &entry))
		return entry.gpu;
	return hb_tenant_gpu();
}

#define ALLOC_FROM_POOL(name, when_null) \
	CUresult hb_hook_##name(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) \
	{ \
		struct hb_claim claim; \
		unsigned gpu = gpu_of_pool(pool); \
		if (is_recorded(stream, when_null)) \
			return allow_in_graph(gpu, bytes) ? HB_REAL(name)(pointer, bytes, pool, stream) \
							  : CUDA_ERROR_OUT_OF_MEMORY; \
		if (!hb_memory_claim(&claim, gpu, bytes)) \
			return CUDA_ERROR_OUT_OF_MEMORY; \
		return allocated(&claim, HB_REAL(name)(pointer, bytes, pool, stream), HB_MEMORY_POINTER, pointer); \
	}

ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, CU_STREAM_LEGACY)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, CU_STREAM_PER_THREAD)

/* A free that is recorded happens when the graph runs; the memory stays on the account until its owner goes. */
#define FREE_ASYNC(name, when_null) \
	CUresult hb_hook_##name(CUdeviceptr pointer, CUstream stream) \
	{ \
		struct hb_memory_entry entry; \
		bool known = !is_recorded(stream, when_null) && \
			     hb_memory_begin_free(HB_MEMORY_POINTER, pointer, &entry); \
		return released(known, &entry, HB_REAL(name)(pointer, stream)); \
	}

FREE_ASYNC(cuMemFreeAsync, CU_STREAM_LEGACY)
FREE_ASYNC(cuMemFreeAsync_ptsz, CU_STREAM_PER_THREAD)

static unsigned gpu_at(const CUmemLocation *location)
{
	const struct hb_place *place = hb_place();
	bool on_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
			 location->id < HB_PAGE_GPUS;
	return place->page && on_device ? place->gpu_of_device[location->id] : HB_PAGE_GPUS;
}

CUresult hb_hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	CUresult result = HB_REAL(cuMemPoolCreate)(pool, props);
	if (result == CUDA_SUCCESS) {
		struct hb_memory_entry replaced, entry = {.handle = (uint64_t)(uintptr_t)*pool,
							  .kind = HB_MEMORY_POOL,
							  .gpu = (uint8_t)gpu_at(&props->location)};
		hb_memory_table_put(&entry, &replaced);
	}
	return result;
}

CUresult hb_hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	struct hb_memory_entry replaced, entry;
	bool known = hb_memory_table_take(HB_MEMORY_POOL, (uint64_t)(uintptr_t)pool, &entry);
	CUresult result = HB_REAL(cuMemPoolDestroy)(pool);
	if (known && result != CUDA_SUCCESS)
		hb_memory_table_put(&entry, &replaced);
	return result;
}

CUresult hb_hook_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					size_t n_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	if (params && !allow_in_graph(gpu_at(&params->poolProps.location), params->bytesize))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return HB_REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, n_dependencies, params);
}

void hb_memory_look_at_graphs(void)
{
	CUdevice device;
	uint64_t bytes = 0;
	if (!atomic_load_explicit(&graphs_allocate, memory_order_relaxed) ||
	    atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0 ||
	    HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
	    HB_REAL(cuDeviceGetGraphMemAttribute)(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) !=
		    CUDA_SUCCESS)
		return;
	hb_memory_set_graphs(hb_tenant_gpu(), bytes);
}

/* ---- arrays ---- */

static uint64_t element_bytes(CUarray_format format, unsigned channels)
{
	switch ((unsigned)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2ull * channels;
	default: /* 32 bits, and packed or compressed formats, which take less */
		return 4ull * channels;
	}
}

static uint64_t at_least_1(uint64_t n)
{
	return n ? n : 1;
}

static uint64_t array3d_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	uint64_t bytes = 0, width = d->Width, height = d->Height, depth = d->Depth;
	if (d->Flags & ARRAY_WITHOUT_MEMORY)
		return 0;
	for (unsigned level = 0; level < levels; level++) {
		uint64_t area = times(at_least_1(width), times(at_least_1(height), at_least_1(depth)));
		uint64_t more = times(area, element_bytes(d->Format, d->NumChannels));
		bytes = more > UINT64_MAX - bytes ? UINT64_MAX : bytes + more;
		width /= 2;
		height /= 2;
		depth = d->Flags & ARRAY_LAYERED ? depth : depth / 2;
		if (width + height == 0)
			break;
	}
	return bytes;
}

CUresult hb_hook_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
	struct hb_claim claim;
	uint64_t bytes = d ? times(times(d->Width, at_least_1(d->Height)), element_bytes(d->Format, d->NumChannels))
			   : 0;
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(&claim, HB_DOUBT(HB_REAL(cuArrayCreate_v2)(array, d)), HB_MEMORY_ARRAY, array);
}

CUresult hb_hook_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct hb_claim claim;
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), d ? array3d_bytes(d, 1) : 0))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(&claim, HB_DOUBT(HB_REAL(cuArray3DCreate_v2)(array, d)), HB_MEMORY_ARRAY, array);
}

CUresult hb_hook_cuArrayDestroy(CUarray array)
{
	struct hb_memory_entry entry;
	bool known = hb_memory_begin_free(HB_MEMORY_ARRAY, (uint64_t)(uintptr_t)array, &entry);
	return released(known, &entry, HB_WIDE(HB_REAL(cuArrayDestroy)(array)));
}

CUresult hb_hook_cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	struct hb_claim claim;
	if (!hb_memory_claim(&claim, hb_tenant_gpu(), d ? array3d_bytes(d, levels) : 0))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(&claim, HB_DOUBT(HB_REAL(cuMipmappedArrayCreate)(array, d, levels)), HB_MEMORY_MIPMAP, array);
}

CUresult hb_hook_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct hb_memory_entry entry;
	bool known = hb_memory_begin_free(HB_MEMORY_MIPMAP, (uint64_t)(uintptr_t)array, &entry);
	return released(known, &entry, HB_WIDE(HB_REAL(cuMipmappedArrayDestroy)(array)));
}

/* ---- virtual memory: physical handles live while retained or mapped ---- */

CUresult hb_hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
			     unsigned long long flags)
{
	struct hb_claim claim;
	hb_tenant_tend();
	if (!hb_memory_claim(&claim, prop ? gpu_at(&prop->location) : HB_PAGE_GPUS, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = HB_DOUBT(HB_REAL(cuMemCreate)(handle, bytes, prop, flags));
	if (result == CUDA_SUCCESS)
		hb_memory_note(&claim, HB_MEMORY_PHYSICAL, *handle, 0);
	else
		hb_memory_cancel(&claim);
	return result;
}

CUresult hb_hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	uint64_t serial = hb_memory_serial(handle);
	CUresult result = HB_WIDE(HB_REAL(cuMemRelease)(handle));
	if (result == CUDA_SUCCESS) {
		hb_shim_count(HB_COUNT_frees, 1);
		hb_memory_hold(handle, serial, -1);
	}
	return result;
}

CUresult hb_hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	CUresult result = HB_REAL(cuMemRetainAllocationHandle)(handle, address);
	if (result == CUDA_SUCCESS)
		hb_memory_hold(*handle, hb_memory_serial(*handle), +1);
	return result;
}

/* Held before the call: a release in another thread must not take itself for the last. */
CUresult hb_hook_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
			  unsigned long long flags)
{
	struct hb_memory_entry replaced, mapping = {.handle = address,
						    .owner = handle,
						    .serial = hb_memory_serial(handle),
						    .kind = HB_MEMORY_MAPPING,
						    .gpu = HB_PAGE_GPUS};
	hb_memory_hold(handle, mapping.serial, +1);
	CUresult result = HB_DOUBT(HB_REAL(cuMemMap)(address, bytes, offset, handle, flags));
	if (result != CUDA_SUCCESS)
		hb_memory_hold(handle, mapping.serial, -1);
	else if (mapping.serial && hb_memory_table_put(&mapping, &replaced) && replaced.kind != HB_MEMORY_NONE)
		hb_memory_hold(replaced.owner, replaced.serial, -1);
	return result;
}

CUresult hb_hook_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	struct hb_memory_entry mapping;
	hb_memory_table_mark(address, bytes, true);
	CUresult result = HB_WIDE(HB_REAL(cuMemUnmap)(address, bytes));
	if (result != CUDA_SUCCESS)
		hb_memory_table_mark(address, bytes, false);
	while (result == CUDA_SUCCESS && hb_memory_table_take_marked(address, bytes, &mapping))
		hb_memory_hold(mapping.owner, mapping.serial, -1);
	return result;
}

/* ---- what the tenant is told ---- */

CUresult hb_hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	size_t driver_free = 0, driver_total = 0;
	hb_tenant_tend();
	CUresult result = HB_REAL(cuMemGetInfo_v2)(&driver_free, &driver_total);
	if (result != CUDA_SUCCESS)
		return result;
	hb_memory_info(hb_tenant_gpu(), &driver_free, &driver_total);
	/* Some callers want only one of the two. */
	if (free_bytes)
		*free_bytes = driver_free;
	if (total_bytes)
		*total_bytes = driver_total;
	return result;
}
