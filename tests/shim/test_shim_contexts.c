/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, streams and captures that are created and destroyed, over the simulated
 * driver: what the shim polls and bounds must follow them. The test plays the
 * daemon.
 */
#include "shim_spatial_rig.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char image[] = "HBSIM1\nkernel brief ns=1000\n";

/* ---- steps by which test and child synchronise ---- */

static void tell(uint32_t step)
{
	atomic_store(&spatial_host.page->attainment_ppm, step);
}

static void await(uint32_t step)
{
	while (atomic_load(&spatial_host.page->attainment_ppm) != step)
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

/* Launches a kernel that runs until the test sets the word. */
static void launch_behind(hb_page_u32 *word, CUstream stream)
{
	CUfunction brief = load_brief();
	OK(CU(cuStreamWaitValue32_v2)(stream, (CUdeviceptr)(uintptr_t)word, 1, 0));
	OK(CU(cuLaunchKernel)(brief, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static hb_page_u32 *make_word(void)
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

static void work_on(hb_page_u32 *word, CUstream stream)
{
	tell(1);
	await(2);
	atomic_store(word, 1);
	OK(CU(cuStreamSynchronize)(stream));
	await(3);
}

static void release_what_others_hold(void)
{
	CUcontext context = begin_primary();
	OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
	CUstream stream = make_stream();
	hb_page_u32 *word = make_word();
	launch_behind(word, stream);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
	work_on(word, stream);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
}

static void destroy_what_may_not_be(void)
{
	CUcontext context = begin_primary();
	CUstream stream = make_stream();
	hb_page_u32 *word = make_word();
	launch_behind(word, stream);
	CHECK(CU(cuCtxDestroy_v2)(context) != CUDA_SUCCESS);
	work_on(word, stream);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
}

static void launch_once(CUfunction function, CUstream stream)
{
	OK(CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	OK(CU(cuStreamSynchronize)(stream));
}

/* Allocates what was freed, so that the next handle is a new one. */
static void take_freed_memory(void)
{
	static void *taken;
	for (size_t size = 64; size < 4096; size += 16) {
		void **block = malloc(size);
		CHECK(block);
		*block = taken;
		taken = block;
	}
}

/* Like a program that creates new streams for each step. */
static void make_and_destroy_streams(void)
{
	spatial_begin();
	for (int i = 0; i < 100; i++) {
		CUstream stream = make_stream();
		launch_once(spatial_look, stream);
		OK(CU(cuStreamDestroy_v2)(stream));
		take_freed_memory();
	}
	CHECK(spatial_count_of(HB_COUNT_spatial_unbounded) == 0);
	spatial_end();
}

static void launch_once_on_own_stream(void)
{
	OK(CU(cuLaunchKernel_ptsz)(spatial_look, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	OK(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD));
}

static void *live_briefly(void *unused)
{
	OK(CU(cuCtxSetCurrent)(spatial_context));
	launch_once_on_own_stream();
	return NULL;
}

/* Uses a new stack, so that the thread's variables are not at the address of another thread's. */
static void run_thread_on_fresh_stack(void)
{
	enum { BYTES = 1 << 20 };
	pthread_attr_t attributes;
	pthread_t thread;
	void *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stack != MAP_FAILED);
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, BYTES) == 0);
	CHECK(pthread_create(&thread, &attributes, live_briefly, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	pthread_attr_destroy(&attributes);
}

/* Like a server that starts a thread with its own stream for each job. */
static void start_and_end_threads(void)
{
	spatial_begin();
	for (int i = 0; i < 100; i++)
		run_thread_on_fresh_stack();
	CHECK(spatial_count_of(HB_COUNT_spatial_unbounded) == 0);
	launch_once_on_own_stream();
	CHECK(spatial_count_of(HB_COUNT_spatial_unbounded) == 0);
	spatial_end();
}

enum { POOL = 40 };

static bool is_bounded(CUstream stream)
{
	uint64_t before = spatial_count_of(HB_COUNT_spatial_unbounded);
	launch_once(spatial_look, stream);
	return spatial_count_of(HB_COUNT_spatial_unbounded) == before;
}

/* More streams than there are rows, all idle except one. */
static void use_a_pool_of_streams(void)
{
	CUstream pool[POOL];
	spatial_begin();
	/* A counter write follows each of the first launches of a kernel, so the shim knows what is done. */
	for (int i = 0; i < POOL; i++)
		CHECK(is_bounded(pool[i] = make_stream()));
	/* Not each later launch has one; then a stream must be idle for some time. */
	for (int n = 0; n < 24 * POOL; n++)
		launch_once(spatial_look, pool[n / 8 % POOL]);
	for (int i = 0; i < POOL; i++)
		while (!is_bounded(pool[i]))
			usleep(1000);
	spatial_end();
}

static void *launch_some_on_own_stream(void *unused)
{
	OK(CU(cuCtxSetCurrent)(spatial_context));
	for (int i = 0; i < 20; i++)
		launch_once_on_own_stream();
	return NULL;
}

/* Rows are given to other streams while threads launch; when all threads have ended, there is room again. */
static void launch_in_more_threads_than_rows(void)
{
	pthread_t threads[POOL];
	spatial_begin();
	for (int i = 0; i < POOL; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_some_on_own_stream, NULL) == 0);
	for (int i = 0; i < POOL; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < POOL / 2; i++)
		CHECK(is_bounded(make_stream()));
	spatial_end();
}

/* Replaces libc's function to count waits of the shim that keep their thread runnable. */
static atomic_uint n_yields;

__attribute__((visibility("default"))) int sched_yield(void)
{
	Dl_info caller;
	const char *shim = getenv("HB_TEST_SHIM");
	if (shim && dladdr(__builtin_return_address(0), &caller) && strcmp(caller.dli_fname, shim) == 0)
		atomic_fetch_add(&n_yields, 1);
	return (int)syscall(SYS_sched_yield);
}

static void *launch_much(void *unused)
{
	OK(CU(cuCtxSetCurrent)(spatial_context));
	for (int i = 0; i < 400; i++)
		launch_once_on_own_stream();
	return NULL;
}

static void launch_in_threads_of_any_kind(void)
{
	enum { THREADS = 8 };
	pthread_t threads[THREADS];
	const struct sched_param urgent = {.sched_priority = 1};
	spatial_begin();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_much, NULL) == 0);
	/* If that is not permitted, all threads have the same scheduling. */
	for (int i = 0; i < THREADS / 4; i++)
		pthread_setschedparam(threads[i], SCHED_FIFO, &urgent);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(atomic_load(&n_yields) == 0);
	spatial_end();
}

static void work_in_two_contexts(void)
{
	CUcontext second;
	spatial_begin();
	launch_once(spatial_look, spatial_stream);
	OK(CU(cuCtxCreate_v2)(&second, 0, 0));
	CUfunction brief = load_brief();
	CUstream stream = make_stream();
	CHECK(spatial_count_of(HB_COUNT_spatial_unbounded) == 0);
	launch_once(brief, stream);
	CHECK(spatial_count_of(HB_COUNT_spatial_unbounded) == 1);
	/* When the first context is gone, the second one gets the counters at the next slow call after the retry time. */
	OK(CU(cuCtxDestroy_v2)(spatial_context));
	uint64_t before;
	do {
		before = spatial_count_of(HB_COUNT_spatial_unbounded);
		OK(CU(cuCtxSynchronize)());
		launch_once(brief, stream);
		usleep(1000);
	} while (spatial_count_of(HB_COUNT_spatial_unbounded) > before);
	OK(CU(cuCtxDestroy_v2)(second));
}

/* As long as a capture counted as in progress, the next context would get no counters. */
static void reset_while_something_is_recorded(void)
{
	CUcontext context = begin_primary();
	CUfunction brief = load_brief();
	CUstream stream = make_stream();
	OK(CU(cuCtxSynchronize)());
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(CU(cuLaunchKernel)(brief, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	OK(CU(cuDevicePrimaryCtxReset_v2)(0));
	OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
	OK(CU(cuCtxSetCurrent)(context));
	brief = load_brief();
	stream = make_stream();
	uint64_t before;
	do {
		before = spatial_count_of(HB_COUNT_spatial_unbounded);
		OK(CU(cuCtxSynchronize)());
		launch_once(brief, stream);
		usleep(1000);
	} while (spatial_count_of(HB_COUNT_spatial_unbounded) > before);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
}

static void release_in_the_spatial_engine(void)
{
	CUcontext context = begin_primary();
	CUfunction brief = load_brief();
	CUstream stream = make_stream();
	OK(CU(cuCtxSynchronize)());
	for (int i = 0; i < 10; i++) {
		OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
		launch_once(brief, stream);
		OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
	}
	CHECK(spatial_count_of(HB_COUNT_spatial_unbounded) == 0);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
}

/* ---- in the test ---- */

/* A process never counts as drained while its work is on the GPU. Checking longer only makes the test more sensitive. */
static void is_busy_until_done(void (*scenario)(void))
{
	spatial_host.page->gpus[0].engine = HB_ENGINE_TURNS;
	pid_t child = hb_page_host_start(scenario);
	struct hb_page_process *process = hb_page_host_serve(&spatial_host);
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

static void streams_are_polled_after_one_of_two_users_released_the_context(void **state)
{
	is_busy_until_done(release_what_others_hold);
}

static void streams_are_polled_after_a_failed_destroy(void **state)
{
	is_busy_until_done(destroy_what_may_not_be);
}

static void streams_that_are_created_and_destroyed_are_all_bounded(void **state)
{
	spatial_run(make_and_destroy_streams);
}

static void streams_of_short_lived_threads_are_all_bounded(void **state)
{
	spatial_run(start_and_end_threads);
}

static void idle_streams_make_room_for_others(void **state)
{
	spatial_run(use_a_pool_of_streams);
}

static void threads_beyond_the_rows_leave_room_when_they_end(void **state)
{
	spatial_run(launch_in_more_threads_than_rows);
}

/* A SCHED_FIFO thread that spins would keep the holder of the lock from the CPU forever. */
static void no_thread_spins_for_another(void **state)
{
	spatial_run(launch_in_threads_of_any_kind);
}

static void *end_in_another_thread(void *unused)
{
	CUgraph graph;
	OK(CU(cuCtxSetCurrent)(spatial_context));
	CHECK(CU(cuStreamEndCapture)(spatial_stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	return NULL;
}

static void record_a_launch(void)
{
	uint64_t before = spatial_count_of(HB_COUNT_captured);
	OK(CU(cuLaunchKernel)(spatial_look, 264, 1, 1, 512, 1, 1, 0, spatial_stream, NULL, NULL));
	CHECK(spatial_count_of(HB_COUNT_captured) == before + 1);
}

static void end_a_capture_twice(void)
{
	pthread_t thread;
	CUgraph graph;
	spatial_begin();
	OK(CU(cuStreamBeginCapture_v2)(spatial_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	record_a_launch();
	CHECK(pthread_create(&thread, NULL, end_in_another_thread, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(CU(cuStreamEndCapture)(spatial_stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(CU(cuStreamBeginCapture_v2)(spatial_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	record_a_launch();
	OK(CU(cuStreamEndCapture)(spatial_stream, &graph));
	OK(CU(cuGraphDestroy)(graph));
	spatial_end();
}

/* A capture that the wrong thread tried to end is ended later by its own thread. */
static void captures_are_counted_after_a_failed_end(void **state)
{
	spatial_run(end_a_capture_twice);
}

static void a_second_context_is_not_bounded_but_counted(void **state)
{
	spatial_run(work_in_two_contexts);
}

static void work_is_bounded_after_a_reset_ended_a_capture(void **state)
{
	spatial_run(reset_while_something_is_recorded);
}

static void work_is_bounded_after_one_of_two_users_released_the_context(void **state)
{
	spatial_run(release_in_the_spatial_engine);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, spatial_set_up, spatial_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(streams_are_polled_after_one_of_two_users_released_the_context),
		TEST(streams_are_polled_after_a_failed_destroy),
		TEST(streams_that_are_created_and_destroyed_are_all_bounded),
		TEST(streams_of_short_lived_threads_are_all_bounded),
		TEST(idle_streams_make_room_for_others),
		TEST(threads_beyond_the_rows_leave_room_when_they_end),
		TEST(no_thread_spins_for_another),
		TEST(captures_are_counted_after_a_failed_end),
		TEST(a_second_context_is_not_bounded_but_counted),
		TEST(work_is_bounded_after_a_reset_ended_a_capture),
		TEST(work_is_bounded_after_one_of_two_users_released_the_context),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
