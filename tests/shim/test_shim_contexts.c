/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, streams and captures that come and go, over the simulated driver:
 * what is looked at, and what is bounded, follows them. The test plays the daemon.
 */
#include "space_rig.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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

/* What was freed is taken, so that the next handle is another one. */
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

/* As a program does that makes its streams anew for each step. */
static void make_and_destroy_streams(void)
{
	space_begin();
	for (int i = 0; i < 100; i++) {
		CUstream stream = make_stream();
		launch_once(space_look, stream);
		OK(CU(cuStreamDestroy_v2)(stream));
		take_freed_memory();
	}
	CHECK(space_count_of(HB_COUNT_spatial_unbounded) == 0);
	space_end();
}

static void launch_once_on_own_stream(void)
{
	OK(CU(cuLaunchKernel_ptsz)(space_look, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	OK(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD));
}

static void *live_briefly(void *unused)
{
	OK(CU(cuCtxSetCurrent)(space_context));
	launch_once_on_own_stream();
	return NULL;
}

/* On a stack that no other thread has: what a thread has of its own lies there, and is not at the place of another's. */
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

/* As a server does that starts a thread for each job, with a stream of its own. */
static void start_and_end_threads(void)
{
	space_begin();
	for (int i = 0; i < 100; i++)
		run_thread_on_fresh_stack();
	CHECK(space_count_of(HB_COUNT_spatial_unbounded) == 0);
	launch_once_on_own_stream();
	CHECK(space_count_of(HB_COUNT_spatial_unbounded) == 0);
	space_end();
}

enum { POOL = 40 };

static bool is_bounded(CUstream stream)
{
	uint64_t before = space_count_of(HB_COUNT_spatial_unbounded);
	launch_once(space_look, stream);
	return space_count_of(HB_COUNT_spatial_unbounded) == before;
}

/* More streams than are looked after at a time, but all idle save one. */
static void use_a_pool_of_streams(void)
{
	CUstream pool[POOL];
	space_begin();
	/* The first launches of a kernel are all marked, so what has been done is known. */
	for (int i = 0; i < POOL; i++)
		CHECK(is_bounded(pool[i] = make_stream()));
	/* Later ones are not; then a stream has to be idle for some time. */
	for (int n = 0; n < 24 * POOL; n++)
		launch_once(space_look, pool[n / 8 % POOL]);
	for (int i = 0; i < POOL; i++)
		while (!is_bounded(pool[i]))
			usleep(1000);
	space_end();
}

static void *launch_some_on_own_stream(void *unused)
{
	OK(CU(cuCtxSetCurrent)(space_context));
	for (int i = 0; i < 20; i++)
		launch_once_on_own_stream();
	return NULL;
}

/* Rows change hands while others launch; when all threads have ended there is room again. */
static void launch_in_more_threads_than_rows(void)
{
	pthread_t threads[POOL];
	space_begin();
	for (int i = 0; i < POOL; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_some_on_own_stream, NULL) == 0);
	for (int i = 0; i < POOL; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < POOL / 2; i++)
		CHECK(is_bounded(make_stream()));
	space_end();
}

/* Waits of the shim that keep their thread ready to run. The loader finds this one before libc's. */
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
	OK(CU(cuCtxSetCurrent)(space_context));
	for (int i = 0; i < 400; i++)
		launch_once_on_own_stream();
	return NULL;
}

static void launch_in_threads_of_any_kind(void)
{
	enum { THREADS = 8 };
	pthread_t threads[THREADS];
	const struct sched_param urgent = {.sched_priority = 1};
	space_begin();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_much, NULL) == 0);
	/* Where that is not permitted, they are of one kind. */
	for (int i = 0; i < THREADS / 4; i++)
		pthread_setschedparam(threads[i], SCHED_FIFO, &urgent);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(atomic_load(&n_yields) == 0);
	space_end();
}

static void work_in_two_contexts(void)
{
	CUcontext second;
	space_begin();
	launch_once(space_look, space_stream);
	OK(CU(cuCtxCreate_v2)(&second, 0, 0));
	CUfunction brief = load_brief();
	CUstream stream = make_stream();
	CHECK(space_count_of(HB_COUNT_spatial_unbounded) == 0);
	launch_once(brief, stream);
	CHECK(space_count_of(HB_COUNT_spatial_unbounded) == 1);
	/* When the first is gone, the second has the counters, at the next slow call whose time has come. */
	OK(CU(cuCtxDestroy_v2)(space_context));
	uint64_t before;
	do {
		before = space_count_of(HB_COUNT_spatial_unbounded);
		OK(CU(cuCtxSynchronize)());
		launch_once(brief, stream);
		usleep(1000);
	} while (space_count_of(HB_COUNT_spatial_unbounded) > before);
	OK(CU(cuCtxDestroy_v2)(second));
}

/* While something counts as recorded the next context would get no counters. */
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
		before = space_count_of(HB_COUNT_spatial_unbounded);
		OK(CU(cuCtxSynchronize)());
		launch_once(brief, stream);
		usleep(1000);
	} while (space_count_of(HB_COUNT_spatial_unbounded) > before);
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
	CHECK(space_count_of(HB_COUNT_spatial_unbounded) == 0);
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

static void streams_that_come_and_go_are_bounded_all(void **state)
{
	space_run(make_and_destroy_streams);
}

static void streams_of_threads_that_come_and_go_are_bounded_all(void **state)
{
	space_run(start_and_end_threads);
}

static void streams_that_are_idle_make_room_for_others(void **state)
{
	space_run(use_a_pool_of_streams);
}

static void threads_beyond_the_rows_leave_room_when_they_end(void **state)
{
	space_run(launch_in_more_threads_than_rows);
}

/* One of SCHED_FIFO would wait for ever so, on the CPU that whoever has the lock needs. */
static void no_thread_waits_awake_for_another(void **state)
{
	space_run(launch_in_threads_of_any_kind);
}

static void *end_in_another_thread(void *unused)
{
	CUgraph graph;
	OK(CU(cuCtxSetCurrent)(space_context));
	CHECK(CU(cuStreamEndCapture)(space_stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	return NULL;
}

static void record_a_launch(void)
{
	uint64_t before = space_count_of(HB_COUNT_captured);
	OK(CU(cuLaunchKernel)(space_look, 264, 1, 1, 512, 1, 1, 0, space_stream, NULL, NULL));
	CHECK(space_count_of(HB_COUNT_captured) == before + 1);
}

static void end_a_capture_twice(void)
{
	pthread_t thread;
	CUgraph graph;
	space_begin();
	OK(CU(cuStreamBeginCapture_v2)(space_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	record_a_launch();
	CHECK(pthread_create(&thread, NULL, end_in_another_thread, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(CU(cuStreamEndCapture)(space_stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(CU(cuStreamBeginCapture_v2)(space_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	record_a_launch();
	OK(CU(cuStreamEndCapture)(space_stream, &graph));
	OK(CU(cuGraphDestroy)(graph));
	space_end();
}

/* A capture that the wrong thread tried to end is ended by its own after that. */
static void captures_are_known_after_one_that_was_ended_badly(void **state)
{
	space_run(end_a_capture_twice);
}

static void a_second_context_is_not_bounded_but_counted(void **state)
{
	space_run(work_in_two_contexts);
}

static void work_is_bounded_after_a_reset_ended_a_capture(void **state)
{
	space_run(reset_while_something_is_recorded);
}

static void work_is_bounded_after_one_of_two_holders_released(void **state)
{
	space_run(release_in_the_spatial_engine);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, space_set_up, space_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(streams_are_looked_at_after_one_of_two_holders_released),
		TEST(streams_are_looked_at_after_a_destroy_that_failed),
		TEST(streams_that_come_and_go_are_bounded_all),
		TEST(streams_of_threads_that_come_and_go_are_bounded_all),
		TEST(streams_that_are_idle_make_room_for_others),
		TEST(threads_beyond_the_rows_leave_room_when_they_end),
		TEST(no_thread_waits_awake_for_another),
		TEST(captures_are_known_after_one_that_was_ended_badly),
		TEST(a_second_context_is_not_bounded_but_counted),
		TEST(work_is_bounded_after_a_reset_ended_a_capture),
		TEST(work_is_bounded_after_one_of_two_holders_released),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
