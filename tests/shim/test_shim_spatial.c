/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in a process, over the simulated driver: masks, waiting for
 * a request of high priority and for nobody else, requests told on the page. The
 * test plays the daemon and the other side. What a launch did is read from
 * counters and from the kernel itself, so nothing depends on times.
 */
#include "base/clock.h"
#include "decide/spatial.h"
#include "nvidia/gpc_find.h"
#include "nvidia/launch_mask.h"
#include "space_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- in the child ---- */

static struct hb_spatial_beacon *beacon(void)
{
	return &((struct hb_spatial_board *)space_host.gpu->board)->beacons[0];
}

/* Somebody else's request that allows nothing. */
static void raise_beacon(int64_t seen_ns)
{
	beacon()->owner = SPACE_PID;
	beacon()->seen_ns = seen_ns;
	beacon()->latest_ns = INT64_MAX;
	beacon()->reserve = 32;
	beacon()->allow_ns = 0;
	beacon()->word = 1;
}

static void lower_beacon(void)
{
	beacon()->word = 2;
}

static void launch(CUstream on)
{
	OK(CU(cuLaunchKernel)(space_look, 264, 1, 1, 512, 1, 1, 0, on, NULL, NULL));
}

static unsigned sms_of_a_launch(void)
{
	atomic_store(&space_sms_seen, 0);
	launch(space_stream);
	OK(CU(cuStreamSynchronize)(space_stream));
	return atomic_load(&space_sms_seen);
}

static void launch_beside_high(void)
{
	space_begin();
	CHECK(sms_of_a_launch() == 100);
	CHECK(space_count_of(HB_COUNT_masked) >= 1);
	space_end();
}

/* A launch through the entry that takes a configuration, with a cluster of so many blocks; 0 = none is named. */
static unsigned sms_of_a_cluster(unsigned blocks)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	attribute.value.clusterDim.x = blocks;
	attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
	CUlaunchConfig config = {.gridDimX = 256,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 128,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = space_stream,
				 .attrs = &attribute,
				 .numAttrs = blocks > 0};
	atomic_store(&space_sms_seen, 0);
	OK(CU(cuLaunchKernelEx)(&config, space_look, NULL, NULL));
	OK(CU(cuStreamSynchronize)(space_stream));
	return atomic_load(&space_sms_seen);
}

/* cuBLAS allows all its kernels wide clusters and names the size at the launch. */
static void launch_clusters(void)
{
	space_begin();
	CHECK(sms_of_a_cluster(0) == 100);
	CHECK(sms_of_a_cluster(2) == 100);
	CHECK(sms_of_a_cluster(16) == 132);
	OK(CU(cuFuncSetAttribute)(space_look, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	CHECK(sms_of_a_cluster(2) == 100);
	CHECK(sms_of_a_cluster(8) == 100);
	CHECK(sms_of_a_cluster(0) == 132);
	CHECK(sms_of_a_cluster(16) == 132);
	space_end();
}

/* CUTLASS sets the attribute again before each launch of such a kernel: that says nothing of other kernels. */
static void allow_one_kernel_clusters_again_and_again(void)
{
	CUmodule module;
	CUfunction other;
	space_begin();
	OK(CU(cuModuleLoadData)(&module, "HBSIM1\nkernel other ns=1000\n"));
	OK(CU(cuModuleGetFunction)(&other, module, "other"));
	for (int i = 0; i < 3000; i++)
		OK(CU(cuFuncSetAttribute)(other, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	CHECK(sms_of_a_cluster(0) == 100);
	space_end();
}

enum { KERNELS_OF_A_MODULE = 600 };

static CUmodule module_of_many(void)
{
	static char image[KERNELS_OF_A_MODULE * 32];
	CUmodule module;
	size_t n = (size_t)snprintf(image, sizeof image, "HBSIM1\n");
	for (int i = 0; i < KERNELS_OF_A_MODULE; i++)
		n += (size_t)snprintf(image + n, sizeof image - n, "kernel other%d ns=1000\n", i);
	OK(CU(cuModuleLoadData)(&module, image));
	return module;
}

static void allow_all_clusters(CUmodule module)
{
	for (int i = 0; i < KERNELS_OF_A_MODULE; i++) {
		CUfunction other;
		char name[16];
		snprintf(name, sizeof name, "other%d", i);
		OK(CU(cuModuleGetFunction)(&other, module, name));
		OK(CU(cuFuncSetAttribute)(other, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	}
}

/* What was allowed to kernels that are no more says nothing of those that are. */
static void allow_kernels_clusters_and_unload_them(void)
{
	space_begin();
	CUmodule first = module_of_many(), second = module_of_many();
	allow_all_clusters(first);
	OK(CU(cuModuleUnload)(first));
	allow_all_clusters(second);
	CHECK(sms_of_a_cluster(0) == 100);
	OK(CU(cuModuleUnload)(second));
	CHECK(sms_of_a_cluster(0) == 100);
	space_end();
}

static void *launch_each_way(void *unused)
{
	OK(CU(cuCtxSetCurrent)(space_context));
	CUlaunchConfig config = {.gridDimX = 264,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 512,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = space_stream};
	for (int way = 0; way < 4; way++) {
		atomic_store(&space_sms_seen, 0);
		if (way == 0)
			launch(space_stream);
		else if (way == 1)
			OK(CU(cuLaunchKernel_ptsz)(space_look, 264, 1, 1, 512, 1, 1, 0, NULL, NULL, NULL));
		else if (way == 2)
			OK(CU(cuLaunchKernelEx)(&config, space_look, NULL, NULL));
		else
			OK(CU(cuLaunchKernelEx_ptsz)(&config, space_look, NULL, NULL));
		OK(CU(cuCtxSynchronize)());
		CHECK(atomic_load(&space_sms_seen) == 100);
	}
	return NULL;
}

/* The bits that are TPCs of the simulated GPU, as docs/simcuda.md has them. */
static bool is_tpc(int bit)
{
	if (bit < 10)
		return bit % 2;
	return bit < 76 && bit != 19 && bit != 28 && bit != 35 && bit != 46 && bit != 57;
}

/* Three GPCs of 22 TPCs, one after the other: which is which does not matter here. */
static void tell_gpcs(enum hb_gpc_state state)
{
	int n = 0;
	for (int bit = 0; bit < HB_GPC_BITS; bit++)
		space_host.gpu->gpc_of[bit] = is_tpc(bit) ? (unsigned char)(n++ / 22 + 1) : 0;
	space_host.gpu->masks_whole = 1;
	space_host.gpu->gpc_state = state;
}

/* In how many GPCs the last launch had some TPCs, but not all. */
static int gpcs_in_part(void)
{
	int part = 0, left[4] = {0};
	for (int bit = 0; bit < HB_GPC_BITS; bit++)
		left[space_host.gpu->gpc_of[bit]] += !(atomic_load(&space_mask_seen[bit / 32]) >> bit % 32 & 1);
	for (int gpc = 1; gpc <= 3; gpc++)
		part += left[gpc] > 0 && left[gpc] < 22;
	return part;
}

static void launch_masked_by_gpcs(void)
{
	space_begin();
	CHECK(sms_of_a_launch() == 100 && gpcs_in_part() == 1);
	CHECK(space_count_of(HB_COUNT_masked_gpcs) == space_count_of(HB_COUNT_masked));
	space_host.gpu->low_sms = 88;
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 0);
	space_host.gpu->masks_whole = 0;
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 3);
	CHECK(atomic_load(&space_host.page->processes[0].gpc_state) == HB_GPC_UNTRIED);
	space_host.gpu->masks_whole = 1;
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 0);
	space_end();
}

static void launch_masked_spread(void)
{
	space_begin();
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 3);
	CHECK(space_count_of(HB_COUNT_masked_gpcs) == 0);
	space_end();
}

/* PyTorch's backward pass launches from a thread of its own. */
static void launch_each_way_from_each_thread(void)
{
	pthread_t thread;
	space_begin();
	launch_each_way(NULL);
	CHECK(pthread_create(&thread, NULL, launch_each_way, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	launch_each_way(NULL);
	CHECK(space_count_of(HB_COUNT_masked) == 12);
	space_end();
}

/* The trial that said nothing clear is made again; where it never is, the test's own limit ends this. */
static void launch_until_masks_are_found(void)
{
	space_begin();
	CHECK(atomic_load(&space_host.page->processes[0].mask_state) == HB_MASK_UNCLEAR);
	while (atomic_load(&space_host.page->processes[0].mask_state) != HB_MASK_WORKS) {
		OK(CU(cuCtxSynchronize)());
		usleep(10000);
	}
	CHECK(sms_of_a_launch() == 100);
	space_end();
}

static void launch_alone(void)
{
	space_begin();
	CHECK(sms_of_a_launch() == 132);
	CHECK(space_count_of(HB_COUNT_masked) == 0);
	space_end();
}

/* No slow call while the heart stands: nobody would answer it. */
static void launch_without_a_daemon(void)
{
	space_begin();
	CHECK(sms_of_a_launch() == 100);
	atomic_store(&space_host.page->heartbeat_ns, 1);
	atomic_store(&space_sms_seen, 0);
	launch(space_stream);
	atomic_store(&space_host.page->heartbeat_ns, INT64_MAX);
	OK(CU(cuStreamSynchronize)(space_stream));
	CHECK(atomic_load(&space_sms_seen) == 132);
	space_end();
}

static void launch_without_masks(void)
{
	space_begin();
	CHECK(sms_of_a_launch() == 132);
	space_end();
}

static void launch_cooperatively(void)
{
	space_begin();
	OK(CU(cuLaunchCooperativeKernel)(space_look, 132, 1, 1, 512, 1, 1, 0, space_stream, NULL));
	OK(CU(cuStreamSynchronize)(space_stream));
	CHECK(atomic_load(&space_sms_seen) == 132);
	space_end();
}

static void launch_a_graph_made_beside_high(void)
{
	CUgraph graph;
	CUgraphExec exec;
	space_begin();
	OK(CU(cuStreamBeginCapture_v2)(space_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	launch(space_stream);
	OK(CU(cuStreamEndCapture)(space_stream, &graph));
	OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	OK(CU(cuGraphLaunch)(exec, space_stream));
	OK(CU(cuStreamSynchronize)(space_stream));
	OK(CU(cuGraphExecDestroy)(exec));
	OK(CU(cuGraphDestroy)(graph));
	space_end();
}

static atomic_bool opened;

/* On a machine too busy to keep the request alive, the launch goes after the time that a silent one may hold it. */
static void *launch_and_look(void *unused)
{
	OK(CU(cuCtxSetCurrent)(space_context));
	int64_t since_ns = beacon()->seen_ns;
	launch(space_stream);
	CHECK(atomic_load(&opened) || hb_clock_now_ns() - since_ns >= HB_DEFAULT_SILENT_NS);
	return NULL;
}

static void launch_during_a_request(void)
{
	pthread_t thread;
	space_begin();
	raise_beacon(hb_clock_now_ns());
	CHECK(pthread_create(&thread, NULL, launch_and_look, NULL) == 0);
	while (space_count_of(HB_COUNT_spatial_waits) == 0) {
		beacon()->seen_ns = hb_clock_now_ns(); /* it lives */
		usleep(100);
	}
	/* Nobody who waits for the GPU is held, nor what is recorded. */
	OK(CU(cuCtxSynchronize)());
	beacon()->seen_ns = hb_clock_now_ns();
	atomic_store(&opened, true);
	lower_beacon();
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sms_of_a_launch() != 0);
	space_end();
}

static void capture_during_a_request(void)
{
	CUgraph graph;
	space_begin();
	raise_beacon(hb_clock_now_ns());
	OK(CU(cuStreamBeginCapture_v2)(space_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(space_stream);
	OK(CU(cuStreamEndCapture)(space_stream, &graph));
	CHECK(space_count_of(HB_COUNT_spatial_waits) == 0);
	CHECK(space_count_of(HB_COUNT_captured) == 1);
	lower_beacon();
	OK(CU(cuGraphDestroy)(graph));
	space_end();
}

static void launch_beside_a_silent_request(void)
{
	space_begin();
	raise_beacon(hb_clock_now_ns() - 2 * HB_DEFAULT_SILENT_NS);
	CHECK(sms_of_a_launch() != 0);
	CHECK(space_count_of(HB_COUNT_spatial_waits) == 0);
	while (space_count_of(HB_COUNT_spatial_waits) == 0) { /* a machine that pauses may let it fall silent before */
		raise_beacon(hb_clock_now_ns());              /* falls silent while we wait */
		CHECK(sms_of_a_launch() != 0);
	}
	space_end();
}

enum { THREADS = 4, LAUNCHES = 200 };
static atomic_uint running = THREADS;

static void *launch_many(void *unused)
{
	CUstream own;
	OK(CU(cuCtxSetCurrent)(space_context));
	OK(CU(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < LAUNCHES; i++)
		launch(i % 3 ? own : space_stream);
	OK(CU(cuStreamSynchronize)(own));
	OK(CU(cuStreamDestroy_v2)(own));
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void launch_from_threads_while_requests_come_and_go(void)
{
	pthread_t threads[THREADS];
	space_begin();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, launch_many, NULL) == 0);
	while (atomic_load(&running)) {
		raise_beacon(hb_clock_now_ns());
		sched_yield();
		lower_beacon();
		usleep(200);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(CU(cuCtxSynchronize)());
	space_end();
}

static void serve_a_request(void)
{
	space_begin();
	CHECK(beacon()->owner == 0);
	launch(space_stream);
	CHECK(beacon()->owner == SPACE_PID);
	CHECK(beacon()->word & 1);
	CHECK(beacon()->reserve > 0);
	OK(CU(cuStreamSynchronize)(space_stream));
	CHECK(!(beacon()->word & 1));
	CHECK(space_count_of(HB_COUNT_requests) == 1);
	space_end();
}

/* ---- in the test ---- */

static void low_leaves_sms_to_high(void **state)
{
	space_host.gpu->low_sms = 100;
	assert_int_equal(space_run(launch_beside_high)->mask_state, HB_MASK_WORKS);
}

static void low_has_all_sms_while_high_is_idle(void **state)
{
	space_host.gpu->low_sms = 100;
	space_host.gpu->high_at_work = 0;
	space_run(launch_alone);
}

static void low_has_all_sms_when_the_daemon_is_gone(void **state)
{
	space_host.gpu->low_sms = 100;
	space_run(launch_without_a_daemon);
}

static void cooperative_kernels_are_left_whole(void **state)
{
	space_host.gpu->low_sms = 100;
	space_run(launch_cooperatively);
}

static void clusters_are_masked_where_they_fit(void **state)
{
	space_host.gpu->low_sms = 100;
	space_run(launch_clusters);
}

static void kernels_are_masked_however_often_others_are_set_up(void **state)
{
	space_host.gpu->low_sms = 100;
	space_run(allow_one_kernel_clusters_again_and_again);
	space_run(allow_kernels_clusters_and_unload_them);
}

static void launches_are_masked_each_way(void **state)
{
	space_host.gpu->low_sms = 100;
	space_run(launch_each_way_from_each_thread);
}

static void masks_are_found_beside_others(void **state)
{
	space_host.gpu->low_sms = 100;
	setenv("HB_SIM_MASKS", "busy", 1);
	assert_int_equal(space_run(launch_beside_high)->mask_state, HB_MASK_WORKS);
	hb_page_host_begin_again(&space_host);
	setenv("HB_SIM_MASKS", "taken", 1);
	assert_int_equal(space_run(launch_until_masks_are_found)->mask_state, HB_MASK_WORKS);
	unsetenv("HB_SIM_MASKS");
}

static void masks_leave_out_whole_gpcs_where_they_are_known(void **state)
{
	space_host.gpu->low_sms = 100;
	tell_gpcs(HB_GPC_KNOWN);
	assert_int_equal(space_run(launch_masked_by_gpcs)->gpc_state, HB_GPC_KNOWN);
}

static void masks_are_spread_where_gpcs_are_not_known(void **state)
{
	space_host.gpu->low_sms = 88;
	tell_gpcs(HB_GPC_UNCLEAR);
	assert_int_equal(space_run(launch_masked_spread)->gpc_state, HB_GPC_UNCLEAR);
	/* A trial that saw other bits than this process does. */
	hb_page_host_begin_again(&space_host);
	tell_gpcs(HB_GPC_KNOWN);
	space_host.gpu->gpc_of[0] = 1;
	assert_int_equal(space_run(launch_masked_spread)->gpc_state, HB_GPC_OTHER_BITS);
}

static void graphs_get_masks_when_they_are_made(void **state)
{
	space_host.gpu->low_sms = 100;
	space_run(launch_a_graph_made_beside_high);
}

static void masks_are_off_where_they_do_not_work(void **state)
{
	static const struct {
		const char *name, *value;
		enum hb_mask_state state;
	} cases[] = {
		{"HB_SIM_MASKS", "none", HB_MASK_NO_TABLE},
		{"HB_SIM_MASKS", "version", HB_MASK_VERSION},
		{"HB_SIM_MASKS", "silent", HB_MASK_NOT_CALLED},
		{"HB_SIM_MASKS", "ignored", HB_MASK_NO_EFFECT},
		{"CUDA_INJECTION64_PATH", "/nonexistent/profiler.so", HB_MASK_PROFILER},
		{"HB_MASKS", "0", HB_MASK_SWITCHED_OFF},
	};
	space_host.gpu->low_sms = 100;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		hb_page_host_begin_again(&space_host);
		setenv(cases[i].name, cases[i].value, 1);
		assert_int_equal(space_run(launch_without_masks)->mask_state, cases[i].state);
		unsetenv(cases[i].name);
	}
}

static void low_waits_for_a_request_of_high(void **state)
{
	space_run(launch_during_a_request);
}

static void what_is_recorded_does_not_wait(void **state)
{
	space_run(capture_during_a_request);
}

static void a_request_without_signs_of_life_holds_nobody(void **state)
{
	space_run(launch_beside_a_silent_request);
}

static void threads_launch_on_while_requests_come_and_go(void **state)
{
	space_run(launch_from_threads_while_requests_come_and_go);
}

static void a_request_of_high_is_seen(void **state)
{
	space_host.page->priority = HB_PAGE_HIGH;
	space_run(serve_a_request);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, space_set_up, space_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(low_leaves_sms_to_high),
		TEST(low_has_all_sms_while_high_is_idle),
		TEST(low_has_all_sms_when_the_daemon_is_gone),
		TEST(cooperative_kernels_are_left_whole),
		TEST(clusters_are_masked_where_they_fit),
		TEST(kernels_are_masked_however_often_others_are_set_up),
		TEST(launches_are_masked_each_way),
		TEST(masks_are_found_beside_others),
		TEST(masks_leave_out_whole_gpcs_where_they_are_known),
		TEST(masks_are_spread_where_gpcs_are_not_known),
		TEST(graphs_get_masks_when_they_are_made),
		TEST(masks_are_off_where_they_do_not_work),
		TEST(low_waits_for_a_request_of_high),
		TEST(what_is_recorded_does_not_wait),
		TEST(a_request_without_signs_of_life_holds_nobody),
		TEST(threads_launch_on_while_requests_come_and_go),
		TEST(a_request_of_high_is_seen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
