/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds, over the simulated driver, which runs them as kernels: what lets them
 * go, and that nothing waits for them. What was held and by what it was let go
 * is read from the counters of the page, so no test depends on times; a call
 * that would wait for a hold ends at the hold's limit, and then the counter of
 * its reason is missing.
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

/* The daemon's heart beats for ever; a test that waits for what does not come is ended by the runner. */
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
 * The first hint is what starts the thread; it prepares, and from some hint on
 * the GPU is held. Few hints: after 16 that led to nothing none is believed.
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

/* A hint that tells the truth. Too many that lead to nothing, and none would be believed, nor anything held. */
static void hint_and_be_right(int64_t in_ns)
{
	int64_t at_ns = hb_clock_now_ns() + in_ns;
	hint(in_ns);
	while (hb_clock_now_ns() < at_ns)
		sched_yield();
	launch(kernel_short, stream);
	OK(CU(cuStreamSynchronize)(stream));
}

/* With something held when it returns, for it was let go by this very call: `call` is repeated until that was so. */
#define LETS_GO(counter, call) \
	do { \
		uint64_t before_; \
		do { \
			hint_and_be_right(400000); \
			before_ = hb_page_host_count(&host, counter); \
			hold(); \
			call; \
			OK(CU(cuStreamSynchronize)(NULL)); /* else the process counts as at work */ \
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

/* Ours and the thread that holds share a CPU, and it runs when we do not: it cannot be quicker than our next line. */
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
		if (file && fgets(name, sizeof(name), file) && strcmp(name, "hb-hold\n") == 0) {
			CHECK(sched_setaffinity(atoi(task->d_name), sizeof(one), &one) == 0);
			CHECK(sched_setscheduler(atoi(task->d_name), SCHED_IDLE, &(struct sched_param){0}) == 0);
		}
		if (file)
			fclose(file);
	}
	closedir(tasks);
}

/* What is held when the hint returns was held by its caller: until that was so for some. */
static void hint_and_look(void)
{
	int at_once = 0;
	begin();
	hold();
	put_the_thread_behind();
	for (int i = 0; i < 1000 && at_once < 4; i++) {
		hint_and_be_right(300000);
		usleep(3000); /* the hold before is over, and the thread asleep */
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

/* Memory is asked for before a request's first launch; between two launches it says nothing. */
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
	launch(kernel_short, stream); /* and the stream of holds is empty: nothing is left to wait for */
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

/* The other thread waits for the whole context, and would wait for a hold that came now. */
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

/* What does not wait for a hold must not let it go either. */
static void copy_and_use_the_default_stream(void)
{
	CUdeviceptr memory;
	char bytes[64] = {0};
	begin();
	OK(CU(cuMemAlloc_v2)(&memory, sizeof(bytes)));
	hold();
	OK(CU(cuMemcpyHtoDAsync_v2)(memory, bytes, sizeof(bytes), stream));
	OK(CU(cuStreamSynchronize)(stream));
	OK(CU(cuMemcpyHtoD_v2)(memory, bytes, sizeof(bytes))); /* the legacy default stream */
	OK(CU(cuStreamSynchronize)(NULL));
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_released) == 0 &&
	      hb_page_host_count(&host, HB_COUNT_takeovers_wide) == 0);
	LETS_GO(HB_COUNT_takeovers_released, launch(kernel_short, NULL)); /* waits for blocking streams, not for ours */
	OK(CU(cuStreamSynchronize)(NULL));
	LETS_GO(HB_COUNT_takeovers_released, OK(CU(cuMemsetD8Async)(memory, 0, 1, stream)));
	OK(CU(cuMemFree_v2)(memory));
	end();
}

static void hint_during_capture(void)
{
	CUgraph graph;
	CUgraphExec executable;
	begin();
	hold();
	await(HB_COUNT_takeover_time, 1);
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(kernel_short, stream);
	hold();
	launch(kernel_short, stream); /* recorded: no work that a hold was for */
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
		hint(400000); /* nobody to do anything, and nobody who minds */
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
		launch(kernel_short, NULL);
		OK(CU(cuStreamSynchronize)(NULL));
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

/* The younger context is the one held; its death leaves the other. */
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

/* Holds fail at the first step; the application sees nothing of it. */
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
	request_end(); /* none is open */
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
		OK(CU(cuStreamSynchronize)(stream)); /* nothing was launched since */
	}
	CHECK(hb_page_host_count(&host, HB_COUNT_requests) == 4); /* and the one of make_context() */
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

static void the_first_launch_lets_a_hold_go(void **state)
{
	assert_int_equal(run(hint_and_launch)->requests.takeover_fault, 0);
}

static void a_hint_holds_before_it_returns(void **state)
{
	run(hint_and_look);
}

static void an_allocation_after_idle_is_a_sign(void **state)
{
	run(allocate_first);
}

static void a_hold_without_a_launch_ends_by_itself(void **state)
{
	run(hint_and_nothing);
}

static void calls_that_wait_for_the_context_let_a_hold_go(void **state)
{
	run(call_wide);
}

static void nothing_is_held_while_such_a_call_waits(void **state)
{
	run(hint_during_wide_call);
}

static void copies_and_default_streams_do_not_wait_for_a_hold(void **state)
{
	run(copy_and_use_the_default_stream);
}

static void a_capture_is_left_alone(void **state)
{
	run(hint_during_capture);
}

static void a_forked_child_leaves_the_hold_to_its_parent(void **state)
{
	run(fork_while_held);
}

static void a_process_may_end_while_it_holds(void **state)
{
	run(exit_while_held);
}

static void a_context_may_end_while_it_is_held(void **state)
{
	run(destroy_while_held);
	hb_page_host_begin_again(&host);
	run(reset_while_held);
}

static void threads_and_streams_may_be_many(void **state)
{
	assert_int_equal(run(launch_from_several_threads)->requests.takeover_fault, 0);
}

static void one_of_two_contexts_is_held(void **state)
{
	run(use_two_contexts);
}

static void nothing_is_held_without_a_reason(void **state)
{
	host.gpu->tenants_low = 0;
	assert_true(run(hint_for_nothing)->counters[HB_COUNT_signs] > 0);
	hb_page_host_begin_again(&host);
	host.gpu->tenants_low = 1;
	host.page->priority = HB_PAGE_LOW;
	assert_int_equal(run(hint_for_nothing)->counters[HB_COUNT_signs], 0);
}

static void holds_that_fail_are_off_for_good(void **state)
{
	setenv("HB_SIM_FAIL", "cuStreamCreateWithPriority:2", 1);
	assert_int_not_equal(run(hint_with_a_driver_that_refuses)->requests.takeover_fault, 0);
}

static void requests_told_by_the_application_are_on_the_page(void **state)
{
	struct hb_page_requests *signs = &run(tell_requests)->requests;
	assert_int_equal(signs->written, 31); /* one was inferred before the application began to tell */
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
		TEST(the_first_launch_lets_a_hold_go),
		TEST(a_hint_holds_before_it_returns),
		TEST(an_allocation_after_idle_is_a_sign),
		TEST(a_hold_without_a_launch_ends_by_itself),
		TEST(calls_that_wait_for_the_context_let_a_hold_go),
		TEST(nothing_is_held_while_such_a_call_waits),
		TEST(copies_and_default_streams_do_not_wait_for_a_hold),
		TEST(a_capture_is_left_alone),
		TEST(a_forked_child_leaves_the_hold_to_its_parent),
		TEST(a_process_may_end_while_it_holds),
		TEST(a_context_may_end_while_it_is_held),
		TEST(threads_and_streams_may_be_many),
		TEST(one_of_two_contexts_is_held),
		TEST(nothing_is_held_without_a_reason),
		TEST(holds_that_fail_are_off_for_good),
		TEST(requests_told_by_the_application_are_on_the_page),
		TEST(requests_are_inferred),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
