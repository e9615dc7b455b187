/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elastic memory in the shim, over the simulated driver: allocations consist of
 * granules that move under running work when the page says so. The child also
 * plays the daemon, which writes orders to the page.
 */
#include "base/clock.h"
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "simcuda/simcuda.h"
#include "unit/unit.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define OK(call) CHECK((call) == CUDA_SUCCESS)

static const char image[] = "HBSIM1\nkernel add_one ns=20000 params=8 host=test_elastic_add_one\n";

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	hb_page_host_simulate(&host);
	setenv("HB_SIM_GPUS", "2", 1);
	unsetenv("HB_SIM_FAIL");
	host.page->features |= HB_FEATURE_ELASTIC;
	host.page->elastic = HB_ELASTIC_ON;
	host.page->elastic_gpus[0].host_limit_bytes = 256 * MIB;
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

/* ---- in the child: the program ---- */

/* The simulated driver finds this function by name. Adds 1 to each of the words. */
void test_elastic_add_one(const struct hb_sim_launch *launch);
__attribute__((visibility("default"))) void test_elastic_add_one(const struct hb_sim_launch *launch)
{
	uint32_t *words = *(uint32_t **)launch->args[0];
	for (int i = 0; i < 256; i++)
		words[i]++;
}

static CUcontext context;
static CUfunction add_one;

static void begin(void)
{
	CUmodule module;
	OK(CU(cuInit)(0));
	OK(CU(cuCtxCreate_v2)(&context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&add_one, module, "add_one"));
}

static CUdeviceptr allocate(size_t bytes)
{
	CUdeviceptr pointer;
	OK(CU(cuMemAlloc_v2)(&pointer, bytes));
	return pointer;
}

static uint32_t word_of(uint32_t seed, size_t i)
{
	return seed + (uint32_t)i * 2654435761u;
}

static void fill(CUdeviceptr pointer, size_t bytes, uint32_t seed)
{
	uint32_t *words = malloc(bytes);
	CHECK(words);
	for (size_t i = 0; i < bytes / 4; i++)
		words[i] = word_of(seed, i);
	OK(CU(cuMemcpyHtoD_v2)(pointer, words, bytes));
	free(words);
}

/* Whether each word has grown by `added` in the first KiB, and by nothing elsewhere. */
static bool is_intact(CUdeviceptr pointer, size_t bytes, uint32_t seed, uint32_t added)
{
	uint32_t *words = malloc(bytes);
	CHECK(words);
	OK(CU(cuMemcpyDtoH_v2)(words, pointer, bytes));
	bool intact = true;
	for (size_t i = 0; i < bytes / 4 && intact; i++)
		intact = words[i] == word_of(seed, i) + (i < 256 ? added : 0);
	free(words);
	return intact;
}

static void launch(CUdeviceptr pointer, CUstream stream)
{
	OK(CU(cuLaunchKernel)(add_one, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&pointer}, NULL));
}

/* ---- in the child: the daemon ---- */

static struct hb_page_elastic *record_of(unsigned slot)
{
	for (unsigned i = 0; i < HB_PAGE_ELASTIC; i++) {
		struct hb_page_elastic *record = &host.page->elastic_gpus[i];
		if (record->gpu == 1 && (uint32_t)record->owner == slot + 1)
			return record;
	}
	return NULL;
}

struct test_order {
	enum hb_order_direction direction;
	size_t peer_bytes, host_bytes;
	int64_t expires_ns; /* from now */
};

static uint32_t give_order(struct hb_page_elastic *record, const struct test_order *order)
{
	CUuuid peer;
	OK(CU(cuDeviceGetUuid_v2)(&peer, 1));
	memcpy(record->order_peer, peer.bytes, 16);
	record->order_peer_bytes = order->peer_bytes;
	record->order_host_bytes = order->host_bytes;
	record->order_direction = (uint32_t)order->direction;
	record->order_expires_ns = hb_clock_now_ns() + order->expires_ns;
	uint32_t number = record->order + 1;
	atomic_store(&record->order, number);
	atomic_fetch_add(&host.page->order_bell, 1);
	syscall(SYS_futex, &host.page->order_bell, FUTEX_WAKE, 1, NULL, NULL, 0);
	return number;
}

/* Gives the order and returns its result. */
static enum hb_move_result try_move(enum hb_order_direction direction, size_t peer_bytes, size_t host_bytes)
{
	struct hb_page_elastic *record = record_of(0);
	CHECK(record);
	uint32_t number = give_order(record,
				     &(struct test_order){direction, peer_bytes, host_bytes, 100 * HB_NS_PER_S});
	while (atomic_load(&record->result) != number)
		sched_yield();
	return (enum hb_move_result)record->reason;
}

/* Repeats it while the process's work does not end in time, as on a busy machine. */
static enum hb_move_result move(enum hb_order_direction direction, size_t peer_bytes, size_t host_bytes)
{
	enum hb_move_result reason;
	do
		reason = try_move(direction, peer_bytes, host_bytes);
	while (reason == HB_MOVE_BUSY);
	return reason;
}

/* The sizes on the page follow within a moment. */
#define AWAIT(condition) \
	while (!(condition)) \
	sched_yield()

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
	CHECK(owner == context && type == CU_MEMORYTYPE_DEVICE && device == 0 && managed == 0 && !where);
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
	begin();
	const struct hb_page_gpu *gpu = &host.page->gpus[0];
	size_t bytes = 66 * MIB + 100, pitch, free_before, free_after, total;
	CUdeviceptr small = allocate(MIB), large = allocate(bytes), pitched;
	struct hb_page_elastic *record = record_of(0);
	CHECK(record);
	CHECK(gpu->used_bytes == bytes + MIB);
	AWAIT(record->local_bytes == 68 * MIB && record->movable_bytes == 68 * MIB &&
	      record->stays_bytes[HB_PAGE_STAY_SMALL] == MIB);
	check_answers(small, MIB);
	check_answers(large, bytes);
	uint64_t id = buffer_id(large);
	CHECK(buffer_id(large + bytes - 1) == id && buffer_id(small) != id);
	OK(CU(cuMemGetInfo_v2)(&free_before, &total));
	CHECK(move(HB_ORDER_AWAY, 0, 68 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuMemGetInfo_v2)(&free_after, &total));
	CHECK(free_after == free_before); /* what has moved is not free */
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
	assert_non_null(hb_page_host_run(&host, allocate_and_ask));
}

static void allocate_without_option(void)
{
	CUmemGenericAllocationHandle handle;
	begin();
	CUdeviceptr pointer = allocate(66 * MIB);
	CHECK(!record_of(0));
	check_answers(pointer, 66 * MIB);
	OK(CU(cuMemFree_v2)(pointer));
	CHECK(CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)pointer) == CUDA_ERROR_INVALID_VALUE);
}

static void other_tenants_get_ordinary_memory(void **state)
{
	host.page->elastic = 0;
	assert_non_null(hb_page_host_run(&host, allocate_without_option));
	host.page->elastic = HB_ELASTIC_ON;
	host.page->priority = HB_PAGE_HIGH;
	hb_page_host_begin_again(&host);
	assert_non_null(hb_page_host_run(&host, allocate_without_option));
	host.page->priority = HB_PAGE_LOW;
	for (unsigned i = 0; i < HB_PAGE_ELASTIC; i++) /* no record is free */
		host.page->elastic_gpus[i].owner = HB_ELASTIC_OWNER(7, 1);
	hb_page_host_begin_again(&host);
	assert_non_null(hb_page_host_run(&host, allocate_without_option));
}

static void end_contexts(void)
{
	CUcontext primary;
	begin();
	allocate(66 * MIB);
	struct hb_page_elastic *record = record_of(0);
	CHECK(move(HB_ORDER_AWAY, 0, 2 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuCtxDestroy_v2)(context));
	CHECK(host.page->gpus[0].used_bytes == 0);
	AWAIT(record->local_bytes + record->host_bytes == 0);
	OK(CU(cuDevicePrimaryCtxRetain)(&primary, 0));
	OK(CU(cuCtxSetCurrent)(primary));
	allocate(4 * MIB);
	AWAIT(record->local_bytes == 4 * MIB);
	OK(CU(cuDevicePrimaryCtxReset_v2)(0));
	CHECK(host.page->gpus[0].used_bytes == 0);
	AWAIT(record->local_bytes == 0);
}

static void memory_ends_with_its_context(void **state)
{
	assert_non_null(hb_page_host_run(&host, end_contexts));
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
	OK(CU(cuCtxSetCurrent)(context));
	while (!atomic_load(&worker->stop)) {
		uint32_t word;
		for (int i = 0; i < 4; i++)
			launch(worker->pointer, worker->stream);
		worker->launches += 4;
		OK(CU(cuStreamSynchronize)(worker->stream));
		if (!worker->copies)
			continue;
		OK(CU(cuMemcpyDtoH_v2)(&word, worker->pointer, 4));
		CHECK(word == word_of(7, 0) + worker->launches);
		CUdeviceptr beside = allocate(2 * MIB); /* comes and goes while memory moves */
		OK(CU(cuMemFree_v2)(beside));
	}
	return NULL;
}

static void move_there_and_back(size_t bytes)
{
	CHECK(move(HB_ORDER_AWAY, 0, bytes) == HB_MOVE_MOVED);
	CHECK(move(HB_ORDER_HOME, 0, bytes) == HB_MOVE_MOVED);
	CHECK(move(HB_ORDER_AWAY, bytes, 0) == HB_MOVE_MOVED);
	CHECK(move(HB_ORDER_HOME, bytes, 0) == HB_MOVE_MOVED);
	CHECK(move(HB_ORDER_AWAY, bytes / 2, bytes / 2) == HB_MOVE_MOVED);
	CHECK(record_of(0)->peer_bytes == bytes / 2 && record_of(0)->host_bytes == bytes / 2);
	CHECK(move(HB_ORDER_HOME, bytes / 2, bytes / 2) == HB_MOVE_MOVED);
}

static void move_under_work(void)
{
	struct worker workers[2] = {{.copies = true}, {.copies = false}};
	pthread_t threads[2];
	begin();
	for (int i = 0; i < 2; i++) {
		workers[i].pointer = allocate(4 * MIB);
		fill(workers[i].pointer, 4 * MIB, 7);
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
		CHECK(is_intact(workers[i].pointer, 4 * MIB, 7, workers[i].launches));
	}
	CHECK(move(HB_ORDER_AWAY, 0, 100 * MIB) == HB_MOVE_NOTHING); /* moves what there is */
	CHECK(record_of(0)->moved_bytes == 8 * MIB);
	CHECK(is_intact(workers[0].pointer, 4 * MIB, 7, workers[0].launches));
}

static void memory_moves_under_running_work(void **state)
{
	assert_non_null(hb_page_host_run(&host, move_under_work));
}

static void capture_and_move(void)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	begin();
	CUdeviceptr pointer = allocate(4 * MIB), beside = allocate(4 * MIB);
	fill(pointer, 4 * MIB, 9);
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	launch(pointer, stream);
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_CAPTURE);
	OK(CU(cuMemFree_v2)(beside)); /* is freed when the capture has ended */
	CHECK(CU(cuMemFree_v2)(beside) == CUDA_ERROR_INVALID_VALUE);
	CHECK(host.page->gpus[0].used_bytes == 8 * MIB);
	OK(CU(cuStreamEndCapture)(stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(CU(cuMemFree_v2)(allocate(2 * MIB)));
	CHECK(host.page->gpus[0].used_bytes == 4 * MIB);
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuGraphLaunch)(exec, stream));
	OK(CU(cuStreamSynchronize)(stream));
	CHECK(is_intact(pointer, 4 * MIB, 9, 1));
	CHECK(move(HB_ORDER_HOME, 0, 4 * MIB) == HB_MOVE_MOVED);
	OK(CU(cuGraphLaunch)(exec, stream));
	OK(CU(cuStreamSynchronize)(stream));
	CHECK(is_intact(pointer, 4 * MIB, 9, 2));
}

static void nothing_moves_while_a_stream_captures(void **state)
{
	assert_non_null(hb_page_host_run(&host, capture_and_move));
}

static void refuse_orders(void)
{
	hb_page_u32 *word;
	begin();
	CUdeviceptr pointer = allocate(4 * MIB);
	struct hb_page_elastic *record = record_of(0);
	fill(pointer, 4 * MIB, 5);
	uint32_t number = give_order(record, &(struct test_order){HB_ORDER_AWAY, 0, 4 * MIB, -1});
	AWAIT(atomic_load(&record->result) == number);
	CHECK(record->reason == HB_MOVE_LATE && record->moved_bytes == 0);
	/* Work that does not end. */
	OK(CU(cuMemHostAlloc)((void **)&word, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	*word = 0;
	OK(CU(cuStreamWaitValue32_v2)(NULL, (CUdeviceptr)(uintptr_t)word, 1, 0));
	launch(pointer, NULL);
	CHECK(try_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_BUSY && record->moved_bytes == 0);
	atomic_store(word, 1);
	OK(CU(cuCtxSynchronize)());
	/* More than the host may hold. */
	record->host_limit_bytes = 2 * MIB;
	AWAIT(record->spare_bytes <= 2 * MIB);
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_NO_ROOM);
	record->host_limit_bytes = 4 * MIB;
	CHECK(is_intact(pointer, 4 * MIB, 5, 1));
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	CHECK(is_intact(pointer, 4 * MIB, 5, 1));
}

static void orders_that_cannot_be_carried_out_change_nothing(void **state)
{
	assert_non_null(hb_page_host_run(&host, refuse_orders));
}

static void pin_memory(void)
{
	CUcontext second;
	int on = 1;
	begin();
	CUdeviceptr a = allocate(2 * MIB), b = allocate(2 * MIB), c;
	struct hb_page_elastic *record = record_of(0);
	OK(CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	AWAIT(record->movable_bytes == 2 * MIB && record->stays_bytes[HB_PAGE_STAY_DEVICE] == 2 * MIB);
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_NOTHING && record->moved_bytes == 2 * MIB);
	/* The second GPU gets access, also to what has moved. */
	OK(CU(cuCtxCreate_v2)(&second, 0, 1));
	OK(CU(cuCtxEnablePeerAccess)(context, 0));
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
	assert_non_null(hb_page_host_run(&host, pin_memory));
}

static void fork_while_elastic(void)
{
	begin();
	CUdeviceptr pointer = allocate(4 * MIB);
	fill(pointer, 4 * MIB, 3);
	pid_t child = fork();
	if (child == 0) { /* registers as a process of its own, and has ordinary calls until it allocates */
		CHECK(CU(cuMemFree_v2)(pointer) != CUDA_SUCCESS);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	launch(pointer, NULL);
	CHECK(is_intact(pointer, 4 * MIB, 3, 1));
	exit(0); /* with memory elsewhere and the thread asleep */
}

static void a_forked_child_forgets_the_memory(void **state)
{
	assert_non_null(hb_page_host_run(&host, fork_while_elastic));
}

/* ---- failures ---- */

static void fail_and_move(void)
{
	begin();
	CUdeviceptr a = allocate(2 * MIB), b = allocate(2 * MIB);
	fill(a, 2 * MIB, 11);
	fill(b, 2 * MIB, 12);
	enum hb_move_result first = try_move(HB_ORDER_AWAY, 0, 4 * MIB);
	CHECK(first == HB_MOVE_FAILED || first == HB_MOVE_NO_ROOM || first == HB_MOVE_BUSY);
	CHECK(record_of(0)->moved_bytes == 0 && record_of(0)->local_bytes == 4 * MIB);
	launch(a, NULL);
	CHECK(is_intact(a, 2 * MIB, 11, 1) && is_intact(b, 2 * MIB, 12, 0));
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	CHECK(is_intact(a, 2 * MIB, 11, 1) && is_intact(b, 2 * MIB, 12, 0));
	CHECK(record_of(0)->leaked_bytes == 0);
}

static void a_move_that_fails_changes_nothing(void **state)
{
	static const char *const failures[] = {
		"cuMemcpyDtoDAsync_v2:1:times=1", "cuMemcpyDtoDAsync_v2:1:after=1:times=1",
		"cuMemUnmap:999:times=1",         "cuMemUnmap:999:after=1:times=1",
		"cuMemMap:999:after=5:times=1",   "cuMemAddressReserve:2:after=2:times=1",
		"cuEventQuery:999:times=1",
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		setenv("HB_SIM_FAIL", failures[i], 1);
		assert_non_null(hb_page_host_run(&host, fail_and_move));
		hb_page_host_begin_again(&host);
		memset(host.page->elastic_gpus, 0, sizeof(host.page->elastic_gpus));
		host.page->elastic_gpus[0].host_limit_bytes = 256 * MIB;
		host.page->gpus[0].used_bytes = 0;
	}
}

static void lose_memory(void)
{
	begin();
	CUdeviceptr pointer = allocate(4 * MIB);
	CHECK(move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_BROKEN);
	CHECK(CU(cuLaunchKernel)(add_one, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&pointer}, NULL) ==
	      CUDA_ERROR_ILLEGAL_STATE);
	CHECK(CU(cuMemsetD8_v2)(pointer, 0, 16) == CUDA_ERROR_ILLEGAL_STATE);
	OK(CU(cuCtxDestroy_v2)(context));
}

/* Kills the process in the middle of a move; what it had is free afterwards. */
static void die_in_a_move(void)
{
	begin();
	allocate(4 * MIB);
	move(HB_ORDER_AWAY, 0, 4 * MIB);
}

static void see_all_memory_free(void)
{
	size_t free_bytes, total;
	begin();
	OK(CU(cuMemGetInfo_v2)(&free_bytes, &total));
	CHECK(total - free_bytes < 1024 * MIB); /* the context */
	OK(CU(cuMemFree_v2)(allocate(free_bytes - 64 * MIB)));
}

static void a_killed_process_leaves_nothing(void **state)
{
	setenv("HB_SIM_FAIL", "cuMemUnmap:kill", 1);
	assert_null(hb_page_host_run(&host, die_in_a_move));
	unsetenv("HB_SIM_FAIL");
	host.page->elastic = 0;
	hb_page_host_begin_again(&host);
	assert_non_null(hb_page_host_run(&host, see_all_memory_free));
}

static void calls_fail_when_memory_is_lost(void **state)
{
	setenv("HB_SIM_FAIL", "cuMemMap:999:after=2", 1);
	assert_non_null(hb_page_host_run(&host, lose_memory));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(allocations_look_like_those_of_the_driver, set_up, tear_down),
		cmocka_unit_test_setup_teardown(other_tenants_get_ordinary_memory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(memory_ends_with_its_context, set_up, tear_down),
		cmocka_unit_test_setup_teardown(memory_moves_under_running_work, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_moves_while_a_stream_captures, set_up, tear_down),
		cmocka_unit_test_setup_teardown(orders_that_cannot_be_carried_out_change_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(memory_that_others_know_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_forked_child_forgets_the_memory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_move_that_fails_changes_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_killed_process_leaves_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(calls_fail_when_memory_is_lost, set_up, tear_down),
	};
	return cmocka_run_group_tests_name("shim elastic", tests, NULL, NULL);
}
