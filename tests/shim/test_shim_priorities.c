/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Priorities of streams, launches and graph nodes in the spatial engine, over the
 * simulated driver: low priority stays below high priority whatever is asked for,
 * and the order that a program asked for stays.
 */
#include "space_rig.h"

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

/* The caller's structures are left as they were. */
static void launch_with_priority(int asked)
{
	CUlaunchAttribute attributes[] = {{.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN},
					  {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = asked}};
	const CUlaunchConfig config = {264, 1, 1, 512, 1, 1, 0, space_stream, attributes, 2};
	OK(CU(cuLaunchKernelEx)(&config, space_look, NULL, NULL));
	CHECK(attributes[1].value.priority == asked);
}

static int priority_of_a_launch(int asked)
{
	atomic_store(&space_priority_seen, 99);
	launch_with_priority(asked);
	OK(CU(cuStreamSynchronize)(space_stream));
	return atomic_load(&space_priority_seen);
}

static int priority_of_a_recorded_launch(int asked)
{
	CUgraph graph;
	CUgraphExec exec;
	OK(CU(cuStreamBeginCapture_v2)(space_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	launch_with_priority(asked);
	OK(CU(cuStreamEndCapture)(space_stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
	OK(CU(cuGraphLaunch)(exec, space_stream));
	OK(CU(cuStreamSynchronize)(space_stream));
	OK(CU(cuGraphExecDestroy)(exec));
	OK(CU(cuGraphDestroy)(graph));
	return atomic_load(&space_priority_seen);
}

static int priority_of_a_node(int asked)
{
	CUgraph graph;
	CUgraphNode node;
	CUlaunchAttributeValue value = {.priority = asked}, got;
	const CUDA_KERNEL_NODE_PARAMS kernel = {space_look, 264, 1, 1, 512, 1, 1, 0, NULL, NULL, NULL, NULL};
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

/* Launched, recorded, made a node of, a stream's: one asked for, one to be had. */
static void expect_priority(int asked, int had)
{
	CHECK(priority_of_a_launch(asked) == had);
	CHECK(priority_of_a_recorded_launch(asked) == had);
	CHECK(priority_of_a_node(asked) == had);
	CHECK(priority_of_a_changed_stream(asked) == had);
}

static void ask_for_priorities_in_low(void)
{
	space_begin();
	expect_priority(-5, -2);
	expect_priority(-3, -1);
	CHECK(space_count_of(HB_COUNT_priorities_moved) == 8);
	expect_priority(0, 0);
	CHECK(space_count_of(HB_COUNT_priorities_moved) == 8);
	space_end();
}

static void ask_for_priorities_in_high(void)
{
	space_begin();
	expect_priority(0, -3);
	expect_priority(-5, -5);
	CHECK(space_count_of(HB_COUNT_priorities_moved) == 4);
	space_end();
}

static void ask_for_priorities_outside(void)
{
	space_begin();
	expect_priority(-5, -5);
	CHECK(space_count_of(HB_COUNT_priorities_moved) == 0);
	space_end();
}

/* The simulated driver has the levels 0 to -5. */
static void make_streams_of_low(void)
{
	space_begin();
	CHECK(priority_of(0) == 0);
	CHECK(priority_of(-3) == -1);
	CHECK(priority_of(-5) == -2);
	CHECK(priority_of(-99) == -2);
	CHECK(priority_of(7) == 0);
	space_end();
}

static void make_streams_of_high(void)
{
	int plain;
	space_begin();
	OK(CU(cuStreamGetPriority)(space_stream, &plain));
	CHECK(plain == -3);
	CHECK(priority_of(-3) == -4);
	CHECK(priority_of(-5) == -5);
	CHECK(space_count_of(HB_COUNT_streams_moved) == 2);
	space_end();
}

static void make_streams_outside(void)
{
	space_begin();
	CHECK(priority_of(-5) == -5);
	CHECK(priority_of(-1) == -1);
	CHECK(space_count_of(HB_COUNT_streams_moved) == 0);
	space_end();
}

/* ---- in the test ---- */

static void streams_of_low_are_below_those_of_high(void **state)
{
	space_run(make_streams_of_low);
	hb_page_host_begin_again(&space_host);
	space_host.page->priority = HB_PAGE_HIGH;
	space_run(make_streams_of_high);
}

static void outside_the_server_streams_are_as_asked(void **state)
{
	unsetenv("HB_MPS");
	space_host.page->priority = HB_PAGE_HIGH;
	space_host.page->gpus[0].engine = HB_ENGINE_TEMPORAL;
	space_run(make_streams_outside);
}

static void launches_of_low_are_below_those_of_high(void **state)
{
	space_host.gpu->low_sms = 100; /* nothing waits */
	space_run(ask_for_priorities_in_low);
	hb_page_host_begin_again(&space_host);
	space_host.page->priority = HB_PAGE_HIGH;
	space_run(ask_for_priorities_in_high);
}

static void outside_the_server_launches_are_as_asked(void **state)
{
	unsetenv("HB_MPS");
	space_host.page->gpus[0].engine = HB_ENGINE_TEMPORAL;
	space_run(ask_for_priorities_outside);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, space_set_up, space_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(streams_of_low_are_below_those_of_high),
		TEST(outside_the_server_streams_are_as_asked),
		TEST(launches_of_low_are_below_those_of_high),
		TEST(outside_the_server_launches_are_as_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
