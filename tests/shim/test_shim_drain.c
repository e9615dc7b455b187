/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that reports when work is done: what it polls and whom it wakes. Over
 * the fake driver, which counts the polls. test_shim_tenant.c (with a daemon) and
 * test_shim_contexts.c (with real work) have more tests of it.
 */
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "shim/cuda_calls.h"
#include "unit/unit.h"

#include <pthread.h>
#include <sched.h>

#define STREAM ((CUstream)0x5000)

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

/* ---- in the child ---- */

static unsigned fake_calls(const char *name)
{
	return ((unsigned (*)(const char *))hb_test_fake_symbol("hb_fake_calls"))(name);
}

static void set_busy(int is_busy)
{
	((void (*)(int))hb_test_fake_symbol("hb_fake_set_busy"))(is_busy);
}

static void launch(void)
{
	CU(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, STREAM, NULL, NULL);
}

static void *launch_one(void *unused)
{
	launch();
	return NULL;
}

static void launch_where_there_is_room_for_one(void)
{
	CUcontext context;
	pthread_t second;
	struct hb_gate *gate = hb_page_host_gate(&host.page->processes[0]);
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	hb_gate_set(gate, HB_GATE_OPEN, 1);
	uint32_t before = atomic_load(&gate->wake_word);
	do { /* again if a nap happened to end when there was room */
		while (hb_gate_in_flight(gate) != 0)
			sched_yield();
		set_busy(1);
		launch();
		CHECK(pthread_create(&second, NULL, launch_one, NULL) == 0);
		while (atomic_load(&gate->waiters) == 0)
			sched_yield();
		set_busy(0);
		CHECK(pthread_join(second, NULL) == 0);
	} while (atomic_load(&gate->wake_word) == before);
}

/* The waiter is woken and does not find the room by its own nap. */
static void a_thread_that_waits_for_room_is_woken_when_there_is_room(void **state)
{
	host.page->gpus[0].engine = HB_ENGINE_TURNS;
	assert_non_null(hb_page_host_run(&host, launch_where_there_is_room_for_one));
}

/* Launches until the drain thread has reported the work as done, so it has polled all that it knows. */
static void launch_until_told_done(void)
{
	struct hb_gate *gate = hb_page_host_gate(&host.page->processes[0]);
	launch();
	while (hb_gate_in_flight(gate) != 0)
		sched_yield();
}

/* With a default stack as large as this, no thread without attributes can be created. */
static void set_default_stack(size_t bytes)
{
	pthread_attr_t attributes;
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, bytes) == 0);
	CHECK(pthread_setattr_default_np(&attributes) == 0);
	pthread_attr_destroy(&attributes);
}

static void launch_where_no_thread_can_be_made_at_first(void)
{
	CUcontext context;
	pthread_t none;
	set_default_stack((size_t)1 << 60);
	CHECK(pthread_create(&none, NULL, launch_one, NULL) != 0);
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	launch();
	CU(cuStreamSynchronize)(STREAM);
	CHECK(hb_gate_in_flight(hb_page_host_gate(&host.page->processes[0])) == 1);
	set_default_stack((size_t)1 << 20);
	CU(cuStreamSynchronize)(STREAM);
	launch_until_told_done();
}

/* Otherwise no thread would ever report that the work is done, and others would wait for their turn. */
static void a_thread_that_cannot_be_created_is_created_later(void **state)
{
	host.page->gpus[0].engine = HB_ENGINE_TURNS;
	assert_non_null(hb_page_host_run(&host, launch_where_no_thread_can_be_made_at_first));
}

static void end_by_old_names(CUresult (*end)(CUcontext))
{
	CUcontext context;
	CUstream stream;
	CHECK(CU(cuCtxCreate)(&context, 0, 0) == CUDA_SUCCESS);
	CHECK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	unsigned before = fake_calls("cuStreamQuery");
	launch_until_told_done();
	CHECK(fake_calls("cuStreamQuery") == before + 2); /* one for the context, one for the stream: nothing is busy */
	CHECK(CU(cuStreamDestroy)(stream) == CUDA_SUCCESS);
	before = fake_calls("cuStreamQuery");
	launch_until_told_done();
	CHECK(fake_calls("cuStreamQuery") == before + 1);
	CHECK(end(context) == CUDA_SUCCESS);
	before = fake_calls("cuStreamQuery");
	launch_until_told_done();
	CHECK(fake_calls("cuStreamQuery") == before);
}

static void make_and_end_by_old_names(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	end_by_old_names(CU(cuCtxDestroy));
	end_by_old_names(CU(cuCtxDetach));
}

static void objects_destroyed_by_old_functions_are_not_polled(void **state)
{
	host.page->gpus[0].engine = HB_ENGINE_TURNS;
	assert_non_null(hb_page_host_run(&host, make_and_end_by_old_names));
}

/* A launch asks about its stream while any stream of the process captures. */
static bool asks_about_captures(void)
{
	unsigned before = fake_calls("cuStreamIsCapturing");
	launch();
	return fake_calls("cuStreamIsCapturing") > before;
}

static CUstream make_stream_that_records(void)
{
	CUstream stream;
	CHECK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	CHECK(!asks_about_captures());
	CHECK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	CHECK(asks_about_captures());
	return stream;
}

static void end_streams_that_record(void)
{
	CUstream other;
	CUgraph graph;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	CUstream stream = make_stream_that_records();
	CHECK(CU(cuStreamDestroy_v2)(other) == CUDA_SUCCESS);
	CHECK(asks_about_captures());
	CHECK(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
	CHECK(!asks_about_captures());
	CHECK(CU(cuStreamDestroy)(make_stream_that_records()) == CUDA_SUCCESS);
	CHECK(!asks_about_captures());
	/* The same again, once. */
	stream = make_stream_that_records();
	CHECK(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	CHECK(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
	CHECK(!asks_about_captures());
	make_stream_that_records();
}

static void captures_end_with_their_stream(void **state)
{
	assert_non_null(hb_page_host_run(&host, end_streams_that_record));
}

static void end_contexts_in_which_something_is_recorded(void)
{
	CUcontext context;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		CHECK(CU(cuCtxCreate)(&context, 0, 0) == CUDA_SUCCESS);
		make_stream_that_records();
		CHECK(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
		CHECK(!asks_about_captures());
	}
}

static void captures_end_with_their_context(void **state)
{
	assert_non_null(hb_page_host_run(&host, end_contexts_in_which_something_is_recorded));
}

static void *record_on_own_stream(void *unused)
{
	CHECK(CU(cuStreamBeginCapture_v2)(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	CHECK(asks_about_captures());
	return NULL;
}

static void end_threads_whose_streams_record(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, record_on_own_stream, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(!asks_about_captures());
	}
}

static void captures_on_a_threads_own_stream_end_with_the_thread(void **state)
{
	assert_non_null(hb_page_host_run(&host, end_threads_whose_streams_record));
}

static void *retain_and_release(void *is_over)
{
	CUcontext context;
	while (!atomic_load((atomic_bool *)is_over)) {
		CHECK(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
		CU(cuDevicePrimaryCtxRelease_v2)(0);
	}
	return NULL;
}

/* The context stays, because another thread has retained it. */
static void record_while_the_context_is_released(void)
{
	static atomic_bool is_over;
	pthread_t second;
	CUcontext context;
	CUgraph graph;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
	CHECK(pthread_create(&second, NULL, retain_and_release, &is_over) == 0);
	for (uintptr_t i = 0; i < 4000; i++) {
		CUstream stream = (CUstream)(0x10000 +
					     i); /* NOLINT(performance-no-int-to-ptr): another stream each time */
		CHECK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
		CHECK(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
	}
	atomic_store(&is_over, true);
	CHECK(pthread_join(second, NULL) == 0);
	CHECK(!asks_about_captures());
}

static void captures_end_in_a_released_context_that_stays(void **state)
{
	assert_non_null(hb_page_host_run(&host, record_while_the_context_is_released));
}

static void more_captures_than_are_noted(void)
{
	enum { MANY = 100 };
	CUstream streams[MANY];
	CUgraph graph;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < MANY; i++) {
		CHECK(CU(cuStreamCreate)(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
		CHECK(CU(cuStreamBeginCapture_v2)(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	}
	for (int i = MANY; i-- > 0;) {
		CHECK(asks_about_captures());
		CHECK(CU(cuStreamEndCapture)(streams[i], &graph) == CUDA_SUCCESS);
	}
	CHECK(!asks_about_captures());
}

static void any_number_of_captures_is_counted(void **state)
{
	assert_non_null(hb_page_host_run(&host, more_captures_than_are_noted));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_thread_that_waits_for_room_is_woken_when_there_is_room),
		T(a_thread_that_cannot_be_created_is_created_later),
		T(objects_destroyed_by_old_functions_are_not_polled),
		T(captures_end_with_their_stream),
		T(captures_end_with_their_context),
		T(captures_on_a_threads_own_stream_end_with_the_thread),
		T(captures_end_in_a_released_context_that_stays),
		T(any_number_of_captures_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
