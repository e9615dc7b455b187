/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which stream takeover kernels run, over the simulated driver, and which calls of the
 * process release them for that reason. As in test_shim_takeovers.c, the tests read
 * from the counters of the page what was released.
 */
#include "takeover_child.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- in the child ---- */

static void expect_held(void)
{
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_released) == 0 &&
	      hb_page_host_count(&host, HB_COUNT_takeovers_wide) == 0);
}

/*
 * The process launches on a non-blocking stream, so the takeover kernels are on the legacy stream. Calls on the non-blocking
 * stream do not wait for them and must not release them either; calls on the legacy stream and on blocking streams do.
 */
static void copy_beside_the_legacy_stream(void)
{
	CUdeviceptr memory;
	CUstream blocking;
	CUevent event;
	char bytes[64] = {0};
	begin();
	OK(CU(cuMemAlloc_v2)(&memory, sizeof(bytes)));
	OK(CU(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
	OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	hold();
	OK(CU(cuMemcpyHtoDAsync_v2)(memory, bytes, sizeof(bytes), stream));
	OK(CU(cuEventRecord)(event, stream));
	OK(CU(cuStreamSynchronize)(stream));
	expect_held();
	LETS_GO(HB_COUNT_takeovers_released, OK(CU(cuMemsetD8Async)(memory, 0, 1, stream)));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuMemcpyHtoD_v2)(memory, bytes, sizeof(bytes))));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuMemcpyDtoHAsync_v2)(bytes, memory, sizeof(bytes), NULL)));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuEventRecord)(event, NULL)));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuEventRecord)(event, CU_STREAM_PER_THREAD)));
	LETS_GO(HB_COUNT_takeovers_wide, launch(kernel_short, blocking));
	OK(CU(cuStreamSynchronize)(blocking));
	OK(CU(cuStreamDestroy_v2)(blocking));
	OK(CU(cuEventDestroy_v2)(event));
	OK(CU(cuMemFree_v2)(memory));
	end();
}

/* A process that launches on the legacy stream for some seconds: the takeover kernels have streams of their own. */
static void work_on_the_legacy_stream(void)
{
	stream = NULL;
	launch(kernel_short, NULL);
	OK(CU(cuStreamSynchronize)(NULL));
	usleep(2100000);
}

static void copy_on_the_legacy_stream(void)
{
	CUdeviceptr memory;
	char bytes[64] = {0};
	begin();
	work_on_the_legacy_stream();
	OK(CU(cuMemAlloc_v2)(&memory, sizeof(bytes)));
	hold();
	OK(CU(cuMemcpyHtoD_v2)(memory, bytes, sizeof(bytes)));
	OK(CU(cuStreamSynchronize)(NULL));
	expect_held();
	LETS_GO(HB_COUNT_takeovers_released, launch(kernel_short, NULL));
	LETS_GO(HB_COUNT_takeovers_released, OK(CU(cuMemsetD8Async)(memory, 0, 1, NULL)));
	OK(CU(cuMemFree_v2)(memory));
	end();
}

/* Takeover kernels on the legacy stream could disturb a capture, so there are none; afterwards there are. */
static void hint_during_capture(void)
{
	CUgraph graph;
	CUgraphExec executable;
	begin();
	hold();
	await(HB_COUNT_takeover_time, 1);
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(kernel_short, stream);
	uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers_not_possible);
	while (hb_page_host_count(&host, HB_COUNT_takeovers_not_possible) < before + 2) {
		hint(400000);
		usleep(5000);
	}
	launch(kernel_short, stream); /* captured, so it is not the launch that the hints were for */
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_released) == 0);
	OK(CU(cuStreamEndCapture)(stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&executable, graph, 0));
	LETS_GO(HB_COUNT_takeovers_released, OK(CU(cuGraphLaunch)(executable, stream)));
	OK(CU(cuStreamSynchronize)(stream));
	end();
}

static void reset_while_held(void)
{
	OK(CU(cuInit)(0));
	for (int i = 0; i < 3; i++) {
		OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
		OK(CU(cuCtxSetCurrent)(context));
		OK(CU(cuModuleLoadData)(&module, image));
		OK(CU(cuModuleGetFunction)(&kernel_short, module, "short"));
		work_on_the_legacy_stream();
		hold();
		OK(i == 1 ? CU(cuDevicePrimaryCtxReset_v2)(0) : CU(cuDevicePrimaryCtxRelease_v2)(0));
	}
}

/* ---- keeping the GPU after work ---- */

static atomic_bool waits, over;

static void take_long(void *unused)
{
	usleep(4000);
}

/* The GPU may be kept after the first wait, because the answer follows at once. */
static void work_and_answer(int i)
{
	if (i % 64 == 0)
		hint(400000);
	launch(kernel_short, stream);
	OK(CU(cuLaunchHostFunc)(stream, take_long, NULL));
	atomic_store(&waits, true);
	OK(CU(cuStreamSynchronize)(stream));
	launch(kernel_short, stream);
	launch(kernel_short, stream);
	OK(CU(cuStreamSynchronize)(stream));
	usleep(2000 + (unsigned)(i * 7919 % 13) * 1000);
}

static void *launch_on_the_legacy_stream(void *unused)
{
	OK(CU(cuCtxSetCurrent)(context));
	while (!atomic_load(&over)) {
		if (atomic_exchange(&waits, false)) {
			usleep(1000);
			launch(kernel_short, NULL);
			OK(CU(cuStreamSynchronize)(NULL));
		}
		usleep(100);
	}
	return NULL;
}

/* The kernels that keep the GPU are in the legacy stream, behind the work. A launch there waits for that work, but only once. */
static void use_the_legacy_stream_meanwhile(void)
{
	pthread_t thread;
	begin();
	for (int i = 0; hb_page_host_count(&host, HB_COUNT_takeovers_kept) < 4; i++)
		work_and_answer(i);
	CHECK(pthread_create(&thread, NULL, launch_on_the_legacy_stream, NULL) == 0);
	for (int i = 0; hb_page_host_count(&host, HB_COUNT_takeovers_wide) == 0; i++)
		work_and_answer(i);
	atomic_store(&over, true);
	CHECK(pthread_join(thread, NULL) == 0);
	uint64_t kept = hb_page_host_count(&host, HB_COUNT_takeovers_kept);
	for (int i = 0; i < 40; i++)
		work_and_answer(i);
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_kept) == kept);
	end();
}

/* ---- in the test ---- */

static void calls_do_not_wait_for_a_takeover_on_the_legacy_stream(void **state)
{
	run(copy_beside_the_legacy_stream);
}

static void calls_do_not_wait_for_a_takeover_on_streams_of_its_own(void **state)
{
	run(copy_on_the_legacy_stream);
}

static void a_capture_is_not_disturbed(void **state)
{
	run(hint_during_capture);
}

static void a_context_may_be_reset_during_a_takeover(void **state)
{
	run(reset_while_held);
}

static void the_gpu_is_not_kept_where_other_work_would_wait(void **state)
{
	run(use_the_legacy_stream_meanwhile);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(calls_do_not_wait_for_a_takeover_on_the_legacy_stream),
		TEST(calls_do_not_wait_for_a_takeover_on_streams_of_its_own),
		TEST(a_capture_is_not_disturbed),
		TEST(a_context_may_be_reset_during_a_takeover),
		TEST(the_gpu_is_not_kept_where_other_work_would_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
