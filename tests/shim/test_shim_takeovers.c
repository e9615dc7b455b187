/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takeovers over the simulated driver, which runs the takeover kernels: what releases
 * them, and that nothing waits for them. The tests read from the counters of the page
 * what was taken over and what released it, so no test depends on times. A call that
 * waited for a takeover kernel would end at the kernel's limit, and the counter of
 * the expected reason would not change.
 */
#include "nvidia/cuda_abi.h"
#include "nvidia/takeover_kernel.h"
#include "simcuda/simcuda.h"
#include "takeover_child.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* The compiler is loaded and then compiles on the takeover thread, which the first hint starts. */
static void exit_while_the_driver_compiles(void)
{
	bool (*compiles)(void) = NULL;
	setenv("HB_SIM_COMPILER", "1", 1);
	begin();
	hint(400000);
	while (!compiles || !compiles()) {
		void *compiler = dlopen(HB_PTX_COMPILER, RTLD_NOW | RTLD_NOLOAD);
		if (compiler)
			compiles = (bool (*)(void))dlsym(compiler, "hb_compiles");
		usleep(100);
	}
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

/* Libraries retain and release the primary context while the program uses it. Only the last release ends it. */
static void release_one_of_two_references(void)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	const struct hb_sim_table *table;
	OK(CU(cuInit)(0));
	OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
	OK(CU(cuCtxSetCurrent)(context));
	OK(CU(cuGetExportTable)((const void **)&table, &id));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&kernel_short, module, "short"));
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	hint_and_be_right(400000);
	hold();
	OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
	(void)table->set_faults(
		"cuModuleUnload:1:times=1"); /* counts; our kernel's module is the only one that is unloaded */
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
	CHECK(table->set_faults("cuModuleUnload:1:times=1") == 0);
	OK(CU(cuDevicePrimaryCtxRelease_v2)(0));
	CHECK(table->set_faults("") == 1);
}

/* ---- in the test ---- */

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

static void a_forked_child_does_not_change_its_parents_takeover(void **state)
{
	run(fork_while_held);
}

static void a_process_may_exit_during_a_takeover(void **state)
{
	run(exit_while_held);
}

static void a_process_may_exit_while_the_driver_compiles_our_kernel(void **state)
{
	run(exit_while_the_driver_compiles);
}

static void a_context_may_be_destroyed_during_a_takeover(void **state)
{
	run(destroy_while_held);
}

static void many_threads_and_streams_may_launch(void **state)
{
	assert_int_equal(run(launch_from_several_threads)->requests.takeover_fault, 0);
}

static void a_context_with_more_references_stays_prepared(void **state)
{
	run(release_one_of_two_references);
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
		TEST(a_forked_child_does_not_change_its_parents_takeover),
		TEST(a_process_may_exit_during_a_takeover),
		TEST(a_process_may_exit_while_the_driver_compiles_our_kernel),
		TEST(a_context_may_be_destroyed_during_a_takeover),
		TEST(many_threads_and_streams_may_launch),
		TEST(a_context_with_more_references_stays_prepared),
		TEST(the_gpu_is_taken_over_for_one_of_two_contexts),
		TEST(there_is_no_takeover_without_a_reason),
		TEST(takeovers_that_fail_stay_off),
		TEST(requests_reported_by_the_application_are_on_the_page),
		TEST(requests_are_inferred),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
