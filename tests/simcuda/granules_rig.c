/* SPDX-License-Identifier: Apache-2.0 */
/* See granules_rig.h. */
#include "granules_rig.h"

#include <limits.h>
#include <string.h>

const CUmemLocation local = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, peer = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
		    host = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};

/* --- a driver whose calls fail on demand ------------------------------------------------------- */

static atomic_long calls_left = LONG_MAX; /* calls until one fails */
static atomic_long failures_left;
atomic_long n_created_on_host;

static bool fails_now(void)
{
	if (atomic_fetch_sub(&calls_left, 1) > 0)
		return false;
	return atomic_fetch_sub(&failures_left, 1) > 0;
}

void fail_calls(long after, long times)
{
	atomic_store(&calls_left, after);
	atomic_store(&failures_left, times);
}

void fail_none(void)
{
	fail_calls(LONG_MAX, 0);
}

bool failed_some(void)
{
	return atomic_load(&calls_left) < 0;
}

#define FAILING(name, call, params, args) \
	static CUresult name params \
	{ \
		return fails_now() ? CUDA_ERROR_UNKNOWN : call args; \
	}
FAILING(address_reserve, cuMemAddressReserve,
	(CUdeviceptr * p, size_t size, size_t align, CUdeviceptr at, unsigned long long flags),
	(p, size, align, at, flags))
FAILING(address_free, cuMemAddressFree, (CUdeviceptr p, size_t size), (p, size))
FAILING(release, cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
FAILING(map, cuMemMap,
	(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
	(p, size, offset, handle, flags))
FAILING(unmap, cuMemUnmap, (CUdeviceptr p, size_t size), (p, size))
FAILING(set_access, cuMemSetAccess, (CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t n),
	(p, size, desc, n))
FAILING(copy, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
	(to, from, size, stream))
FAILING(query, cuStreamQuery, (CUstream stream), (stream))
FAILING(synchronize, cuStreamSynchronize, (CUstream stream), (stream))

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
		       unsigned long long flags)
{
	if (fails_now())
		return CUDA_ERROR_UNKNOWN;
	atomic_fetch_add(&n_created_on_host, properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE);
	return cuMemCreate(handle, size, properties, flags);
}

static const struct hb_granule_driver driver = {
	.address_reserve = address_reserve,
	.address_free = address_free,
	.create = create,
	.release = release,
	.map = map,
	.unmap = unmap,
	.set_access = set_access,
	.copy = copy,
	.query = query,
	.synchronize = synchronize,
};
const struct hb_granule_config granule_config = {
	.driver = &driver, .device = 0, .host = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, .granule_bytes = GRANULE};

/* --- what must never change ------------------------------------------------------------------------ */

uint32_t word_of(uint32_t seed, size_t i)
{
	return seed + (uint32_t)i * 2654435761u;
}

void fill(const struct allocation *allocation)
{
	uint32_t *words = malloc(allocation->bytes);
	for (size_t i = 0; i < allocation->bytes / 4; i++)
		words[i] = word_of(allocation->seed, i);
	CU(cuMemcpyHtoD_v2(allocation->base, words, allocation->bytes));
	free(words);
}

bool is_intact(const struct allocation *allocation)
{
	uint32_t *words = calloc(1, allocation->bytes);
	bool intact = cuMemcpyDtoH_v2(words, allocation->base, allocation->bytes) == CUDA_SUCCESS;
	for (size_t i = 0; i < allocation->bytes / 4 && intact; i++)
		intact = words[i] == word_of(allocation->seed, i);
	free(words);
	return intact;
}

uint64_t own_bytes(int gpu)
{
	struct hb_sim_stats stats;
	CU(sim_test_table()->stats(gpu, &stats));
	return stats.memory_own;
}

uint64_t all_own_bytes(void)
{
	return own_bytes(0) + own_bytes(1);
}

size_t count_host_room(void)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = host};
	CUmemGenericAllocationHandle handles[256];
	size_t n = 0;
	while (n < 256 && cuMemCreate(&handles[n], UNIT, &properties, 0) == CUDA_SUCCESS)
		n++;
	for (size_t i = 0; i < n; i++)
		CU(cuMemRelease(handles[i]));
	return n;
}

struct hb_granules_bytes count(struct hb_granules *granules)
{
	struct hb_granules_bytes counts;
	hb_granules_count(granules, &counts);
	return counts;
}

void finish(struct hb_granules *granules, uint64_t own_before, size_t host_before)
{
	bool more = true;
	hb_granules_limit_host(granules, 0);
	hb_granule_moves_finish(granules);
	while (more)
		CU(hb_granules_keep_spares(granules, &more));
	struct hb_granules_bytes counts = count(granules);
	assert_int_equal(counts.local + counts.peer + counts.host + counts.spare + counts.leaked, 0);
	hb_granules_free(granules);
	assert_int_equal(all_own_bytes(), own_before);
	assert_int_equal(count_host_room(), host_before);
}

CUresult move_granules(struct hb_granules *granules, const CUmemLocation *from, const CUmemLocation *to, size_t bytes,
		       struct hb_granule_move **broken_out)
{
	struct hb_granule_move *move;
	CUresult result = hb_granule_move_begin(granules, from, to, bytes, &move);
	if (result != CUDA_SUCCESS)
		return result;
	result = hb_granule_move_copy(move, CU_STREAM_PER_THREAD);
	if (result == CUDA_SUCCESS)
		do
			result = hb_granule_move_poll(move);
		while (result == CUDA_ERROR_NOT_READY);
	if (result == CUDA_SUCCESS)
		result = hb_granule_move_exchange(move);
	if (hb_granule_move_is_broken(move) && broken_out)
		*broken_out = move;
	else
		hb_granule_move_end(move);
	return result;
}

int begin_granules(void **state)
{
	setenv("HB_SIM_GPUS", "2", 1);
	setenv("HB_SIM_HOST_MEMORY", "134217728", 1); /* 64 units */
	setenv("HB_SIM_MEMORY", "2147483648", 1);
	return sim_test_begin(state);
}
