/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, contexts, code, launches and what is checked of them, entry-point lookup. */
#include "sim_test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void a_device_says_what_an_h200_says(void **state)
{
	int n, value;
	char name[64], bus[16];
	size_t total;
	CUuuid uuid;
	CUdevice device;
	(void)state;
	CU(cuDeviceGetCount(&n));
	assert_int_equal(n, 1);
	CU(cuDeviceGet(&device, 0));
	CU_FAILS(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
	CU(cuDeviceGetName(name, sizeof name, 0));
	assert_non_null(strstr(name, "H200"));
	CU(cuDeviceTotalMem_v2(&total, 0));
	assert_true(total > (size_t)100 << 30);
	CU(cuDeviceGetUuid_v2(&uuid, 0));
	assert_memory_equal(uuid.bytes, "HBSIMGPU", 8);
	CU(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
	CU(cuDeviceGetByPCIBusId(&device, bus));
	assert_int_equal(device, 0);
	CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	assert_int_equal(value, 132);
	CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	assert_int_equal(value, 9);
	CU_FAILS(cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0), CUDA_ERROR_INVALID_VALUE);
	CU(cuDriverGetVersion(&value));
	assert_int_equal(value, 13000);
}

static void errors_have_names_and_texts(void **state)
{
	const char *text;
	(void)state;
	CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	assert_string_equal(text, "out of memory");
	CU_FAILS(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	assert_null(text);
}

static void contexts_stack_and_die(void **state)
{
	CUcontext second, current;
	CUdeviceptr memory;
	CUdevice device;
	unsigned flags;
	int low, high;
	(void)state;
	CU(cuCtxCreate_v4(&second, NULL, CU_CTX_SCHED_BLOCKING_SYNC, 0));
	CU(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, second);
	CU(cuCtxGetFlags(&flags));
	assert_int_equal(flags, CU_CTX_SCHED_BLOCKING_SYNC);
	CU(cuCtxGetStreamPriorityRange(&low, &high));
	assert_true(low == 0 && high == -5);
	CU(cuMemAlloc_v2(&memory, 1 << 20)); /* goes with its context */
	CU(cuCtxPopCurrent_v2(&current));
	CU(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, sim_test_context());
	CU(cuCtxPushCurrent_v2(second));
	CU(cuCtxGetDevice(&device));
	CU(cuCtxDestroy_v2(second));
	CU(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, sim_test_context());
	CU_FAILS(cuCtxPushCurrent_v2(second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	CU_FAILS(cuCtxCreate_v2(&second, 0, 7), CUDA_ERROR_INVALID_DEVICE);
}

static void the_primary_context_lives_while_retained(void **state)
{
	CUcontext first, again;
	unsigned flags;
	int active;
	(void)state;
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_false(active);
	CU(cuDevicePrimaryCtxRetain(&first, 0));
	CU(cuDevicePrimaryCtxRetain(&again, 0));
	assert_ptr_equal(first, again);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_true(active);
	CU_FAILS(cuCtxDestroy_v2(first), CUDA_ERROR_INVALID_CONTEXT);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_false(active);
	CU(cuDevicePrimaryCtxRetain(&first, 0));
	CU(cuDevicePrimaryCtxReset_v2(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_false(active);
}

static void modules_hold_kernels_and_globals(void **state)
{
	static const struct {
		uint32_t magic, version;
		const void *data;
		void *file;
	} fatbinary = {0x466243b1, 1, sim_test_image, NULL};
	CUmodule module;
	CUfunction function;
	CUdeviceptr counter;
	size_t bytes;
	int value;
	uint32_t read = 1;
	(void)state;
	CU(cuModuleLoadFatBinary(&module, &fatbinary));
	CU(cuModuleGetFunction(&function, module, "big_shared"));
	CU_FAILS(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
	CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
	assert_int_equal(value, 40000);
	CU(cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
	assert_int_equal(bytes, 4);
	CU(cuMemcpyDtoH_v2(&read, counter, 4));
	assert_int_equal(read, 0);
	CU(cuModuleUnload(module));
	CU_FAILS(cuModuleLoadData(&module, "\177ELF\2\1\1"), CUDA_ERROR_NO_BINARY_FOR_GPU);
	CU_FAILS(cuModuleLoadData(&module, "HBSIM1\nkernel k ns=fast\n"), CUDA_ERROR_INVALID_IMAGE);
	CU_FAILS(cuModuleLoadData(&module, "HBSIM1\nkernel\n"), CUDA_ERROR_INVALID_IMAGE);
	CU_FAILS(cuModuleLoadData(&module, "HBSIM1\nkernel k host=test_absent\n"),
		 CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND);
	CU_FAILS(cuModuleLoad(&module, "/nonexistent/image"), CUDA_ERROR_FILE_NOT_FOUND);
}

static void a_library_s_kernel_runs_in_any_context(void **state)
{
	CUlibrary library;
	CUkernel kernel;
	CUfunction function;
	CUdeviceptr word;
	CUcontext other;
	const char *name;
	uint32_t read;
	unsigned n;
	(void)state;
	CU(cuLibraryLoadData(&library, sim_test_image, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernelCount(&n, library));
	assert_true(n > 5);
	CU(cuLibraryGetKernel(&kernel, library, "add_one"));
	CU(cuKernelGetName(&name, kernel));
	assert_string_equal(name, "add_one");
	for (int i = 0; i < 2; i++) {
		if (i)
			CU(cuCtxCreate_v2(&other, 0, 0));
		CU(cuMemAlloc_v2(&word, 4));
		CU(cuMemsetD32_v2(word, 41, 1));
		/* The handle of a kernel is as good as a function's. */
		CU(cuLaunchKernel((CUfunction)(void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&word}, NULL));
		CU(cuKernelGetFunction(&function, kernel));
		CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&word}, NULL));
		CU(cuMemcpyDtoH_v2(&read, word, 4));
		assert_int_equal(read, 43);
		CU(cuMemFree_v2(word));
	}
	CU(cuCtxDestroy_v2(other));
	CU(cuLibraryUnload(library));
}

static void launches_are_checked(void **state)
{
	CUfunction empty = sim_test_function("empty"), shared = sim_test_function("big_shared");
	CUfunction add = sim_test_function("add_one");
	CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {4, 1, 1, 32, 1, 1, 0, NULL, &cluster, 1};
	(void)state;
	CU_FAILS(cuLaunchKernel(empty, 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuLaunchKernel(empty, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuLaunchKernel(shared, 1, 1, 1, 512, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	CU_FAILS(cuLaunchKernel(shared, 1, 1, 1, 256, 1, 1, 60000, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CU(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
	CU(cuLaunchKernel(shared, 1, 1, 1, 256, 1, 1, 60000, NULL, NULL, NULL));
	CU_FAILS(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	cluster.value.clusterDim.x = cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
	cluster.value.clusterDim.x = 2;
	CU(cuLaunchKernelEx(&config, empty, NULL, NULL));
	cluster.value.clusterDim.x = 32;
	CU_FAILS(cuLaunchKernelEx(&config, empty, NULL, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	CU(cuLaunchCooperativeKernel(empty, 132, 1, 1, 1024, 1, 1, 0, NULL, NULL));
	CU_FAILS(cuLaunchCooperativeKernel(empty, 132 * 3, 1, 1, 1024, 1, 1, 0, NULL, NULL),
		 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	CU(cuCtxSynchronize());
}

static void parameters_arrive_by_every_route(void **state)
{
	CUfunction sum = sim_test_function("sum_bytes");
	struct {
		uint8_t small;
		uint8_t padding[7];
		CUdeviceptr out;
		uint16_t more;
	} packed = {.small = 5, .more = 300};
	size_t bytes = sizeof packed;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			 CU_LAUNCH_PARAM_END};
	uint32_t read;
	(void)state;
	CU(cuMemAlloc_v2(&packed.out, 4));
	CU(cuLaunchKernel(sum, 3, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	CU(cuMemcpyDtoH_v2(&read, packed.out, 4));
	assert_int_equal(read, 5 + 300 + 96);
	CU(cuLaunchKernel(sum, 2, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&packed.small, &packed.out, &packed.more}, NULL));
	CU(cuMemcpyDtoH_v2(&read, packed.out, 4));
	assert_int_equal(read, 5 + 300 + 64);
	/* The interface of CUDA 3. */
	CU(cuFuncSetBlockShape(sum, 16, 1, 1));
	CU(cuParamSetSize(sum, sizeof packed));
	CU(cuParamSetv(sum, 0, &packed, sizeof packed));
	CU(cuLaunchGrid(sum, 1, 1));
	CU(cuMemcpyDtoH_v2(&read, packed.out, 4));
	assert_int_equal(read, 5 + 300 + 16);
	CU(cuMemFree_v2(packed.out));
}

static void occupancy_follows_the_kernel(void **state)
{
	int blocks, grid, block;
	size_t dynamic;
	(void)state;
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sim_test_function("empty"), 1024, 0));
	assert_int_equal(blocks, 2);
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sim_test_function("wait_us"), 1024, 0));
	assert_int_equal(blocks, 1); /* 64 registers a thread: the whole file */
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sim_test_function("big_shared"), 64, 0));
	assert_int_equal(blocks, 5);
	CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, sim_test_function("empty"), NULL, 0, 0));
	assert_true(block == 1024 && grid == 264);
	CU(cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, sim_test_function("empty"), 2, 256));
	assert_int_equal(dynamic, 233472 / 2 - 1024);
}

static void *look_up(const char *name, int version, uint64_t flags, CUdriverProcAddressQueryResult *status)
{
	void *found = NULL;
	CUresult result = cuGetProcAddress_v2(name, &found, version, flags, status);
	assert_int_equal(result, found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
	return found;
}

static void entry_points_are_found_by_name_version_and_stream_form(void **state)
{
	CUdriverProcAddressQueryResult status;
	(void)state;
	assert_ptr_equal(look_up("cuMemAlloc", 13000, 0, &status), (void *)cuMemAlloc_v2);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
	assert_ptr_equal(look_up("cuCtxCreate", 11000, 0, NULL), (void *)cuCtxCreate_v2);
	assert_ptr_equal(look_up("cuCtxCreate", 11080, 0, NULL), (void *)cuCtxCreate_v3);
	assert_ptr_equal(look_up("cuCtxCreate", 13000, 0, NULL), (void *)cuCtxCreate_v4);
	assert_ptr_equal(look_up("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL),
			 (void *)cuLaunchKernel_ptsz);
	assert_ptr_equal(look_up("cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL),
			 (void *)cuMemcpyHtoD_v2_ptds);
	assert_ptr_equal(look_up("cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL),
			 (void *)cuMemAlloc_v2);
	assert_ptr_equal(look_up("cuGetProcAddress", 13000, 0, NULL), (void *)cuGetProcAddress_v2);
	assert_null(look_up("cuLaunchKernelEx", 11000, 0, &status));
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	assert_null(look_up("cuNoSuchThing", 13000, 0, &status));
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void what_is_not_implemented_says_so_and_is_counted(void **state)
{
	struct hb_sim_stats before, after;
	const void *table;
	CUuuid unknown = {"some other table"};
	CUipcMemHandle handle;
	CUresult (*texture)(void) = (CUresult(*)(void))look_up("cuTexRefCreate", 13000, 0, NULL);
	(void)state;
	CU(sim_test_table()->stats(0, &before));
	assert_non_null(texture);
	CU_FAILS(texture(), CUDA_ERROR_NOT_SUPPORTED);
	CU_FAILS(cuGetExportTable(&table, &unknown), CUDA_ERROR_NOT_SUPPORTED);
	assert_null(table);
	CU_FAILS(cuIpcGetMemHandle(&handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	CU(sim_test_table()->stats(0, &after));
	assert_int_equal(after.unsupported - before.unsupported, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_says_what_an_h200_says),
		cmocka_unit_test(errors_have_names_and_texts),
		cmocka_unit_test(contexts_stack_and_die),
		cmocka_unit_test(the_primary_context_lives_while_retained),
		cmocka_unit_test(modules_hold_kernels_and_globals),
		cmocka_unit_test(a_library_s_kernel_runs_in_any_context),
		cmocka_unit_test(launches_are_checked),
		cmocka_unit_test(parameters_arrive_by_every_route),
		cmocka_unit_test(occupancy_follows_the_kernel),
		cmocka_unit_test(entry_points_are_found_by_name_version_and_stream_form),
		cmocka_unit_test(what_is_not_implemented_says_so_and_is_counted),
	};
	return cmocka_run_group_tests_name("simcuda_calls", tests, sim_test_begin, sim_test_end);
}
