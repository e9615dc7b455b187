/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elastic memory in the shim, over the simulated driver: memory that two processes
 * share, and moves in which a step fails or the process dies.
 */
#include "elastic_rig.h"
#include "simcuda/simcuda.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory that two processes share ---- */

#define MANY (65 * 64 * MIB) /* granules of two packets; the test touches few of its pages */

/* Shared by the two processes. */
struct exchange {
	_Atomic(uint32_t) step;
	CUipcMemHandle handle, many, stale;
};
static struct exchange *exchange;

static void await_step(uint32_t step)
{
	AWAIT(atomic_load(&exchange->step) >= step);
}

static void import_memory(void)
{
	CUdeviceptr pointer, again, many, base;
	size_t bytes;
	uint32_t word;
	elastic_begin();
	await_step(1);
	OK(CU(cuIpcOpenMemHandle_v2)(&pointer, exchange->handle, 1));
	OK(CU(cuIpcOpenMemHandle_v2)(&again, exchange->handle, 1));
	CHECK(again == pointer);
	OK(CU(cuMemGetAddressRange_v2)(&base, &bytes, pointer + 65 * MIB));
	CHECK(base == pointer && bytes == 66 * MIB);
	CHECK(elastic_is_intact(pointer, 66 * MIB, 21, 0));
	elastic_launch(pointer, NULL);
	OK(CU(cuCtxSynchronize)());
	OK(CU(cuIpcOpenMemHandle_v2)(&many, exchange->many, 1));
	OK(CU(cuMemcpyDtoH_v2)(&word, many + MANY - 4, 4));
	CHECK(word == 4711);
	CHECK(CU(cuIpcOpenMemHandle_v2)(&base, exchange->stale, 1) == CUDA_ERROR_INVALID_VALUE);
	CHECK(elastic_host.page->gpus[0].used_bytes == 66 * MIB + MANY); /* what the exporter has */
	OK(CU(cuIpcCloseMemHandle)(pointer));
	CHECK(elastic_is_intact(pointer, 66 * MIB, 21, 1)); /* it was opened twice */
	OK(CU(cuIpcCloseMemHandle)(pointer));
	CHECK(CU(cuIpcCloseMemHandle)(pointer) != CUDA_SUCCESS);
	OK(CU(cuIpcCloseMemHandle)(many));
	atomic_store(&exchange->step, 2);
	await_step(3); /* the exporter has ended */
	CHECK(CU(cuIpcOpenMemHandle_v2)(&pointer, exchange->handle, 1) == CUDA_ERROR_INVALID_VALUE);
}

/* What is elsewhere may be too late home on a busy machine. */
static void share(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	CUresult result;
	while ((result = CU(cuIpcGetMemHandle)(handle, pointer)) == CUDA_ERROR_NOT_READY)
		;
	OK(result);
}

static void export_memory(void)
{
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(66 * MIB), many = elastic_allocate(MANY), freed;
	const uint32_t word = 4711;
	elastic_fill(pointer, 66 * MIB, 21);
	OK(CU(cuMemcpyHtoD_v2)(many + MANY - 4, &word, 4));
	struct hb_page_elastic *record = elastic_record_of(0);
	AWAIT(record->spare_bytes == 128 * MIB); /* one for each of the newest granules, within the limit */
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 2 * MIB) == HB_MOVE_MOVED);
	CHECK(record->host_bytes == 128 * MIB); /* as little as 2 MiB would cost as much time */
	freed = elastic_allocate(2 * MIB);
	share(&exchange->handle, pointer);
	share(&exchange->many, many);
	share(&exchange->stale, freed);
	OK(CU(cuMemFree_v2)(freed));
	AWAIT(record->host_bytes == 0 && record->local_bytes == 66 * MIB + MANY); /* what is shared has come home */
	CHECK(elastic_try_move(HB_ORDER_AWAY, 0, 66 * MIB) == HB_MOVE_NOTHING);
	atomic_store(&exchange->step, 1);
	await_step(2);
	CHECK(elastic_is_intact(pointer, 66 * MIB, 21, 1));
	size_t before = record->local_bytes;
	OK(CU(cuMemFree_v2)(elastic_allocate(2 * MIB))); /* an ordinary one */
	CHECK(record->local_bytes == before);
}

static void processes_share_memory(void **state)
{
	elastic_host.page->elastic_gpus[0].host_limit_bytes = 128 * MIB;
	exchange = mmap(NULL, sizeof(*exchange), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(exchange, MAP_FAILED);
	pid_t exporter = hb_page_host_start(export_memory);
	assert_non_null(hb_page_host_serve(&elastic_host));
	pid_t importer = hb_page_host_start(import_memory);
	assert_non_null(hb_page_host_serve(&elastic_host));
	bool exported = hb_page_host_ended_well(exporter);
	if (!exported)
		kill(importer, SIGKILL); /* it waits for the exporter */
	assert_true(exported);
	atomic_store(&exchange->step, 3);
	assert_true(hb_page_host_ended_well(importer));
	munmap(exchange, sizeof(*exchange));
}

static void share_without_room(void)
{
	CUipcMemHandle handle;
	CUcontext context;
	int on = 1;
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(4 * MIB);
	struct hb_page_elastic *record = elastic_record_of(0);
	elastic_fill(pointer, 4 * MIB, 31);
	AWAIT(record->spare_bytes == 4 * MIB);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	CHECK(CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuIpcGetMemHandle)(&handle, pointer) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(CU(cuCtxGetCurrent)(&context));
	CHECK(context == elastic_context && record->host_bytes == 4 * MIB);
	OK(CU(cuIpcGetMemHandle)(&handle, pointer)); /* the driver has room now */
	AWAIT(record->local_bytes == 4 * MIB && record->stays_bytes[HB_PAGE_STAY_SHARED] == 4 * MIB);
	CHECK(elastic_is_intact(pointer, 4 * MIB, 31, 0));
}

static void memory_that_cannot_return_is_not_shared(void **state)
{
	setenv("HB_SIM_FAIL", "cuMemCreate:2:after=2:times=2", 1);
	assert_non_null(hb_page_host_run(&elastic_host, share_without_room));
}

/* ---- failures ---- */

static void fail_and_move(void)
{
	elastic_begin();
	CUdeviceptr a = elastic_allocate(2 * MIB), b = elastic_open_segment(2 * MIB).base;
	elastic_fill(a, 2 * MIB, 11);
	elastic_fill(b, 2 * MIB, 12);
	enum hb_move_result first = elastic_try_move(HB_ORDER_AWAY, 0, 4 * MIB);
	CHECK(first == HB_MOVE_FAILED || first == HB_MOVE_NO_ROOM || first == HB_MOVE_BUSY);
	CHECK(elastic_record_of(0)->moved_bytes == 0 && elastic_record_of(0)->local_bytes == 4 * MIB);
	elastic_launch(a, NULL);
	CHECK(elastic_is_intact(a, 2 * MIB, 11, 1) && elastic_is_intact(b, 2 * MIB, 12, 0));
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_MOVED);
	CHECK(elastic_is_intact(a, 2 * MIB, 11, 1) && elastic_is_intact(b, 2 * MIB, 12, 0));
	CHECK(elastic_record_of(0)->leaked_bytes == 0);
}

#define SLICES (576 * MIB) /* an order is carried out in slices of 256 MiB, of which two are in work at a time */

/* What has moved before the failure stays; the slice that is copied meanwhile is given up. */
static void fail_in_a_slice(CUdeviceptr pointer, const char *fault)
{
	struct hb_page_elastic *record = elastic_record_of(0);
	AWAIT(record->spare_bytes == SLICES);
	elastic_fail(fault);
	CHECK(elastic_try_move(HB_ORDER_AWAY, 0, SLICES) == HB_MOVE_FAILED);
	CHECK(elastic_fail("") > 0);
	CHECK(record->host_bytes < SLICES && record->host_bytes % (256 * MIB) == 0);
	CHECK(record->host_bytes == record->moved_bytes && record->local_bytes == SLICES - record->host_bytes);
	CHECK(elastic_is_intact(pointer, SLICES, 51, 0));
	if (record->host_bytes)
		CHECK(elastic_move(HB_ORDER_HOME, 0, record->host_bytes) == HB_MOVE_MOVED);
	CHECK(record->leaked_bytes == 0);
}

static void move_in_slices(void)
{
	static const char *const faults[] = {"cuMemcpyDtoDAsync_v2:1:after=4:times=1", "cuMemMap:1:after=2:times=1",
					     "cuMemMap:1:after=5:times=1"};
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(SLICES);
	elastic_fill(pointer, SLICES, 51);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		fail_in_a_slice(pointer, faults[i]);
	elastic_move_away(SLICES);
	CHECK(elastic_record_of(0)->host_bytes == SLICES && elastic_is_intact(pointer, SLICES, 51, 0));
	CHECK(elastic_move(HB_ORDER_HOME, 0, SLICES) == HB_MOVE_MOVED);
	CHECK(elastic_record_of(0)->local_bytes == SLICES && elastic_is_intact(pointer, SLICES, 51, 0));
}

static void slices_move_while_others_are_copied(void **state)
{
	elastic_host.page->elastic_gpus[0].host_limit_bytes = SLICES;
	assert_non_null(hb_page_host_run(&elastic_host, move_in_slices));
}

static void a_move_that_fails_changes_nothing(void **state)
{
	static const char *const failures[] = {
		"cuMemcpyDtoDAsync_v2:1:times=1", "cuMemcpyDtoDAsync_v2:1:after=1:times=1", "cuMemUnmap:999:times=1",
		"cuMemUnmap:999:after=1:times=1", "cuMemMap:999:after=5:times=1",           "cuEventQuery:999:times=1",
	};
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		setenv("HB_SIM_FAIL", failures[i], 1);
		assert_non_null(hb_page_host_run(&elastic_host, fail_and_move));
		hb_page_host_begin_again(&elastic_host);
		memset(elastic_host.page->elastic_gpus, 0, sizeof(elastic_host.page->elastic_gpus));
		elastic_host.page->elastic_gpus[0].host_limit_bytes = 256 * MIB;
		elastic_host.page->gpus[0].used_bytes = 0;
	}
}

static void lose_memory(void)
{
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(4 * MIB);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_BROKEN);
	CHECK(CU(cuLaunchKernel)(elastic_add_one, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&pointer}, NULL) ==
	      CUDA_ERROR_ILLEGAL_STATE);
	CHECK(CU(cuMemsetD8_v2)(pointer, 0, 16) == CUDA_ERROR_ILLEGAL_STATE);
	OK(CU(cuCtxDestroy_v2)(elastic_context));
}

/* Kills the process in the middle of a move; what it had is free afterwards. */
static void die_in_a_move(void)
{
	elastic_begin();
	elastic_allocate(4 * MIB);
	elastic_move(HB_ORDER_AWAY, 0, 4 * MIB);
}

static void see_all_memory_free(void)
{
	size_t free_bytes, total;
	elastic_begin();
	OK(CU(cuMemGetInfo_v2)(&free_bytes, &total));
	CHECK(total - free_bytes < 1024 * MIB); /* the elastic_context */
	OK(CU(cuMemFree_v2)(elastic_allocate(free_bytes - 64 * MIB)));
}

static void a_killed_process_leaves_nothing(void **state)
{
	setenv("HB_SIM_FAIL", "cuMemUnmap:kill", 1);
	assert_null(hb_page_host_run(&elastic_host, die_in_a_move));
	unsetenv("HB_SIM_FAIL");
	elastic_host.page->elastic = 0;
	hb_page_host_begin_again(&elastic_host);
	assert_non_null(hb_page_host_run(&elastic_host, see_all_memory_free));
}

static void calls_fail_when_memory_is_lost(void **state)
{
	setenv("HB_SIM_FAIL", "cuMemMap:999:after=2", 1);
	assert_non_null(hb_page_host_run(&elastic_host, lose_memory));
}

/* ---- the choice between peer and host ---- */

#define PROBED (128 * MIB)                              /* as much as is worth a probe */
#define SLOW "cuMemcpyDtoDAsync_v2:0:slow=1000:times=2" /* longer than a probe takes */

static const struct hb_sim_table *table;
static CUdeviceptr probed;

static void prepare_choice(void)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	elastic_begin();
	OK(CU(cuGetExportTable)((const void **)&table, &id));
	probed = elastic_allocate(PROBED);
	elastic_fill(probed, MIB, 51);
	elastic_fill(probed + PROBED - MIB, MIB, 52);
	AWAIT(elastic_record_of(0)->spare_bytes == PROBED);
}

static void check_probed(uint32_t added)
{
	CHECK(elastic_is_intact(probed, MIB, 51, added) && elastic_is_intact(probed + PROBED - MIB, MIB, 52, 0));
}

/* The first two copies of a move probe the peer, the next two the host. */
static void choose_the_host(void)
{
	prepare_choice();
	(void)table->set_faults(SLOW);
	CHECK(elastic_move(HB_ORDER_AWAY, PROBED, 0) == HB_MOVE_MOVED);
	CHECK(elastic_record_of(0)->host_bytes == PROBED && elastic_record_of(0)->peer_bytes == 0);
	elastic_launch(probed, NULL);
	check_probed(1);
}

static void choose_the_peer(void)
{
	prepare_choice();
	(void)table->set_faults(SLOW ":after=2");
	CHECK(elastic_move(HB_ORDER_AWAY, PROBED, 0) == HB_MOVE_MOVED);
	CHECK(elastic_record_of(0)->peer_bytes == PROBED && elastic_record_of(0)->host_bytes == 0);
	(void)table->set_faults("");
	CHECK(elastic_record_of(0)->spare_bytes == PROBED); /* so that it can leave the peer at once */
	CHECK(elastic_move(HB_ORDER_LEAVE, PROBED, 0) == HB_MOVE_MOVED);
	CHECK(elastic_record_of(0)->host_bytes == PROBED && elastic_record_of(0)->peer_bytes == 0);
	check_probed(0);
}

static void use_the_host_instead(void)
{
	elastic_begin();
	CUdeviceptr pointer = elastic_allocate(4 * MIB);
	elastic_fill(pointer, 4 * MIB, 51);
	AWAIT(elastic_record_of(0)->spare_bytes == 4 * MIB);
	CHECK(elastic_move(HB_ORDER_AWAY, 4 * MIB, 0) == HB_MOVE_MOVED);
	CHECK(elastic_record_of(0)->host_bytes == 4 * MIB && elastic_record_of(0)->peer_bytes == 0);
	CHECK(elastic_is_intact(pointer, 4 * MIB, 51, 0));
}

static void a_congested_peer_is_avoided(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, choose_the_host));
}

static void a_fast_peer_is_used(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, choose_the_peer));
}

static void a_peer_without_room_is_replaced(void **state)
{
	setenv("HB_SIM_FAIL", "cuMemCreate:2:after=2:times=1", 1);
	assert_non_null(hb_page_host_run(&elastic_host, use_the_host_instead));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(processes_share_memory, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(memory_that_cannot_return_is_not_shared, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_move_that_fails_changes_nothing, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(slices_move_while_others_are_copied, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_killed_process_leaves_nothing, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(calls_fail_when_memory_is_lost, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_congested_peer_is_avoided, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_fast_peer_is_used, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_peer_without_room_is_replaced, elastic_set_up, elastic_tear_down),
	};
	return cmocka_run_group_tests_name("shim elastic failures", tests, NULL, NULL);
}
