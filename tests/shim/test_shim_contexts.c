/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts and streams that come and go, over the simulated driver: what is
 * looked at, and what is bounded, follows them. The test plays the daemon.
 */
#include "space_rig.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

static const char image[] = "HBSIM1\nkernel brief ns=1000\n";

/* ---- what both sides tell each other ---- */

static void tell(uint32_t step)
{
	atomic_store(&space_host.page->attainment_ppm, step);
}

static void await(uint32_t step)
{
	while (atomic_load(&space_host.page->attainment_ppm) != step)
		sched_yield();
}

/* ---- in the child ---- */

static CUstream make_stream(void)
{
	CUstream stream;
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static CUfunction load_brief(void)
{
	CUmodule module;
	CUfunction brief;
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&brief, module, "brief"));
	return brief;
}

/* A kernel behind a word that the test sets when it likes. */
static void launch_behind(volatile uint32_t *word, CUstream stream)
{
	CUfunction brief = load_brief();
	OK(CU(cuStreamWaitValue32_v2)(stream, (CUdeviceptr)(uintptr_t)word, 1, 0));
	OK(CU(cuLaunchKernel)(brief, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static volatile uint32_t *make_word(void)
{
	void *word;
	OK(CU(cuMemHostAlloc)(&word, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(word, 0, 64);
	return word;
}

static CUcontext begin_primary(void)
{
	CUcontext context;
	OK(CU(cuInit)(0));
	OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
	OK(CU(cuCtxSetCurrent)(context));
	return context;
}

static void work_on(volatile uint32_t *word, CUstream stream)
{
	tell(1);
	await(2);
	*word = 1;
	OK(CU(cuStreamSynchronize)(stream));
	await(3);
}

static void release_what_others_hold(void)
{
	CUcontext context = begin_primary();
	OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
	CUstream stream = make_stream();
	volatile uint32_t *word = make_word();
	launch_behind(word, stream);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
	work_on(word, stream);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
}

static void destroy_what_may_not_be(void)
{
	CUcontext context = begin_primary();
	CUstream stream = make_stream();
	volatile uint32_t *word = make_word();
	launch_behind(word, stream);
	CHECK(CU(cuCtxDestroy_v2)(context) != CUDA_SUCCESS);
	work_on(word, stream);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
}

/* ---- in the test ---- */

/* While its work is on the GPU a process never counts as drained; how long that is looked at only says how well. */
static void is_busy_until_done(void (*scenario)(void))
{
	space_host.page->gpus[0].engine = HB_ENGINE_TURNS;
	pid_t child = hb_page_host_start(scenario);
	struct hb_page_process *process = hb_page_host_serve(&space_host);
	await(1);
	hb_page_host_set_gate(process, HB_GATE_CLOSED);
	for (int i = 0; i < 100; i++) {
		usleep(2000);
		assert_int_equal(hb_gate_in_flight(hb_page_host_gate(process)), 1);
	}
	tell(2);
	while (!hb_gate_drained(hb_page_host_gate(process)))
		usleep(200);
	tell(3);
	assert_true(hb_page_host_ended_well(child));
}

static void streams_are_looked_at_after_one_of_two_holders_released(void **state)
{
	is_busy_until_done(release_what_others_hold);
}

static void streams_are_looked_at_after_a_destroy_that_failed(void **state)
{
	is_busy_until_done(destroy_what_may_not_be);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, space_set_up, space_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(streams_are_looked_at_after_one_of_two_holders_released),
		TEST(streams_are_looked_at_after_a_destroy_that_failed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
