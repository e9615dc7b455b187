/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU kept after the end of work because the next launch is due soon, over the
 * simulated driver. A program works, waits and works again until the shim has learned
 * that and kept the GPU (counter takeovers_kept), so no test depends on how long
 * anything takes. As in test_shim_takeovers.c, the tests check what releases a kept
 * GPU and that nothing waits for it.
 */
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)

/* One wait is long enough to arrange a takeover, also if each call is slow (under a sanitizer); the other is too short. */
static const char image[] = "HBSIM1\n"
			    "kernel long ns=4000000\n"
			    "kernel short ns=2000\n";

static struct hb_page_host host;

/* ---- in the child ---- */

/* Objects of the context in use. */
static CUcontext context;
static CUfunction kernel_long, kernel_short;
static CUstream stream;

static void launch(CUfunction kernel, CUstream on)
{
	OK(CU(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, on, NULL, NULL));
}

static void make_context(void)
{
	CUmodule module;
	OK(CU(cuCtxCreate_v2)(&context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&kernel_long, module, "long"));
	OK(CU(cuModuleGetFunction)(&kernel_short, module, "short"));
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
}

static void begin(void)
{
	OK(CU(cuInit)(0));
	make_context();
}

static void end(void)
{
	OK(CU(cuCtxDestroy_v2)(context));
}

/* Gives a hint, which also starts the thread that prepares. Only a few: foresight ignores hints after some wrong ones. */
static void hint(void)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_test_shim_symbol("hb_shim_hint");
	call(hb_clock_now_ns() + 100000);
}

enum how { BY_STREAM, BY_EVENT };

static void work_and_wait(CUfunction kernel, enum how how)
{
	CUevent event;
	launch(kernel, stream);
	if (how == BY_STREAM) {
		OK(CU(cuStreamSynchronize)(stream));
		return;
	}
	OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	OK(CU(cuEventRecord)(event, stream));
	OK(CU(cuEventSynchronize)(event));
	OK(CU(cuEventDestroy_v2)(event));
}

/*
 * The answer of a request follows its work at once; the next request arrives later, at an unpredictable time. It uses two
 * kernels, because the shim distinguishes waits by what was launched before them.
 */
static void answer_and_rest(int i)
{
	launch(kernel_short, stream);
	work_and_wait(kernel_short, BY_STREAM);
	usleep(2000 + (unsigned)(i * 7919 % 13) * 1000);
}

/* Returns when the GPU was kept after work for which the program has just waited. */
static void be_kept(enum how how)
{
	uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers_kept);
	for (int i = 0;; i++) {
		if (i % 64 == 0)
			hint();
		work_and_wait(kernel_long, how);
		if (hb_page_host_count(&host, HB_COUNT_takeovers_kept) > before)
			return;
		answer_and_rest(i);
	}
}

static void wait_for_streams(void)
{
	begin();
	be_kept(BY_STREAM);
	uint64_t released = hb_page_host_count(&host, HB_COUNT_takeovers_released);
	for (int i = 0; hb_page_host_count(&host, HB_COUNT_takeovers_released) < released + 5; i++) {
		answer_and_rest(i); /* the GPU was kept for this launch */
		be_kept(BY_STREAM);
	}
	end();
}

/* Tokens follow each other like this. The kernels that kept the GPU for one must not stop the shim from keeping it for the next. */
static void follow_at_once(void)
{
	int in_a_row = 0;
	begin();
	for (int i = 0; in_a_row < 4; i++) {
		uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers_kept);
		if (i % 64 == 0)
			hint();
		work_and_wait(kernel_long, BY_STREAM);
		in_a_row = hb_page_host_count(&host, HB_COUNT_takeovers_kept) > before ? in_a_row + 1 : 0;
	}
	end();
}

/* A copy to memory that is not pinned waits for the work, and the synchronize behind it finds the work done. */
static void read_results(void)
{
	CUdeviceptr memory;
	char result[64];
	begin();
	OK(CU(cuMemAlloc_v2)(&memory, sizeof result));
	for (int i = 0; hb_page_host_count(&host, HB_COUNT_takeovers_kept) < 3; i++) {
		if (i % 64 == 0)
			hint();
		launch(kernel_long, stream);
		OK(CU(cuMemcpyDtoHAsync_v2)(result, memory, sizeof result, stream));
		OK(CU(cuStreamSynchronize)(stream));
	}
	OK(CU(cuMemFree_v2)(memory));
	end();
}

static void note_end(void *ended)
{
	atomic_store((atomic_bool *)ended, true);
}

/*
 * During the copy LP would get the GPU, so the GPU is kept from the end of the work on and not from the end of the copy. If only
 * the copy still runs, it is too late to arrange that.
 */
enum { SMALL_BYTES = 4096, LARGE_BYTES = 128 << 20, COPIES = 20 };

/* How many of the waits for a kernel with a long copy behind it kept the GPU; the longest wait. */
static uint64_t count_kept_copies(CUdeviceptr memory, void *result, int64_t *longest_ns)
{
	uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers_kept);
	for (int i = 0; i < COPIES; i++) {
		atomic_bool ended = false;
		launch(kernel_long, stream);
		OK(CU(cuLaunchHostFunc)(stream, note_end, &ended));
		OK(CU(cuMemcpyDtoHAsync_v2)(result, memory, LARGE_BYTES, stream));
		while (!atomic_load(&ended)) /* a query would end the request */
			usleep(50);
		usleep(500);
		int64_t begin_ns = hb_clock_now_ns();
		OK(CU(cuStreamSynchronize)(stream));
		int64_t waited_ns = hb_clock_now_ns() - begin_ns;
		*longest_ns = waited_ns > *longest_ns ? waited_ns : *longest_ns;
	}
	return hb_page_host_count(&host, HB_COUNT_takeovers_kept) - before;
}

static void copy_results_to_pinned_memory(void)
{
	CUdeviceptr memory;
	void *result;
	begin();
	OK(CU(cuMemAlloc_v2)(&memory, LARGE_BYTES));
	OK(CU(cuMemHostAlloc)(&result, LARGE_BYTES, 0));
	for (int i = 0; hb_page_host_count(&host, HB_COUNT_takeovers_kept) < 3; i++) {
		if (i % 64 == 0)
			hint();
		launch(kernel_long, stream);
		OK(CU(cuMemcpyDtoHAsync_v2)(result, memory, SMALL_BYTES, stream));
		OK(CU(cuStreamSynchronize)(stream));
	}
	/* On a busy machine another thread may hold the lock at the moment at which the work's end should be marked. */
	int64_t longest_ns = 0;
	uint64_t kept = COPIES;
	for (int attempt = 0; attempt < 3 && kept >= COPIES / 2; attempt++)
		kept = count_kept_copies(memory, result, &longest_ns);
	CHECK(kept < COPIES / 2);
	CHECK(longest_ns > 500000); /* a copy still ran, so a takeover behind it was possible */
	OK(CU(cuMemFreeHost)(result));
	OK(CU(cuMemFree_v2)(memory));
	end();
}

static void wait_for_events(void)
{
	begin();
	be_kept(BY_EVENT);
	answer_and_rest(1);
	end();
}

/* No launch follows soon, so the GPU must not be kept. */
static void rest_after_work(void)
{
	begin();
	for (int i = 0; i < 60; i++) {
		if (i % 20 == 0)
			hint();
		work_and_wait(kernel_long, BY_STREAM);
		usleep(20000 + (unsigned)(i * 7919 % 13) * 3000);
	}
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_kept) == 0);
	end();
}

static void go_on_at_once(int rounds)
{
	for (int i = 0; i < rounds; i++) {
		if (i % 20 == 0)
			hint();
		work_and_wait(kernel_long, BY_STREAM);
		answer_and_rest(0);
	}
}

static void keep_without_a_reason(void)
{
	begin();
	go_on_at_once(60);
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_kept) == 0);
	end();
}

/* Calls that wait for all work of the context must not wait for the kernels that keep the GPU. */
static void call_wide(void)
{
	CUdeviceptr memory;
	begin();
	uint64_t wide = hb_page_host_count(&host, HB_COUNT_takeovers_wide);
	while (hb_page_host_count(&host, HB_COUNT_takeovers_wide) == wide) {
		be_kept(BY_STREAM);
		OK(CU(cuCtxSynchronize)());
	}
	wide = hb_page_host_count(&host, HB_COUNT_takeovers_wide);
	while (hb_page_host_count(&host, HB_COUNT_takeovers_wide) == wide) {
		OK(CU(cuMemAlloc_v2)(&memory, 4096));
		be_kept(BY_STREAM);
		OK(CU(cuMemFree_v2)(memory));
	}
	end();
}

static atomic_int in_work; /* 2: the threads end */

static void *hint_during_work(void *unused)
{
	int one = 1;
	while (atomic_load(&in_work) != 2) {
		usleep(500);
		if (atomic_compare_exchange_strong(&in_work, &one, 0))
			hint();
		one = 1;
	}
	return NULL;
}

/* A server's threads that read sockets see signs while another thread waits for its work. */
static void see_signs_meanwhile(void)
{
	pthread_t other;
	begin();
	be_kept(BY_STREAM);
	CHECK(pthread_create(&other, NULL, hint_during_work, NULL) == 0);
	uint64_t kept = hb_page_host_count(&host, HB_COUNT_takeovers_kept);
	for (int i = 0; i < 100; i++) {
		launch(kernel_long, stream);
		atomic_store(&in_work, 1);
		OK(CU(cuStreamSynchronize)(stream));
		answer_and_rest(i);
	}
	atomic_store(&in_work, 2);
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_kept) >= kept + 20);
	end();
}

static void *synchronize_all(void *unused)
{
	OK(CU(cuCtxSetCurrent)(context));
	OK(CU(cuCtxSynchronize)());
	return NULL;
}

/* Kernels arranged while one thread waits for its work must not delay another thread that waits for all work. */
static void wait_in_two_threads(void)
{
	begin();
	be_kept(BY_STREAM);
	answer_and_rest(0);
	for (int i = 0; i < 50; i++) {
		pthread_t other;
		launch(kernel_long, stream);
		CHECK(pthread_create(&other, NULL, synchronize_all, NULL) == 0);
		OK(CU(cuStreamSynchronize)(stream));
		CHECK(pthread_join(other, NULL) == 0);
		answer_and_rest(0);
	}
	end();
}

static void capture_meanwhile(void)
{
	CUgraph graph;
	CUgraphExec executable;
	CUstream recorded;
	begin();
	OK(CU(cuStreamCreate)(&recorded, CU_STREAM_NON_BLOCKING));
	be_kept(BY_STREAM);
	answer_and_rest(0);
	uint64_t kept = hb_page_host_count(&host, HB_COUNT_takeovers_kept);
	OK(CU(cuStreamBeginCapture_v2)(recorded, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(kernel_short, recorded);
	go_on_at_once(20);
	CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_kept) == kept);
	OK(CU(cuStreamEndCapture)(recorded, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&executable, graph, 0));
	OK(CU(cuGraphLaunch)(executable, recorded));
	OK(CU(cuStreamSynchronize)(recorded));
	be_kept(BY_STREAM); /* and again when no stream captures */
	end();
}

/* The legacy default stream waits for blocking streams; the takeover stream is non-blocking. */
static void use_the_default_stream(void)
{
	begin();
	be_kept(BY_STREAM);
	for (int i = 0; i < 40; i++) {
		launch(kernel_long, NULL);
		OK(CU(cuStreamSynchronize)(NULL));
		launch(kernel_short, NULL);
		OK(CU(cuStreamSynchronize)(NULL));
		usleep(2000);
	}
	end();
}

/*
 * The GPU is kept for the context that began to launch last. If the shim always chose the newer context, the GPU would never be
 * kept for the older one, nor for the newer one after the older was used or destroyed.
 */
static void use_two_contexts(void)
{
	begin();
	CUcontext older = context;
	CUfunction older_long = kernel_long, older_short = kernel_short;
	CUstream older_stream = stream;
	make_context();
	CUcontext younger = context;
	CUfunction younger_long = kernel_long, younger_short = kernel_short;
	CUstream younger_stream = stream;
	be_kept(BY_STREAM);
	answer_and_rest(0);
	for (int i = 0; i < 2; i++) {
		OK(CU(cuCtxSetCurrent)(older));
		kernel_long = older_long, kernel_short = older_short, stream = older_stream;
		be_kept(BY_STREAM);
		answer_and_rest(0);
		if (i)
			OK(CU(cuCtxDestroy_v2)(older));
		OK(CU(cuCtxSetCurrent)(younger));
		kernel_long = younger_long, kernel_short = younger_short, stream = younger_stream;
		be_kept(BY_STREAM);
		answer_and_rest(0);
	}
	context = younger;
	end();
}

static void fork_while_kept(void)
{
	begin();
	be_kept(BY_STREAM);
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int status = 1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	answer_and_rest(0);
	be_kept(BY_STREAM);
	end();
}

static void exit_while_kept(void)
{
	begin();
	be_kept(BY_STREAM);
	exit(0);
}

static void destroy_while_kept(void)
{
	begin();
	be_kept(BY_STREAM);
	end();
}

static atomic_bool may_end;

static void wait_for_end(void *unused)
{
	while (!atomic_load(&may_end))
		usleep(200);
}

static void *destroy_while_busy(void *unused)
{
	end();
	return NULL;
}

/* Late, so that the other thread most likely waits for its work by then; the check holds in any order. */
static void come_while_another_goes(void)
{
	pthread_t thread;
	CUcontext second;
	begin();
	be_kept(BY_STREAM);
	OK(CU(cuLaunchHostFunc)(stream, wait_for_end, NULL));
	CHECK(pthread_create(&thread, NULL, destroy_while_busy, NULL) == 0);
	usleep(50000);
	OK(CU(cuCtxCreate_v2)(&second, 0, 0));
	atomic_store(&may_end, true);
	CHECK(pthread_join(thread, NULL) == 0);
	OK(CU(cuCtxDestroy_v2)(second));
}

/* ---- in the test ---- */

static int set_up(void **state)
{
	hb_page_host_foresight(&host);
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static void run(void (*scenario)(void))
{
	struct hb_page_process *process = hb_page_host_run(&host, scenario);
	assert_non_null(process);
	assert_int_equal(process->requests.takeover_fault, 0);
}

static void a_launch_soon_after_the_work_finds_the_gpu_kept(void **state)
{
	run(wait_for_streams);
}

static void requests_that_follow_each_other_all_find_the_gpu_kept(void **state)
{
	run(follow_at_once);
}

static void a_launch_after_results_were_copied_finds_the_gpu_kept(void **state)
{
	run(read_results);
}

static void the_gpu_is_kept_from_the_end_of_the_work_and_not_of_a_copy_behind_it(void **state)
{
	run(copy_results_to_pinned_memory);
}

static void a_launch_after_a_wait_for_an_event_finds_the_gpu_kept(void **state)
{
	run(wait_for_events);
}

static void the_gpu_is_not_kept_if_no_launch_follows(void **state)
{
	run(rest_after_work);
}

static void the_gpu_is_not_kept_without_low_priority(void **state)
{
	host.gpu->tenants_low = 0;
	run(keep_without_a_reason);
}

static void calls_that_wait_for_the_context_release_the_gpu(void **state)
{
	run(call_wide);
	hb_page_host_begin_again(&host);
	run(wait_in_two_threads);
}

static void signs_during_the_work_leave_the_gpu_kept(void **state)
{
	run(see_signs_meanwhile);
}

static void a_capture_is_not_disturbed(void **state)
{
	run(capture_meanwhile);
}

static void the_default_stream_does_not_wait(void **state)
{
	run(use_the_default_stream);
}

static void the_gpu_is_kept_for_the_context_in_use(void **state)
{
	run(use_two_contexts);
}

static void a_process_may_fork_end_or_lose_its_context(void **state)
{
	static void (*const scenarios[])(void) = {fork_while_kept, exit_while_kept, destroy_while_kept};
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
		run(scenarios[i]);
		hb_page_host_begin_again(&host);
	}
}

/* Destroying one context may wait for its work, which may wait for what the application does in the other context. */
static void a_context_is_created_while_another_is_destroyed(void **state)
{
	run(come_while_another_goes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_launch_soon_after_the_work_finds_the_gpu_kept),
		TEST(requests_that_follow_each_other_all_find_the_gpu_kept),
		TEST(a_launch_after_results_were_copied_finds_the_gpu_kept),
		TEST(the_gpu_is_kept_from_the_end_of_the_work_and_not_of_a_copy_behind_it),
		TEST(a_launch_after_a_wait_for_an_event_finds_the_gpu_kept),
		TEST(the_gpu_is_not_kept_if_no_launch_follows),
		TEST(the_gpu_is_not_kept_without_low_priority),
		TEST(calls_that_wait_for_the_context_release_the_gpu),
		TEST(signs_during_the_work_leave_the_gpu_kept),
		TEST(a_capture_is_not_disturbed),
		TEST(the_default_stream_does_not_wait),
		TEST(the_gpu_is_kept_for_the_context_in_use),
		TEST(a_process_may_fork_end_or_lose_its_context),
		TEST(a_context_is_created_while_another_is_destroyed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
