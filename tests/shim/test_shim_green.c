/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts end: what the shim knows of one does not apply to a later context at
 * the same address, its memory stays on the account while the primary context exists,
 * and the primary context may end with it. Over the fake driver of test_shim_split.c.
 */
#include "fake/fake_driver.h"
#include "page_host.h"
#include "shim/cuda_calls.h"
#include "unit/cubin_fixture.h"

#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define STREAM ((CUstream)0x5000)
#define FAKE(name, type) ((type)hb_test_fake_symbol(name))
#define MIB ((uint64_t)1 << 20)

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	setenv("HB_BENCH_SPLIT_US", "500", 1);
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static uint64_t used(void)
{
	return atomic_load(&host.page->gpus[0].used_bytes);
}

/* ---- in the child ---- */

static CUcontext primary;

static void begin(void)
{
	OK(CU(cuInit)(0));
	OK(CU(cuDevicePrimaryCtxRetain)(&primary, 0));
}

/* Makes the context of a new green context current. */
static CUgreenCtx make_green(CUcontext *context)
{
	typedef CUresult create(CUgreenCtx *, void *, CUdevice, unsigned int);
	CUgreenCtx green;
	OK(((create *)hb_test_shim_symbol("cuGreenCtxCreate"))(&green, NULL, 0, 1));
	OK(CU(cuCtxFromGreenCtx)(context, green));
	OK(CU(cuCtxSetCurrent)(*context));
	return green;
}

static void destroy_green(CUgreenCtx green)
{
	OK(CU(cuCtxSetCurrent)(primary));
	OK(CU(cuGreenCtxDestroy)(green));
}

static void launch_twice(CUfunction function)
{
	CUdeviceptr cells = 0, shape = 0;
	void *parameters[] = {&cells, &shape, &cells, &shape};
	for (int i = 0; i < 2; i++)
		OK(CU(cuLaunchKernel)(function, 100, 1, 1, 64, 1, 1, 0, STREAM, parameters, NULL));
}

static unsigned parts(void)
{
	return FAKE("hb_fake_launches_of_parts", unsigned (*)(void))();
}

/* The copies of a library's code belong to the context in which they were made. */
static void split_in_each(void)
{
	CUcontext context;
	CUlibrary library;
	CUkernel kernel;
	size_t size;
	uint8_t *file = fixture("kernels.fatbin", &size);
	begin();
	OK(CU(cuLibraryLoadData)(&library, file, NULL, NULL, 0, NULL, NULL, 0));
	OK(CU(cuLibraryGetKernel)(&kernel, library, "run_reduction"));
	for (unsigned round = 1; round <= 3; round++) {
		CUgreenCtx green = make_green(&context);
		launch_twice((CUfunction)(void *)kernel);
		CHECK(parts() == 7);
		CHECK(FAKE("hb_fake_calls", unsigned (*)(const char *))("cuModuleLoadData") == round);
		destroy_green(green);
	}
	free(file);
}

static void a_later_context_has_copies_of_its_own(void **state)
{
	assert_non_null(hb_page_host_run(&host, split_in_each));
}

/* The fake driver accepts the old handles, as a driver would that gives them to other functions. */
static void end_with_code(void)
{
	CUcontext context;
	CUlibrary library;
	CUkernel kernel;
	CUmodule module;
	CUfunction of_kernel, of_module, unused;
	size_t size;
	uint8_t *file = fixture("kernels.fatbin", &size);
	begin();
	CUgreenCtx green = make_green(&context);
	OK(CU(cuLibraryLoadData)(&library, file, NULL, NULL, 0, NULL, NULL, 0));
	OK(CU(cuLibraryGetKernel)(&kernel, library, "run_reduction"));
	OK(CU(cuKernelGetFunction)(&of_kernel, kernel));
	OK(CU(cuModuleLoadData)(&module, file));
	OK(CU(cuModuleGetFunction)(&of_module, module, "run_reduction"));
	OK(CU(cuModuleGetFunction)(&unused, module, "run_plain"));
	launch_twice(of_kernel);
	CHECK(parts() == 7);
	launch_twice(of_module);
	CHECK(parts() == 7);
	destroy_green(green);
	make_green(&context);
	launch_twice(of_kernel);
	launch_twice(of_module);
	launch_twice(unused);
	CHECK(parts() == 0);
	free(file);
}

static void its_functions_and_modules_are_forgotten(void **state)
{
	assert_non_null(hb_page_host_run(&host, end_with_code));
}

static void allocate_in_each(void)
{
	CUcontext context;
	CUdeviceptr in_primary, in_green;
	begin();
	CUgreenCtx green = make_green(&context);
	OK(CU(cuMemAlloc_v2)(&in_green, 10 * MIB));
	OK(CU(cuCtxSetCurrent)(primary));
	OK(CU(cuMemAlloc_v2)(&in_primary, 20 * MIB));
	destroy_green(green);
	CHECK(used() == 30 * MIB);
	OK(CU(cuCtxDestroy_v2)(context)); /* another context at the same address */
	CHECK(used() == 30 * MIB);
	/* The green context now has the last reference to the primary one. */
	green = make_green(&context);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
	OK(CU(cuMemAlloc_v2)(&in_green, 40 * MIB));
	CHECK(used() == 70 * MIB);
	destroy_green(green);
	CHECK(used() == 0);
}

static void its_memory_ends_with_the_primary_context(void **state)
{
	assert_non_null(hb_page_host_run(&host, allocate_in_each));
}

/* The driver refuses: the green context and its memory stay. */
static void fail_to_destroy(void)
{
	CUcontext context;
	CUdeviceptr memory;
	begin();
	CUgreenCtx green = make_green(&context);
	OK(CU(cuMemAlloc_v2)(&memory, 10 * MIB));
	setenv("HB_FAKE_REFUSE", "cuGreenCtxDestroy", 1);
	CHECK(CU(cuGreenCtxDestroy)(green) == CUDA_ERROR_OUT_OF_MEMORY);
	unsetenv("HB_FAKE_REFUSE");
	CHECK(used() == 10 * MIB);
	OK(CU(cuMemFree_v2)(memory));
	destroy_green(green);
	CHECK(used() == 0);
}

static void nothing_changes_if_the_driver_refuses(void **state)
{
	assert_non_null(hb_page_host_run(&host, fail_to_destroy));
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_later_context_has_copies_of_its_own), T(its_functions_and_modules_are_forgotten),
		T(its_memory_ends_with_the_primary_context), T(nothing_changes_if_the_driver_refuses)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
