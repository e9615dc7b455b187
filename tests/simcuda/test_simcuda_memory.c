/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of every kind: contents, accounts, what is known of an address, copies and sets of every form. */
#include "sim_test.h"

#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static uint64_t own_bytes(void)
{
	struct hb_sim_stats stats;
	CU(sim_test_table()->stats(0, &stats));
	return stats.memory_own;
}

static void every_allocation_is_accounted_and_given_back(void **state)
{
	uint64_t before = own_bytes();
	size_t pitch, free_before, free_after, total;
	CUdeviceptr plain, pitched, managed, from_pool;
	CUarray array;
	void *host;
	const CUDA_ARRAY3D_DESCRIPTOR shape = {64, 32, 0, CU_AD_FORMAT_FLOAT, 4, 0};
	(void)state;
	CU(cuMemGetInfo_v2(&free_before, &total));
	CU(cuMemAlloc_v2(&plain, 10 * MIB));
	CU(cuMemAllocPitch_v2(&pitched, &pitch, 1000, 100, 4));
	assert_int_equal(pitch, 1024);
	CU(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	CU(cuMemAllocAsync(&from_pool, MIB, NULL));
	CU(cuArray3DCreate_v2(&array, &shape));
	CU(cuMemHostAlloc(&host, 5 * MIB, CU_MEMHOSTALLOC_DEVICEMAP)); /* not the GPU's */
	uint64_t sum = 10 * MIB + 1024 * 100 + MIB + MIB + 64 * 32 * 16;
	assert_int_equal(own_bytes() - before, sum);
	CU(cuMemGetInfo_v2(&free_after, NULL));
	assert_int_equal(free_before - free_after, sum);
	CU(cuMemFree_v2(plain));
	CU(cuMemFree_v2(pitched));
	CU(cuMemFree_v2(managed));
	CU(cuMemFreeAsync(from_pool, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(cuArrayDestroy(array));
	CU(cuMemFreeHost(host));
	assert_int_equal(own_bytes(), before);
	CU_FAILS(cuMemFree_v2(plain), CUDA_ERROR_INVALID_VALUE);
	CU(cuMemFree_v2(0));
}

static void more_than_there_is_is_refused(void **state)
{
	CUdeviceptr memory;
	size_t left, total;
	(void)state;
	CU(cuMemGetInfo_v2(&left, &total));
	CU_FAILS(cuMemAlloc_v2(&memory, left + MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CU_FAILS(cuMemAlloc_v2(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	CU_FAILS(cuMemAlloc_v2(&memory, 0), CUDA_ERROR_INVALID_VALUE);
	CU(cuMemAlloc_v2(&memory, left - left % MIB)); /* all of it, untouched: no host memory is needed */
	CU(cuMemFree_v2(memory));
}

static void an_address_is_known(void **state)
{
	CUdeviceptr memory, base;
	size_t size;
	unsigned type;
	CUcontext context;
	int managed = 7, local, ordinal;
	CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	void *answers[] = {&type, &ordinal};
	(void)state;
	CU(cuMemAlloc_v2(&memory, 1000));
	CU(cuMemGetAddressRange_v2(&base, &size, memory + 999));
	assert_true(base == memory && size == 1000);
	CU_FAILS(cuMemGetAddressRange_v2(&base, &size, memory + 1000), CUDA_ERROR_NOT_FOUND);
	CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 8));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	CU(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
	assert_ptr_equal(context, sim_test_context());
	CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
	assert_int_equal(managed, 0);
	CU_FAILS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&local),
		 CUDA_ERROR_INVALID_VALUE);
	CU(cuPointerGetAttributes(2, asked, answers, (uintptr_t)&local));
	assert_true(type == 0 && ordinal == -2);
	CU(cuMemFree_v2(memory));
}

static void copies_carry_bytes_by_every_form(void **state)
{
	unsigned char from[256], to[256];
	CUdeviceptr a, b;
	CUstream stream;
	(void)state;
	for (size_t i = 0; i < sizeof from; i++)
		from[i] = (unsigned char)(i * 7);
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&a, sizeof from));
	CU(cuMemAlloc_v2(&b, sizeof from));
	CU(cuMemcpyHtoD_v2(a, from, sizeof from));
	CU(cuMemcpyDtoD_v2(b, a, sizeof from));
	CU(cuMemcpyDtoH_v2(to, b, sizeof to));
	assert_memory_equal(from, to, sizeof from);
	memset(to, 0, sizeof to);
	CU(cuMemsetD8_v2(a, 0, sizeof from));
	CU(cuCtxSynchronize());
	CU(cuMemcpyHtoDAsync_v2(a, from, sizeof from, stream));
	CU(cuMemcpyAsync(b, a, sizeof from, stream));
	CU(cuMemcpyDtoHAsync_v2(to, b, sizeof to, stream));
	CU(cuStreamSynchronize(stream));
	assert_memory_equal(from, to, sizeof from);
	CU(cuMemcpy((uintptr_t)to, a + 128, 128));
	assert_memory_equal(from + 128, to, 128);
	CU_FAILS(cuMemcpyDtoH_v2(to, 12345, 4), CUDA_ERROR_INVALID_VALUE);
	CU(cuMemFree_v2(a));
	CU(cuMemFree_v2(b));
	CU(cuStreamDestroy_v2(stream));
}

static void a_small_pageable_source_may_change_after_the_call(void **state)
{
	uint32_t value = 1, read;
	uint64_t long_ns = 3000000;
	CUdeviceptr memory;
	CUstream stream;
	(void)state;
	CU(cuStreamCreate(&stream, 0));
	CU(cuMemAlloc_v2(&memory, 4));
	LAUNCH(stream, "wait_us", &long_ns);
	CU(cuMemcpyHtoDAsync_v2(memory, &value, 4, stream));
	value = 2;
	CU(cuMemcpyDtoHAsync_v2(&read, memory, 4, stream)); /* pageable target: returns when it is there */
	assert_int_equal(read, 1);
	CU(cuMemFree_v2(memory));
	CU(cuStreamDestroy_v2(stream));
}

static void boxes_are_copied_row_by_row(void **state)
{
	unsigned char host[8][16], back[4][8];
	size_t pitch;
	CUdeviceptr memory;
	CUarray array;
	const CUDA_ARRAY_DESCRIPTOR shape = {8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = host,
			    .srcPitch = 16,
			    .srcXInBytes = 3,
			    .srcY = 2,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .WidthInBytes = 8,
			    .Height = 4};
	CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
			     .dstMemoryType = CU_MEMORYTYPE_HOST,
			     .dstHost = back,
			     .dstPitch = 8,
			     .WidthInBytes = 8,
			     .Height = 4};
	(void)state;
	for (int y = 0; y < 8; y++)
		for (int x = 0; x < 16; x++)
			host[y][x] = (unsigned char)(y * 16 + x);
	CU(cuMemAllocPitch_v2(&memory, &pitch, 8, 4, 4));
	CU(cuArrayCreate_v2(&array, &shape));
	in.dstDevice = memory;
	in.dstPitch = pitch;
	CU(cuMemcpy2D_v2(&in));
	CUDA_MEMCPY3D middle = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = memory,
				.srcPitch = pitch,
				.srcHeight = 4,
				.dstMemoryType = CU_MEMORYTYPE_ARRAY,
				.dstArray = array,
				.WidthInBytes = 8,
				.Height = 4,
				.Depth = 1};
	CU(cuMemcpy3D_v2(&middle));
	out.srcArray = array;
	CU(cuMemcpy2DAsync_v2(&out, NULL));
	CU(cuStreamSynchronize(NULL));
	for (int y = 0; y < 4; y++)
		assert_memory_equal(back[y], &host[y + 2][3], 8);
	CU(cuArrayDestroy(array));
	CU(cuMemFree_v2(memory));
}

static void sets_fill_elements_and_boxes(void **state)
{
	uint32_t words[4];
	unsigned char rows[2][512];
	size_t pitch;
	CUdeviceptr memory;
	(void)state;
	CU(cuMemAllocPitch_v2(&memory, &pitch, 100, 2, 4));
	CU(cuMemsetD32_v2(memory, 0xdeadbeef, 4));
	CU(cuMemcpyDtoH_v2(words, memory, sizeof words));
	assert_int_equal(words[3], 0xdeadbeef);
	CU(cuMemsetD16Async(memory, 0x1234, 3, NULL));
	CU(cuMemcpyDtoH_v2(words, memory, sizeof words));
	assert_int_equal(words[0], 0x12341234);
	assert_int_equal(words[1], 0xdead1234);
	CU(cuMemsetD8_v2(memory, 9, 2 * pitch));
	CU(cuMemsetD2D8_v2(memory, pitch, 5, 10, 2));
	CU(cuMemcpyDtoH_v2(rows, memory, sizeof rows));
	assert_true(rows[0][9] == 5 && rows[0][10] == 9 && rows[1][0] == 5 && rows[1][10] == 9);
	CU_FAILS(cuMemsetD8_v2(memory, 0, 2 * pitch + 1), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuMemsetD32_v2(memory + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
	CU(cuMemFree_v2(memory));
}

static void host_memory_can_be_registered(void **state)
{
	static char buffer[8192];
	CUdeviceptr device;
	unsigned type;
	(void)state;
	CU(cuMemHostRegister_v2(buffer, sizeof buffer, CU_MEMHOSTREGISTER_DEVICEMAP));
	CU_FAILS(cuMemHostRegister_v2(buffer, 16, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CU(cuMemHostGetDevicePointer_v2(&device, buffer + 10, 0));
	assert_int_equal(device, (uintptr_t)buffer + 10);
	CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)buffer));
	assert_int_equal(type, CU_MEMORYTYPE_HOST);
	CU(cuMemHostUnregister(buffer));
	CU_FAILS(cuMemHostUnregister(buffer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void virtual_memory_is_reserved_backed_and_shared(void **state)
{
	uint64_t before = own_bytes();
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr first, second;
	size_t unit;
	uint32_t read;
	int fd;
	(void)state;
	CU(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CU_FAILS(cuMemCreate(&handle, unit + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
	CU(cuMemCreate(&handle, unit, &properties, 0));
	assert_int_equal(own_bytes() - before, unit);
	CU(cuMemAddressReserve(&first, 2 * unit, 0, 0, 0));
	CU(cuMemMap(first + unit, unit, 0, handle, 0));
	CU(cuMemSetAccess(first + unit, unit, &access, 1));
	CU(cuMemsetD32_v2(first + unit, 77, 1));
	CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CU(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CU(cuMemAddressReserve(&second, unit, 0, 0, 0));
	CU(cuMemMap(second, unit, 0, imported, 0));
	CU(cuMemSetAccess(second, unit, &access, 1));
	CU(cuMemcpyDtoH_v2(&read, second, 4));
	assert_int_equal(read, 77);
	CU_FAILS(cuMemAddressFree(first, 2 * unit), CUDA_ERROR_INVALID_VALUE);
	CU(cuMemRelease(handle)); /* the mapping keeps it */
	assert_int_equal(own_bytes() - before, unit);
	CU(cuMemUnmap(first + unit, unit));
	assert_int_equal(own_bytes(), before);
	CU(cuMemUnmap(second, unit));
	CU(cuMemRelease(imported));
	CU(cuMemAddressFree(first, 2 * unit));
	CU(cuMemAddressFree(second, unit));
}

static void pools_count_what_is_out(void **state)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool, found;
	CUdeviceptr memory;
	uint64_t used, threshold = MIB;
	(void)state;
	CU(cuMemPoolCreate(&pool, &properties));
	CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	CU(cuMemAllocFromPoolAsync(&memory, 4096, pool, NULL));
	CU(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
	assert_ptr_equal(found, pool);
	CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	assert_int_equal(used, 4096);
	CU(cuMemFreeAsync(memory, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	assert_int_equal(used, 0);
	CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used));
	assert_int_equal(used, 4096);
	CU(cuMemPoolDestroy(pool));
	CU(cuDeviceGetDefaultMemPool(&pool, 0));
	CU_FAILS(cuMemPoolDestroy(pool), CUDA_ERROR_NOT_PERMITTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_is_accounted_and_given_back),
		cmocka_unit_test(more_than_there_is_is_refused),
		cmocka_unit_test(an_address_is_known),
		cmocka_unit_test(copies_carry_bytes_by_every_form),
		cmocka_unit_test(a_small_pageable_source_may_change_after_the_call),
		cmocka_unit_test(boxes_are_copied_row_by_row),
		cmocka_unit_test(sets_fill_elements_and_boxes),
		cmocka_unit_test(host_memory_can_be_registered),
		cmocka_unit_test(virtual_memory_is_reserved_backed_and_shared),
		cmocka_unit_test(pools_count_what_is_out),
	};
	return cmocka_run_group_tests_name("simcuda_memory", tests, sim_test_begin, sim_test_end);
}
