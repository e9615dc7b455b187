/* SPDX-License-Identifier: Apache-2.0 */
/* Capture, what it forbids, graphs built by hand, instances, their updates. */
#include "sim_test.h"

#include <pthread.h>
#include <string.h>

static CUdeviceptr word;
static CUstream stream, other;

static int make(void **state)
{
	(void)state;
	CU(cuMemAlloc_v2(&word, 64));
	CU(cuMemsetD32_v2(word, 0, 16));
	CU(cuCtxSynchronize());
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	return 0;
}

static int unmake(void **state)
{
	(void)state;
	CU(cuStreamDestroy_v2(stream));
	CU(cuStreamDestroy_v2(other));
	CU(cuMemFree_v2(word));
	return 0;
}

static uint32_t read_word(void)
{
	uint32_t value;
	CU(cuMemcpyDtoH_v2(&value, word, 4));
	return value;
}

static void times_three(void *argument)
{
	uint32_t *value = argument;
	*value *= 3;
}

static CUgraphExec finish_capture(void)
{
	CUgraph graph;
	CUgraphExec exec;
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	return exec;
}

static void captured_work_runs_when_launched_and_not_before(void **state)
{
	uint32_t five = 5;
	CUgraphExec exec;
	(void)state;
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemsetD32Async(word, 1, 1, stream));
	LAUNCH(stream, "add_one", &word);                                   /* 2 */
	CU(cuLaunchHostFunc(stream, times_three, (void *)(uintptr_t)word)); /* 6 */
	LAUNCH(stream, "times_two", &word);                                 /* 12 */
	CU(cuMemcpyDtoDAsync_v2(word + 4, word, 4, stream));
	LAUNCH(stream, "add_one", &word); /* 13 */
	exec = finish_capture();
	assert_int_equal(read_word(), 0);
	for (int i = 0; i < 3; i++) {
		CU(cuMemcpyHtoDAsync_v2(word, &five, 4, stream));
		CU(cuGraphLaunch(exec, stream));
	}
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 13);
	assert_int_equal(((uint32_t *)(uintptr_t)word)[1], 12);
	CU(cuGraphExecDestroy(exec));
}

static void a_capture_forks_and_joins_by_events(void **state)
{
	CUevent fork, join;
	CUgraph graph;
	CUgraphNode roots[4];
	CUgraphExec exec;
	size_t n = 0;
	(void)state;
	CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CU(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	LAUNCH(stream, "add_one", &word);
	CU(cuEventRecord(fork, stream));
	CU(cuStreamWaitEvent(other, fork, 0));
	LAUNCH(other, "add_one", &(CUdeviceptr){word + 4});
	CU(cuEventRecord(join, other));
	LAUNCH(stream, "add_one", &word);
	CU(cuStreamWaitEvent(stream, join, 0));
	LAUNCH(stream, "times_two", &word);
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 4);
	CU(cuGraphGetEdges(graph, NULL, NULL, &n));
	assert_int_equal(n, 4);
	n = 4;
	CU(cuGraphGetRootNodes(graph, roots, &n));
	assert_int_equal(n, 1);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, NULL));
	CU(cuCtxSynchronize());
	assert_int_equal(read_word(), 4);
	assert_int_equal(((uint32_t *)(uintptr_t)word)[1], 1);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuEventDestroy_v2(fork));
	CU(cuEventDestroy_v2(join));
}

static void a_branch_that_is_not_joined_spoils_the_capture(void **state)
{
	CUevent fork;
	CUgraph graph;
	CUstreamCaptureStatus status;
	(void)state;
	CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuEventRecord(fork, stream));
	CU(cuStreamWaitEvent(other, fork, 0));
	LAUNCH(other, "empty", NULL);
	CU_FAILS(cuEventSynchronize(fork), CUDA_ERROR_CAPTURED_EVENT);
	CU_FAILS(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	CU_FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_null(graph);
	CU(cuStreamIsCapturing(other, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuEventRecord(fork, stream));
	CU(cuStreamWaitEvent(other, fork, 0));
	LAUNCH(other, "empty", NULL);
	CU_FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	CU(cuEventDestroy_v2(fork));
}

static void what_may_not_be_called_in_a_capture_spoils_it(void **state)
{
	CUdeviceptr memory;
	CUgraph graph;
	CUstreamCaptureStatus status;
	(void)state;
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU_FAILS(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CU(cuStreamIsCapturing(stream, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	CU_FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuMemAlloc_v2(&memory, 64));
	CU(cuMemFree_v2(memory));
	CU_FAILS(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CU_FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	CU_FAILS(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CU_FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

static void *allocate(void *argument)
{
	CUdeviceptr memory;
	CUresult *result = argument;
	CU(cuCtxSetCurrent(sim_test_context()));
	*result = cuMemAlloc_v2(&memory, 64);
	if (*result == CUDA_SUCCESS)
		cuMemFree_v2(memory);
	return NULL;
}

static void *record_on_own_stream(void *result)
{
	CU(cuCtxSetCurrent(sim_test_context()));
	*(CUresult *)result = cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL);
	return NULL;
}

/* A capture that ended with its context or thread forbids no calls any more. */
static void a_capture_ends_with_its_context_and_with_its_thread(void **state)
{
	CUcontext second;
	CUstream there;
	CUdeviceptr memory;
	pthread_t thread;
	CUresult result = CUDA_ERROR_UNKNOWN;
	(void)state;
	CU(cuCtxCreate_v2(&second, 0, 0));
	CU(cuStreamCreate(&there, CU_STREAM_DEFAULT));
	CU(cuStreamBeginCapture_v2(there, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemsetD32Async(word, 1, 1, there));
	CU_FAILS(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CU(cuCtxDestroy_v2(second));
	CU(cuMemAlloc_v2(&memory, 64));
	CU(cuMemFree_v2(memory));
	assert_int_equal(pthread_create(&thread, NULL, record_on_own_stream, &result), 0);
	pthread_join(thread, NULL);
	assert_int_equal(result, CUDA_SUCCESS);
	CU(cuMemAlloc_v2(&memory, 64));
	CU(cuMemFree_v2(memory));
}

/* One that only joined takes the capture along. */
static void a_capture_is_spoilt_when_the_context_of_a_branch_ends(void **state)
{
	CUcontext second;
	CUstream there;
	CUevent fork;
	CUgraph graph;
	(void)state;
	CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CU(cuCtxCreate_v2(&second, 0, 0));
	CU(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU(cuEventRecord(fork, stream));
	CU(cuStreamWaitEvent(there, fork, 0));
	CU(cuCtxDestroy_v2(second));
	CU_FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	CU(cuEventDestroy_v2(fork));
}

static void the_mode_says_whom_a_capture_concerns(void **state)
{
	CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
	(void)state;
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		CUgraph graph;
		CUresult result = CUDA_ERROR_UNKNOWN;
		CU(cuStreamBeginCapture_v2(stream, modes[i]));
		assert_int_equal(pthread_create(&thread, NULL, allocate, &result), 0);
		pthread_join(thread, NULL);
		assert_int_equal(result, i ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		assert_int_equal(cuStreamEndCapture(stream, &graph),
				 i ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		if (i)
			CU(cuGraphDestroy(graph));
	}
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr memory;
	CUgraph graph;
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemAlloc_v2(&memory, 64));
	CU(cuMemFree_v2(memory));
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphDestroy(graph));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
}

static void the_legacy_stream_may_not_touch_a_blocking_capture(void **state)
{
	CUstream blocking;
	CUgraph graph;
	(void)state;
	CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	CU(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(cuLaunchKernel(sim_test_function("empty"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	CU_FAILS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	CU(cuStreamDestroy_v2(blocking));
}

static void work_outside_a_capture_cannot_be_waited_for_inside(void **state)
{
	CUevent event;
	CUgraph graph;
	(void)state;
	CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CU(cuEventRecord(event, other));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	CU_FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	CU(cuEventDestroy_v2(event));
}

static void graphs_are_built_by_hand(void **state)
{
	CUgraph graph, child, copy;
	CUgraphNode set, add, twice, inner, nested, found[4];
	CUgraphExec exec;
	CUgraphNodeType type;
	size_t n = 4;
	CUDA_MEMSET_NODE_PARAMS one = {.dst = word, .value = 1, .elementSize = 4, .width = 1, .height = 1};
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = sim_test_function("add_one"),
					  .gridDimX = 1,
					  .gridDimY = 1,
					  .gridDimZ = 1,
					  .blockDimX = 1,
					  .blockDimY = 1,
					  .blockDimZ = 1,
					  .kernelParams = (void *[]){&word}};
	(void)state;
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddMemsetNode(&set, graph, NULL, 0, &one, sim_test_context()));
	CU(cuGraphAddKernelNode_v2(&add, graph, &set, 1, &kernel));
	kernel.func = sim_test_function("times_two");
	CU(cuGraphAddKernelNode_v2(&twice, graph, NULL, 0, &kernel));
	CU(cuGraphAddDependencies_v2(graph, &add, &twice, NULL, 1));
	CU(cuGraphCreate(&child, 0));
	CU(cuGraphAddKernelNode_v2(&inner, child, NULL, 0, &kernel));
	CU(cuGraphAddChildGraphNode(&nested, graph, &twice, 1, child));
	CU(cuGraphDestroy(child));
	CU(cuGraphNodeGetType(nested, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
	CU(cuGraphNodeGetDependencies(twice, found, &n));
	assert_true(n == 1 && found[0] == add);
	CU(cuGraphClone(&copy, graph));
	CU(cuGraphDestroy(graph));
	CU(cuGraphInstantiateWithFlags(&exec, copy, 0));
	CU(cuGraphDestroy(copy));
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 8); /* (1 + 1) x 2 x 2 */
	CU(cuGraphExecDestroy(exec));
}

static void a_cycle_is_refused(void **state)
{
	CUgraph graph;
	CUgraphNode a, b;
	CUgraphExec exec;
	(void)state;
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddEmptyNode(&a, graph, NULL, 0));
	CU(cuGraphAddEmptyNode(&b, graph, &a, 1));
	CU(cuGraphAddDependencies_v2(graph, &b, &a, NULL, 1));
	CU_FAILS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
	CU(cuGraphDestroy(graph));
}

static void an_instance_can_be_changed(void **state)
{
	CUgraph graph, changed, larger;
	CUgraphNode node, extra;
	CUgraphExec exec;
	CUgraphExecUpdateResultInfo info;
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = sim_test_function("add_one"),
					  .gridDimX = 1,
					  .gridDimY = 1,
					  .gridDimZ = 1,
					  .blockDimX = 1,
					  .blockDimY = 1,
					  .blockDimZ = 1,
					  .kernelParams = (void *[]){&word}};
	CUdeviceptr next = word + 4;
	(void)state;
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, stream)); /* runs with the old parameters */
	kernel.kernelParams = (void *[]){&next};
	CU(cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel));
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 1);
	assert_int_equal(((uint32_t *)(uintptr_t)word)[1], 1);
	kernel.kernelParams = (void *[]){&word};
	CU(cuGraphCreate(&changed, 0));
	CU(cuGraphAddKernelNode_v2(&node, changed, NULL, 0, &kernel));
	CU(cuGraphExecUpdate_v2(exec, changed, &info));
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 2);
	CU(cuGraphClone(&larger, changed));
	CU(cuGraphAddEmptyNode(&extra, larger, NULL, 0));
	CU_FAILS(cuGraphExecUpdate_v2(exec, larger, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuGraphDestroy(changed));
	CU(cuGraphDestroy(larger));
}

static void memory_of_a_graph_lives_as_long_as_the_graph(void **state)
{
	struct hb_sim_stats before, during, after;
	CUdeviceptr memory;
	CUgraphExec exec;
	(void)state;
	CU(sim_test_table()->stats(0, &before));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemAllocAsync(&memory, 4096, stream));
	CU(cuMemsetD32Async(memory, 3, 1, stream));
	LAUNCH(stream, "add_one", &memory);
	CU(cuMemcpyDtoDAsync_v2(word, memory, 4, stream));
	CU(cuMemFreeAsync(memory, stream));
	exec = finish_capture();
	CU(sim_test_table()->stats(0, &during));
	assert_int_equal(during.memory_own - before.memory_own, 4096);
	CU(cuGraphLaunch(exec, stream));
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	assert_int_equal(read_word(), 4);
	CU(cuGraphExecDestroy(exec));
	CU(sim_test_table()->stats(0, &after));
	assert_int_equal(after.memory_own, before.memory_own);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make, unmake)
	const struct CMUnitTest tests[] = {
		T(captured_work_runs_when_launched_and_not_before),
		T(a_capture_forks_and_joins_by_events),
		T(a_branch_that_is_not_joined_spoils_the_capture),
		T(what_may_not_be_called_in_a_capture_spoils_it),
		T(a_capture_ends_with_its_context_and_with_its_thread),
		T(a_capture_is_spoilt_when_the_context_of_a_branch_ends),
		T(the_mode_says_whom_a_capture_concerns),
		T(the_legacy_stream_may_not_touch_a_blocking_capture),
		T(work_outside_a_capture_cannot_be_waited_for_inside),
		T(graphs_are_built_by_hand),
		T(a_cycle_is_refused),
		T(an_instance_can_be_changed),
		T(memory_of_a_graph_lives_as_long_as_the_graph),
	};
	return cmocka_run_group_tests_name("simcuda_graphs", tests, sim_test_begin, sim_test_end);
}
