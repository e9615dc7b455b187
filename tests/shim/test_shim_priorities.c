/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Priorities of streams, launches and graph nodes in the spatial engine, over the
 * simulated driver: LP stays below HP whatever it requests, and the order of a
 * program's own requests stays.
 */
#include "shim_spatial_rig.h"

#include <stdlib.h>
#include <string.h>

/* ---- in the child ---- */

static int priority_of(int asked)
{
	CUstream made;
	int priority;
	OK(CU(cuStreamCreateWithPriority)(&made, CU_STREAM_NON_BLOCKING, asked));
	OK(CU(cuStreamGetPriority)(made, &priority));
	OK(CU(cuStreamDestroy_v2)(made));
	return priority;
}

/* The caller's structures must not change. */
static void launch_with_priority(int asked)
{
	CUlaunchAttribute attributes[] = {{.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN},
					  {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = asked}};
	const CUlaunchConfig config = {264, 1, 1, 512, 1, 1, 0, spatial_stream, attributes, 2};
	OK(CU(cuLaunchKernelEx)(&config, spatial_look, NULL, NULL));
	CHECK(attributes[1].value.priority == asked);
}

static int priority_of_a_launch(int asked)
{
	atomic_store(&spatial_priority_seen, 99);
	launch_with_priority(asked);
	OK(CU(cuStreamSynchronize)(spatial_stream));
	return atomic_load(&spatial_priority_seen);
}

static int priority_of_a_recorded_launch(int asked)
{
	CUgraph graph;
	CUgraphExec exec;
	OK(CU(cuStreamBeginCapture_v2)(spatial_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	launch_with_priority(asked);
	OK(CU(cuStreamEndCapture)(spatial_stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
	OK(CU(cuGraphLaunch)(exec, spatial_stream));
	OK(CU(cuStreamSynchronize)(spatial_stream));
	OK(CU(cuGraphExecDestroy)(exec));
	OK(CU(cuGraphDestroy)(graph));
	return atomic_load(&spatial_priority_seen);
}

static int priority_of_a_node(int asked)
{
	CUgraph graph;
	CUgraphNode node;
	CUlaunchAttributeValue value = {.priority = asked}, got;
	const CUDA_KERNEL_NODE_PARAMS kernel = {spatial_look, 264, 1, 1, 512, 1, 1, 0, NULL, NULL, NULL, NULL};
	OK(CU(cuGraphCreate)(&graph, 0));
	OK(CU(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &kernel));
	OK(CU(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	CHECK(value.priority == asked);
	OK(CU(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
	OK(CU(cuGraphDestroy)(graph));
	return got.priority;
}

static int priority_of_a_changed_stream(int asked)
{
	CUstream made;
	int priority;
	const CUlaunchAttributeValue value = {.priority = asked};
	OK(CU(cuStreamCreate)(&made, CU_STREAM_NON_BLOCKING));
	OK(CU(cuStreamSetAttribute)(made, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	OK(CU(cuStreamGetPriority)(made, &priority));
	OK(CU(cuStreamDestroy_v2)(made));
	CHECK(value.priority == asked);
	return priority;
}

/* A launch, a captured launch, a graph node and a stream, each with the requested and the resulting priority. */
static void expect_priority(int asked, int had)
{
	CHECK(priority_of_a_launch(asked) == had);
	CHECK(priority_of_a_recorded_launch(asked) == had);
	CHECK(priority_of_a_node(asked) == had);
	CHECK(priority_of_a_changed_stream(asked) == had);
}

static void ask_for_priorities_in_low(void)
{
	spatial_begin();
	expect_priority(-5, -2);
	expect_priority(-3, -1);
	CHECK(spatial_count_of(HB_COUNT_priorities_moved) == 8);
	expect_priority(0, 0);
	CHECK(spatial_count_of(HB_COUNT_priorities_moved) == 8);
	spatial_end();
}

static void ask_for_priorities_in_high(void)
{
	spatial_begin();
	expect_priority(0, -3);
	expect_priority(-5, -5);
	CHECK(spatial_count_of(HB_COUNT_priorities_moved) == 4);
	spatial_end();
}

static void ask_for_priorities_outside(void)
{
	spatial_begin();
	expect_priority(-5, -5);
	CHECK(spatial_count_of(HB_COUNT_priorities_moved) == 0);
	spatial_end();
}

/* The simulated driver has the levels 0 to -5. */
static void make_streams_of_low(void)
{
	spatial_begin();
	CHECK(priority_of(0) == 0);
	CHECK(priority_of(-3) == -1);
	CHECK(priority_of(-5) == -2);
	CHECK(priority_of(-99) == -2);
	CHECK(priority_of(7) == 0);
	spatial_end();
}

static void make_streams_of_high(void)
{
	int plain;
	spatial_begin();
	OK(CU(cuStreamGetPriority)(spatial_stream, &plain));
	CHECK(plain == -3);
	CHECK(priority_of(-3) == -4);
	CHECK(priority_of(-5) == -5);
	CHECK(spatial_count_of(HB_COUNT_streams_moved) == 2);
	spatial_end();
}

static void make_streams_outside(void)
{
	spatial_begin();
	CHECK(priority_of(-5) == -5);
	CHECK(priority_of(-1) == -1);
	CHECK(spatial_count_of(HB_COUNT_streams_moved) == 0);
	spatial_end();
}

/* ---- in the test ---- */

static void streams_of_low_are_below_those_of_high(void **state)
{
	spatial_run(make_streams_of_low);
	hb_page_host_begin_again(&spatial_host);
	spatial_host.page->priority = HB_PAGE_HIGH;
	spatial_run(make_streams_of_high);
}

static void outside_the_server_streams_get_the_requested_priority(void **state)
{
	unsetenv("HB_MPS");
	spatial_host.page->priority = HB_PAGE_HIGH;
	spatial_host.page->gpus[0].engine = HB_ENGINE_TEMPORAL;
	spatial_run(make_streams_outside);
}

static void launches_of_low_are_below_those_of_high(void **state)
{
	spatial_host.gpu->low_sms = 100; /* no launch waits with a fixed share */
	spatial_run(ask_for_priorities_in_low);
	hb_page_host_begin_again(&spatial_host);
	spatial_host.page->priority = HB_PAGE_HIGH;
	spatial_run(ask_for_priorities_in_high);
}

static void outside_the_server_launches_get_the_requested_priority(void **state)
{
	unsetenv("HB_MPS");
	spatial_host.page->gpus[0].engine = HB_ENGINE_TEMPORAL;
	spatial_run(ask_for_priorities_outside);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, spatial_set_up, spatial_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(streams_of_low_are_below_those_of_high),
		TEST(outside_the_server_streams_get_the_requested_priority),
		TEST(launches_of_low_are_below_those_of_high),
		TEST(outside_the_server_launches_get_the_requested_priority),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
