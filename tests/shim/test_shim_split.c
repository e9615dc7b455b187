/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split launches, over a fake driver that records which blocks would run. The kernels
 * are those of tests/cubin; the driver reports that each takes 2 ms and that 16 blocks
 * fit on the GPU at once. In every case each block must run exactly once. The tests
 * use the benchmarks' shim, which splits by a fixed time, with the product's code.
 */
#include "fake/fake_driver.h"
#include "page_host.h"
#include "shim/cuda_calls.h"
#include "unit/cubin_fixture.h"

#include <pthread.h>
#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define STREAM ((CUstream)0x5000)
#define FAKE(name, type) ((type)hb_test_fake_symbol(name))

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	setenv("HB_BENCH_SPLIT_US", "500", 1);
	unsetenv("HB_BENCH_SPLIT_COST_PERCENT");
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static void run(void (*scenario)(void))
{
	assert_non_null(hb_page_host_run(&host, scenario));
}

/* ---- in the child ---- */

static CUmodule module;
static const char *image = "kernels.fatbin";
static CUdeviceptr cells, shape;

static CUfunction function_of(const char *name)
{
	CUfunction function;
	if (!module) {
		size_t size;
		uint8_t *file = fixture(image, &size);
		OK(CU(cuInit)(0));
		OK(CU(cuModuleLoadData)(&module, file));
		memset(file, 0xee, size); /* the application may change its image after the load */
		free(file);
	}
	OK(CU(cuModuleGetFunction)(&function, module, name));
	return function;
}

static void expect_each_block_once(uint32_t n_blocks)
{
	unsigned (*runs_of)(uint32_t) = FAKE("hb_fake_runs_of", unsigned (*)(uint32_t));
	for (uint32_t i = 0; i < 4096; i++)
		CHECK(runs_of(i) == (i < n_blocks ? 1u : 0u));
}

static unsigned parts(void)
{
	return FAKE("hb_fake_launches_of_parts", unsigned (*)(void))();
}

static void launch(CUfunction function, unsigned x, unsigned y, unsigned z)
{
	void *parameters[] = {&cells, &shape, &cells, &shape};
	OK(CU(cuLaunchKernel)(function, x, y, z, 64, 1, 1, 0, STREAM, parameters, NULL));
	expect_each_block_once(x * y * z);
}

/* The first launch is timed, so the next one is split. */
static void launch_a_long_kernel(void)
{
	CUfunction plain = function_of("run_plain");
	launch(plain, 160, 1, 1);
	CHECK(parts() == 0);
	launch(plain, 160, 1, 1);
	CHECK(parts() == 5); /* 10 waves of 200 us, two per part */
	launch(plain, 10, 4, 4);
	CHECK(parts() == 5); /* the same numbers of blocks and threads: the same shape */
	launch(plain, 161, 1, 1);
	launch(plain, 161, 1, 1);
	CHECK(parts() == 6);
	CHECK(hb_page_host_count(&host, HB_COUNT_split) == 3 && hb_page_host_count(&host, HB_COUNT_parts) == 16 &&
	      hb_page_host_count(&host, HB_COUNT_unsplit) == 2);
	CHECK(hb_page_host_count(&host, HB_COUNT_kernels) == 5); /* as the application counts */
}

static void a_long_kernel_is_split(void **state)
{
	run(launch_a_long_kernel);
}

static void kernels_of_libraries(void)
{
	CUlibrary library;
	CUkernel kernel;
	size_t size;
	uint8_t *file = fixture("kernels.fatbin", &size);
	OK(CU(cuInit)(0));
	OK(CU(cuLibraryLoadData)(&library, file, NULL, NULL, 0, NULL, NULL, 0));
	OK(CU(cuLibraryGetKernel)(&kernel, library, "run_reduction"));
	launch((CUfunction)(void *)kernel, 100, 1, 1);
	launch((CUfunction)(void *)kernel, 100, 1, 1);
	CHECK(parts() == 7); /* waves of 286 us, one per part */
	free(file);
}

static unsigned fake_calls(const char *name)
{
	return FAKE("hb_fake_calls", unsigned (*)(const char *))(name);
}

static unsigned modules_loaded(void)
{
	return fake_calls("cuModuleLoadData");
}

/* A library outlives its context, and the next context may get the same address: no state of the first may remain. */
static void library_in_a_second_context(void)
{
	CUlibrary library;
	CUkernel kernel;
	CUcontext context;
	size_t size;
	uint8_t *file = fixture("kernels.fatbin", &size);
	OK(CU(cuInit)(0));
	OK(CU(cuLibraryLoadData)(&library, file, NULL, NULL, 0, NULL, NULL, 0));
	OK(CU(cuLibraryGetKernel)(&kernel, library, "run_reduction"));
	for (unsigned round = 1; round <= 3; round++) {
		launch((CUfunction)(void *)kernel, 100, 1, 1);
		launch((CUfunction)(void *)kernel, 100, 1, 1);
		CHECK(parts() == 7 && modules_loaded() == round);
		OK(CU(cuCtxGetCurrent)(&context));
		OK(CU(cuCtxDestroy_v2)(context));
	}
	free(file);
}

/* A kernel of a library is another function in each context, and so is its copy. */
static void kernel_in_two_contexts(void)
{
	static int places[2];
	CUlibrary library;
	CUkernel kernel;
	size_t size;
	uint8_t *file = fixture("kernels.fatbin", &size);
	OK(CU(cuInit)(0));
	OK(CU(cuLibraryLoadData)(&library, file, NULL, NULL, 0, NULL, NULL, 0));
	OK(CU(cuLibraryGetKernel)(&kernel, library, "run_reduction"));
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 2; i++) {
			OK(CU(cuCtxSetCurrent)((CUcontext)(void *)&places[i]));
			launch((CUfunction)(void *)kernel, 100, 1, 1);
			CHECK(parts() == (round ? 7 : 0)); /* the first launch is timed */
		}
	CHECK(modules_loaded() == 2);
	/* One context is destroyed, the other stays. */
	OK(CU(cuCtxDestroy_v2)((CUcontext)(void *)&places[1]));
	OK(CU(cuCtxSetCurrent)((CUcontext)(void *)&places[0]));
	launch((CUfunction)(void *)kernel, 100, 1, 1);
	CHECK(parts() == 7 && modules_loaded() == 2);
	free(file);
}

static void a_kernel_is_split_in_each_of_two_contexts(void **state)
{
	run(kernel_in_two_contexts);
}

static void kernels_of_libraries_are_split(void **state)
{
	run(kernels_of_libraries);
}

static void a_library_is_split_again_in_a_new_context(void **state)
{
	run(library_in_a_second_context);
}

static void packed_parameters(void)
{
	CUfunction plain = function_of("run_plain");
	CUdeviceptr packed[2] = {1, 2};
	size_t size = sizeof packed;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			 CU_LAUNCH_PARAM_END};
	for (int i = 0; i < 2; i++) {
		OK(CU(cuLaunchKernel)(plain, 160, 1, 1, 64, 1, 1, 0, STREAM, NULL, extra));
		expect_each_block_once(160);
	}
	CHECK(parts() == 5);
	CHECK(size == sizeof packed && packed[0] == 1 && packed[1] == 2);
}

static void packed_parameters_are_passed_on(void **state)
{
	run(packed_parameters);
}

/* Kernels that must not be split because of their code, grid, launch or run time. */
static void others_stay_whole(void)
{
	static const char *const names[] = {"whole_waits_atomic", "whole_cluster", "whole_variables_global",
					    "whole_calls_printf", "whole_dependents"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (int k = 0; k < 2; k++)
			launch(function_of(names[i]), 160, 1, 1);
	CUfunction plain = function_of("run_plain");
	for (int k = 0; k < 2; k++)
		launch(plain, 16, 1, 1); /* all blocks fit on the GPU at once */
	void *parameters[] = {&cells, &shape};
	CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	CUlaunchConfig config = {160, 1, 1, 64, 1, 1, 0, STREAM, &cluster, 1};
	launch(plain, 160, 1, 1);
	OK(CU(cuLaunchKernelEx)(&config, plain, parameters, NULL));
	expect_each_block_once(160);
	CHECK(parts() == 0 && hb_page_host_count(&host, HB_COUNT_split) == 0);
	config.numAttrs = 0; /* now the launch can be split */
	OK(CU(cuLaunchKernelEx)(&config, plain, parameters, NULL));
	expect_each_block_once(160);
	CHECK(parts() == 5);
}

static void other_kernels_are_not_split(void **state)
{
	run(others_stay_whole);
}

/* While another stream captures, querying an event would invalidate the capture. */
static void launch_beside_a_capture(void)
{
	CUstream other = (CUstream)0x6000;
	CUgraph graph;
	CUfunction plain = function_of("run_plain");
	launch(plain, 160, 1, 1);
	OK(CU(cuStreamBeginCapture_v2)(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
	unsigned asked = fake_calls("cuEventQuery"), recorded = fake_calls("cuEventRecord");
	launch(plain, 160, 1, 1);
	launch(plain, 161, 1, 1);
	CHECK(fake_calls("cuEventQuery") == asked && fake_calls("cuEventRecord") == recorded && parts() == 0);
	OK(CU(cuStreamEndCapture)(other, &graph));
	launch(plain, 160, 1, 1);
	CHECK(fake_calls("cuEventQuery") > asked && parts() == 5);
}

static void no_event_is_queried_during_a_capture(void **state)
{
	run(launch_beside_a_capture);
}

static void brief_kernel(void)
{
	CUfunction plain = function_of("run_plain");
	for (int i = 0; i < 3; i++)
		launch(plain, 160, 1, 1);
	CHECK(parts() == 0 && hb_page_host_count(&host, HB_COUNT_unsplit) == 3);
}

static void a_short_kernel_is_not_split(void **state)
{
	setenv("HB_BENCH_SPLIT_US", "2000", 1);
	run(brief_kernel);
}

static void not_asked_for(void)
{
	CUfunction plain = function_of("run_plain");
	for (int i = 0; i < 3; i++)
		launch(plain, 160, 1, 1);
	CHECK(parts() == 0 && hb_page_host_count(&host, HB_COUNT_unsplit) == 0);
}

/* Without the setting, and in an HP process. */
static void without_the_setting_nothing_is_split(void **state)
{
	unsetenv("HB_BENCH_SPLIT_US");
	run(not_asked_for);
	setenv("HB_BENCH_SPLIT_US", "500", 1);
	atomic_store(&host.page->priority, HB_PAGE_HIGH);
	run(not_asked_for);
}

static void refused(const char *what)
{
	CUfunction plain = function_of("run_plain");
	FAKE("hb_fake_set_refusal", void (*)(const char *))(what);
	for (int i = 0; i < 3; i++)
		launch(plain, 160, 1, 1);
	CHECK(parts() == 0 && hb_page_host_count(&host, HB_COUNT_unsplit) == 3);
}

static void no_linker(void)
{
	refused("link");
}

static void no_copy(void)
{
	refused("load");
}

static void a_driver_that_refuses_leaves_kernels_unsplit(void **state)
{
	run(no_linker);
	run(no_copy);
}

/* The driver compiles the range check for an sm_80 GPU, on which splitting was never tried. */
static void unproven_gpu(void)
{
	size_t size;
	uint8_t *check = fixture_for("range_checks.fatbin", 80, &size);
	char path[] = "/tmp/hb-range-check.XXXXXX";
	int fd = mkstemp(path);
	CHECK(write(fd, check, size) == (ssize_t)size && close(fd) == 0);
	free(check);
	setenv("HB_TEST_RANGE_CHECK", path, 1);
	image = "generations.fatbin";
	CUfunction plain = function_of("run_plain");
	for (int i = 0; i < 3; i++)
		launch(plain, 160, 1, 1);
	unlink(path);
}

static void kernels_stay_whole(void)
{
	unproven_gpu();
	CHECK(parts() == 0 && hb_page_host_count(&host, HB_COUNT_unsplit) == 3);
}

static void kernels_are_split(void)
{
	setenv("HB_SPLIT", "offline", 1);
	unproven_gpu();
	CHECK(parts() == 10);
}

static void on_an_unproven_gpu_splitting_must_be_asked_for(void **state)
{
	run(kernels_stay_whole);
	run(kernels_are_split);
}

/* After its module was unloaded, the same handle is not the old kernel. */
static void modules_go(void)
{
	CUfunction plain = function_of("run_plain");
	launch(plain, 160, 1, 1);
	launch(plain, 160, 1, 1);
	CHECK(parts() == 5);
	OK(CU(cuModuleUnload)(module));
	launch(plain, 160, 1, 1); /* the fake driver accepts the old handle */
	CHECK(parts() == 0);
}

static void an_unloaded_kernel_is_forgotten(void **state)
{
	run(modules_go);
}

/* A program that compiles all day loads and unloads more functions than the table has places for. */
static void modules_come_and_go(void)
{
	static const char *const names[] = {"run_plain",       "run_reduction",          "whole_waits_atomic",
					    "whole_cluster",   "whole_variables_global", "whole_calls_printf",
					    "whole_dependents"};
	enum { N = sizeof names / sizeof *names };
	void *parameters[] = {&cells, &shape, &cells, &shape};
	for (int n = 0; n < 4200; n += N) {
		for (int i = 0; i < N; i++)
			OK(CU(cuLaunchKernel)(function_of(names[i]), 160, 1, 1, 64, 1, 1, 0, STREAM, parameters, NULL));
		OK(CU(cuModuleUnload)(module));
		module = NULL;
	}
	for (uint32_t i = 0; i < 160; i++)
		FAKE("hb_fake_runs_of", unsigned (*)(uint32_t))(i);
	CUfunction plain = function_of("run_plain");
	launch(plain, 160, 1, 1);
	CHECK(parts() == 0); /* the time of a kernel that used the same entry before does not count */
	launch(plain, 160, 1, 1);
	CHECK(parts() == 5);
}

static void modules_may_be_loaded_and_unloaded_without_end(void **state)
{
	run(modules_come_and_go);
}

/* A program whose launches nearly all have different shapes; one shape is repeated. */
static void launch_in_ever_new_shapes(void)
{
	CUfunction plain = function_of("run_plain");
	void *parameters[] = {&cells, &shape};
	for (unsigned i = 0; i < 4400; i++) {
		OK(CU(cuLaunchKernel)(plain, 17, 1, 1, 64, 1, 1, 64 + i, STREAM, parameters, NULL));
		if (i % 100 == 0)
			OK(CU(cuLaunchKernel)(plain, 160, 1, 1, 64, 1, 1, 0, STREAM, parameters, NULL));
	}
	CHECK(fake_calls("cuEventDestroy_v2") > 600); /* the events of shapes whose entries were reused */
	CHECK(parts() > 0);
	for (uint32_t i = 0; i < 160; i++)
		FAKE("hb_fake_runs_of", unsigned (*)(uint32_t))(i);
	launch(plain, 160, 1, 1);
	CHECK(parts() == 5); /* still known */
	launch(plain, 161, 1, 1);
	CHECK(parts() == 0);
	launch(plain, 161, 1, 1);
	CHECK(parts() == 6); /* there is room for a new shape */
}

static void launch_shapes_may_change_without_end(void **state)
{
	run(launch_in_ever_new_shapes);
}

/* Settings of the original apply to the copy. */
static void settings_follow(void)
{
	CUfunction plain = function_of("run_plain");
	launch(plain, 160, 1, 1);
	launch(plain, 160, 1, 1);
	unsigned before = fake_calls("cuLaunchKernelEx");
	OK(CU(cuFuncSetAttribute)(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	launch(plain, 160, 1, 1);
	CHECK(fake_calls("cuLaunchKernelEx") == before + 5);
	CHECK(FAKE("hb_fake_setting_of_copy", int (*)(int))(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) == 65536);
}

static void settings_apply_to_the_copy(void **state)
{
	run(settings_follow);
}

static int copies(void)
{
	return FAKE("hb_fake_copies", int (*)(void))();
}

/* A library has a copy in each context. It is unloaded with another context current, while a stream captures. */
static void libraries_go(void)
{
	static int places[3];
	CUlibrary library;
	CUkernel kernel;
	CUcontext context;
	CUgraph graph;
	size_t size;
	uint8_t *file = fixture("kernels.fatbin", &size);
	OK(CU(cuInit)(0));
	for (int round = 0; round < 3; round++) {
		OK(CU(cuLibraryLoadData)(&library, file, NULL, NULL, 0, NULL, NULL, 0));
		OK(CU(cuLibraryGetKernel)(&kernel, library, "run_reduction"));
		for (int i = 0; i < 2; i++) {
			OK(CU(cuCtxSetCurrent)((CUcontext)(void *)&places[i]));
			launch((CUfunction)(void *)kernel, 100, 1, 1);
		}
		CHECK(copies() == 2);
		OK(CU(cuCtxSetCurrent)((CUcontext)(void *)&places[2]));
		OK(CU(cuStreamBeginCapture_v2)(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL));
		OK(CU(cuLibraryUnload)(library));
		OK(CU(cuStreamEndCapture)(STREAM, &graph));
		CHECK(copies() == 0);
		OK(CU(cuCtxGetCurrent)(&context));
		CHECK(context == (CUcontext)(void *)&places[2]);
	}
	free(file);
}

static void copies_of_a_library_go_with_it(void **state)
{
	run(libraries_go);
}

static void *use_another_module(void *unused)
{
	void *parameters[] = {&cells, &shape, &cells, &shape};
	CUmodule another;
	CUfunction function;
	size_t size;
	uint8_t *file = fixture(image, &size);
	OK(CU(cuModuleLoadData)(&another, file));
	free(file);
	OK(CU(cuModuleGetFunction)(&function, another, "run_reduction"));
	for (int i = 0; i < 2; i++)
		OK(CU(cuLaunchKernel)(function, 160, 1, 1, 64, 1, 1, 0, STREAM, parameters, NULL));
	OK(CU(cuModuleUnload)(another));
	return NULL;
}

/* The work that a driver call waits for may itself wait for another thread. */
static void let_another_thread_work(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, use_another_module, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static const char *waits_in;

static void wait_in_the_driver(void)
{
	void (*wait_in)(const char *, void (*)(void)) = FAKE("hb_fake_wait_in", void (*)(const char *, void (*)(void)));
	void *parameters[] = {&cells, &shape};
	CUfunction plain = function_of("run_plain");
	bool in_unload = strcmp(waits_in, "cuModuleUnload") == 0;
	if (!in_unload)
		wait_in(waits_in, let_another_thread_work);
	for (int i = 0; i < 2; i++)
		OK(CU(cuLaunchKernel)(plain, 160, 1, 1, 64, 1, 1, 0, STREAM, parameters, NULL));
	CHECK(parts() > 0 && copies() == 1);
	if (in_unload)
		wait_in(waits_in, let_another_thread_work);
	OK(CU(cuModuleUnload)(module));
	CHECK(copies() == 0 && hb_page_host_count(&host, HB_COUNT_split) == 2);
}

/* Without the correction this test does not end. */
static void no_thread_waits_for_a_driver_call_of_another(void **state)
{
	static const char *const calls[] = {"cuFuncGetModule",     "cuLinkCreate_v2",    "cuModuleLoadData",
					    "cuModuleGetFunction", "cuFuncGetAttribute", "cuModuleUnload"};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		waits_in = calls[i];
		hb_page_host_begin_again(&host);
		run(wait_in_the_driver);
	}
}

enum { THREADS = 4, ROUNDS = 20 };

static void *launch_often(void *argument)
{
	CUfunction *functions = argument;
	void *parameters[] = {&cells, &shape, &cells, &shape};
	for (int i = 0; i < ROUNDS; i++)
		for (int k = 0; k < 3; k++)
			OK(CU(cuLaunchKernel)(functions[k], 160, 1, 1, 64, 1, 1, 0, STREAM, parameters, NULL));
	return NULL;
}

/* All at once: the first launches make the copy and take the times. */
static void many_threads(void)
{
	CUfunction functions[] = {function_of("run_plain"), function_of("run_reduction"), function_of("whole_cluster")};
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_often, functions) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	unsigned (*runs_of)(uint32_t) = FAKE("hb_fake_runs_of", unsigned (*)(uint32_t));
	for (uint32_t i = 0; i < 160; i++)
		CHECK(runs_of(i) == THREADS * ROUNDS * 3);
	CHECK(hb_page_host_count(&host, HB_COUNT_split) + hb_page_host_count(&host, HB_COUNT_unsplit) ==
	      THREADS * ROUNDS * 3);
	CHECK(hb_page_host_count(&host, HB_COUNT_split) > 0 && parts() == hb_page_host_count(&host, HB_COUNT_parts));
}

static void many_threads_may_launch(void **state)
{
	run(many_threads);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {T(a_long_kernel_is_split),
					   T(kernels_of_libraries_are_split),
					   T(a_library_is_split_again_in_a_new_context),
					   T(a_kernel_is_split_in_each_of_two_contexts),
					   T(no_event_is_queried_during_a_capture),
					   T(packed_parameters_are_passed_on),
					   T(other_kernels_are_not_split),
					   T(a_short_kernel_is_not_split),
					   T(without_the_setting_nothing_is_split),
					   T(a_driver_that_refuses_leaves_kernels_unsplit),
					   T(on_an_unproven_gpu_splitting_must_be_asked_for),
					   T(an_unloaded_kernel_is_forgotten),
					   T(copies_of_a_library_go_with_it),
					   T(no_thread_waits_for_a_driver_call_of_another),
					   T(settings_apply_to_the_copy),
					   T(many_threads_may_launch),
					   T(modules_may_be_loaded_and_unloaded_without_end),
					   T(launch_shapes_may_change_without_end)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
