/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which driver calls are signs of a request, and how long a takeover stays after the
 * launch that it was for; over the simulated driver, read from the counters of the
 * page. tests/signs has the tests of bytes, test_shim_takeovers.c those of takeovers.
 */
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include "base/clock.h"

#include <string.h>
#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define LINGER_NS (100 * HB_NS_PER_US) /* of src/shim/takeover_slots.h */

static const char image[] = "HBSIM1\n"
			    "kernel short ns=2000\n";

static struct hb_page_host host;

/* ---- in the child ---- */

static CUcontext context;
static CUfunction kernel;
static CUstream stream;
static CUevent event;
static CUdeviceptr memory;

static void launch(void)
{
	OK(CU(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static void begin(void)
{
	CUmodule module;
	OK(CU(cuInit)(0));
	OK(CU(cuCtxCreate_v2)(&context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&kernel, module, "short"));
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	OK(CU(cuMemAlloc_v2)(&memory, 64));
	launch();
	OK(CU(cuStreamSynchronize)(stream));
}

static void copy(void)
{
	static const char bytes[64];
	OK(CU(cuMemcpyHtoD_v2)(memory, bytes, sizeof(bytes)));
}

static void copy_later(void)
{
	static const char bytes[64];
	OK(CU(cuMemcpyHtoDAsync_v2)(memory, bytes, sizeof(bytes), stream));
}

static void allocate(void)
{
	CUdeviceptr more;
	OK(CU(cuMemAlloc_v2)(&more, 64));
}

static void record_event(void)
{
	OK(CU(cuEventRecord)(event, stream));
}

static void wait_for_event(void)
{
	OK(CU(cuStreamWaitEvent)(stream, event, 0));
}

static void ask_for_version(void)
{
	int version;
	OK(CU(cuDriverGetVersion)(&version));
}

static uint64_t signs_seen(void)
{
	return hb_page_host_count(&host, HB_COUNT_signs) + hb_page_host_count(&host, HB_COUNT_signs_dropped);
}

static uint64_t signs_of(void (*call)(void))
{
	uint64_t before = signs_seen();
	call();
	return signs_seen() - before;
}

static void call_before_and_after_a_launch(void)
{
	static void (*const signs[])(void) = {copy, copy_later, allocate, record_event, wait_for_event};
	begin();
	for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
		CHECK(signs_of(signs[i]) == 1);
		launch();
		CHECK(signs_of(signs[i]) == 0); /* a request is in progress already */
		OK(CU(cuStreamSynchronize)(stream));
		CHECK(signs_of(ask_for_version) == 0);
	}
	OK(CU(cuCtxDestroy_v2)(context));
}

static void hint(int64_t in_ns)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_test_shim_symbol("hb_shim_hint");
	call(hb_clock_now_ns() + in_ns);
}

/* Takes the GPU over by hints. Returns the time when a hint had taken it over. */
static int64_t hold(void)
{
	uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers);
	while (hb_page_host_count(&host, HB_COUNT_takeovers) == before) {
		hint(400000);
		for (int i = 0; i < 500 && hb_page_host_count(&host, HB_COUNT_takeovers) == before; i++)
			usleep(100);
	}
	return hb_clock_now_ns();
}

/* Makes a takeover and n launches without a wait, until the takeover is accounted. False: it ended before the launches. */
static bool linger(int n)
{
	uint64_t released = hb_page_host_count(&host, HB_COUNT_takeovers_released),
		 time = hb_page_host_count(&host, HB_COUNT_takeover_time);
	int64_t held_ns = hold(); /* all earlier takeovers are accounted */
	int64_t launched_ns = hb_clock_now_ns();
	for (int i = 0; i < n; i++)
		launch();
	while (hb_page_host_count(&host, HB_COUNT_takeover_time) == time)
		usleep(100);
	bool was_for_it = hb_page_host_count(&host, HB_COUNT_takeovers_released) > released;
	if (was_for_it) {
		CHECK(hb_page_host_count(&host, HB_COUNT_takeovers_released) ==
		      released + 1); /* once, for any number of launches */
		CHECK((int64_t)(hb_page_host_count(&host, HB_COUNT_takeover_time) - time) >=
		      launched_ns - held_ns + LINGER_NS);
	}
	OK(CU(cuStreamSynchronize)(stream));
	return was_for_it;
}

static void launch_and_look(void)
{
	int lingered = 0;
	begin();
	while (lingered < 12) {
		lingered += linger(1);
		lingered += linger(5);
	}
	OK(CU(cuCtxDestroy_v2)(context));
}

/* ---- in the test ---- */

static int set_up(void **state)
{
	hb_page_host_foresight(&host);
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static void the_first_call_after_idle_is_a_sign(void **state)
{
	assert_non_null(hb_page_host_run(&host, call_before_and_after_a_launch));
}

static void a_takeover_stays_a_while_after_its_launches(void **state)
{
	assert_non_null(hb_page_host_run(&host, launch_and_look));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(the_first_call_after_idle_is_a_sign),
		TEST(a_takeover_stays_a_while_after_its_launches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
