/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks of an LP process's graphs in the spatial engine. A kernel of a graph keeps
 * the mask with which its descriptor was written: when the graph was instantiated,
 * or when the kernel was changed.
 */
#include "shim_spatial_rig.h"

static CUgraph capture_a_graph(void)
{
	CUgraph graph;
	OK(CU(cuStreamBeginCapture_v2)(spatial_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(CU(cuLaunchKernel)(spatial_look, 264, 1, 1, 512, 1, 1, 0, spatial_stream, NULL, NULL));
	OK(CU(cuStreamEndCapture)(spatial_stream, &graph));
	return graph;
}

static unsigned sms_of_a_graph(CUgraphExec exec)
{
	atomic_store(&spatial_sms_seen, 0);
	OK(CU(cuGraphLaunch)(exec, spatial_stream));
	OK(CU(cuStreamSynchronize)(spatial_stream));
	return atomic_load(&spatial_sms_seen);
}

/* The graph is instantiated, and its kernel runs on this number of SMs. Ends the scenario. */
static void instantiate_and_check(CUgraph graph, unsigned sms)
{
	CUgraphExec exec;
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	CHECK(sms_of_a_graph(exec) == sms);
	OK(CU(cuGraphExecDestroy)(exec));
	OK(CU(cuGraphDestroy)(graph));
	spatial_end();
}

static void launch_a_graph_made_beside_high(void)
{
	spatial_begin();
	instantiate_and_check(capture_a_graph(), 100);
}

static void change_a_graph_beside_high(void)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = NULL, 264, 1, 1, 512, 1, 1};
	CUgraphExecUpdateResultInfo info;
	CUgraphNode node;
	CUgraphExec exec;
	size_t n = 1;
	spatial_begin();
	kernel.func = spatial_look;
	CUgraph graph = capture_a_graph();
	OK(CU(cuGraphGetNodes)(graph, &node, &n));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	CHECK(sms_of_a_graph(exec) == 132); /* HP does not work */
	for (int round = 0; round < 2; round++) {
		spatial_host.gpu->high_at_work = 1;
		OK(CU(cuGraphExecKernelNodeSetParams_v2)(exec, node, &kernel));
		CHECK(sms_of_a_graph(exec) == 100);
		spatial_host.gpu->high_at_work = 0;
		OK(CU(cuGraphExecUpdate_v2)(exec, graph, &info));
		CHECK(sms_of_a_graph(exec) == 132);
		spatial_host.gpu->high_at_work = 1;
		OK(CU(cuGraphExecUpdate_v2)(exec, graph, &info));
		CHECK(sms_of_a_graph(exec) == 100);
		spatial_host.gpu->high_at_work = 0;
		OK(CU(cuGraphExecKernelNodeSetParams_v2)(exec, node, &kernel));
		CHECK(sms_of_a_graph(exec) == 132);
	}
	OK(CU(cuGraphExecDestroy)(exec));
	OK(CU(cuGraphDestroy)(graph));
	spatial_end();
}

/* Its blocks wait for each other, so each must have its SM. */
static void launch_a_graph_with_a_cooperative_kernel(void)
{
	CUgraph graph;
	spatial_begin();
	OK(CU(cuStreamBeginCapture_v2)(spatial_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(CU(cuLaunchCooperativeKernel)(spatial_look, 132, 1, 1, 512, 1, 1, 0, spatial_stream, NULL));
	OK(CU(cuStreamEndCapture)(spatial_stream, &graph));
	instantiate_and_check(graph, 132);
}

static void make_a_kernel_of_a_graph_cooperative(void)
{
	CUkernelNodeAttrValue cooperative = {.cooperative = 1};
	CUgraphNode node;
	size_t n = 1;
	spatial_begin();
	CUgraph graph = capture_a_graph();
	OK(CU(cuGraphGetNodes)(graph, &node, &n));
	OK(CU(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative));
	instantiate_and_check(graph, 132);
}

static void graphs_with_cooperative_kernels_get_no_masks(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_run(launch_a_graph_with_a_cooperative_kernel);
	spatial_run(make_a_kernel_of_a_graph_cooperative);
}

static void graphs_get_masks_when_they_are_instantiated(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_run(launch_a_graph_made_beside_high);
}

static void kernels_that_change_in_a_graph_get_masks(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_host.gpu->high_at_work = 0;
	spatial_run(change_a_graph_beside_high);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, spatial_set_up, spatial_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(graphs_get_masks_when_they_are_instantiated),
					   TEST(graphs_with_cooperative_kernels_get_no_masks),
					   TEST(kernels_that_change_in_a_graph_get_masks)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
