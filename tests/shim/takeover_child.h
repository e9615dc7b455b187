/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of takeovers over the simulated driver: a child process with one context
 * whose GPU is taken over. Each test program includes this header once.
 */
#ifndef HB_TEST_TAKEOVER_CHILD_H
#define HB_TEST_TAKEOVER_CHILD_H

#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include "base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)

static const char image[] = "HBSIM1\n"
			    "kernel short ns=10000\n";

static struct hb_page_host host;

/* ---- in the child ---- */

static CUcontext context;
static CUmodule module;
static CUfunction kernel_short;
static CUstream stream;

/* The daemon's heartbeat never ends; the test runner ends a test that waits forever. */
static void await(enum hb_page_counter counter, uint64_t at_least)
{
	while (hb_page_host_count(&host, counter) < at_least)
		usleep(200);
}

static void launch(CUfunction kernel, CUstream on)
{
	OK(CU(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, on, NULL, NULL));
}

static void hint(int64_t in_ns)
{
	void (*call)(int64_t) = (void (*)(int64_t))hb_test_shim_symbol("hb_shim_hint");
	call(hb_clock_now_ns() + in_ns);
}

static void make_context(void)
{
	OK(CU(cuCtxCreate_v2)(&context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&kernel_short, module, "short"));
	OK(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	launch(kernel_short, stream);
	OK(CU(cuStreamSynchronize)(stream));
}

/* A hint that is followed by a launch. After too many wrong hints foresight would ignore them all. */
static void hint_and_be_right(int64_t in_ns)
{
	int64_t at_ns = hb_clock_now_ns() + in_ns;
	hint(in_ns);
	while (hb_clock_now_ns() < at_ns)
		sched_yield();
	launch(kernel_short, stream);
	OK(CU(cuStreamSynchronize)(stream));
}

/*
 * The first hint starts the takeover thread, which prepares the context; from some
 * later hint on the GPU is taken over. On a busy machine many hints may come to
 * nothing. Foresight ignores hints after 16 wrong ones, so right hints follow then.
 */
static void hold(void)
{
	uint64_t before = hb_page_host_count(&host, HB_COUNT_takeovers);
	for (int tries = 1; hb_page_host_count(&host, HB_COUNT_takeovers) == before; tries++) {
		hint(400000);
		for (int i = 0; i < 500 && hb_page_host_count(&host, HB_COUNT_takeovers) == before; i++)
			usleep(100);
		for (int i = 0; i < 8 && tries % 8 == 0 && hb_page_host_count(&host, HB_COUNT_takeovers) == before;
		     i++) {
			hint_and_be_right(400000);
			before = hb_page_host_count(&host, HB_COUNT_takeovers);
		}
	}
}

/* Repeats a takeover and `call` until `call` itself released the takeover. */
#define LETS_GO(counter, call) \
	do { \
		uint64_t before_; \
		do { \
			hint_and_be_right(400000); \
			before_ = hb_page_host_count(&host, counter); \
			hold(); \
			call; \
			OK(CU(cuStreamSynchronize)(NULL)); /* otherwise the process counts as busy */ \
		} while (hb_page_host_count(&host, counter) == before_); \
	} while (0)

static void begin(void)
{
	OK(CU(cuInit)(0));
	make_context();
}

static void end(void)
{
	OK(CU(cuCtxDestroy_v2)(context));
}

static int set_up(void **state)
{
	hb_page_host_foresight(&host);
	unsetenv("HB_SIM_FAIL");
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static struct hb_page_process *run(void (*scenario)(void))
{
	struct hb_page_process *process = hb_page_host_run(&host, scenario);
	assert_non_null(process);
	return process;
}

#endif
