/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of collectives in the spatial engine, over the simulated driver: they are
 * never masked, by whatever call a program gets them. Other kernels beside them are
 * masked.
 */
#include "shim_spatial_rig.h"

static const char image[] = "HBSIM1\n"
			    "kernel other ns=10000 host=spatial_rig_look\n"
			    "kernel ncclDevKernel_SendRecv ns=10000 host=spatial_rig_look\n";

enum { N_KERNELS = 2, MASKED = 100, WHOLE = 132 };

/* ---- in the child ---- */

static unsigned sms_of(void *kernel)
{
	atomic_store(&spatial_sms_seen, 0);
	OK(CU(cuLaunchKernel)((CUfunction)kernel, 264, 1, 1, 512, 1, 1, 0, spatial_stream, NULL, NULL));
	OK(CU(cuStreamSynchronize)(spatial_stream));
	return atomic_load(&spatial_sms_seen);
}

static CUlibrary load_library(void)
{
	CUlibrary library;
	OK(CU(cuLibraryLoadData)(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	return library;
}

/* NCCL launches the function that the CUDA runtime got for its kernel. */
static void look_up_by_name(void)
{
	CUkernel kernel, other;
	CUfunction made;
	spatial_begin();
	CUlibrary library = load_library();
	OK(CU(cuLibraryGetKernel)(&kernel, library, "ncclDevKernel_SendRecv"));
	OK(CU(cuLibraryGetKernel)(&other, library, "other"));
	OK(CU(cuKernelGetFunction)(&made, kernel));
	CHECK(sms_of(spatial_look) == MASKED);
	CHECK(sms_of(kernel) == WHOLE);
	CHECK(sms_of(made) == WHOLE);
	CHECK(sms_of(other) == MASKED);
	CHECK(sms_of(spatial_look) == MASKED);
	spatial_end();
}

/* Asks for more kernels than there are: the other entries stay unchanged. */
static void look_up_all_kernels(void)
{
	CUkernel kernels[N_KERNELS + 1] = {NULL, NULL, (CUkernel)(void *)1};
	CUfunction made;
	spatial_begin();
	OK(CU(cuLibraryEnumerateKernels)(kernels, N_KERNELS + 1, load_library()));
	CHECK(kernels[N_KERNELS] == (CUkernel)(void *)1);
	OK(CU(cuKernelGetFunction)(&made, kernels[1]));
	CHECK(sms_of(kernels[0]) == MASKED);
	CHECK(sms_of(kernels[1]) == WHOLE);
	CHECK(sms_of(made) == WHOLE);
	spatial_end();
}

static void look_up_all_functions(void)
{
	CUfunction functions[N_KERNELS + 1] = {NULL, NULL, (CUfunction)(void *)1};
	CUmodule module;
	spatial_begin();
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleEnumerateFunctions)(functions, N_KERNELS + 1, module));
	CHECK(functions[N_KERNELS] == (CUfunction)(void *)1);
	CHECK(sms_of(functions[0]) == MASKED);
	CHECK(sms_of(functions[1]) == WHOLE);
	/* Asks for fewer than there are. */
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleEnumerateFunctions)(functions, 1, module));
	CHECK(sms_of(functions[0]) == MASKED);
	CHECK(CU(cuModuleEnumerateFunctions)(NULL, 1, module) != CUDA_SUCCESS);
	spatial_end();
}

/* ---- in the test ---- */

static void collectives_are_never_masked(void **state)
{
	spatial_host.gpu->low_sms = MASKED;
	spatial_run(look_up_by_name);
}

static void enumerated_collectives_of_libraries_are_never_masked(void **state)
{
	spatial_host.gpu->low_sms = MASKED;
	spatial_run(look_up_all_kernels);
}

static void enumerated_collectives_of_modules_are_never_masked(void **state)
{
	spatial_host.gpu->low_sms = MASKED;
	spatial_run(look_up_all_functions);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, spatial_set_up, spatial_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(collectives_are_never_masked),
		TEST(enumerated_collectives_of_libraries_are_never_masked),
		TEST(enumerated_collectives_of_modules_are_never_masked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
