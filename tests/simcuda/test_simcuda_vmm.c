/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory as memory tiers use it: places (device, peer, host), the errors of
 * the real driver, and physical memory that is exchanged under a fixed address. Two
 * simulated GPUs, host memory for 16 granules.
 */
#include "sim_test.h"

#include <string.h>
#include <unistd.h>

#define UNIT ((size_t)2 << 20)
#define HOST_UNITS 16

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAllocationProp on_peer = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
static const CUmemAllocationProp on_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					    .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
static const CUmemAccessDesc for_device = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static uint64_t own_bytes(int gpu)
{
	struct hb_sim_stats stats;
	CU(sim_test_table()->stats(gpu, &stats));
	return stats.memory_own;
}

static CUdeviceptr map_new(size_t units, const CUmemAllocationProp *place, CUmemGenericAllocationHandle *handles)
{
	CUdeviceptr base;
	CU(cuMemAddressReserve(&base, units * UNIT, 0, 0, 0));
	for (size_t i = 0; i < units; i++) {
		CU(cuMemCreate(&handles[i], UNIT, place, 0));
		CU(cuMemMap(base + i * UNIT, UNIT, 0, handles[i], 0));
	}
	CU(cuMemSetAccess(base, units * UNIT, &for_device, 1));
	return base;
}

static void unmap_all(CUdeviceptr base, size_t units, const CUmemGenericAllocationHandle *handles)
{
	CU(cuMemUnmap(base, units * UNIT));
	for (size_t i = 0; i < units; i++)
		CU(cuMemRelease(handles[i]));
	CU(cuMemAddressFree(base, units * UNIT));
}

static void every_place_is_accounted_where_it_is(void **state)
{
	uint64_t local = own_bytes(0), peer = own_bytes(1);
	CUmemGenericAllocationHandle handle, more[HOST_UNITS];
	CUmemAllocationProp wrong = on_device, back;
	(void)state;
	CU(cuMemCreate(&handle, UNIT, &on_device, 0));
	assert_int_equal(own_bytes(0) - local, UNIT);
	CU(cuMemRelease(handle));
	CU(cuMemCreate(&handle, 2 * UNIT, &on_peer, 0));
	assert_int_equal(own_bytes(0), local);
	assert_int_equal(own_bytes(1) - peer, 2 * UNIT);
	CU(cuMemGetAllocationPropertiesFromHandle(&back, handle));
	assert_int_equal(back.location.id, 1);
	CU(cuMemRelease(handle));
	for (int i = 0; i < HOST_UNITS; i++)
		CU(cuMemCreate(&more[i], UNIT, &on_host, 0));
	CU_FAILS(cuMemCreate(&handle, UNIT, &on_host, 0), CUDA_ERROR_OUT_OF_MEMORY); /* HB_SIM_HOST_MEMORY */
	CU(cuMemRelease(more[0]));
	CU(cuMemCreate(&more[0], UNIT, &on_host, 0));
	for (int i = 0; i < HOST_UNITS; i++)
		CU(cuMemRelease(more[i]));
	assert_int_equal(own_bytes(0), local);
	wrong.location.id = 2;
	CU_FAILS(cuMemCreate(&handle, UNIT, &wrong, 0), CUDA_ERROR_INVALID_DEVICE);
	wrong.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 7};
	CU_FAILS(cuMemCreate(&handle, UNIT, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
	wrong.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_NONE, 0};
	CU_FAILS(cuMemCreate(&handle, UNIT, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
}

static void ranges_are_checked_before_anything_changes(void **state)
{
	CUmemGenericAllocationHandle handles[2], extra;
	const CUmemAccessDesc for_host = {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr base = map_new(2, &on_device, handles), more;
	uint32_t read;
	(void)state;
	CU(cuMemsetD32_v2(base, 5, 2 * UNIT / 4)); /* across both */
	CU_FAILS(cuMemsetD32_v2(base, 5, 2 * UNIT / 4 + 1), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemUnmap(base, UNIT / 2), CUDA_ERROR_INVALID_VALUE); /* not complete mappings */
	CU_FAILS(cuMemUnmap(base, 3 * UNIT), CUDA_ERROR_INVALID_VALUE); /* more than is mapped */
	CU_FAILS(cuMemSetAccess(base, 3 * UNIT, &for_device, 1), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemSetAccess(base, UNIT, &for_host, 1), CUDA_ERROR_INVALID_VALUE); /* the CPU reaches no GPU */
	CU(cuMemcpyDtoH_v2(&read, base + 2 * UNIT - 4, 4));
	assert_int_equal(read, 5);
	CU(cuMemCreate(&extra, UNIT, &on_device, 0));
	CU_FAILS(cuMemMap(base, UNIT, 0, extra, 0), CUDA_ERROR_INVALID_VALUE); /* something is there */
	CU(cuMemAddressReserve(&more, UNIT, 0, 0, 0));
	CU_FAILS(cuMemMap(more + 4096, UNIT, 0, extra, 0), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemMap(more, UNIT, 4096, extra, 0), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemMap(more, 2 * UNIT, 0, extra, 0), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemExportToShareableHandle(&read, extra, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_ERROR_INVALID_VALUE); /* it was not created for that */
	CU(cuMemRelease(extra));
	CU_FAILS(cuMemMap(more, UNIT, 0, extra, 0), CUDA_ERROR_INVALID_VALUE); /* released */
	CU(cuMemAddressFree(more, UNIT));
	CU(cuMemUnmap(base, UNIT));
	CU_FAILS(cuMemUnmap(base, UNIT), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemUnmap(base, 2 * UNIT), CUDA_ERROR_INVALID_VALUE); /* has a hole now */
	CU(cuMemUnmap(base + UNIT, UNIT));
	CU(cuMemRelease(handles[0]));
	CU(cuMemRelease(handles[1]));
	CU(cuMemAddressFree(base, 2 * UNIT));
}

static void access_belongs_to_each_device(void **state)
{
	CUmemGenericAllocationHandle handle;
	const CUmemAccessDesc both[] = {for_device, {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
	unsigned long long flags;
	CUdeviceptr base;
	(void)state;
	CU(cuMemAddressReserve(&base, UNIT, 0, 0, 0));
	CU(cuMemCreate(&handle, UNIT, &on_device, 0));
	CU(cuMemMap(base, UNIT, 0, handle, 0));
	CU(cuMemGetAccess(&flags, &on_device.location, base));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	CU(cuMemSetAccess(base, UNIT, both, 2));
	CU(cuMemGetAccess(&flags, &on_device.location, base));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CU(cuMemGetAccess(&flags, &on_peer.location, base));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
	CU(cuMemGetAccess(&flags, &on_host.location, base));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	unmap_all(base, 1, &handle);
}

static unsigned attribute(CUpointer_attribute attribute, CUdeviceptr pointer)
{
	unsigned value = 99;
	CU(cuPointerGetAttribute(&value, attribute, pointer));
	return value;
}

/* The driver reports where the memory is, not what was allocated; the shim has to correct that. */
static void attributes_tell_where_the_memory_is(void **state)
{
	CUmemGenericAllocationHandle handles[2], host, peer;
	CUdeviceptr base = map_new(2, &on_device, handles), start;
	CUcontext context = sim_test_context();
	size_t bytes;
	(void)state;
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base), CU_MEMORYTYPE_DEVICE);
	CU(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, base));
	assert_null(context);
	CU(cuMemGetAddressRange_v2(&start, &bytes, base + UNIT + 4)); /* one mapping */
	assert_true(start == base + UNIT && bytes == UNIT);
	CU(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, base + UNIT + 4)); /* the reservation */
	CU(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, base + UNIT + 4));
	assert_true(start == base && bytes == 2 * UNIT);
	CU(cuMemUnmap(base, 2 * UNIT));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, base), 0);
	CU(cuMemCreate(&host, UNIT, &on_host, 0));
	CU(cuMemCreate(&peer, UNIT, &on_peer, 0));
	CU(cuMemMap(base, UNIT, 0, host, 0));
	CU(cuMemMap(base + UNIT, UNIT, 0, peer, 0));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base), CU_MEMORYTYPE_HOST);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base + UNIT), 1);
	CU_FAILS(cuMemFreeHost((void *)(uintptr_t)base), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemFree_v2(base), CUDA_ERROR_INVALID_VALUE);
	unmap_all(base, 2, handles);
	CU(cuMemRelease(host));
	CU(cuMemRelease(peer));
}

static void exported_memory_keeps_its_place(void **state)
{
	CUmemAllocationProp exportable = on_peer, back;
	CUmemGenericAllocationHandle handle, imported;
	uint64_t peer = own_bytes(1);
	int fd, other[2];
	(void)state;
	exportable.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CU(cuMemCreate(&handle, UNIT, &exportable, 0));
	CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuMemGetAllocationPropertiesFromHandle(&back, imported));
	assert_int_equal(back.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_int_equal(back.location.id, 1);
	assert_int_equal(own_bytes(1) - peer, UNIT); /* charged once */
	CU(cuMemRelease(imported));
	CU(cuMemRelease(handle));
	close(fd);
	assert_int_equal(pipe(other), 0);
	CU_FAILS(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)other[0],
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		 CUDA_ERROR_INVALID_VALUE);
	close(other[0]);
	close(other[1]);
}

/* Moves one unit to another place and back, under the same address; the bytes move with it. */
static void memory_moves_under_its_address(void **state)
{
	const CUmemAllocationProp *route[] = {&on_peer, &on_host, &on_device};
	CUmemGenericAllocationHandle now, next;
	CUdeviceptr base = map_new(1, &on_device, &now), scratch;
	uint32_t *wrote = malloc(UNIT), *read = calloc(1, UNIT);
	CUfunction add_one = sim_test_function("add_one");
	(void)state;
	for (size_t i = 0; i < UNIT / 4; i++)
		wrote[i] = (uint32_t)(i * 2654435761u);
	CU(cuMemcpyHtoD_v2(base, wrote, UNIT));
	for (int step = 0; step < 3; step++) {
		scratch = map_new(1, route[step], &next);
		CU(cuMemcpyDtoDAsync_v2(scratch, base, UNIT, NULL));
		CU(cuStreamSynchronize(NULL));
		CU(cuMemUnmap(base, UNIT));
		CU(cuMemMap(base, UNIT, 0, next, 0)); /* mapped twice for a moment */
		CU(cuMemSetAccess(base, UNIT, &for_device, 1));
		CU(cuMemUnmap(scratch, UNIT));
		CU(cuMemAddressFree(scratch, UNIT));
		CU(cuMemRelease(now));
		now = next;
		CU(cuLaunchKernel(add_one, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&base}, NULL));
		wrote[0]++;
		CU(cuMemcpyDtoH_v2(read, base, UNIT));
		assert_memory_equal(read, wrote, UNIT);
	}
	unmap_all(base, 1, &now);
	free(wrote);
	free(read);
}

static int begin(void **state)
{
	setenv("HB_SIM_GPUS", "2", 1);
	setenv("HB_SIM_HOST_MEMORY", "33554432", 1); /* HOST_UNITS */
	return sim_test_begin(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_place_is_accounted_where_it_is),
		cmocka_unit_test(ranges_are_checked_before_anything_changes),
		cmocka_unit_test(access_belongs_to_each_device),
		cmocka_unit_test(attributes_tell_where_the_memory_is),
		cmocka_unit_test(exported_memory_keeps_its_place),
		cmocka_unit_test(memory_moves_under_its_address),
	};
	return cmocka_run_group_tests(tests, begin, sim_test_end);
}
