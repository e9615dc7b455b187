/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takeovers over the simulated driver, which runs the takeover kernels: what releases
 * them, and that nothing waits for them. The tests read from the counters of the page
 * what was taken over and what released it, so no test depends on times. A call that
 * waited for a takeover kernel would end at the kernel's limit, and the counter of
 * the expected reason would not change.
 */
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include "base/clock.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)

static const char image[] = "HBSIM1\n"
			    "kernel short ns=10000\n";

static struct hb_page_host host;

/* ---- in the child ---- */

static CUcontext context;
static CUmodule module;
static CUfunction kernel_short;
static CUstream stream;

/* The daemon's heartbeat never ends; the test runner ends a test that waits forever. */
static void await(enum hb_page_counter counter, uint64_t at_least)
{
	while (hb_page_host_count(&host, counter) < at_least)
		usleep(200);
}

static void launch(CUfunction kernel, CUstream on)
{
	OK(CU(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, on, NULL, NULL));
}

static void hint(int64_t in_ns)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_test_shim_symbol("hb_shim_hint");
	call(hb_clock_now_ns() + in_ns);
}

static void make_context(void)
{
	OK(CU(cuCtxCreate_v2)(&context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&kernel_short, module, "short"));
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	launch(kernel_short, stream);
	OK(CU(cuStreamSynchronize)(stream));
}

/*
 * The first hint starts the takeover thread, which prepares the context; from some
 * later hint on the GPU is taken over. Foresight ignores hints after 16 wrong ones, so
 * this gives only a few.
 */
static void hold(void)
{
	uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers);
	while (hb_page_host_count(&host, HB_COUNT_takeovers) == before) {
		hint(400000);
		for (int i = 0; i < 500 && hb_page_host_count(&host, HB_COUNT_takeovers) == before; i++)
			usleep(100);
	}
}

/* A hint that is followed by a launch. After too many wrong hints foresight would ignore them all. */
static void hint_and_be_right(int64_t in_ns)
{
	int64_t at_ns = hb_clock_now_ns() + in_ns;
	hint(in_ns);
	while (hb_clock_now_ns() < at_ns)
		sched_yield();
	launch(kernel_short, stream);
	OK(CU(cuStreamSynchronize)(stream));
}

/* Repeats a takeover and `call` until `call` itself released the takeover. */
#define LETS_GO(counter, call) \
	do { \
		uint64_t before_; \
		do { \
			hint_and_be_right(400000); \
			before_ = hb_page_host_count(&host, counter); \
			hold(); \
			call; \
			OK(CU(cuStreamSynchronize)(NULL)); /* otherwise the process counts as busy */ \
		} while (hb_page_host_count(&host, counter) == before_); \
	} while (0)

static void begin(void)
{
	OK(CU(cuInit)(0));
	make_context();
}

static void end(void)
{
	OK(CU(cuCtxDestroy_v2)(context));
}

static void hint_and_launch(void)
{
	begin();
	LETS_GO(HB_COUNT_takeovers_released, launch(kernel_short, stream));
	OK(CU(cuCtxSynchronize)());
	await(HB_COUNT_takeover_time, 1);
	end();
}

/* This thread and the takeover thread share a CPU, so the takeover thread cannot run before our next line. */
static void put_the_thread_behind(void)
{
	cpu_set_t one;
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(tasks && sched_setaffinity(0, sizeof(one), &one) == 0);
	while ((task = readdir(tasks))) {
		char path[64], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", task->d_name);
		FILE *file = fopen(path, "r");
		if (file && fgets(name, sizeof(name), file) && strcmp(name, "hb-takeover\n") == 0) {
			CHECK(sched_setaffinity(atoi(task->d_name), sizeof(one), &one) == 0);
			CHECK(sched_setscheduler(atoi(task->d_name), SCHED_IDLE, &(struct sched_param){0}) == 0);
		}
		if (file)
			fclose(file);
	}
	closedir(tasks);
}

/* A takeover that exists when the hint returns was made by the calling thread; repeats until some were. */
static void hint_and_look(void)
{
	int at_once = 0;
	begin();
	hold();
	put_the_thread_behind();
	for (int i = 0; i < 1000 && at_once < 4; i++) {
		hint_and_be_right(300000);
		usleep(3000); /* the previous takeover has ended, and the thread sleeps */
		uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers);
		hint(300000);
		at_once += hb_page_host_count(&host, HB_COUNT_takeovers) > before;
		launch(kernel_short, stream);
		OK(CU(cuStreamSynchronize)(stream));
	}
	CHECK(at_once >= 4);
	OK(CU(cuCtxSynchronize)());
	end();
}

static uint64_t signs_seen(void)
{
	return hb_page_host_count(&host, HB_COUNT_signs) + hb_page_host_count(&host, HB_COUNT_signs_dropped);
}

/* An allocation is a sign before a request's first launch, and none between two launches. */
static void allocate_first(void)
{
	CUdeviceptr memory;
	begin();
	uint64_t before = signs_seen();
	OK(CU(cuMemAlloc_v2)(&memory, 4096));
	CHECK(signs_seen() == before + 1);
	launch(kernel_short, stream);
	CUdeviceptr more;
	OK(CU(cuMemAlloc_v2)(&more, 4096));
	CHECK(signs_seen() == before + 1);
	OK(CU(cuStreamSynchronize)(stream));
	OK(CU(cuMemFree_v2)(memory));
	OK(CU(cuMemFree_v2)(more));
	end();
}

static void hint_and_nothing(void)
{
	begin();
	hold();
	await(HB_COUNT_takeover_time, 1);
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_released) == 0 &&
	      hb_page_host_count(&host, HB_COUNT_takeovers_wide) == 0);
	launch(kernel_short, stream); /* afterwards the takeover stream is empty, so nothing waits for it */
	OK(CU(cuCtxSynchronize)());
	end();
}

static void call_wide(void)
{
	CUdeviceptr memory;
	CUmodule other;
	void *on_host;
	begin();
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuCtxSynchronize)()));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuMemAlloc_v2)(&memory, 4096)); OK(CU(cuMemFree_v2)(memory)));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuMemHostAlloc)(&on_host, 4096, 0)); OK(CU(cuMemFreeHost)(on_host)));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuModuleLoadData)(&other, image)); OK(CU(cuModuleUnload)(other)));
	end();
}

static void *synchronize(void *unused)
{
	OK(CU(cuCtxSetCurrent)(context));
	OK(CU(cuCtxSynchronize)());
	return NULL;
}

static atomic_bool may_go_on;

static void wait_on_the_stream(void *unused)
{
	while (!atomic_load(&may_go_on))
		usleep(100);
}

/* The other thread waits for all work of the context, so it would wait for a takeover made now. */
static void hint_during_wide_call(void)
{
	pthread_t other;
	begin();
	hold();
	await(HB_COUNT_takeover_time, 1);
	uint64_t synchronizes = hb_page_host_count(&host, HB_COUNT_synchronizes);
	OK(CU(cuLaunchHostFunc)(stream, wait_on_the_stream, NULL));
	CHECK(pthread_create(&other, NULL, synchronize, NULL) == 0);
	await(HB_COUNT_synchronizes, synchronizes + 1);
	while (hb_page_host_count(&host, HB_COUNT_takeovers_not_possible) == 0) {
		hint(400000);
		usleep(5000);
	}
	uint64_t holds = hb_page_host_count(&host, HB_COUNT_takeovers);
	while (hb_page_host_count(&host, HB_COUNT_takeovers_not_possible) <
	       2) { /* one hint may be late on a busy machine */
		hint(400000);
		usleep(5000);
	}
	atomic_store(&may_go_on, true);
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers) == holds);
	end();
}

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

static void fork_while_held(void)
{
	begin();
	hold();
	pid_t child = fork();
	if (child == 0) {
		hint(400000); /* the child has no takeover thread, and the hint has no effect */
		_exit(0);
	}
	int status = 1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	LETS_GO(HB_COUNT_takeovers_released, launch(kernel_short, stream));
	OK(CU(cuCtxSynchronize)());
	end();
}

static void exit_while_held(void)
{
	begin();
	hold();
	exit(0);
}

static void destroy_while_held(void)
{
	begin();
	for (int i = 0; i < 5; i++) {
		hold();
		OK(CU(cuCtxDestroy_v2)(context));
		make_context();
	}
	LETS_GO(HB_COUNT_takeovers_released, launch(kernel_short, stream));
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

enum { THREADS = 4, ROUNDS = 50 };

static void *launch_in_rounds(void *unused)
{
	CUstream own;
	OK(CU(cuCtxSetCurrent)(context));
	OK(CU(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < ROUNDS; i++) {
		hint(100000);
		launch(kernel_short, own);
		OK(i % 8 ? CU(cuStreamSynchronize)(own) : CU(cuCtxSynchronize)());
	}
	return NULL;
}

static void launch_from_several_threads(void)
{
	pthread_t threads[THREADS];
	begin();
	hold();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_in_rounds, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	end();
}

/* The GPU is taken over for the newer context; after it is destroyed, for the other one. */
static void use_two_contexts(void)
{
	begin();
	CUcontext first = context;
	CUfunction first_kernel = kernel_short;
	CUstream first_stream = stream;
	make_context();
	LETS_GO(HB_COUNT_takeovers_released, launch(kernel_short, stream));
	end();
	context = first, kernel_short = first_kernel, stream = first_stream;
	OK(CU(cuCtxSetCurrent)(context));
	LETS_GO(HB_COUNT_takeovers_wide, OK(CU(cuCtxSynchronize)()));
	end();
}

static void hint_for_nothing(void)
{
	begin();
	for (int i = 0; i < 20; i++) {
		hint(400000);
		launch(kernel_short, stream);
		OK(CU(cuStreamSynchronize)(stream));
	}
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers) == 0);
	end();
}

/* Takeovers fail at the first step; the application does not notice. */
static void hint_with_a_driver_that_refuses(void)
{
	begin();
	while (atomic_load(&host.page->processes[0].requests.takeover_fault) == 0) {
		hint(400000);
		OK(CU(cuCtxSynchronize)());
		usleep(100);
	}
	hint_for_nothing();
}

static struct hb_page_requests *running(void)
{
	return &host.page->processes[0].requests;
}

static void tell_requests(void)
{
	void (*request_begin)(int64_t) = (void (*)(int64_t))hb_test_shim_symbol("hb_shim_request_begin");
	void (*request_end)(void) = (void (*)(void))hb_test_shim_symbol("hb_shim_request_end");
	begin();
	for (int i = 0; i < 30; i++) {
		request_begin(INT64_C(5) << 40);
		launch(kernel_short, stream);
		OK(CU(cuStreamSynchronize)(stream));
		CHECK(running()->running_since_ns > 0 && running()->running_deadline_ns == INT64_C(5) << 40);
		request_end();
		CHECK(running()->running_since_ns == 0);
	}
	request_end(); /* there is no open request */
	end();
}

static void infer_requests(void)
{
	begin();
	for (int i = 0; i < 3; i++) {
		launch(kernel_short, stream);
		launch(kernel_short, stream);
		CHECK(running()->running_since_ns > 0 && running()->running_deadline_ns == 0);
		OK(CU(cuStreamSynchronize)(stream));
		CHECK(running()->running_since_ns == 0);
		OK(CU(cuStreamSynchronize)(stream)); /* nothing was launched meanwhile */
	}
	CHECK(hb_page_host_count(&host, HB_COUNT_requests) == 4); /* including the request of make_context() */
	end();
}

/* ---- in the test ---- */

static int set_up(void **state)
{
	hb_page_host_foresight(&host);
	unsetenv("HB_SIM_FAIL");
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static struct hb_page_process *run(void (*scenario)(void))
{
	struct hb_page_process *process = hb_page_host_run(&host, scenario);
	assert_non_null(process);
	return process;
}

static void the_first_launch_releases_a_takeover(void **state)
{
	assert_int_equal(run(hint_and_launch)->requests.takeover_fault, 0);
}

static void a_hint_takes_the_gpu_over_before_it_returns(void **state)
{
	run(hint_and_look);
}

static void an_allocation_after_idle_is_a_sign(void **state)
{
	run(allocate_first);
}

static void a_takeover_without_a_launch_ends_by_itself(void **state)
{
	run(hint_and_nothing);
}

static void calls_that_wait_for_the_context_release_a_takeover(void **state)
{
	run(call_wide);
}

static void there_is_no_takeover_while_such_a_call_waits(void **state)
{
	run(hint_during_wide_call);
}

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

static void a_forked_child_does_not_change_its_parents_takeover(void **state)
{
	run(fork_while_held);
}

static void a_process_may_exit_during_a_takeover(void **state)
{
	run(exit_while_held);
}

static void a_context_may_be_destroyed_during_a_takeover(void **state)
{
	run(destroy_while_held);
	hb_page_host_begin_again(&host);
	run(reset_while_held);
}

static void many_threads_and_streams_may_launch(void **state)
{
	assert_int_equal(run(launch_from_several_threads)->requests.takeover_fault, 0);
}

static void the_gpu_is_taken_over_for_one_of_two_contexts(void **state)
{
	run(use_two_contexts);
}

static void there_is_no_takeover_without_a_reason(void **state)
{
	host.gpu->tenants_low = 0;
	assert_true(run(hint_for_nothing)->counters[HB_COUNT_signs] > 0);
	hb_page_host_begin_again(&host);
	host.gpu->tenants_low = 1;
	host.page->priority = HB_PAGE_LOW;
	assert_int_equal(run(hint_for_nothing)->counters[HB_COUNT_signs], 0);
}

static void takeovers_that_fail_stay_off(void **state)
{
	setenv("HB_SIM_FAIL", "cuStreamCreateWithPriority:2", 1);
	assert_int_not_equal(run(hint_with_a_driver_that_refuses)->requests.takeover_fault, 0);
}

static void requests_reported_by_the_application_are_on_the_page(void **state)
{
	struct hb_page_requests *signs = &run(tell_requests)->requests;
	assert_int_equal(signs->written, 31); /* one was inferred before the application reported its first one */
	struct hb_page_request *last = &signs->ring[30 % HB_PAGE_REQUESTS];
	assert_true(last->begin_ns > 0 && last->end_ns > last->begin_ns);
	assert_int_equal(last->deadline_ns, INT64_C(5) << 40);
	assert_int_equal(last->flags & HB_REQUEST_REPORTED, HB_REQUEST_REPORTED);
}

static void requests_are_inferred(void **state)
{
	struct hb_page_requests *signs = &run(infer_requests)->requests;
	assert_int_equal(signs->ring[1].flags & HB_REQUEST_REPORTED, 0);
	assert_true(signs->ring[1].end_ns > signs->ring[1].begin_ns);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(the_first_launch_releases_a_takeover),
		TEST(a_hint_takes_the_gpu_over_before_it_returns),
		TEST(an_allocation_after_idle_is_a_sign),
		TEST(a_takeover_without_a_launch_ends_by_itself),
		TEST(calls_that_wait_for_the_context_release_a_takeover),
		TEST(there_is_no_takeover_while_such_a_call_waits),
		TEST(calls_do_not_wait_for_a_takeover_on_the_legacy_stream),
		TEST(calls_do_not_wait_for_a_takeover_on_streams_of_its_own),
		TEST(a_capture_is_not_disturbed),
		TEST(a_forked_child_does_not_change_its_parents_takeover),
		TEST(a_process_may_exit_during_a_takeover),
		TEST(a_context_may_be_destroyed_during_a_takeover),
		TEST(many_threads_and_streams_may_launch),
		TEST(the_gpu_is_taken_over_for_one_of_two_contexts),
		TEST(there_is_no_takeover_without_a_reason),
		TEST(takeovers_that_fail_stay_off),
		TEST(requests_reported_by_the_application_are_on_the_page),
		TEST(requests_are_inferred),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
