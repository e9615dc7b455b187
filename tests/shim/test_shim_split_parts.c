/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches that the spatial engine splits, over the fake driver of test_shim_split.c.
 * The test plays the daemon and an HP request. In every case each block must run
 * exactly once, and no part may go while the request allows nothing. How often a
 * launch is split depends on times, so the scenarios repeat until one was.
 */
#include "decide/spatial.h"
#include "fake/fake_driver.h"
#include "page_host.h"
#include "shim/cuda_calls.h"
#include "unit/cubin_fixture.h"

#include "base/clock.h"

#include <pthread.h>
#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define STREAM ((CUstream)0x5000)
#define FAKE(name, type) ((type)hb_test_fake_symbol(name))
#define ALLOW_NS 1000000000u
#define TRIES 2000

enum { BLOCKS = 16384 };

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	setenv("HB_MPS", "1", 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
	unsetenv("HB_SPLIT");
	unsetenv("HB_BENCH_SPLIT_US");
	host.page->gpus[0].engine = HB_ENGINE_SPATIAL;
	host.gpu->tenants_high = 1;
	host.gpu->tenants_low = 1;
	host.gpu->high_at_work = 1;
	host.gpu->window_us = 100000;
	hb_page_host_list_board(&host);
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static void run(void (*scenario)(void))
{
	assert_non_null(hb_page_host_run(&host, scenario));
}

/* ---- in the child ---- */

static CUdeviceptr cells, shape;
static CUfunction kernel;

static struct hb_spatial_beacon *beacon(void)
{
	return host.board;
}

static void raise_beacon(uint32_t allow_ns)
{
	beacon()->owner = 4242;
	beacon()->seen_ns = hb_clock_now_ns();
	beacon()->latest_ns = INT64_MAX;
	beacon()->allow_ns = allow_ns;
	beacon()->word |= 1;
}

static void lower_beacon(void)
{
	beacon()->word = (beacon()->word | 1) + 1;
}

static void begin(const char *name)
{
	CUmodule module;
	size_t size;
	uint8_t *file = fixture("kernels.fatbin", &size);
	OK(CU(cuInit)(0));
	OK(CU(cuModuleLoadData)(&module, file));
	free(file);
	OK(CU(cuModuleGetFunction)(&kernel, module, name));
	CU(cuCtxSynchronize)(); /* a slow call, in which the engine prepares */
}

static void launch(void)
{
	void *parameters[] = {&cells, &shape, &cells, &shape};
	OK(CU(cuLaunchKernel)(kernel, BLOCKS, 1, 1, 64, 1, 1, 0, STREAM, parameters, NULL));
}

static void expect_each_block_once(void)
{
	unsigned (*runs_of)(uint32_t) = FAKE("hb_fake_runs_of", unsigned (*)(uint32_t));
	for (uint32_t i = 0; i < BLOCKS; i++)
		CHECK(runs_of(i) == 1);
}

static void wait_until_idle(void)
{
	bool (*is_idle)(void) = FAKE("hb_fake_is_idle", bool (*)(void));
	while (!is_idle())
		usleep(100);
}

/* Launches without a request, from which the run time is learned, then beside a request. */
static void launch_alone_and_beside(void)
{
	launch();
	expect_each_block_once();
	wait_until_idle();
	raise_beacon(ALLOW_NS);
	launch();
	expect_each_block_once();
	wait_until_idle();
	lower_beacon();
}

static void launch_until_split(void)
{
	for (int i = 0; i < TRIES && !hb_page_host_count(&host, HB_COUNT_split); i++)
		launch_alone_and_beside();
	CHECK(hb_page_host_count(&host, HB_COUNT_split) > 0);
}

static void beside_a_request(void)
{
	begin("run_plain");
	launch_until_split();
	CHECK(hb_page_host_count(&host, HB_COUNT_parts) >= 2 * hb_page_host_count(&host, HB_COUNT_split));
	CHECK(FAKE("hb_fake_launches_of_parts", unsigned (*)(void))() == hb_page_host_count(&host, HB_COUNT_parts));
	CHECK(hb_page_host_count(&host, HB_COUNT_unsplit) == 0);
	lower_beacon();
	uint64_t n = hb_page_host_count(&host, HB_COUNT_parts);
	launch(); /* no request is served */
	expect_each_block_once();
	CHECK(hb_page_host_count(&host, HB_COUNT_parts) == n);
}

static void a_long_kernel_beside_a_request_is_split(void **state)
{
	run(beside_a_request);
}

/* The request allows LP work (OPEN), then nothing more in the middle of a kernel; repeated if that showed nothing. */
enum { OPEN, CLOSED, SEEN };
static atomic_uint door, n_parts;
static _Atomic(int64_t) raised_ns;

static void close_at_the_third(unsigned n)
{
	if (atomic_fetch_add(&n_parts, 1) == 2) {
		beacon()->allow_ns = 0;
		atomic_store(&door, CLOSED);
	}
}

/* If a busy machine could not refresh the request, the attempt does not count: the rest goes once the request is silent. */
static bool may_be_silent(int64_t since_ns)
{
	return hb_clock_now_ns() - since_ns >= HB_DEFAULT_SILENT_NS;
}

static void *launch_until_seen(void *unused)
{
	unsigned closed;
	do {
		closed = CLOSED;
		lower_beacon();
		launch();
		wait_until_idle();
		atomic_store(&n_parts, 0);
		atomic_store(&raised_ns, hb_clock_now_ns());
		raise_beacon(ALLOW_NS);
		launch();
		/* Does not count: the third part was the last, or the request became silent. */
	} while (atomic_load(&door) == OPEN || atomic_compare_exchange_strong(&door, &closed, OPEN));
	return NULL;
}

/* True: the rest of a kernel was blocked. False: the attempt must be repeated. */
static bool stays_closed(void)
{
	unsigned closed = CLOSED;
	int64_t since_ns = hb_clock_now_ns(), request_ns;
	do {
		request_ns = atomic_load(&raised_ns);
		beacon()->seen_ns = hb_clock_now_ns();
		usleep(1000);
		bool went = atomic_load(&n_parts) > 3;
		CHECK(!went || may_be_silent(request_ns));
		if (went || atomic_load(&door) != CLOSED)
			return false;
	} while (hb_clock_now_ns() - since_ns < 100 * HB_NS_PER_MS);
	return !may_be_silent(request_ns) && atomic_compare_exchange_strong(&door, &closed, SEEN);
}

/* Returns into how many parts the last launch was split. */
static unsigned close_once(void)
{
	pthread_t thread;
	atomic_store(&door, OPEN);
	CHECK(pthread_create(&thread, NULL, launch_until_seen, NULL) == 0);
	do
		while (atomic_load(&door) != CLOSED)
			usleep(100);
	while (!stays_closed());
	lower_beacon();
	CHECK(pthread_join(thread, NULL) == 0);
	return atomic_load(&n_parts);
}

static void closed_between_parts(void)
{
	unsigned n;
	begin("run_plain");
	launch_until_split();
	unsigned (*runs_of)(uint32_t) = FAKE("hb_fake_runs_of", unsigned (*)(uint32_t));
	FAKE("hb_fake_on_part", void (*)(void (*)(unsigned)))(close_at_the_third);
	do {
		n = close_once();
		unsigned runs = runs_of(0); /* runs of a block, over all launches until one was stopped in the middle */
		for (uint32_t i = 1; i < BLOCKS; i++)
			CHECK(runs_of(i) == runs);
	} while (n == 3); /* the third part was the last */
	CHECK(n >= 4);
}

static void no_part_goes_while_the_request_allows_nothing(void **state)
{
	run(closed_between_parts);
}

/* The engine wants to split the kernel, but its code or the driver does not allow it. */
static void left_whole(enum hb_page_counter why)
{
	for (int i = 0; i < TRIES && !hb_page_host_count(&host, HB_COUNT_unsplit); i++)
		launch_alone_and_beside();
	CHECK(hb_page_host_count(&host, HB_COUNT_unsplit) == 1 && hb_page_host_count(&host, why) == 1);
	for (int i = 0; i < 3; i++)
		launch_alone_and_beside();
	CHECK(hb_page_host_count(&host, HB_COUNT_unsplit) ==
	      1); /* the engine knows now that the kernel cannot be split */
	CHECK(hb_page_host_count(&host, HB_COUNT_split) == 0 && hb_page_host_count(&host, HB_COUNT_parts) == 0);
}

static void whole_by_its_code(void)
{
	begin("whole_waits_atomic");
	left_whole(HB_COUNT_unsplit_code);
}

static void whole_by_the_driver(void)
{
	begin("run_plain");
	FAKE("hb_fake_set_refusal", void (*)(const char *))("load");
	left_whole(HB_COUNT_unsplit_image);
}

static void a_kernel_that_cannot_be_split_waits_as_one_launch(void **state)
{
	run(whole_by_its_code);
	hb_page_host_begin_again(&host);
	run(whole_by_the_driver);
}

static void launch_without_split(void)
{
	begin("run_plain");
	for (int i = 0; i < 20; i++)
		launch_alone_and_beside();
	CHECK(hb_page_host_count(&host, HB_COUNT_split) == 0 && hb_page_host_count(&host, HB_COUNT_unsplit) == 0);
}

/* Switched off by HB_SPLIT=0, and in the temporal engine. */
static void nothing_is_split_when_switched_off(void **state)
{
	setenv("HB_SPLIT", "0", 1);
	run(launch_without_split);
	unsetenv("HB_SPLIT");
	hb_page_host_begin_again(&host);
	host.page->gpus[0].engine = HB_ENGINE_TEMPORAL;
	run(launch_without_split);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_long_kernel_beside_a_request_is_split), T(no_part_goes_while_the_request_allows_nothing),
		T(a_kernel_that_cannot_be_split_waits_as_one_launch), T(nothing_is_split_when_switched_off)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
