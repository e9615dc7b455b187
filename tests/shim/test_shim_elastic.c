/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elastic memory in the shim, over the simulated driver: allocations consist of
 * granules that move under running work when the page says so.
 */
#include "base/clock.h"
#include "elastic_rig.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- allocations and queries ---- */

static void check_answers(CUdeviceptr pointer, size_t bytes)
{
	CUdeviceptr base = 0, at = pointer + bytes - 1;
	size_t size = 0;
	CUcontext owner = NULL;
	unsigned type = 0;
	int device = -1, managed = -1;
	void *where = &type;
	CUmemGenericAllocationHandle handle;
	OK(CU(cuMemGetAddressRange_v2)(&base, &size, at));
	CHECK(base == pointer && size == bytes);
	OK(CU(cuMemGetAddressRange_v2)(NULL, NULL, at));
	CUpointer_attribute all[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
				     CU_POINTER_ATTRIBUTE_HOST_POINTER};
	void *data[] = {&owner, &type, &device, &managed, &where};
	OK(CU(cuPointerGetAttributes)(5, all, data, at));
	CHECK(owner == elastic_context && type == CU_MEMORYTYPE_DEVICE && device == 0 && managed == 0 && !where);
	OK(CU(cuPointerGetAttribute)(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
	OK(CU(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
	CHECK(base == pointer && size == bytes);
	CHECK(CU(cuPointerGetAttribute)(&where, CU_POINTER_ATTRIBUTE_HOST_POINTER, at) == CUDA_ERROR_INVALID_VALUE);
	CHECK(CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)pointer) == CUDA_ERROR_INVALID_VALUE);
}

static uint64_t buffer_id(CUdeviceptr pointer)
{
	unsigned long long id;
	OK(CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
	return id;
}

static void allocate_and_ask(void)
{
	elastic_begin();
	const struct hb_page_gpu *gpu = &elastic_host.page->gpus[0];
	size_t bytes = 66 * MIB + 100, pitch, free_before, free_after, total;
	CUdeviceptr small = elastic_allocate(MIB), large = elastic_allocate(bytes), pitched;
	struct hb_page_elastic *record = elastic_record_of(0);
	CHECK(record);
	CHECK(gpu->used_bytes == bytes + MIB);
	AWAIT(record->local_bytes == 68 * MIB && record->movable_bytes == 68 * MIB && record->spare_bytes == 68 * MIB &&
	      record->stays_bytes[HB_PAGE_STAY_SMALL] == MIB);
	check_answers(small, MIB);
	check_answers(large, bytes);
	uint64_t id = buffer_id(large);
	CHECK(buffer_id(large + bytes - 1) == id && buffer_id(small) != id);
	OK(CU(cuMemGetInfo_v2)(&free_before, &total));
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 68 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuMemGetInfo_v2)(&free_after, &total));
	/* What has moved is not free, and the page tables of the host's memory take room. */
	CHECK(free_after == free_before - ELASTIC_TABLES(68 * MIB));
	check_answers(large, bytes);
	CHECK(buffer_id(large) == id);
	OK(CU(cuMemAllocPitch_v2)(&pitched, &pitch, 1000, 4096, 4));
	CHECK(pitch == 1024 && gpu->used_bytes == bytes + MIB + 4 * MIB);
	AWAIT(record->local_bytes == 4 * MIB);
	CHECK(CU(cuMemFree_v2)(large + 512) == CUDA_ERROR_INVALID_VALUE);
	OK(CU(cuMemFree_v2)(large));
	CHECK(CU(cuMemFree_v2)(large) == CUDA_ERROR_INVALID_VALUE);
	OK(CU(cuMemFreeAsync)(pitched, NULL));
	OK(CU(cuMemFree_v2)(small));
	CHECK(gpu->used_bytes == 0);
	AWAIT(record->local_bytes == 0 && record->host_bytes == 0 && record->stays_bytes[HB_PAGE_STAY_SMALL] == 0);
}

static void allocations_look_like_those_of_the_driver(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, allocate_and_ask));
}

static void allocate_more_than_fits(void)
{
	elastic_begin();
	const struct hb_page_gpu *gpu = &elastic_host.page->gpus[0];
	CUdeviceptr first = elastic_allocate(66 * MIB), second = elastic_allocate(66 * MIB), none;
	struct hb_page_elastic *record = elastic_record_of(0);
	/* Of the second only the granule of 2 MiB fits, and 2 MiB more of what is on the host are on the account. */
	AWAIT(gpu->used_bytes == 70 * MIB && record->over_bytes == 62 * MIB && record->host_bytes == 64 * MIB &&
	      record->local_bytes == 68 * MIB);
	elastic_fill(first, 66 * MIB, 41);
	elastic_fill(second, 66 * MIB, 42);
	elastic_launch(second, NULL);
	CHECK(CU(cuMemAlloc_v2)(&none, 256 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* host memory is limited, too */
	CHECK(gpu->used_bytes == 70 * MIB);
	/* What is on the host moves home under its address when there is room. */
	CHECK(elastic_is_intact(first, 66 * MIB, 41, 0));
	OK(CU(cuMemFree_v2)(first));
	AWAIT(gpu->used_bytes == 66 * MIB && record->over_bytes == 0);
	CHECK(elastic_move(HB_ORDER_HOME, 0, 64 * MIB) == HB_MOVE_MOVED);
	CHECK(record->host_bytes == 0 && elastic_is_intact(second, 66 * MIB, 42, 1));
	/* The account ends with nothing, also if an allocation is freed on the host. */
	first = elastic_allocate(66 * MIB);
	AWAIT(gpu->used_bytes == 70 * MIB && record->over_bytes == 62 * MIB);
	OK(CU(cuMemFree_v2)(first));
	CHECK(gpu->used_bytes == 66 * MIB || gpu->used_bytes == 70 * MIB);
	OK(CU(cuMemFree_v2)(second));
	CHECK(gpu->used_bytes == 0);
	AWAIT(record->over_bytes == 0 && record->host_bytes == 0 && record->local_bytes == 0);
}

static void what_does_not_fit_is_on_the_host(void **state)
{
	elastic_host.page->elastic = HB_ELASTIC_ON | HB_ELASTIC_OVER;
	elastic_host.page->gpus[0].limit_bytes = 70 * MIB;
	assert_non_null(hb_page_host_run(&elastic_host, allocate_more_than_fits));
	assert_int_equal(hb_page_host_count(&elastic_host, HB_COUNT_allocations_refused), 1);
}

static void allocate_less_after_a_refusal(void)
{
	CUdeviceptr pointer;
	size_t pitch;
	elastic_begin();
	CHECK(CU(cuMemAllocPitch_v2)(&pointer, &pitch, MIB, 100, 4) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(CU(cuMemAllocPitch_v2)(&pointer, &pitch, MIB, 4, 4));
}

static void the_daemon_is_asked_for_less_than_it_has_refused(void **state)
{
	elastic_host.page->elastic = HB_ELASTIC_ON | HB_ELASTIC_OVER;
	elastic_host.page->gpus[0].low_lease_bytes = 0;
	elastic_host.low_free_bytes = 4 * MIB;
	assert_non_null(hb_page_host_run(&elastic_host, allocate_less_after_a_refusal));
	assert_int_equal(elastic_host.memory_asked, 2);
	assert_int_equal(hb_page_host_count(&elastic_host, HB_COUNT_allocations_refused), 1);
}

static void allocate_without_option(void)
{
	CUmemGenericAllocationHandle handle;
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(66 * MIB);
	CHECK(!elastic_record_of(0));
	check_answers(pointer, 66 * MIB);
	OK(CU(cuMemFree_v2)(pointer));
	CHECK(CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)pointer) == CUDA_ERROR_INVALID_VALUE);
}

static void other_tenants_get_ordinary_memory(void **state)
{
	elastic_host.page->elastic = 0;
	assert_non_null(hb_page_host_run(&elastic_host, allocate_without_option));
	elastic_host.page->elastic = HB_ELASTIC_ON;
	elastic_host.page->priority = HB_PAGE_HIGH;
	hb_page_host_begin_again(&elastic_host);
	assert_non_null(hb_page_host_run(&elastic_host, allocate_without_option));
	elastic_host.page->priority = HB_PAGE_LOW;
	for (unsigned i = 0; i < HB_PAGE_ELASTIC; i++) /* no record is free */
		elastic_host.page->elastic_gpus[i].owner = HB_ELASTIC_OWNER(7, 1);
	hb_page_host_begin_again(&elastic_host);
	assert_non_null(hb_page_host_run(&elastic_host, allocate_without_option));
}

static void end_contexts(void)
{
	CUcontext primary;
	elastic_begin();
	elastic_allocate(66 * MIB);
	struct hb_page_elastic *record = elastic_record_of(0);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 2 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuCtxDestroy_v2)(elastic_context));
	CHECK(elastic_host.page->gpus[0].used_bytes == 0);
	AWAIT(record->local_bytes + record->host_bytes == 0);
	OK(CU(cuDevicePrimaryCtxRetain)(&primary, 0));
	OK(CU(cuCtxSetCurrent)(primary));
	elastic_allocate(4 * MIB);
	AWAIT(record->local_bytes == 4 * MIB);
	OK(CU(cuDevicePrimaryCtxReset_v2)(0));
	CHECK(elastic_host.page->gpus[0].used_bytes == 0);
	AWAIT(record->local_bytes == 0);
}

static void memory_ends_with_its_context(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, end_contexts));
}

/* ---- moves ---- */

struct worker {
	CUdeviceptr pointer;
	CUstream stream;
	bool copies;
	atomic_bool stop;
	uint32_t launches;
};

/* Launches; reads what it launched every now and then. */
static void *work(void *argument)
{
	struct worker *worker = argument;
	OK(CU(cuCtxSetCurrent)(elastic_context));
	while (!atomic_load(&worker->stop)) {
		uint32_t word;
		for (int i = 0; i < 4; i++)
			elastic_launch(worker->pointer, worker->stream);
		worker->launches += 4;
		OK(CU(cuStreamSynchronize)(worker->stream));
		if (!worker->copies)
			continue;
		OK(CU(cuMemcpyDtoH_v2)(&word, worker->pointer, 4));
		CHECK(word == elastic_word_of(7, 0) + worker->launches);
		CUdeviceptr beside = elastic_allocate(2 * MIB); /* comes and goes while memory moves */
		OK(CU(cuMemFree_v2)(beside));
	}
	return NULL;
}

static void move_there_and_back(size_t bytes)
{
	CHECK(elastic_move(HB_ORDER_AWAY, 0, bytes) == HB_MOVE_MOVED);
	CHECK(elastic_move(HB_ORDER_HOME, 0, bytes) == HB_MOVE_MOVED);
	CHECK(elastic_move(HB_ORDER_AWAY, bytes, 0) == HB_MOVE_MOVED);
	CHECK(elastic_move(HB_ORDER_HOME, bytes, 0) == HB_MOVE_MOVED);
	CHECK(elastic_move(HB_ORDER_AWAY, bytes / 2, bytes / 2) == HB_MOVE_MOVED);
	CHECK(elastic_record_of(0)->peer_bytes == bytes / 2 && elastic_record_of(0)->host_bytes == bytes / 2);
	CHECK(elastic_move(HB_ORDER_HOME, bytes / 2, bytes / 2) == HB_MOVE_MOVED);
}

static void move_under_work(void)
{
	struct worker workers[2] = {{.copies = true}, {.copies = false}};
	pthread_t threads[2];
	elastic_begin();
	for (int i = 0; i < 2; i++) {
		workers[i].pointer = elastic_allocate(4 * MIB);
		elastic_fill(workers[i].pointer, 4 * MIB, 7);
	}
	OK(CU(cuStreamCreate)(&workers[1].stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
	for (int i = 0; i < 3; i++)
		move_there_and_back(8 * MIB);
	for (int i = 0; i < 2; i++) {
		atomic_store(&workers[i].stop, true);
		pthread_join(threads[i], NULL);
		CHECK(workers[i].launches > 0);
		CHECK(elastic_is_intact(workers[i].pointer, 4 * MIB, 7, workers[i].launches));
	}
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 100 * MIB) == HB_MOVE_NOTHING); /* moves what there is */
	CHECK(elastic_record_of(0)->moved_bytes == 8 * MIB);
	CHECK(elastic_is_intact(workers[0].pointer, 4 * MIB, 7, workers[0].launches));
}

static void memory_moves_under_running_work(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, move_under_work));
}

static atomic_bool may_run;

static void wait_until_it_may_run(void *unused)
{
	while (!atomic_load(&may_run))
		usleep(200);
}

/* The driver destroys a stream at once, also if it has work, and that work uses the memory. */
static void destroy_a_stream_and_move(void)
{
	CUstream stream;
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(4 * MIB);
	elastic_fill(pointer, 4 * MIB, 7);
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuLaunchHostFunc)(stream, wait_until_it_may_run, NULL));
	elastic_launch(pointer, stream);
	OK(CU(cuStreamDestroy_v2)(stream));
	CHECK(elastic_try_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_BUSY);
	CHECK(elastic_record_of(0)->host_bytes == 0);
	atomic_store(&may_run, true);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	CHECK(elastic_is_intact(pointer, 4 * MIB, 7, 1));
}

static void work_of_a_destroyed_stream_is_awaited(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, destroy_a_stream_and_move));
}

static void capture_and_move(void)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(4 * MIB), beside = elastic_allocate(4 * MIB);
	elastic_fill(pointer, 4 * MIB, 9);
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	elastic_launch(pointer, stream);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_CAPTURE);
	OK(CU(cuMemFree_v2)(beside)); /* is freed when the capture has ended */
	CHECK(CU(cuMemFree_v2)(beside) == CUDA_ERROR_INVALID_VALUE);
	CHECK(elastic_host.page->gpus[0].used_bytes == 8 * MIB);
	OK(CU(cuStreamEndCapture)(stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(CU(cuMemFree_v2)(elastic_allocate(2 * MIB)));
	CHECK(elastic_host.page->gpus[0].used_bytes == 4 * MIB);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuGraphLaunch)(exec, stream));
	OK(CU(cuStreamSynchronize)(stream));
	CHECK(elastic_is_intact(pointer, 4 * MIB, 9, 1));
	CHECK(elastic_move(HB_ORDER_HOME, 0, 4 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuGraphLaunch)(exec, stream));
	OK(CU(cuStreamSynchronize)(stream));
	CHECK(elastic_is_intact(pointer, 4 * MIB, 9, 2));
}

static void nothing_moves_while_a_stream_captures(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, capture_and_move));
}

static void refuse_orders(void)
{
	hb_page_u32 *word;
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(4 * MIB);
	struct hb_page_elastic *record = elastic_record_of(0);
	elastic_fill(pointer, 4 * MIB, 5);
	uint32_t number = elastic_give_order(record, &(struct test_order){HB_ORDER_AWAY, 0, 4 * MIB, -1});
	AWAIT(atomic_load(&record->result) == number);
	CHECK(record->reason == HB_MOVE_LATE && record->moved_bytes == 0);
	/* Work that does not end. */
	OK(CU(cuMemHostAlloc)((void **)&word, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	*word = 0;
	OK(CU(cuStreamWaitValue32_v2)(NULL, (CUdeviceptr)(uintptr_t)word, 1, 0));
	elastic_launch(pointer, NULL);
	CHECK(elastic_try_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_BUSY && record->moved_bytes == 0);
	atomic_store(word, 1);
	OK(CU(cuCtxSynchronize)());
	/* More than the host may hold. */
	record->host_limit_bytes = 2 * MIB;
	AWAIT(record->spare_bytes <= 2 * MIB);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_NO_ROOM);
	record->host_limit_bytes = 4 * MIB;
	CHECK(elastic_is_intact(pointer, 4 * MIB, 5, 1));
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	CHECK(elastic_is_intact(pointer, 4 * MIB, 5, 1));
}

static void orders_that_cannot_be_carried_out_change_nothing(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, refuse_orders));
}

static void pin_memory(void)
{
	CUcontext second;
	int on = 1;
	elastic_begin();
	CUdeviceptr a = elastic_allocate(2 * MIB), b = elastic_allocate(2 * MIB), c;
	struct hb_page_elastic *record = elastic_record_of(0);
	OK(CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	AWAIT(record->movable_bytes == 2 * MIB && record->stays_bytes[HB_PAGE_STAY_DEVICE] == 2 * MIB);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_NOTHING && record->moved_bytes == 2 * MIB);
	/* The second GPU gets access, also to what has moved. */
	OK(CU(cuCtxCreate_v2)(&second, 0, 1));
	OK(CU(cuCtxEnablePeerAccess)(elastic_context, 0));
	OK(CU(cuCtxPopCurrent_v2)(&second));
	unsigned long long flags = 0;
	const CUmemLocation peer = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	OK(CU(cuMemGetAccess)(&flags, &peer, b));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	AWAIT(record->movable_bytes == 0 && record->stays_bytes[HB_PAGE_STAY_PEERS] == 4 * MIB);
	OK(CU(cuMemAlloc_v2)(&c, 2 * MIB)); /* an ordinary one */
	AWAIT(record->stays_bytes[HB_PAGE_STAY_DRIVER] == 2 * MIB);
}

static void memory_that_others_know_stays(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, pin_memory));
}

static void fork_while_elastic(void)
{
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(4 * MIB);
	elastic_fill(pointer, 4 * MIB, 3);
	pid_t child = fork();
	if (child == 0) { /* registers as a process of its own, and has ordinary calls until it allocates */
		CHECK(CU(cuMemFree_v2)(pointer) != CUDA_SUCCESS);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	elastic_launch(pointer, NULL);
	CHECK(elastic_is_intact(pointer, 4 * MIB, 3, 1));
	exit(0); /* with memory elsewhere and the thread asleep */
}

static void a_forked_child_forgets_the_memory(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, fork_while_elastic));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(allocations_look_like_those_of_the_driver, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(what_does_not_fit_is_on_the_host, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(the_daemon_is_asked_for_less_than_it_has_refused, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(other_tenants_get_ordinary_memory, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(memory_ends_with_its_context, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(memory_moves_under_running_work, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(work_of_a_destroyed_stream_is_awaited, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(nothing_moves_while_a_stream_captures, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(orders_that_cannot_be_carried_out_change_nothing, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(memory_that_others_know_stays, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_forked_child_forgets_the_memory, elastic_set_up, elastic_tear_down),
	};
	return cmocka_run_group_tests_name("shim elastic", tests, NULL, NULL);
}
