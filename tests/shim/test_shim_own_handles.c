/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles that an elastic program makes itself with cuMemCreate, over the simulated
 * driver: their memory moves under its address while it is mapped once.
 * test_shim_own_uses.c has other uses.
 */
#include "elastic_rig.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
static const CUmemAccessDesc access_here = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static struct hb_page_elastic *record;

/* ---- a program with expandable segments ---- */

#define PART (6 * MIB) /* PyTorch creates 20 MiB at a time for large tensors; less is faster under sanitizers */
#define N_PARTS 3
#define SEGMENT (N_PARTS * PART)

/* Maps the handles one behind the other. */
static CUdeviceptr map_parts(const CUmemGenericAllocationHandle handles[N_PARTS])
{
	CUdeviceptr base;
	OK(CU(cuMemAddressReserve)(&base, SEGMENT, 0, 0, 0));
	for (int i = 0; i < N_PARTS; i++)
		OK(CU(cuMemMap)(base + i * PART, PART, 0, handles[i], 0));
	OK(CU(cuMemSetAccess)(base, SEGMENT, &access_here, 1));
	return base;
}

static void check_answers(CUdeviceptr base, size_t bytes)
{
	CUdeviceptr at = base + bytes - 1, found = 0;
	size_t size = 0;
	unsigned type = 0;
	int device = -1;
	uint64_t types = 1;
	void *where = &type;
	unsigned long long flags = 0;
	CUpointer_attribute all[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				     CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
	void *data[] = {&type, &device, &where, &types};
	OK(CU(cuPointerGetAttributes)(4, all, data, at));
	CHECK(type == CU_MEMORYTYPE_DEVICE && device == 0 && !where && types == 0);
	CHECK(CU(cuPointerGetAttribute)(&where, CU_POINTER_ATTRIBUTE_HOST_POINTER, at) == CUDA_ERROR_INVALID_VALUE);
	OK(CU(cuMemGetAddressRange_v2)(&found, &size, at));
	CHECK(found == base && size == bytes);
	OK(CU(cuMemGetAccess)(&flags, &here, at));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(CU(cuMemGetAccess)(&flags, &there, at));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

static uint64_t buffer_id(CUdeviceptr pointer)
{
	unsigned long long id;
	OK(CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
	return id;
}

static void check_properties(CUmemGenericAllocationHandle handle)
{
	CUmemAllocationProp properties = {0};
	OK(CU(cuMemGetAllocationPropertiesFromHandle)(&properties, handle));
	CHECK(properties.location.type == here.type && properties.location.id == 0 && !properties.requestedHandleTypes);
}

static void check_parts(CUdeviceptr base, uint32_t added)
{
	CHECK(elastic_is_intact(base, SEGMENT, 61, added));
	for (int i = 0; i < N_PARTS; i++)
		check_answers(base + i * PART, PART);
}

static size_t free_bytes(void)
{
	size_t free_now, total;
	OK(CU(cuMemGetInfo_v2)(&free_now, &total));
	return free_now;
}

static void use_segments(void)
{
	CUmemGenericAllocationHandle handles[N_PARTS];
	elastic_begin();
	uint64_t before = elastic_own_bytes();
	for (int i = 0; i < N_PARTS; i++)
		handles[i] = elastic_create(PART, CU_MEM_HANDLE_TYPE_NONE);
	CUdeviceptr base = map_parts(handles);
	record = elastic_record_of(0);
	CHECK(record && elastic_used_bytes() == SEGMENT);
	AWAIT(elastic_has_own_bytes(record, before + SEGMENT));
	AWAIT(record->local_bytes == SEGMENT && record->movable_bytes == SEGMENT && record->spare_bytes == SEGMENT &&
	      record->stays_bytes[HB_PAGE_STAY_HANDLE] == 0 && record->stays_bytes[HB_PAGE_STAY_DRIVER] == 0);
	elastic_fill(base, SEGMENT, 61);
	check_parts(base, 0);
	uint64_t id = buffer_id(base + PART);
	CHECK(id != buffer_id(base));
	size_t free_before = free_bytes();
	elastic_move_away(SEGMENT);
	CHECK(record->host_bytes == SEGMENT && elastic_has_own_bytes(record, before) &&
	      elastic_used_bytes() == SEGMENT);
	/* A move may give its scratch addresses back after it was reported. */
	AWAIT(free_bytes() == free_before - ELASTIC_TABLES(SEGMENT));
	CHECK(buffer_id(base + PART) == id);
	elastic_launch(base, NULL);
	check_parts(base, 1);
	check_properties(handles[1]);
	CHECK(elastic_move(HB_ORDER_HOME, 0, SEGMENT) == HB_MOVE_MOVED);
	CHECK(elastic_move(HB_ORDER_AWAY, SEGMENT, 0) == HB_MOVE_MOVED);
	check_parts(base, 1);
	CHECK(elastic_move(HB_ORDER_LEAVE, SEGMENT, 0) == HB_MOVE_MOVED);
	/* Unmapped in one call and mapped elsewhere, on the host and at home. */
	for (int i = 0; i < 2; i++) {
		elastic_unmap(base, SEGMENT);
		CHECK(elastic_used_bytes() == SEGMENT);
		AWAIT(free_bytes() == free_before);
		AWAIT(record->local_bytes + record->host_bytes == 0);
		base = map_parts(handles);
		AWAIT(record->local_bytes + record->host_bytes == SEGMENT);
		check_parts(base, 1);
		if (i == 0)
			CHECK(elastic_move(HB_ORDER_HOME, 0, SEGMENT) == HB_MOVE_MOVED);
		check_parts(base, 1);
	}
	AWAIT(elastic_has_own_bytes(record, before + SEGMENT));
	elastic_unmap(base, SEGMENT);
	for (int i = 0; i < N_PARTS; i++)
		OK(CU(cuMemRelease)(handles[i]));
	CHECK(elastic_used_bytes() == 0);
	AWAIT(elastic_own_bytes() == before && record->local_bytes == 0 &&
	      record->stays_bytes[HB_PAGE_STAY_HANDLE] == 0);
}

static void segments_move_under_their_addresses(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, use_segments));
}

/* ---- the life of a handle ---- */

static void release_in_other_orders(void)
{
	CUmemGenericAllocationHandle retained;
	CUmemAllocationProp properties;
	CUdeviceptr second;
	int fd;
	elastic_begin();
	uint64_t before = elastic_own_bytes();
	/* Released while it is mapped, at home and elsewhere. */
	for (int i = 0; i < 2; i++) {
		struct elastic_segment segment = elastic_open_segment(4 * MIB);
		record = elastic_record_of(0);
		elastic_fill(segment.base, segment.bytes, 71);
		OK(CU(cuMemRelease)(segment.handle));
		CHECK(CU(cuMemRelease)(segment.handle) == CUDA_ERROR_INVALID_VALUE);
		CHECK(CU(cuMemMap)(segment.base, segment.bytes, 0, segment.handle, 0) == CUDA_ERROR_INVALID_VALUE);
		CHECK(CU(cuMemGetAllocationPropertiesFromHandle)(&properties, segment.handle) ==
		      CUDA_ERROR_INVALID_VALUE);
		CHECK(CU(cuMemExportToShareableHandle)(&fd, segment.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						       0) == CUDA_ERROR_INVALID_VALUE);
		if (i == 1)
			elastic_move_away(4 * MIB);
		CHECK(elastic_is_intact(segment.base, segment.bytes, 71, 0) && elastic_used_bytes() == 4 * MIB);
		elastic_unmap(segment.base, segment.bytes);
		CHECK(elastic_used_bytes() == 0);
		AWAIT(elastic_own_bytes() == before);
		CHECK(CU(cuMemRetainAllocationHandle)(&retained, (void *)(uintptr_t)segment.base) != CUDA_SUCCESS);
	}
	/* Retained by its address after its release, and mapped again under the same number. */
	struct elastic_segment segment = elastic_open_segment(4 * MIB);
	elastic_fill(segment.base, segment.bytes, 72);
	OK(CU(cuMemRelease)(segment.handle));
	elastic_move_away(4 * MIB);
	OK(CU(cuMemRetainAllocationHandle)(&retained, (void *)(uintptr_t)(segment.base + 3 * MIB)));
	CHECK(retained == segment.handle);
	OK(CU(cuMemRetainAllocationHandle)(&retained, (void *)(uintptr_t)segment.base));
	elastic_unmap(segment.base, segment.bytes);
	second = elastic_map(retained, segment.bytes);
	CHECK(elastic_is_intact(second, segment.bytes, 72, 0));
	CHECK(elastic_move(HB_ORDER_HOME, 0, 4 * MIB) == HB_MOVE_MOVED);
	CHECK(elastic_is_intact(second, segment.bytes, 72, 0));
	elastic_unmap(second, segment.bytes);
	OK(CU(cuMemRelease)(retained));
	CHECK(elastic_used_bytes() == 4 * MIB);
	OK(CU(cuMemRelease)(retained));
	CHECK(CU(cuMemRelease)(retained) == CUDA_ERROR_INVALID_VALUE);
	CHECK(elastic_used_bytes() == 0);
	AWAIT(elastic_own_bytes() == before);
}

static void memory_lives_while_it_is_retained_or_mapped(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, release_in_other_orders));
}

/* ---- calls that fail ---- */

static void fail_calls(void)
{
	CUmemGenericAllocationHandle handle;
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
	CUdeviceptr base;
	elastic_begin();
	uint64_t before = elastic_own_bytes();
	elastic_fail("cuMemCreate:2:times=1");
	CHECK(CU(cuMemCreate)(&handle, 4 * MIB, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY &&
	      elastic_used_bytes() == 0);
	handle = elastic_create(4 * MIB, CU_MEM_HANDLE_TYPE_NONE);
	OK(CU(cuMemAddressReserve)(&base, 4 * MIB, 0, 0, 0));
	elastic_fail("cuMemMap:999:times=1");
	CHECK(CU(cuMemMap)(base, 4 * MIB, 0, handle, 0) == CUDA_ERROR_UNKNOWN);
	OK(CU(cuMemMap)(base, 4 * MIB, 0, handle, 0));
	record = elastic_record_of(0);
	elastic_fail("cuMemSetAccess:999:times=1");
	CHECK(CU(cuMemSetAccess)(base, 4 * MIB, &access_here, 1) == CUDA_ERROR_UNKNOWN);
	CHECK(elastic_try_move(HB_ORDER_AWAY, 0, 4 * MIB) == HB_MOVE_NOTHING); /* nobody has access yet */
	OK(CU(cuMemSetAccess)(base, 4 * MIB, &access_here, 1));
	elastic_fill(base, 4 * MIB, 83);
	elastic_move_away(4 * MIB);
	elastic_fail("cuMemSetAccess:999:times=1");
	CHECK(CU(cuMemSetAccess)(base, 4 * MIB, &access_here, 1) == CUDA_ERROR_UNKNOWN);
	elastic_fail("cuMemUnmap:999:times=1");
	CHECK(CU(cuMemUnmap)(base, 4 * MIB) == CUDA_ERROR_UNKNOWN);
	elastic_fail("");
	CHECK(CU(cuMemUnmap)(base, 2 * MIB) == CUDA_ERROR_INVALID_VALUE); /* not all of the mapping */
	CHECK(elastic_is_intact(base, 4 * MIB, 83, 0) && elastic_used_bytes() == 4 * MIB);
	CHECK(elastic_move(HB_ORDER_HOME, 0, 4 * MIB) == HB_MOVE_MOVED); /* it can still move */
	CHECK(elastic_is_intact(base, 4 * MIB, 83, 0));
	elastic_unmap(base, 4 * MIB);
	elastic_fail("cuMemRelease:999:times=1"); /* it is given back later */
	OK(CU(cuMemRelease)(handle));
	CHECK(elastic_own_bytes() == before + 4 * MIB && elastic_used_bytes() == 0);
	base = elastic_allocate(2 * MIB);
	elastic_move_away(2 * MIB);
	AWAIT(elastic_has_own_bytes(elastic_record_of(0), before));
}

static void calls_that_fail_change_nothing(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, fail_calls));
}

/* ---- beside moves ---- */

#define ROUNDS 20

static atomic_bool over;

/* Grows and shrinks a segment of its own as PyTorch does, beside moves of the other's. */
static void *come_and_go(void *argument)
{
	const uint32_t seed = (uint32_t)(uintptr_t)argument;
	OK(CU(cuCtxSetCurrent)(elastic_context));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct elastic_segment mine = elastic_open_segment(2 * MIB * (1 + i % 2));
		elastic_fill(mine.base, mine.bytes, seed + i);
		if (i % 3 == 1) {
			elastic_unmap(mine.base, mine.bytes);
			mine.base = elastic_map(mine.handle, mine.bytes);
		}
		elastic_launch(mine.base, NULL);
		OK(CU(cuStreamSynchronize)(NULL));
		CHECK(elastic_is_intact(mine.base, mine.bytes, seed + i, 1));
		if (i % 5 == 4)
			OK(CU(cuMemRelease)(mine.handle));
		if (i % 5 == 4)
			elastic_unmap(mine.base, mine.bytes);
		else
			elastic_close_segment(&mine);
	}
	atomic_store(&over, true);
	return NULL;
}

static void move_beside_threads(void)
{
	pthread_t threads[2];
	elastic_begin();
	struct elastic_segment kept = elastic_open_segment(4 * MIB);
	elastic_fill(kept.base, kept.bytes, 91);
	for (uintptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, come_and_go, (void *)(1000 * (i + 1))) == 0);
	while (!atomic_load(&over)) {
		(void)elastic_try_move(HB_ORDER_AWAY, 0, 8 * MIB);
		(void)elastic_try_move(HB_ORDER_HOME, 0, 8 * MIB);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(elastic_is_intact(kept.base, kept.bytes, 91, 0));
	elastic_close_segment(&kept);
	CHECK(elastic_used_bytes() == 0);
	record = elastic_record_of(0);
	AWAIT(record->local_bytes + record->host_bytes + record->stays_bytes[HB_PAGE_STAY_HANDLE] == 0);
}

static void handles_come_and_go_beside_moves(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, move_beside_threads));
}

static void create_in_a_capture(void)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	elastic_begin();
	struct elastic_segment before = elastic_open_segment(4 * MIB);
	elastic_fill(before.base, before.bytes, 92);
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	struct elastic_segment during = elastic_open_segment(2 * MIB);
	elastic_launch(before.base, stream);
	elastic_launch(during.base, stream);
	CHECK(elastic_move(HB_ORDER_AWAY, 0, 6 * MIB) == HB_MOVE_CAPTURE);
	OK(CU(cuStreamEndCapture)(stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	elastic_fill(during.base, during.bytes, 93);
	for (uint32_t i = 1; i <= 2; i++) {
		elastic_move_away(6 * MIB);
		OK(CU(cuGraphLaunch)(exec, stream));
		OK(CU(cuStreamSynchronize)(stream));
		CHECK(elastic_is_intact(before.base, before.bytes, 92, i) &&
		      elastic_is_intact(during.base, during.bytes, 93, i));
		CHECK(elastic_move(HB_ORDER_HOME, 0, 6 * MIB) == HB_MOVE_MOVED);
	}
}

static void handles_may_be_created_while_a_stream_captures(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, create_in_a_capture));
}

static void fork_with_handles(void)
{
	elastic_begin();
	struct elastic_segment made = elastic_open_segment(4 * MIB);
	elastic_fill(made.base, made.bytes, 94);
	pid_t child = fork();
	if (child == 0) {
		CHECK(CU(cuMemUnmap)(made.base, made.bytes) != CUDA_SUCCESS);
		CHECK(CU(cuMemRelease)(made.handle) != CUDA_SUCCESS);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	elastic_move_away(4 * MIB);
	CHECK(elastic_is_intact(made.base, made.bytes, 94, 0));
	elastic_close_segment(&made);
	exit(0);
}

static void a_forked_child_has_no_handles(void **state)
{
	assert_non_null(hb_page_host_run(&elastic_host, fork_with_handles));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(segments_move_under_their_addresses, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(memory_lives_while_it_is_retained_or_mapped, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(calls_that_fail_change_nothing, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(handles_come_and_go_beside_moves, elastic_set_up, elastic_tear_down),
		cmocka_unit_test_setup_teardown(handles_may_be_created_while_a_stream_captures, elastic_set_up,
						elastic_tear_down),
		cmocka_unit_test_setup_teardown(a_forked_child_has_no_handles, elastic_set_up, elastic_tear_down),
	};
	return cmocka_run_group_tests_name("shim own handles", tests, NULL, NULL);
}
