/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what the shim adds to a call, in ns, over a driver that does nothing: the
 * same functions are called in the driver and through the shim, in turns, in one run.
 * Run it by hand or by `meson test --benchmark`; no test depends on it.
 *
 *   HB_TEST_SHIM=.../src/shim/libcuda.so.1 HB_REAL_LIBCUDA=.../fake/libcuda.so.1 shim-launch
 *
 * Each row is the median over ROUNDS rounds of CALLS calls. "tenant" has a tenant's
 * page and an open gate, "alone" has no daemon. "looked up" uses the address from
 * cuGetProcAddress, "exported" the symbol of the library. "recorded" is a tenant whose
 * launches are recorded for `hb trace record`.
 */
#include "base/clock.h"
#include "hummingbird/page_trace.h"
#include "nvidia/cuda_abi.h"
#include "page_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define STREAM ((CUstream)0x5000)
enum { ROUNDS = 101, CALLS = 20000 };

enum { N_NOTED = 4 }; /* number of rows below that a recording affects */

/* The ring into which the child records its launches. */
static struct hb_trace_ring *ring;

typedef void (*loop_fn)(void *function);

static void loop_kernel(void *function)
{
	for (int i = 0; i < CALLS; i++)
		((__typeof__(&cuLaunchKernel))function)((CUfunction)&ring, 1, 1, 1, 1, 1, 1, 0, STREAM, NULL, NULL);
}

static void loop_kernel_ex(void *function)
{
	CUlaunchConfig config = {.hStream = STREAM};
	for (int i = 0; i < CALLS; i++)
		((__typeof__(&cuLaunchKernelEx))function)(&config, (CUfunction)&ring, NULL, NULL);
}

static void loop_graph(void *function)
{
	for (int i = 0; i < CALLS; i++)
		((__typeof__(&cuGraphLaunch))function)(NULL, STREAM);
}

static void loop_copy(void *function)
{
	for (int i = 0; i < CALLS; i++)
		((__typeof__(&cuMemcpyHtoDAsync_v2))function)(1, NULL, 4096, STREAM);
}

static void loop_query(void *function)
{
	for (int i = 0; i < CALLS; i++)
		((__typeof__(&cuStreamQuery))function)(STREAM);
}

static const struct row {
	const char *name;
	const char *symbol;
	loop_fn loop;
} rows[] = {
	{"kernel launch", "cuLaunchKernel", loop_kernel},
	{"kernel launch, own default stream", "cuLaunchKernel_ptsz", loop_kernel},
	{"kernel launch, extended", "cuLaunchKernelEx", loop_kernel_ex},
	{"graph launch", "cuGraphLaunch", loop_graph},
	{"copy to the device", "cuMemcpyHtoDAsync_v2", loop_copy},
	{"stream query", "cuStreamQuery", loop_query},
};

/* The thread's own time: on a busy machine a round is longer than what others leave it. */
static int64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * HB_NS_PER_S + now.tv_nsec;
}

static double ns_per_call(loop_fn loop, void *function)
{
	int64_t begin_ns = cpu_ns();
	loop(function);
	return (double)(cpu_ns() - begin_ns) / CALLS;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(values[0]), compare);
	return values[ROUNDS / 2];
}

/* The address that the driver's lookup gives, through the shim; only names without suffix are asked for. */
static void *look_up(const char *symbol)
{
	void *function = NULL;
	CUdriverProcAddressQueryResult status;
	CU(cuGetProcAddress_v2)(symbol, &function, 13000, 0, &status);
	return function;
}

static void measure(const struct row *row, const char *title)
{
	static double driver[ROUNDS], exported[ROUNDS], looked_up[ROUNDS];
	void *driver_fn = hb_test_fake_symbol(row->symbol), *exported_fn = hb_test_shim_symbol(row->symbol);
	void *looked_up_fn = look_up(row->symbol);
	for (int i = 0; i < ROUNDS; i++) {
		driver[i] = ns_per_call(row->loop, driver_fn);
		exported[i] = ns_per_call(row->loop, exported_fn);
		looked_up[i] = looked_up_fn ? ns_per_call(row->loop, looked_up_fn) : 0;
	}
	double bare = median(driver), by_symbol = median(exported), by_lookup = median(looked_up);
	printf("%-8s %-36s driver %6.1f  exported %+6.1f ns (x %.2f)", title, row->name, bare, by_symbol - bare,
	       by_symbol / bare);
	if (looked_up_fn)
		printf("  looked up %+6.1f ns (x %.2f)", by_lookup - bare, by_lookup / bare);
	printf("\n");
}

static void measure_all(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		measure(&rows[i], getenv("HB_TENANT") ? "tenant" : "alone");
	fflush(stdout);
}

/* While `hb trace record` runs: the launches that are noted, with a kernel known by name. */
static void measure_recorded(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	while (atomic_load(&ring->claimed) == 0) /* the shim's thread has to see that it is wanted */
		((__typeof__(&cuLaunchKernel))hb_test_shim_symbol("cuLaunchKernel"))((CUfunction)&rows, 1, 1, 1, 1, 1,
										     1, 0, STREAM, NULL, NULL);
	for (size_t i = 0; i < N_NOTED; i++)
		measure(&rows[i], "recorded");
	fflush(stdout);
}

int main(void)
{
	struct hb_page_host host;
	if (!getenv("HB_TEST_SHIM") || !getenv("HB_REAL_LIBCUDA")) {
		fprintf(stderr, "shim-launch: set HB_TEST_SHIM and HB_REAL_LIBCUDA to the shim and the fake driver\n");
		return 2;
	}
	hb_page_host_init(&host);
	pid_t child = hb_page_host_start(measure_all);
	hb_page_host_serve(&host);
	bool well = hb_page_host_ended_well(child);
	ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, host.page_fd,
		    (off_t)(HB_TRACE_OFFSET + host.next_slot * sizeof *ring));
	atomic_store(&host.page->recording, 1);
	child = ring == MAP_FAILED ? -1 : hb_page_host_start(measure_recorded);
	hb_page_host_serve(&host);
	well = hb_page_host_ended_well(child) && well;
	unsetenv("HB_TENANT");
	well = hb_page_host_ended_well(hb_page_host_start(measure_all)) && well;
	hb_page_host_fini(&host);
	return well ? 0 : 1;
}
