/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every form of device memory obeys the limit and HP's reserve exactly, with any
 * number of threads and processes: also old forms, graph nodes of either call, and
 * what pools and graphs keep.
 */
#include "fake/fake_driver.h"
#include "page_host.h"
#include "shim/cuda_calls.h"
#include "unit/unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define STREAM ((CUstream)0x5000)

/* Required by the thread sanitizer, because the shim may start its thread in a forked child. */
extern const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	return 0;
}

static int tear_down(void **state)
{
	unsetenv("HB_FAKE_POOLS_KEEP");
	unsetenv("HB_FAKE_GRAPHS_HOLD");
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

/* Runs a scenario with this limit in an LP tenant. Returns the slot of the process, which exited with 0. */
static struct hb_page_process *run_limited(void (*scenario)(void), uint64_t limit_bytes)
{
	atomic_store(&host.page->gpus[0].limit_bytes, limit_bytes);
	struct hb_page_process *process = hb_page_host_run(&host, scenario);
	assert_non_null(process);
	assert_int_equal(atomic_load(&process->memory_pending), 0);
	assert_int_equal(atomic_load(&process->memory[0].used_bytes), used());
	return process;
}

static bool told(size_t free_mib, size_t total_mib)
{
	size_t free_bytes, total_bytes;
	CHECK(CU(cuMemGetInfo_v2)(&free_bytes, &total_bytes) == CUDA_SUCCESS);
	return free_bytes == free_mib * MIB && total_bytes == total_mib * MIB;
}

/* ---- forms of exactly 1 MiB, each of which can be freed ---- */

struct piece {
	enum form {
		PLAIN,
		PITCHED,
		MANAGED,
		ORDERED,
		FROM_POOL,
		ARRAY,
		ARRAY3D,
		MIPMAP,
		PHYSICAL,
		OLD_PLAIN,
		OLD_PITCHED,
		OLD_ARRAY,
		OLD_ARRAY3D,
		N_FORMS,
	} form;
	CUdeviceptr handle; /* handles of other kinds have the same width */
};

static CUmemoryPool pool_of_the_program;
static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void make_pool(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuMemPoolCreate)(&pool_of_the_program, &props) == CUDA_SUCCESS);
}

static CUresult get_old(struct piece *piece)
{
	unsigned pointer = 0, pitch;
	const CUDA_ARRAY_DESCRIPTOR_v1 flat = {512, 512, CU_AD_FORMAT_FLOAT, 1};
	const CUDA_ARRAY3D_DESCRIPTOR_v1 box = {64, 64, 64, CU_AD_FORMAT_FLOAT, 1, 0};
	CUresult result = CUDA_ERROR_UNKNOWN;
	switch (piece->form) {
	case OLD_PLAIN:
		result = CU(cuMemAlloc)(&pointer, MIB);
		break;
	case OLD_PITCHED:
		result = CU(cuMemAllocPitch)(&pointer, &pitch, 1024, 1024, 4);
		break;
	case OLD_ARRAY:
		return CU(cuArrayCreate)((CUarray *)&piece->handle, &flat);
	default:
		return CU(cuArray3DCreate)((CUarray *)&piece->handle, &box);
	}
	piece->handle = pointer;
	return result;
}

static CUresult get(struct piece *piece)
{
	size_t pitch;
	CUdeviceptr *handle = &piece->handle;
	const CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	const CUDA_ARRAY3D_DESCRIPTOR box = {
		.Width = 64, .Height = 64, .Depth = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	switch (piece->form) {
	case PLAIN:
		return CU(cuMemAlloc_v2)(handle, MIB);
	case PITCHED:
		return CU(cuMemAllocPitch_v2)(handle, &pitch, 1024, 1024, 4);
	case MANAGED:
		return CU(cuMemAllocManaged)(handle, MIB, CU_MEM_ATTACH_GLOBAL);
	case ORDERED:
		return CU(cuMemAllocAsync)(handle, MIB, STREAM);
	case FROM_POOL:
		return CU(cuMemAllocFromPoolAsync)(handle, MIB, pool_of_the_program, STREAM);
	case ARRAY:
		return CU(cuArrayCreate_v2)((CUarray *)handle, &flat);
	case ARRAY3D:
		return CU(cuArray3DCreate_v2)((CUarray *)handle, &box);
	case MIPMAP:
		return CU(cuMipmappedArrayCreate)((CUmipmappedArray *)handle, &box, 1);
	case PHYSICAL:
		return CU(cuMemCreate)((CUmemGenericAllocationHandle *)handle, MIB, &on_device, 0);
	default:
		return get_old(piece);
	}
}

static CUresult give_up(const struct piece *piece)
{
	void *object = (void *)(uintptr_t)piece->handle;
	switch (piece->form) {
	case ORDERED:
	case FROM_POOL:
		return CU(cuMemFreeAsync)(piece->handle, STREAM);
	case ARRAY:
	case ARRAY3D:
	case OLD_ARRAY:
	case OLD_ARRAY3D:
		return CU(cuArrayDestroy)(object);
	case MIPMAP:
		return CU(cuMipmappedArrayDestroy)(object);
	case PHYSICAL:
		return CU(cuMemRelease)(piece->handle);
	case OLD_PLAIN:
	case OLD_PITCHED:
		return CU(cuMemFree)((CUdeviceptr_v1)piece->handle);
	default:
		return CU(cuMemFree_v2)(piece->handle);
	}
}

static void fill_with_each_form(void)
{
	make_pool();
	for (unsigned form = 0; form < N_FORMS; form++) {
		struct piece pieces[3] = {{form}, {form}, {form}}, refused = {form};
		for (int i = 0; i < 3; i++)
			CHECK(get(&pieces[i]) == CUDA_SUCCESS);
		CHECK(told(0, 3));
		CHECK(get(&refused) == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(give_up(&pieces[1]) == CUDA_SUCCESS);
		CHECK(told(1, 3));
		CHECK(get(&pieces[1]) == CUDA_SUCCESS);
		for (int i = 0; i < 3; i++)
			CHECK(give_up(&pieces[i]) == CUDA_SUCCESS);
	}
	CHECK(told(3, 3));
}

static void every_form_obeys_the_limit(void **state)
{
	struct hb_page_process *process = run_limited(fill_with_each_form, 3 * MIB);
	assert_int_equal(used(), 0);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_allocations_refused]), N_FORMS);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_allocations]), 4 * N_FORMS);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_frees]), 4 * N_FORMS);
}

static void every_form_obeys_the_reserve(void **state)
{
	host.page->gpus[0].total_bytes = 10 * MIB;
	host.gpu->reserve_bytes = 7 * MIB;
	host.page->gpus[0].low_lease_bytes = 3 * MIB;
	run_limited(fill_with_each_form, UINT64_MAX);
	assert_int_equal(used(), 0);
}

/* ---- threads and processes ---- */

/* Allocates until nothing is left, and frees each third allocation on the way. Returns how many remain. */
static unsigned take_all(unsigned seed)
{
	unsigned n = 0;
	struct piece piece = {.form = seed % N_FORMS};
	while (get(&piece) == CUDA_SUCCESS) {
		if (++seed % 3 == 0)
			CHECK(give_up(&piece) == CUDA_SUCCESS);
		else
			n++;
		piece.form = (enum form)(seed % N_FORMS);
	}
	return n;
}

static void *take_in_thread(void *argument)
{
	*(unsigned *)argument = take_all(*(unsigned *)argument);
	return NULL;
}

static unsigned take_in_threads(void)
{
	enum { N = 6 };
	pthread_t threads[N];
	unsigned taken[N], sum = 0;
	for (unsigned i = 0; i < N; i++) {
		taken[i] = 5 * i;
		CHECK(pthread_create(&threads[i], NULL, take_in_thread, &taken[i]) == 0);
	}
	for (unsigned i = 0; i < N; i++) {
		pthread_join(threads[i], NULL);
		sum += taken[i];
	}
	/* A thread may have been refused while another thread held memory that it freed right after. */
	return sum + take_all(0);
}

static void race_over_every_form(void)
{
	make_pool();
	CHECK(take_in_threads() == 1000);
	CHECK(told(0, 1000));
}

static void the_limit_is_exact_over_forms_and_threads(void **state)
{
	run_limited(race_over_every_form, 1000 * MIB);
	assert_int_equal(used(), 1000 * MIB);
}

static void race_and_fork(void)
{
	make_pool();
	struct piece mine = {PLAIN};
	for (int i = 0; i < 100; i++)
		CHECK(get(&mine) == CUDA_SUCCESS);
	pid_t child = fork();
	if (child == 0) {
		make_pool(); /* calls cuInit: the child is a process of its own from here, and its account begins at 0 */
		take_all(0);
		_exit(0);
	}
	take_all(7);
	CHECK(hb_page_host_ended_well(child));
	take_all(3); /* memory that the child freed when this process was refused */
	CHECK(told(0, 1000));
}

static void the_limit_is_exact_after_a_fork(void **state)
{
	atomic_store(&host.page->gpus[0].limit_bytes, 1000 * MIB);
	pid_t parent = hb_page_host_start(race_and_fork);
	struct hb_page_process *first = hb_page_host_serve(&host), *second = hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(parent));
	assert_int_equal(used(), 1000 * MIB);
	assert_in_range(atomic_load(&first->memory[0].used_bytes), 100 * MIB, 1000 * MIB);
	assert_int_equal(atomic_load(&first->memory[0].used_bytes) + atomic_load(&second->memory[0].used_bytes),
			 1000 * MIB);
}

static void race_alone(void)
{
	make_pool();
	take_in_threads();
}

static void the_reserve_is_exact_over_processes(void **state)
{
	host.page->gpus[0].low_lease_bytes = 100 * MIB;
	host.low_free_bytes = 500 * MIB;
	pid_t children[3];
	for (int i = 0; i < 3; i++)
		children[i] = hb_page_host_start(race_alone);
	for (int i = 0; i < 3; i++)
		hb_page_host_serve(&host);
	for (int i = 0; i < 3; i++)
		assert_true(hb_page_host_ended_well(children[i]));
	/* Each process ended when it was refused; memory that the last one freed at that moment may be missing. */
	assert_in_range(used(), 600 * MIB - 3 * MIB, 600 * MIB);
}

/* ---- what pools keep ---- */

static void keep_in_a_pool(void)
{
	CUdeviceptr first, second;
	make_pool();
	CHECK(CU(cuMemAllocAsync)(&first, 60 * MIB, STREAM) == CUDA_SUCCESS);
	CHECK(CU(cuMemFreeAsync)(first, STREAM) == CUDA_SUCCESS);
	CHECK(CU(cuMemAllocFromPoolAsync)(&second, 10 * MIB, pool_of_the_program, STREAM) == CUDA_SUCCESS);
	CHECK(CU(cuMemFreeAsync)(second, STREAM) == CUDA_SUCCESS);
	CHECK(told(30, 100)); /* a slow call: the driver was asked */
}

static void memory_kept_by_pools_is_on_the_account(void **state)
{
	setenv("HB_FAKE_POOLS_KEEP", "1", 1);
	run_limited(keep_in_a_pool, 100 * MIB);
	assert_int_equal(used(), 70 * MIB);
}

static void take_from_what_is_kept(void)
{
	CUdeviceptr pointer;
	keep_in_a_pool();
	CHECK(CU(cuMemAllocAsync)(&pointer, 60 * MIB, STREAM) == CUDA_SUCCESS);
	CHECK(told(30, 100));
	CHECK(fake_calls("cuMemPoolTrimTo") == 0);
}

static void allocations_use_memory_kept_by_pools_first(void **state)
{
	setenv("HB_FAKE_POOLS_KEEP", "1", 1);
	run_limited(take_from_what_is_kept, 100 * MIB);
	assert_int_equal(used(), 70 * MIB);
}

static void need_what_is_kept(void)
{
	CUdeviceptr pointer;
	keep_in_a_pool();
	CHECK(CU(cuMemAlloc_v2)(&pointer, 80 * MIB) == CUDA_SUCCESS);
	CHECK(fake_calls("cuMemPoolTrimTo") == 2); /* for the default pool and the program's pool */
	CHECK(told(20, 100));
	CHECK(CU(cuMemAlloc_v2)(&pointer, 21 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void memory_kept_by_pools_is_freed_before_a_refusal(void **state)
{
	setenv("HB_FAKE_POOLS_KEEP", "1", 1);
	struct hb_page_process *process = run_limited(need_what_is_kept, 100 * MIB);
	assert_int_equal(used(), 80 * MIB);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_allocations_refused]), 1);
}

static void record_while_pools_keep(void)
{
	CUdeviceptr pointer;
	CUgraph graph;
	keep_in_a_pool();
	unsigned asked = fake_calls("cuMemPoolGetAttribute");
	CHECK(CU(cuStreamBeginCapture_v2)(STREAM, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
	CHECK(CU(cuMemAlloc_v2)(&pointer, 80 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(fake_calls("cuMemPoolGetAttribute") == asked && fake_calls("cuMemPoolTrimTo") == 0);
	CHECK(CU(cuStreamEndCapture)(STREAM, &graph) == CUDA_SUCCESS);
}

static void pools_are_not_asked_in_a_capture(void **state)
{
	setenv("HB_FAKE_POOLS_KEEP", "1", 1);
	run_limited(record_while_pools_keep, 100 * MIB);
}

static void destroy_a_pool(void)
{
	keep_in_a_pool();
	CHECK(CU(cuMemPoolDestroy)(pool_of_the_program) == CUDA_SUCCESS);
	CHECK(told(40, 100));
}

static void a_destroyed_pool_keeps_nothing(void **state)
{
	setenv("HB_FAKE_POOLS_KEEP", "1", 1);
	run_limited(destroy_a_pool, 100 * MIB);
	assert_int_equal(used(), 60 * MIB);
}

/* ---- graphs ---- */

static CUgraphNodeParams node_of(uint64_t bytes, CUmemLocationType type)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	params.alloc.poolProps.location.type = type;
	params.alloc.bytesize = bytes;
	return params;
}

static void add_nodes(void)
{
	CUgraphNode node;
	CUgraphNodeParams large = node_of(101 * MIB, CU_MEM_LOCATION_TYPE_DEVICE), kernel = {.type = 0};
	CUgraphNodeParams fits = node_of(100 * MIB, CU_MEM_LOCATION_TYPE_DEVICE);
	CUgraphNodeParams elsewhere = node_of(101 * MIB, CU_MEM_LOCATION_TYPE_HOST);
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuGraphAddNode)(&node, NULL, NULL, 0, &large) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuGraphAddNode_v2)(&node, NULL, NULL, NULL, 0, &large) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(CU(cuGraphAddMemAllocNode)(&node, NULL, NULL, 0, &large.alloc) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(fake_calls("cuGraphAddNode") + fake_calls("cuGraphAddNode_v2") == 0);
	CHECK(CU(cuGraphAddNode)(&node, NULL, NULL, 0, &fits) == CUDA_SUCCESS);
	CHECK(CU(cuGraphAddNode_v2)(&node, NULL, NULL, NULL, 0, &elsewhere) == CUDA_SUCCESS);
	CHECK(CU(cuGraphAddNode_v2)(&node, NULL, NULL, NULL, 0, &kernel) == CUDA_SUCCESS);
}

static void graph_nodes_must_fit_by_whatever_call_they_are_added(void **state)
{
	struct hb_page_process *process = run_limited(add_nodes, 100 * MIB);
	assert_int_equal(used(), 0);
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_allocations_refused]), 3);
}

static void run_a_graph(void)
{
	CUgraphNode node;
	CUgraphNodeParams params = node_of(50 * MIB, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr pointer;
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(CU(cuGraphAddNode_v2)(&node, NULL, NULL, NULL, 0, &params) == CUDA_SUCCESS);
	CHECK(told(40, 100));
	CHECK(CU(cuMemAlloc_v2)(&pointer, 41 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(fake_calls("cuDeviceGraphMemTrim") == 1); /* before the refusal */
	CHECK(CU(cuMemAlloc_v2)(&pointer, 40 * MIB) == CUDA_SUCCESS);
}

static void memory_of_graphs_is_on_the_account(void **state)
{
	setenv("HB_FAKE_GRAPHS_HOLD", "62914560", 1);
	run_limited(run_a_graph, 100 * MIB);
	assert_int_equal(used(), 100 * MIB);
}

/* ---- memory sizes that an old program sees ---- */

static void ask_the_old_way(void)
{
	unsigned free_bytes, total_bytes;
	struct piece piece = {OLD_PLAIN};
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	CHECK(get(&piece) == CUDA_SUCCESS);
	CHECK(CU(cuMemGetInfo)(&free_bytes, &total_bytes) == CUDA_SUCCESS);
	CHECK(free_bytes == 99 * MIB && total_bytes == 100 * MIB);
}

static void the_old_function_returns_the_same_sizes(void **state)
{
	run_limited(ask_the_old_way, 100 * MIB);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_form_obeys_the_limit),
		T(every_form_obeys_the_reserve),
		T(the_limit_is_exact_over_forms_and_threads),
		T(the_limit_is_exact_after_a_fork),
		T(the_reserve_is_exact_over_processes),
		T(memory_kept_by_pools_is_on_the_account),
		T(allocations_use_memory_kept_by_pools_first),
		T(memory_kept_by_pools_is_freed_before_a_refusal),
		T(pools_are_not_asked_in_a_capture),
		T(a_destroyed_pool_keeps_nothing),
		T(graph_nodes_must_fit_by_whatever_call_they_are_added),
		T(memory_of_graphs_is_on_the_account),
		T(the_old_function_returns_the_same_sizes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
