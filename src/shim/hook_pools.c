/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of stream-ordered memory, its pools, and graphs that allocate. Requested
 * memory is on the account at once. Only the driver knows what pools keep beyond
 * that and what graphs hold. The shim asks the driver at slow calls, outside
 * captures, and puts the answer on the account even if it exceeds the limit.
 * Allocations use memory kept by pools first. If the account is full, the shim
 * makes the driver free unused memory before it refuses an allocation, as the
 * driver does when the GPU is full.
 */
#include "shim/elastic.h"
#include "shim/hook_memory.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"

#include <pthread.h>

#define POOLS_MAX 64 /* most pools of the program on one GPU that are asked for their size */

static atomic_bool graphs_allocate; /* some graph of this process has allocation nodes */
static atomic_bool pools_allocate;  /* this process has allocated from some pool */

/*
 * Prevents that a pool is destroyed while the driver is asked about it. The only
 * lock that is held during driver calls. It cannot deadlock, because the asking
 * side only tries to take it.
 */
static pthread_mutex_t destroying = PTHREAD_MUTEX_INITIALIZER;

/* ---- allocation and free ---- */

static bool is_captured(CUstream stream, CUstream when_null)
{
	return atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0 &&
	       hb_stream_captures(stream ? stream : when_null);
}

/* A graph allocates when it runs, so this checks only whether the memory would fit now. */
static bool allow_in_graph(unsigned gpu, uint64_t bytes)
{
	atomic_store_explicit(&graphs_allocate, true, memory_order_relaxed);
	return hb_memory_fits(gpu, bytes);
}

/* Returns the GPU of a pool's memory: none for a pool on the host, the current GPU for the driver's own pools. */
static unsigned gpu_of_pool(CUmemoryPool pool)
{
	struct hb_memory_entry entry;
	if (hb_memory_table_get(HB_MEMORY_POOL, (uint64_t)(uintptr_t)pool, &entry))
		return entry.gpu;
	return hb_tenant_gpu();
}

static CUresult note_pool_allocated(const struct hb_claim *claim, CUresult result, const CUdeviceptr *pointer)
{
	if (result == CUDA_SUCCESS)
		atomic_store_explicit(&pools_allocate, true, memory_order_relaxed);
	return hb_memory_allocated(claim, result, HB_MEMORY_POINTER, result == CUDA_SUCCESS ? *pointer : 0);
}

#define ALLOC_ASYNC(name, when_null) \
	CUresult hb_hook_##name(CUdeviceptr *pointer, size_t bytes, CUstream stream) \
	{ \
		struct hb_claim claim; \
		if (is_captured(stream, when_null)) \
			return allow_in_graph(hb_tenant_gpu(), bytes) ? HB_REAL(name)(pointer, bytes, stream) \
								      : CUDA_ERROR_OUT_OF_MEMORY; \
		if (!hb_memory_claim_kept(&claim, hb_tenant_gpu(), bytes)) \
			return CUDA_ERROR_OUT_OF_MEMORY; \
		return note_pool_allocated(&claim, HB_WITH_ROOM(&claim, HB_REAL(name)(pointer, bytes, stream)), \
					   pointer); \
	}

ALLOC_ASYNC(cuMemAllocAsync, CU_STREAM_LEGACY)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, CU_STREAM_PER_THREAD)

#define ALLOC_FROM_POOL(name, when_null) \
	CUresult hb_hook_##name(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) \
	{ \
		struct hb_claim claim; \
		unsigned gpu = gpu_of_pool(pool); \
		if (is_captured(stream, when_null)) \
			return allow_in_graph(gpu, bytes) ? HB_REAL(name)(pointer, bytes, pool, stream) \
							  : CUDA_ERROR_OUT_OF_MEMORY; \
		if (!hb_memory_claim_kept(&claim, gpu, bytes)) \
			return CUDA_ERROR_OUT_OF_MEMORY; \
		return note_pool_allocated(&claim, HB_WITH_ROOM(&claim, HB_REAL(name)(pointer, bytes, pool, stream)), \
					   pointer); \
	}

ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, CU_STREAM_LEGACY)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, CU_STREAM_PER_THREAD)

/* A captured free happens when the graph runs; the memory stays on the account until its context is destroyed. */
#define FREE_ASYNC(name, when_null) \
	CUresult hb_hook_##name(CUdeviceptr pointer, CUstream stream) \
	{ \
		struct hb_memory_entry entry; \
		bool captured = is_captured(stream, when_null); \
		CUresult result; \
		if (!captured && hb_elastic_free(pointer, &result)) \
			return result; \
		bool known = !captured && hb_memory_begin_free(HB_MEMORY_POINTER, pointer, &entry); \
		return hb_memory_released(known, &entry, HB_REAL(name)(pointer, stream)); \
	}

FREE_ASYNC(cuMemFreeAsync, CU_STREAM_LEGACY)
FREE_ASYNC(cuMemFreeAsync_ptsz, CU_STREAM_PER_THREAD)

/* ---- pools ---- */

/* A managed pool without a location counts, like managed memory, on the current GPU. */
static unsigned gpu_of_props(const CUmemPoolProps *props)
{
	bool anywhere = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED &&
			props->location.type == CU_MEM_LOCATION_TYPE_NONE;
	return anywhere ? hb_tenant_gpu() : hb_gpu_at(&props->location);
}

CUresult hb_hook_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	CUresult result = HB_REAL(cuMemPoolCreate)(pool, props);
	if (result == CUDA_SUCCESS) {
		struct hb_memory_entry replaced, entry = {.handle = (uint64_t)(uintptr_t)*pool,
							  .kind = HB_MEMORY_POOL,
							  .gpu = (uint8_t)gpu_of_props(props)};
		hb_memory_table_put(&entry, &replaced);
	}
	return result;
}

CUresult hb_hook_cuMemPoolDestroy(CUmemoryPool pool)
{
	struct hb_memory_entry replaced, entry;
	pthread_mutex_lock(&destroying);
	bool known = hb_memory_table_take(HB_MEMORY_POOL, (uint64_t)(uintptr_t)pool, &entry);
	CUresult result = HB_REAL(cuMemPoolDestroy)(pool);
	if (known && result != CUDA_SUCCESS)
		hb_memory_table_put(&entry, &replaced);
	pthread_mutex_unlock(&destroying);
	return result;
}

/* ---- graphs ---- */

CUresult hb_hook_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
					size_t n_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	if (params && !allow_in_graph(hb_gpu_at(&params->poolProps.location), params->bytesize))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return HB_REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, n_dependencies, params);
}

static bool allow_node(const CUgraphNodeParams *params)
{
	if (!params || params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return true;
	return allow_in_graph(hb_gpu_at(&params->alloc.poolProps.location), params->alloc.bytesize);
}

CUresult hb_hook_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				size_t n_dependencies, CUgraphNodeParams *params)
{
	if (!allow_node(params))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return HB_REAL(cuGraphAddNode)(node, graph, dependencies, n_dependencies, params);
}

CUresult hb_hook_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				   const CUgraphEdgeData *edges, size_t n_dependencies, CUgraphNodeParams *params)
{
	if (!allow_node(params))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return HB_REAL(cuGraphAddNode_v2)(node, graph, dependencies, edges, n_dependencies, params);
}

/* ---- memory that the driver keeps ---- */

static uint64_t read_kept_bytes(CUmemoryPool pool)
{
	uint64_t reserved = 0, in_use = 0;
	if (HB_REAL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &in_use) != CUDA_SUCCESS ||
	    HB_REAL(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS)
		return 0;
	return reserved > in_use ? reserved - in_use : 0;
}

/* Lists the pools with memory on this GPU: the driver's default pool first, then those that the program created. */
static size_t list_pools(CUdevice device, unsigned gpu, CUmemoryPool *pools)
{
	uint64_t handles[POOLS_MAX];
	size_t n = 0, made = hb_memory_table_list(HB_MEMORY_POOL, gpu, handles, POOLS_MAX);
	if (HB_REAL(cuDeviceGetDefaultMemPool)(&pools[0], device) == CUDA_SUCCESS)
		n = 1;
	for (size_t i = 0; i < made; i++)
		pools[n++] = (CUmemoryPool)(uintptr_t)handles[i];
	return n;
}

/* Updates the account of pools. `trim`: makes them free unused memory first. */
static void update_pools(CUdevice device, unsigned gpu, bool trim)
{
	CUmemoryPool pools[1 + POOLS_MAX];
	uint64_t bytes = 0;
	if (!atomic_load_explicit(&pools_allocate, memory_order_relaxed) || pthread_mutex_trylock(&destroying) != 0)
		return;
	size_t n = list_pools(device, gpu, pools);
	for (size_t i = 0; i < n; i++) {
		if (trim)
			HB_WIDE(HB_REAL(cuMemPoolTrimTo)(pools[i], 0));
		bytes += read_kept_bytes(pools[i]);
	}
	pthread_mutex_unlock(&destroying);
	hb_memory_set_kept(HB_KEPT_BY_POOLS, gpu, bytes);
}

static void update_graphs(CUdevice device, unsigned gpu, bool trim)
{
	uint64_t bytes = 0;
	if (!atomic_load_explicit(&graphs_allocate, memory_order_relaxed))
		return;
	if (trim)
		HB_WIDE(HB_REAL(cuDeviceGraphMemTrim)(device));
	if (HB_REAL(cuDeviceGetGraphMemAttribute)(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) ==
	    CUDA_SUCCESS)
		hb_memory_set_kept(HB_KEPT_BY_GRAPHS, gpu, bytes);
}

/* Updates the account of the current GPU. False: nothing is kept, or the driver must not be asked now. */
static bool update_kept(bool trim)
{
	CUdevice device;
	bool some = atomic_load_explicit(&graphs_allocate, memory_order_relaxed) ||
		    atomic_load_explicit(&pools_allocate, memory_order_relaxed);
	if (!some || atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0)
		return false;
	unsigned gpu = hb_tenant_gpu();
	if (gpu >= HB_PAGE_GPUS || HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
		return false;
	update_pools(device, gpu, trim);
	update_graphs(device, gpu, trim);
	return true;
}

void hb_memory_update_kept(void)
{
	update_kept(false);
}

bool hb_memory_shrink_kept(unsigned gpu)
{
	return gpu == hb_tenant_gpu() && update_kept(true);
}

void hb_pools_leave_in_child(void)
{
	pthread_mutex_init(&destroying, NULL);
	atomic_store(&graphs_allocate, false);
	atomic_store(&pools_allocate, false);
}
