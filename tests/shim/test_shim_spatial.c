/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in a process, over the simulated driver: masks, and waits for an
 * HP request (boards: test_shim_boards.c). The test plays the daemon and
 * the other process. It reads from counters and from the kernel itself how a launch
 * was made, so nothing depends on times.
 */
#include "base/clock.h"
#include "decide/spatial.h"
#include "nvidia/gpc_find.h"
#include "nvidia/launch_mask.h"
#include "shim_spatial_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- in the child ---- */

static struct hb_spatial_beacon *beacon(void)
{
	return spatial_host.board;
}

/* A request of another process that allows LP nothing. */
static void raise_beacon(int64_t seen_ns)
{
	beacon()->owner = SPATIAL_PID;
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
	OK(CU(cuLaunchKernel)(spatial_look, 264, 1, 1, 512, 1, 1, 0, on, NULL, NULL));
}

static unsigned sms_of_a_launch(void)
{
	atomic_store(&spatial_sms_seen, 0);
	launch(spatial_stream);
	OK(CU(cuStreamSynchronize)(spatial_stream));
	return atomic_load(&spatial_sms_seen);
}

static void launch_beside_high(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() == 100);
	CHECK(spatial_count_of(HB_COUNT_masked) >= 1);
	spatial_end();
}

/* Launches by the entry point with a configuration, with clusters of n blocks; 0 = without the attribute. */
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
				 .hStream = spatial_stream,
				 .attrs = &attribute,
				 .numAttrs = blocks > 0};
	atomic_store(&spatial_sms_seen, 0);
	OK(CU(cuLaunchKernelEx)(&config, spatial_look, NULL, NULL));
	OK(CU(cuStreamSynchronize)(spatial_stream));
	return atomic_load(&spatial_sms_seen);
}

/* cuBLAS allows wide clusters for all its kernels and gives the size at the launch. */
static void launch_clusters(void)
{
	spatial_begin();
	CHECK(sms_of_a_cluster(0) == 100);
	CHECK(sms_of_a_cluster(2) == 100);
	CHECK(sms_of_a_cluster(16) == 132);
	OK(CU(cuFuncSetAttribute)(spatial_look, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	CHECK(sms_of_a_cluster(2) == 100);
	CHECK(sms_of_a_cluster(8) == 100);
	CHECK(sms_of_a_cluster(0) == 132);
	CHECK(sms_of_a_cluster(16) == 132);
	spatial_end();
}

/* CUTLASS sets the attribute before each launch of such a kernel, which must not affect other kernels. */
static void allow_one_kernel_clusters_again_and_again(void)
{
	CUmodule module;
	CUfunction other;
	spatial_begin();
	OK(CU(cuModuleLoadData)(&module, "HBSIM1\nkernel other ns=1000\n"));
	OK(CU(cuModuleGetFunction)(&other, module, "other"));
	for (int i = 0; i < 3000; i++)
		OK(CU(cuFuncSetAttribute)(other, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	CHECK(sms_of_a_cluster(0) == 100);
	spatial_end();
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
		char name[24];
		snprintf(name, sizeof(name), "other%d", i);
		OK(CU(cuModuleGetFunction)(&other, module, name));
		OK(CU(cuFuncSetAttribute)(other, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	}
}

/* Attributes of unloaded kernels must not affect kernels loaded later. */
static void allow_kernels_clusters_and_unload_them(void)
{
	spatial_begin();
	CUmodule first = module_of_many(), second = module_of_many();
	allow_all_clusters(first);
	OK(CU(cuModuleUnload)(first));
	allow_all_clusters(second);
	CHECK(sms_of_a_cluster(0) == 100);
	OK(CU(cuModuleUnload)(second));
	CHECK(sms_of_a_cluster(0) == 100);
	spatial_end();
}

static void *launch_each_way(void *unused)
{
	OK(CU(cuCtxSetCurrent)(spatial_context));
	CUlaunchConfig config = {.gridDimX = 264,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 512,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = spatial_stream};
	for (int way = 0; way < 4; way++) {
		atomic_store(&spatial_sms_seen, 0);
		if (way == 0)
			launch(spatial_stream);
		else if (way == 1)
			OK(CU(cuLaunchKernel_ptsz)(spatial_look, 264, 1, 1, 512, 1, 1, 0, NULL, NULL, NULL));
		else if (way == 2)
			OK(CU(cuLaunchKernelEx)(&config, spatial_look, NULL, NULL));
		else
			OK(CU(cuLaunchKernelEx_ptsz)(&config, spatial_look, NULL, NULL));
		OK(CU(cuCtxSynchronize)());
		CHECK(atomic_load(&spatial_sms_seen) == 100);
	}
	return NULL;
}

/* The bits that stand for TPCs of the simulated GPU; docs/simcuda.md lists them. */
static bool is_tpc(int bit)
{
	if (bit < 10)
		return bit % 2;
	return bit < 76 && bit != 19 && bit != 28 && bit != 35 && bit != 46 && bit != 57;
}

/* Assigns the TPCs to three GPCs of 22 in order; the real assignment does not matter here. */
static void tell_gpcs(enum hb_gpc_state state)
{
	int n = 0;
	for (int bit = 0; bit < HB_GPC_BITS; bit++)
		spatial_host.gpu->gpc_of[bit] = is_tpc(bit) ? (unsigned char)(n++ / 22 + 1) : 0;
	spatial_host.gpu->masks_whole = 1;
	spatial_host.gpu->gpc_state = state;
}

/* Returns in how many GPCs the last launch used some TPCs, but not all. */
static int gpcs_in_part(void)
{
	int part = 0, left[4] = {0};
	for (int bit = 0; bit < HB_GPC_BITS; bit++)
		left[spatial_host.gpu->gpc_of[bit]] += !(atomic_load(&spatial_mask_seen[bit / 32]) >> bit % 32 & 1);
	for (int gpc = 1; gpc <= 3; gpc++)
		part += left[gpc] > 0 && left[gpc] < 22;
	return part;
}

static void launch_masked_by_gpcs(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() == 100 && gpcs_in_part() == 1);
	CHECK(spatial_count_of(HB_COUNT_masked_gpcs) == spatial_count_of(HB_COUNT_masked));
	spatial_host.gpu->low_sms = 88;
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 0);
	spatial_host.gpu->masks_whole = 0;
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 3);
	CHECK(atomic_load(&spatial_host.page->processes[0].gpc_state) == HB_GPC_UNTRIED);
	spatial_host.gpu->masks_whole = 1;
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 0);
	spatial_end();
}

static void launch_masked_spread(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() == 88 && gpcs_in_part() == 3);
	CHECK(spatial_count_of(HB_COUNT_masked_gpcs) == 0);
	spatial_end();
}

/* PyTorch's backward pass launches from another thread. */
static void launch_each_way_from_each_thread(void)
{
	pthread_t thread;
	spatial_begin();
	launch_each_way(NULL);
	CHECK(pthread_create(&thread, NULL, launch_each_way, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	launch_each_way(NULL);
	CHECK(spatial_count_of(HB_COUNT_masked) == 12);
	spatial_end();
}

/* An unclear trial is repeated; if it never becomes clear, the test's time limit ends this loop. */
static void launch_until_masks_are_found(void)
{
	spatial_begin();
	CHECK(atomic_load(&spatial_host.page->processes[0].mask_state) == HB_MASK_UNCLEAR);
	while (atomic_load(&spatial_host.page->processes[0].mask_state) != HB_MASK_WORKS) {
		OK(CU(cuCtxSynchronize)());
		usleep(10000);
	}
	CHECK(sms_of_a_launch() == 100);
	spatial_end();
}

static atomic_bool partner_came;

/* As a kernel of a collective, which runs until its partner in another process does. */
static void wait_for_partner(void *unused)
{
	while (!atomic_load(&partner_came))
		usleep(1000);
}

/* A trial that waits for the collective never ends, because the partner waits for this process; the test's time limit ends it. */
static void find_masks_during_a_collective(void)
{
	spatial_begin();
	CHECK(atomic_load(&spatial_host.page->processes[0].mask_state) == HB_MASK_UNCLEAR);
	OK(CU(cuLaunchHostFunc)(spatial_stream, wait_for_partner, NULL));
	while (atomic_load(&spatial_host.page->processes[0].mask_state) != HB_MASK_WORKS) {
		size_t free_bytes, total;
		OK(CU(cuMemGetInfo_v2)(&free_bytes, &total));
		usleep(10000);
	}
	atomic_store(&partner_came, true);
	OK(CU(cuCtxSynchronize)());
	spatial_end();
}

static void launch_alone(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() == 132);
	CHECK(spatial_count_of(HB_COUNT_masked) == 0);
	spatial_end();
}

/* No slow call while the heartbeat is old, because no daemon would answer it. */
static void launch_without_a_daemon(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() == 100);
	atomic_store(&spatial_host.page->heartbeat_ns, 1);
	atomic_store(&spatial_sms_seen, 0);
	launch(spatial_stream);
	atomic_store(&spatial_host.page->heartbeat_ns, INT64_MAX);
	OK(CU(cuStreamSynchronize)(spatial_stream));
	CHECK(atomic_load(&spatial_sms_seen) == 132);
	spatial_end();
}

static void launch_without_masks(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() == 132);
	spatial_end();
}

static void launch_cooperatively(void)
{
	spatial_begin();
	OK(CU(cuLaunchCooperativeKernel)(spatial_look, 132, 1, 1, 512, 1, 1, 0, spatial_stream, NULL));
	OK(CU(cuStreamSynchronize)(spatial_stream));
	CHECK(atomic_load(&spatial_sms_seen) == 132);
	spatial_end();
}

static atomic_bool opened;

/* If the machine is too busy to refresh the request, the launch goes after the time for which a silent request blocks it. */
static void *launch_and_look(void *unused)
{
	OK(CU(cuCtxSetCurrent)(spatial_context));
	int64_t since_ns = beacon()->seen_ns;
	launch(spatial_stream);
	CHECK(atomic_load(&opened) || hb_clock_now_ns() - since_ns >= HB_DEFAULT_SILENT_NS);
	return NULL;
}

static void launch_during_a_request(void)
{
	pthread_t thread;
	spatial_begin();
	raise_beacon(hb_clock_now_ns());
	CHECK(pthread_create(&thread, NULL, launch_and_look, NULL) == 0);
	while (spatial_count_of(HB_COUNT_spatial_waits) == 0) {
		beacon()->seen_ns = hb_clock_now_ns(); /* refreshes the record */
		usleep(100);
	}
	/* Calls that wait for the GPU, and captured launches, do not wait. */
	OK(CU(cuCtxSynchronize)());
	beacon()->seen_ns = hb_clock_now_ns();
	atomic_store(&opened, true);
	lower_beacon();
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sms_of_a_launch() != 0);
	spatial_end();
}

static void capture_during_a_request(void)
{
	CUgraph graph;
	spatial_begin();
	raise_beacon(hb_clock_now_ns());
	OK(CU(cuStreamBeginCapture_v2)(spatial_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch(spatial_stream);
	OK(CU(cuStreamEndCapture)(spatial_stream, &graph));
	CHECK(spatial_count_of(HB_COUNT_spatial_waits) == 0);
	CHECK(spatial_count_of(HB_COUNT_captured) == 1);
	lower_beacon();
	OK(CU(cuGraphDestroy)(graph));
	spatial_end();
}

static void launch_beside_a_silent_request(void)
{
	spatial_begin();
	raise_beacon(hb_clock_now_ns() - 2 * HB_DEFAULT_SILENT_NS);
	CHECK(sms_of_a_launch() != 0);
	CHECK(spatial_count_of(HB_COUNT_spatial_waits) == 0);
	while (spatial_count_of(HB_COUNT_spatial_waits) ==
	       0) {                              /* on a machine that pauses the request may become silent too early */
		raise_beacon(hb_clock_now_ns()); /* becomes silent during the wait */
		CHECK(sms_of_a_launch() != 0);
	}
	spatial_end();
}

enum { THREADS = 4, LAUNCHES = 200 };
static atomic_uint running = THREADS;

static void *launch_many(void *unused)
{
	CUstream own;
	OK(CU(cuCtxSetCurrent)(spatial_context));
	OK(CU(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < LAUNCHES; i++)
		launch(i % 3 ? own : spatial_stream);
	OK(CU(cuStreamSynchronize)(own));
	OK(CU(cuStreamDestroy_v2)(own));
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void launch_from_threads_while_requests_come_and_go(void)
{
	pthread_t threads[THREADS];
	spatial_begin();
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
	spatial_end();
}

/* ---- in the test ---- */

static void low_leaves_sms_to_high(void **state)
{
	spatial_host.gpu->low_sms = 100;
	assert_int_equal(spatial_run(launch_beside_high)->mask_state, HB_MASK_WORKS);
}

static void low_has_all_sms_while_high_is_idle(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_host.gpu->high_at_work = 0;
	spatial_run(launch_alone);
}

static void low_has_all_sms_when_the_daemon_is_gone(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_run(launch_without_a_daemon);
}

static void cooperative_kernels_are_never_masked(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_run(launch_cooperatively);
}

static void clusters_are_masked_if_they_fit(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_run(launch_clusters);
}

static void kernels_are_masked_however_often_others_set_attributes(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_run(allow_one_kernel_clusters_again_and_again);
	spatial_run(allow_kernels_clusters_and_unload_them);
}

static void launches_are_masked_by_each_entry_point(void **state)
{
	spatial_host.gpu->low_sms = 100;
	spatial_run(launch_each_way_from_each_thread);
}

static void masks_are_found_while_others_use_the_gpu(void **state)
{
	spatial_host.gpu->low_sms = 100;
	setenv("HB_SIM_MASKS", "busy", 1);
	assert_int_equal(spatial_run(launch_beside_high)->mask_state, HB_MASK_WORKS);
	hb_page_host_begin_again(&spatial_host);
	setenv("HB_SIM_MASKS", "taken", 1);
	assert_int_equal(spatial_run(launch_until_masks_are_found)->mask_state, HB_MASK_WORKS);
	hb_page_host_begin_again(&spatial_host);
	assert_int_equal(spatial_run(find_masks_during_a_collective)->mask_state, HB_MASK_WORKS);
	unsetenv("HB_SIM_MASKS");
}

static void masks_exclude_entire_gpcs_if_these_are_known(void **state)
{
	spatial_host.gpu->low_sms = 100;
	tell_gpcs(HB_GPC_KNOWN);
	assert_int_equal(spatial_run(launch_masked_by_gpcs)->gpc_state, HB_GPC_KNOWN);
}

static void masks_are_spread_if_gpcs_are_unknown(void **state)
{
	spatial_host.gpu->low_sms = 88;
	tell_gpcs(HB_GPC_UNCLEAR);
	assert_int_equal(spatial_run(launch_masked_spread)->gpc_state, HB_GPC_UNCLEAR);
	/* The daemon's trial found other bits than this process. */
	hb_page_host_begin_again(&spatial_host);
	tell_gpcs(HB_GPC_KNOWN);
	spatial_host.gpu->gpc_of[0] = 1;
	assert_int_equal(spatial_run(launch_masked_spread)->gpc_state, HB_GPC_OTHER_BITS);
}

static void masks_are_off_if_they_do_not_work(void **state)
{
	static const struct {
		const char *name, *value;
		enum hb_mask_state state;
	} cases[] = {
		{"HB_SIM_MASKS", "none", HB_MASK_NO_TABLE},
		{"HB_SIM_MASKS", "version", HB_MASK_VERSION},
		{"HB_SIM_MASKS", "silent", HB_MASK_NOT_CALLED},
		{"HB_SIM_MASKS", "ignored", HB_MASK_NO_EFFECT},
		{"HB_SIM_MASKS", "loses", HB_MASK_LOST_BLOCKS},
		{"CUDA_INJECTION64_PATH", "/nonexistent/profiler.so", HB_MASK_PROFILER},
		{"HB_MASKS", "0", HB_MASK_SWITCHED_OFF},
	};
	spatial_host.gpu->low_sms = 100;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		hb_page_host_begin_again(&spatial_host);
		setenv(cases[i].name, cases[i].value, 1);
		assert_int_equal(spatial_run(launch_without_masks)->mask_state, cases[i].state);
		unsetenv(cases[i].name);
	}
}

static void low_waits_for_a_request_of_high(void **state)
{
	spatial_run(launch_during_a_request);
}

static void captured_launches_do_not_wait(void **state)
{
	spatial_run(capture_during_a_request);
}

static void a_request_that_is_not_refreshed_blocks_no_launch(void **state)
{
	spatial_run(launch_beside_a_silent_request);
}

static void threads_continue_to_launch_while_requests_begin_and_end(void **state)
{
	spatial_run(launch_from_threads_while_requests_come_and_go);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, spatial_set_up, spatial_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(low_leaves_sms_to_high),
		TEST(low_has_all_sms_while_high_is_idle),
		TEST(low_has_all_sms_when_the_daemon_is_gone),
		TEST(cooperative_kernels_are_never_masked),
		TEST(clusters_are_masked_if_they_fit),
		TEST(kernels_are_masked_however_often_others_set_attributes),
		TEST(launches_are_masked_by_each_entry_point),
		TEST(masks_are_found_while_others_use_the_gpu),
		TEST(masks_exclude_entire_gpcs_if_these_are_known),
		TEST(masks_are_spread_if_gpcs_are_unknown),
		TEST(masks_are_off_if_they_do_not_work),
		TEST(low_waits_for_a_request_of_high),
		TEST(captured_launches_do_not_wait),
		TEST(a_request_that_is_not_refreshed_blocks_no_launch),
		TEST(threads_continue_to_launch_while_requests_begin_and_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
