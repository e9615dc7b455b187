/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline Orion in the benchmarks' shim, over the simulated driver: which
 * launches wait beside a request of high priority, and what HP reports of its
 * kernels. The test plays the daemon and the other process. A wait ends by itself
 * because nothing refreshes the test's beacon, so the tests check only whether a
 * launch waited.
 */
#include "base/clock.h"
#include "bench_orion.h"
#include "core/core.h"
#include "decide/baseline_orion.h"
#include "decide/spatial.h"
#include "shim_spatial_rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char image[] = "HBSIM1\nkernel gemm ns=10000\nkernel copy ns=10000\nkernel other ns=10000\n";

enum { SMALL = 8, LARGE = 4 * 132 }; /* blocks; four fit on an SM */
/* A machine that pauses invalidates a trial: learned times are wrong, or the beacon is silent before the launch. */
#define TRIES 10

static CUfunction gemm, copy, other;
static struct hb_orion_file *orion;

static struct hb_spatial_beacon *beacon(void)
{
	return spatial_host.board;
}

static void raise_beacon(void)
{
	beacon()->owner = SPATIAL_PID;
	beacon()->seen_ns = hb_clock_now_ns();
	beacon()->latest_ns = INT64_MAX;
	beacon()->word |= 1;
}

static void lower_beacon(void)
{
	beacon()->word += beacon()->word & 1;
}

static void launch(CUfunction kernel, unsigned blocks)
{
	OK(CU(cuLaunchKernel)(kernel, blocks, 1, 1, 512, 1, 1, 0, spatial_stream, NULL, NULL));
	OK(CU(cuStreamSynchronize)(spatial_stream));
}

/* The kernel's duration is learned while HP is idle, on a busy machine only after some launches. */
static void learn(CUfunction kernel, unsigned blocks)
{
	lower_beacon();
	for (int i = 0; i < 20; i++)
		launch(kernel, blocks);
}

static bool waits(CUfunction kernel, unsigned blocks, enum hb_class high)
{
	lower_beacon();
	launch(other, SMALL); /* resets the budget */
	raise_beacon();
	orion->high_class = high;
	uint64_t before = spatial_count_of(HB_COUNT_spatial_waits);
	launch(kernel, blocks);
	return spatial_count_of(HB_COUNT_spatial_waits) > before;
}

static bool is_held(CUfunction kernel, unsigned blocks, enum hb_class high)
{
	for (int i = 0; i < TRIES; i++)
		if (waits(kernel, blocks, high))
			return true;
	return false;
}

static bool may_go(CUfunction kernel, enum hb_class high)
{
	for (int i = 0; i < TRIES; i++) {
		learn(kernel, SMALL);
		if (!waits(kernel, SMALL, high))
			return true;
	}
	return false;
}

static void begin(void)
{
	CUmodule module;
	spatial_begin();
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&gemm, module, "gemm"));
	OK(CU(cuModuleGetFunction)(&copy, module, "copy"));
	OK(CU(cuModuleGetFunction)(&other, module, "other"));
}

static void launch_kinds(void)
{
	begin();
	CHECK(may_go(gemm, HB_CLASS_UNKNOWN));
	CHECK(may_go(gemm, HB_CLASS_MEMORY));
	CHECK(is_held(gemm, SMALL, HB_CLASS_COMPUTE));
	CHECK(may_go(copy, HB_CLASS_COMPUTE));
	CHECK(is_held(copy, SMALL, HB_CLASS_MEMORY));
	spatial_end();
}

static void launch_sizes(void)
{
	begin();
	CHECK(may_go(copy, HB_CLASS_UNKNOWN));
	learn(copy, LARGE);
	CHECK(is_held(copy, LARGE, HB_CLASS_UNKNOWN));
	/* While HP measures its time alone, no LP launch goes beside it. */
	orion->high_alone_ns = HB_ORION_LEARNING;
	CHECK(is_held(copy, SMALL, HB_CLASS_UNKNOWN));
	spatial_end();
}

static bool spends_the_budget(void)
{
	uint64_t before = spatial_count_of(HB_COUNT_spatial_waits);
	learn(copy, SMALL);
	for (int i = 0; i < 100 && spatial_count_of(HB_COUNT_spatial_waits) == before; i++) {
		raise_beacon();
		launch(copy, SMALL);
	}
	return spatial_count_of(HB_COUNT_spatial_waits) > before;
}

/* With a budget of 0.1 ms not all of a hundred kernels of 10 us go. */
static void launch_beyond_the_budget(void)
{
	begin();
	CHECK(may_go(copy, HB_CLASS_UNKNOWN));
	orion->high_alone_ns = 4000000;
	bool spent = false;
	for (int i = 0; i < TRIES && !spent; i++)
		spent = spends_the_budget();
	CHECK(spent);
	spatial_end();
}

static void serve(void)
{
	begin();
	launch(gemm, SMALL);
	CHECK(orion->high_class == HB_CLASS_COMPUTE);
	launch(copy, SMALL);
	CHECK(orion->high_class == HB_CLASS_MEMORY);
	launch(other, SMALL);
	CHECK(orion->high_class == HB_CLASS_UNKNOWN);
	spatial_end();
}

/* ---- the tests ---- */

static int set_up(void **state)
{
	char path[] = "/tmp/hb-orion-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0 && ftruncate(fd, sizeof *orion) == 0);
	orion = mmap(NULL, sizeof *orion, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(orion != MAP_FAILED);
	close(fd);
	setenv("HB_BENCH_ORION", path, 1);
	spatial_set_up(state);
	orion->high_alone_ns = 400000000; /* a budget of 10 ms */
	return 0;
}

static int tear_down(void **state)
{
	const char *path = getenv("HB_BENCH_ORION");
	if (path)
		unlink(path);
	munmap(orion, sizeof *orion);
	return spatial_tear_down(state);
}

static void kernels_of_the_other_class_go_beside_a_request(void **state)
{
	spatial_run(launch_kinds);
}

static void large_kernels_wait(void **state)
{
	spatial_run(launch_sizes);
}

static void launches_stay_within_the_budget(void **state)
{
	spatial_run(launch_beyond_the_budget);
}

static void high_reports_the_class_of_its_kernel(void **state)
{
	spatial_host.page->priority = HB_PAGE_HIGH;
	spatial_run(serve);
}

/* Checks the rule without the shim. */
static void the_rule_admits_small_short_kernels_of_another_class(void **state)
{
	const struct hb_orion_launch launch = {.sms = 40, .duration_ns = 60000, .class = HB_CLASS_MEMORY};
	struct hb_orion_launch unknown = launch;
	assert_true(hb_orion_fits(&launch, 66, 100000, HB_CLASS_COMPUTE));
	assert_true(hb_orion_fits(&launch, 66, 60000, HB_CLASS_UNKNOWN));
	assert_false(hb_orion_fits(&launch, 66, 100000, HB_CLASS_MEMORY));
	assert_false(hb_orion_fits(&launch, 39, 100000, HB_CLASS_COMPUTE));
	assert_false(hb_orion_fits(&launch, 66, 59999, HB_CLASS_COMPUTE));
	unknown.duration_ns = 0;
	assert_false(hb_orion_fits(&unknown, 66, 100000, HB_CLASS_COMPUTE));
	unknown = launch;
	unknown.sms = 0;
	assert_false(hb_orion_fits(&unknown, 66, 100000, HB_CLASS_COMPUTE));
	assert_int_equal(hb_orion_budget_ns(4000000), 100000);
	assert_int_equal(hb_orion_budget_ns(0), HB_ORION_BUDGET_NS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rule_admits_small_short_kernels_of_another_class),
		TEST(kernels_of_the_other_class_go_beside_a_request),
		TEST(large_kernels_wait),
		TEST(launches_stay_within_the_budget),
		TEST(high_reports_the_class_of_its_kernel),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
