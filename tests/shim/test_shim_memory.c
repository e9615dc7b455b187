/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tenant's memory account: each form of device memory counts with its size, freed
 * memory is off the account, a limit is exact with threads and forked processes, and
 * the tenant sees its own limits as memory sizes.
 */
#include "fake/fake_driver.h"
#include "page_host.h"
#include "shim/cuda_calls.h"
#include "unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define STREAM ((CUstream)0x5000)

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	return 0;
}

static int tear_down(void **state)
{
	unsetenv("HB_FAKE_REFUSE");
	hb_page_host_fini(&host);
	return 0;
}

static uint64_t used(void)
{
	return atomic_load(&host.page->gpus[0].used_bytes);
}

static unsigned fake_calls(const char *name)
{
	return ((unsigned (*)(const char *))hb_test_fake_symbol("hb_fake_calls"))(name);
}

/* Runs a scenario with this limit. Returns the slot of the process, which exited with 0. */
static struct hb_page_process *run_limited(void (*scenario)(void), uint64_t limit_bytes)
{
	atomic_store(&host.page->gpus[0].limit_bytes, limit_bytes);
	struct hb_page_process *process = hb_page_host_run(&host, scenario);
	assert_non_null(process);
	assert_int_equal(atomic_load(&process->memory_pending), 0);
	assert_int_equal(atomic_load(&process->memory[0].used_bytes), used());
	return process;
}

/* ---- every form ---- */

static void allocate_every_form(void)
{
	CUdeviceptr pointer;
	size_t pitch;
	CUarray array;
	CUmipmappedArray mipmap;
	CUDA_ARRAY_DESCRIPTOR flat = {.Width = 1024, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
	CUDA_ARRAY3D_DESCRIPTOR box = {
		.Width = 64, .Height = 32, .Depth = 2, .Format = CU_AD_FORMAT_HALF, .NumChannels = 4};
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 1 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 1500, 1000, 4) == CUDA_SUCCESS);
	CHECK(pitch == 2 * HB_FAKE_PITCH);
	CHECK(CU(cuMemAllocManaged)(&pointer, 2 * MIB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
	CHECK(CU(cuMemAllocAsync)(&pointer, 4 * MIB, STREAM) == CUDA_SUCCESS);
	CHECK(CU(cuMemAllocAsync_ptsz)(&pointer, 8 * MIB, NULL) == CUDA_SUCCESS);
	CHECK(CU(cuArrayCreate_v2)(&array, &flat) == CUDA_SUCCESS);
	CHECK(CU(cuArray3DCreate_v2)(&array, &box) == CUDA_SUCCESS);
	CHECK(CU(cuMipmappedArrayCreate)(&mipmap, &box, 3) == CUDA_SUCCESS);
}

static void every_form_is_counted_with_its_size(void **state)
{
	struct hb_page_process *process = run_limited(allocate_every_form, UINT64_MAX);
	uint64_t flat = 1024 * 16 * 2 * 4, box = 64 * 32 * 2 * 4 * 2;
	uint64_t levels = box + 32 * 16 * 1 * 4 * 2 + 16 * 8 * 1 * 4 * 2;
	assert_int_equal(used(), 15 * MIB + 2 * HB_FAKE_PITCH * 1000 + flat + box + levels);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_allocations]), 8);
}

static void allocate_and_free_every_form(void)
{
	CUdeviceptr plain, pitched, ordered;
	size_t pitch;
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR flat = {.Width = 1024, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 1000; i++) {
		CHECK(CU(cuMemAlloc_v2)(&plain, 1 * MIB) == CUDA_SUCCESS);
		CHECK(CU(cuMemAllocPitch_v2)(&pitched, &pitch, 1500, 1000, 4) == CUDA_SUCCESS);
		CHECK(CU(cuMemAllocAsync)(&ordered, 4 * MIB, STREAM) == CUDA_SUCCESS);
		CHECK(CU(cuArrayCreate_v2)(&array, &flat) == CUDA_SUCCESS);
		CHECK(CU(cuMemFree_v2)(plain) == CUDA_SUCCESS);
		CHECK(CU(cuMemFreeAsync)(ordered, STREAM) == CUDA_SUCCESS);
		CHECK(CU(cuArrayDestroy)(array) == CUDA_SUCCESS);
		CHECK(CU(cuMemFree_v2)(pitched) == CUDA_SUCCESS);
	}
}

static void freed_memory_is_off_the_account(void **state)
{
	struct hb_page_process *process = run_limited(allocate_and_free_every_form, UINT64_MAX);
	assert_int_equal(used(), 0);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_frees]), 4000);
}

static void lose_a_context(void)
{
	CUdeviceptr pointer;
	CUcontext context;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
	for (int i = 0; i < 10; i++)
		CHECK(CU(cuMemAlloc_v2)(&pointer, 1 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
}

static void a_context_frees_its_memory_when_destroyed(void **state)
{
	run_limited(lose_a_context, UINT64_MAX);
	assert_int_equal(used(), 0);
}

/* ---- virtual memory ---- */

/* A thread that looked up its GPU without a daemon looks it up again when there is one. */
static void allocate_before_and_after_joining(void)
{
	CUdeviceptr pointer;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 300) == CUDA_SUCCESS);
	CHECK(rename(host.socket_path, getenv("HB_SOCKET")) == 0);
	while (atomic_load(&host.page->processes[0].shim_version) == 0) {
		CU(cuStreamSynchronize)(NULL);
		usleep(1000);
	}
	CHECK(CU(cuMemAlloc_v2)(&pointer, 1000) == CUDA_SUCCESS);
}

static void memory_is_counted_once_a_daemon_comes(void **state)
{
	char late[128];
	snprintf(late, sizeof late, "%s.late", host.socket_path);
	setenv("HB_SOCKET", late, 1);
	assert_non_null(hb_page_host_run(&host, allocate_before_and_after_joining));
	assert_int_equal(used(), 1000);
}

static CUmemAllocationProp at(CUmemLocationType type)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = type, .id = 0}};
}

static void create_on_the_host(void)
{
	CUmemAllocationProp host_memory = at(CU_MEM_LOCATION_TYPE_HOST_NUMA);
	CUmemGenericAllocationHandle handle;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemCreate)(&handle, 64 * MIB, &host_memory, 0) == CUDA_SUCCESS);
}

static void memory_on_the_host_is_not_counted(void **state)
{
	run_limited(create_on_the_host, 1 * MIB);
	assert_int_equal(used(), 0);
}

static void map_and_release(void)
{
	CUmemAllocationProp prop = at(CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemGenericAllocationHandle handle, refused;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemCreate)(&handle, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
	CHECK(CU(cuMemMap)(0x1000000, 32 * MIB, 0, handle, 0) == CUDA_SUCCESS);
	CHECK(CU(cuMemMap)(0x1000000 + 32 * MIB, 32 * MIB, 32 * MIB, handle, 0) == CUDA_SUCCESS);
	CHECK(CU(cuMemRelease)(handle) == CUDA_SUCCESS);
	/* The memory is still mapped, so it still exists. */
	CHECK(CU(cuMemCreate)(&refused, 64 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemUnmap)(0x1000000, 32 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemCreate)(&refused, 64 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemUnmap)(0x1000000 + 32 * MIB, 32 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemCreate)(&handle, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
	CHECK(CU(cuMemRelease)(handle) == CUDA_SUCCESS);
}

static void physical_memory_counts_while_retained_or_mapped(void **state)
{
	run_limited(map_and_release, 100 * MIB);
	assert_int_equal(used(), 0);
}

/* ---- limits ---- */

static void reach_the_limit(void)
{
	CUdeviceptr first, second;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&first, 60 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&second, 40 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(fake_calls("cuMemAlloc_v2") == 1); /* the driver was not called */
	CHECK(CU(cuMemAlloc_v2)(&second, 40 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemAllocAsync)(&second, 1, STREAM) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemFree_v2)(first) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&second, 60 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&second, UINT64_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void the_limit_is_exact(void **state)
{
	struct hb_page_process *process = run_limited(reach_the_limit, 100 * MIB);
	assert_int_equal(used(), 100 * MIB);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_allocations_refused]), 3);
}

static void *allocate_until_refused(void *count)
{
	CUdeviceptr pointer;
	while (CU(cuMemAlloc_v2)(&pointer, 1 * MIB) == CUDA_SUCCESS)
		++*(unsigned *)count;
	return NULL;
}

static void race_for_memory(void)
{
	pthread_t threads[8];
	unsigned counts[8] = {0}, sum = 0;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, allocate_until_refused, &counts[i]) == 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		sum += counts[i];
	}
	CHECK(sum == 3000);
}

static void the_limit_is_exact_under_threads(void **state)
{
	run_limited(race_for_memory, 3000 * MIB);
	assert_int_equal(used(), 3000 * MIB);
}

static void fill_up(void)
{
	unsigned count = 0;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	allocate_until_refused(&count);
}

static void the_limit_is_exact_over_processes(void **state)
{
	atomic_store(&host.page->gpus[0].limit_bytes, 3000 * MIB);
	pid_t children[3];
	for (int i = 0; i < 3; i++)
		children[i] = hb_page_host_start(fill_up);
	for (int i = 0; i < 3; i++)
		hb_page_host_serve(&host);
	for (int i = 0; i < 3; i++)
		assert_true(hb_page_host_ended_well(children[i]));
	assert_int_equal(used(), 3000 * MIB);
	uint64_t sum = 0;
	for (int i = 0; i < 3; i++)
		sum += atomic_load(&host.page->processes[i].memory[0].used_bytes);
	assert_int_equal(sum, 3000 * MIB);
}

static void be_refused_by_the_driver(void)
{
	CUdeviceptr pointer;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop = at(CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 10 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemCreate)(&handle, 10 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void memory_that_the_driver_refuses_is_not_counted(void **state)
{
	setenv("HB_FAKE_REFUSE", "cuMemAlloc_v2,cuMemCreate", 1);
	struct hb_page_process *process = run_limited(be_refused_by_the_driver, UINT64_MAX);
	assert_int_equal(used(), 0);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_allocations]), 0);
}

static void fail_to_free(void)
{
	CUdeviceptr pointer;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 10 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemFree_v2)(pointer) != CUDA_SUCCESS);
	CHECK(CU(cuMemFree_v2)(pointer + 1) != CUDA_SUCCESS);
}

static void memory_that_is_not_freed_stays_on_the_account(void **state)
{
	setenv("HB_FAKE_REFUSE", "cuMemFree_v2", 1);
	run_limited(fail_to_free, UINT64_MAX);
	assert_int_equal(used(), 10 * MIB);
}

static void take_all_but_the_reserve(void)
{
	CUdeviceptr pointer;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 61 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 60 * MIB) == CUDA_SUCCESS);
}

/* 60 MiB are left for this tenant, of which its lease covers 10. */
static void share_100_mib(void)
{
	host.page->gpus[0].total_bytes = 100 * MIB;
	host.gpu->reserve_bytes = 30 * MIB;
	host.page->gpus[0].low_others_bytes = 10 * MIB;
	host.page->gpus[0].low_lease_bytes = 10 * MIB;
}

static void a_low_tenant_cannot_use_the_reserve(void **state)
{
	share_100_mib();
	host.low_free_bytes = 50 * MIB;
	run_limited(take_all_but_the_reserve, UINT64_MAX);
	assert_int_equal(used(), 60 * MIB);
	assert_int_equal(host.memory_asked, 2);
}

/* Without a daemon that answers, the last figures that it wrote count. */
static void without_a_daemon_the_reserve_is_kept(void **state)
{
	share_100_mib();
	host.page->heartbeat_ns = 1;
	run_limited(take_all_but_the_reserve, UINT64_MAX);
	assert_int_equal(used(), 60 * MIB);
	assert_int_equal(host.memory_asked, 0);
}

static void lose_the_socket_and_take_all_but_the_reserve(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(unlink(host.socket_path) == 0);
	take_all_but_the_reserve();
}

/* The heartbeat is fresh and the lease too small, but the daemon cannot be asked for a larger one. */
static void if_no_question_reaches_the_daemon_the_reserve_is_kept(void **state)
{
	share_100_mib();
	run_limited(lose_the_socket_and_take_all_but_the_reserve, UINT64_MAX);
	assert_int_equal(used(), 60 * MIB);
	assert_int_equal(host.memory_asked, 0);
}

static void take_in_small_steps(void)
{
	CUdeviceptr pointer;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (int i = 0; i < 20; i++)
		CHECK(CU(cuMemAlloc_v2)(&pointer, MIB) == CUDA_SUCCESS);
}

static void memory_within_the_lease_is_taken_without_a_question(void **state)
{
	host.page->gpus[0].low_lease_bytes = 20 * MIB;
	run_limited(take_in_small_steps, UINT64_MAX);
	assert_int_equal(used(), 20 * MIB);
	assert_int_equal(host.memory_asked, 0);
}

static void take_the_reserve(void)
{
	CUdeviceptr pointer;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 90 * MIB) == CUDA_SUCCESS);
}

static void a_high_tenant_can_use_the_reserve(void **state)
{
	host.page->priority = HB_PAGE_HIGH;
	host.page->gpus[0].total_bytes = 100 * MIB;
	host.gpu->reserve_bytes = 30 * MIB;
	run_limited(take_the_reserve, UINT64_MAX);
	assert_int_equal(used(), 90 * MIB);
}

/* ---- memory sizes that the tenant sees ---- */

static void ask_for_memory_info(void)
{
	CUdeviceptr pointer;
	size_t free_bytes = 0, total_bytes = 0;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 60 * MIB) == CUDA_SUCCESS);
	CHECK(CU(cuMemGetInfo_v2)(&free_bytes, &total_bytes) == CUDA_SUCCESS);
	CHECK(free_bytes == 40 * MIB && total_bytes == 100 * MIB);
	CHECK(CU(cuMemGetInfo_v2)(NULL, NULL) == CUDA_SUCCESS);
	total_bytes = 0;
	CHECK(CU(cuMemGetInfo_v2)(NULL, &total_bytes) == CUDA_SUCCESS && total_bytes == 100 * MIB);
}

static void the_tenant_sees_its_limit(void **state)
{
	run_limited(ask_for_memory_info, 100 * MIB);
}

static void ask_without_limit(void)
{
	size_t free_bytes = 0, total_bytes = 0;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemGetInfo_v2)(&free_bytes, &total_bytes) == CUDA_SUCCESS);
	CHECK(free_bytes == HB_FAKE_FREE && total_bytes == HB_FAKE_TOTAL);
}

static void without_a_limit_the_tenant_sees_the_drivers_sizes(void **state)
{
	run_limited(ask_without_limit, UINT64_MAX);
}

static void record_an_allocation(void)
{
	CUdeviceptr pointer;
	CUgraph graph;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuStreamBeginCapture_v2)(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
	CHECK(CU(cuMemAllocAsync)(&pointer, 200 * MIB, STREAM) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuMemAllocAsync)(&pointer, 50 * MIB, STREAM) == CUDA_SUCCESS);
	CHECK(CU(cuMemFreeAsync)(pointer, STREAM) == CUDA_SUCCESS);
	CHECK(CU(cuStreamEndCapture)(STREAM, &graph) == CUDA_SUCCESS);
}

static void a_captured_allocation_takes_no_room_but_must_fit(void **state)
{
	run_limited(record_an_allocation, 100 * MIB);
	assert_int_equal(used(), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_form_is_counted_with_its_size),
		T(freed_memory_is_off_the_account),
		T(a_context_frees_its_memory_when_destroyed),
		T(memory_is_counted_once_a_daemon_comes),
		T(memory_on_the_host_is_not_counted),
		T(physical_memory_counts_while_retained_or_mapped),
		T(the_limit_is_exact),
		T(the_limit_is_exact_under_threads),
		T(the_limit_is_exact_over_processes),
		T(memory_that_the_driver_refuses_is_not_counted),
		T(memory_that_is_not_freed_stays_on_the_account),
		T(a_low_tenant_cannot_use_the_reserve),
		T(without_a_daemon_the_reserve_is_kept),
		T(if_no_question_reaches_the_daemon_the_reserve_is_kept),
		T(memory_within_the_lease_is_taken_without_a_question),
		T(a_high_tenant_can_use_the_reserve),
		T(the_tenant_sees_its_limit),
		T(without_a_limit_the_tenant_sees_the_drivers_sizes),
		T(a_captured_allocation_takes_no_room_but_must_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
