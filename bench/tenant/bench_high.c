/* SPDX-License-Identifier: Apache-2.0 */
/* The services of `cuda-tenant bench`; see the table at the end and docs/bench.md. */
#include "bench_mode.h"
#include "bench_sockets.h"

#include "hummingbird/client.h"

#include <stdlib.h>
#include <string.h>

static const struct bench_shape tiny = {.blocks = 1, .threads = 32};

static int64_t kernel_ns;

static void prepare_kernel(char **arguments)
{
	kernel_ns = (int64_t)(atof(arguments[0]) * 1e3);
}

/* --- preempt: when does the first block of a kernel run? ---------------------------------------- */

/* Pauses of 0.2 to 0.4 ms give the GPU back to the other programs, so trials meet them at any moment. */
static void serve_preempt(int64_t end_ns, const struct bench_arrivals *arrivals)
{
	while (bench_now_ns() < end_ns) {
		bench_wait_until(bench_now_ns() + 200000 + (int64_t)(bench_random() * 200000));
		int64_t begin = bench_now_ns();
		bench_trial(kernel_ns);
		CU(cuStreamSynchronize(bench_stream));
		bench_add_latency(begin, bench_stamp() - begin);
	}
}

/* --- launch: what does a call cost its caller? ----------------------------------------------------- */

static CUgraphExec graph;
static CUdeviceptr device_memory;
static void *host_memory;
static size_t copy_bytes;
static bool copy_to_device;
static __typeof__(&cuLaunchKernel) launch_per_thread;

static void allocate_copies(size_t bytes)
{
	copy_bytes = bytes;
	CU(cuMemAlloc(&device_memory, bytes));
	CU(cuMemHostAlloc(&host_memory, bytes, 0));
	memset(host_memory, 1, bytes);
}

static void copy_once(void)
{
	if (copy_to_device)
		CU(cuMemcpyHtoDAsync(device_memory, host_memory, copy_bytes, bench_stream));
	else
		CU(cuMemcpyDtoHAsync(host_memory, device_memory, copy_bytes, bench_stream));
}

static void call_own(void)
{
	bench_spin(&tiny, 0);
}

static void call_null(void)
{
	bench_spin_on(NULL, &tiny, 0);
}

/* The entry point that programs compiled for a default stream per thread use. */
static void call_thread(void)
{
	__typeof__(&cuLaunchKernel) usual = cu.cuLaunchKernel;
	cu.cuLaunchKernel = launch_per_thread;
	bench_spin_on(NULL, &tiny, 0);
	cu.cuLaunchKernel = usual;
}

static void call_graph(void)
{
	CU(cuGraphLaunch(graph, bench_stream));
}

static void queue_four(void)
{
	for (int i = 0; i < 4; i++)
		call_own();
}

static const struct call {
	const char *name;
	void (*make)(void);
} calls[] = {
	{"own", call_own}, {"null", call_null}, {"thread", call_thread}, {"graph", call_graph}, {"copy", copy_once}};
static void (*chosen_call)(void);

static void prepare_launch(char **arguments)
{
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (strcmp(calls[i].name, arguments[0]) == 0)
			chosen_call = calls[i].make;
	if (!chosen_call)
		bench_fail("launch %s: give own, null, thread, graph or copy", arguments[0]);
	launch_per_thread = (__typeof__(launch_per_thread))driver_find("cuLaunchKernel_ptsz");
	graph = bench_record(queue_four);
	copy_to_device = true;
	allocate_copies(4096);
}

static void serve_launch(int64_t end_ns, const struct bench_arrivals *arrivals)
{
	enum { BATCH = 100 };
	while (bench_now_ns() < end_ns) {
		for (int i = 0; i < BATCH; i++) {
			int64_t begin = bench_host_ns();
			chosen_call();
			bench_add_latency(begin, bench_host_ns() - begin);
		}
		CU(cuCtxSynchronize());
	}
}

/* --- one small piece of work now and then: from its launch to the end of the synchronize ------------- */

static struct bench_shape shape = {.threads = 512};
static int64_t pause_ns, lead_ns = -1;
static void (*start_piece)(void);

static void start_kernel(void)
{
	bench_spin(&shape, kernel_ns);
}

/* Pauses are PAUSE_US to 7/3 of it, so pieces meet the other programs at any moment. */
static void serve_pieces(int64_t end_ns, const struct bench_arrivals *arrivals)
{
	while (bench_now_ns() < end_ns) {
		int64_t pause = pause_ns + (int64_t)(bench_random() * 4 / 3 * (double)pause_ns);
		bench_wait_until(bench_now_ns() + pause);
		if (lead_ns >= 0) {
			hb_hint(bench_host_ns() + lead_ns);
			bench_wait_until(bench_now_ns() + lead_ns);
		}
		int64_t begin = bench_now_ns();
		start_piece();
		CU(cuStreamSynchronize(bench_stream));
		bench_add_latency(begin, bench_now_ns() - begin);
	}
}

static void prepare_piece(void (*start)(void), const char *pause_us)
{
	start_piece = start;
	pause_ns = (int64_t)(atof(pause_us) * 1e3);
}

static void prepare_spaced_kernel(char **arguments)
{
	prepare_kernel(arguments);
	shape.blocks = (unsigned)atoi(arguments[1]);
	prepare_piece(start_kernel, arguments[2]);
}

static void prepare_hinted(char **arguments)
{
	prepare_spaced_kernel(arguments);
	lead_ns = (int64_t)(atof(arguments[3]) * 1e3);
}

static void prepare_every_sm(char **arguments)
{
	prepare_piece(bench_every_sm, arguments[0]);
}

static void prepare_copy(char **arguments)
{
	copy_to_device = strcmp(arguments[1], "h2d") == 0;
	allocate_copies((size_t)atoi(arguments[0]) * 1000);
	prepare_piece(copy_once, arguments[2]);
}

/* --- infer: requests of many kernels, Poisson or one after another ----------------------------------- */

static int kernels;

static void launch_kernels(void)
{
	for (int i = 0; i < kernels; i++)
		bench_spin(&bench_shape_half, kernel_ns);
}

static void prepare_infer(char **arguments)
{
	kernels = atoi(arguments[0]);
	prepare_kernel(arguments + 1);
	graph = bench_record(launch_kernels);
	CU(cuGraphLaunch(graph, bench_stream));
	CU(cuStreamSynchronize(bench_stream));
}

/* Open loop: a request that finds the previous one running waits, and the wait counts. */
static void serve_infer(int64_t end_ns, const struct bench_arrivals *arrivals)
{
	for (int64_t due = bench_first_due(arrivals); due < end_ns; due = bench_next_due(arrivals, due)) {
		struct bench_request request = {.due_ns = due};
		bench_wait_until(due);
		request.begun_ns = bench_now_ns();
		CU(cuGraphLaunch(graph, bench_stream));
		request.launched_ns = bench_now_ns();
		CU(cuStreamSynchronize(bench_stream));
		request.ended_ns = request.answered_ns = bench_now_ns();
		bench_add_request(&request);
	}
}

/* --- served: the same requests, which come over sockets, are prepared, and are copied to the GPU and back ---- */

enum { ANSWER_BYTES = 2000, WINDOW_REQUESTS_MAX = 20000 };
static int64_t prepare_ns;
static void *answer;
static struct bench_clocks
	first_clocks; /* the longer ago, the better is the ratio known with which the two clocks run */

static void prepare_served(char **arguments)
{
	prepare_infer(arguments);
	prepare_ns = (int64_t)(atof(arguments[3]) * 1e3);
	allocate_copies((size_t)atoi(arguments[2]) * 1000);
	CU(cuMemHostAlloc(&answer, ANSWER_BYTES, 0));
	memset(answer, 0, ANSWER_BYTES);
	if (copy_bytes < ANSWER_BYTES)
		bench_fail("served: requests of %s KB are smaller than the answer", arguments[2]);
	first_clocks = bench_read_clocks();
	bench_sockets_open(copy_bytes / 2);
}

/* Tells the clients when the requests are due. Returns these times, on the clock of the latencies. */
static int64_t *order_requests(int64_t end_ns, const struct bench_arrivals *arrivals, size_t *n)
{
	int64_t *due_ns = bench_calloc(WINDOW_REQUESTS_MAX, sizeof *due_ns);
	int64_t *host_ns = bench_calloc(WINDOW_REQUESTS_MAX, sizeof *host_ns);
	struct bench_clocks clocks = bench_read_clocks();
	double scale = (double)(clocks.host_ns - first_clocks.host_ns) / (double)(clocks.now_ns - first_clocks.now_ns);
	*n = 0;
	for (int64_t due = bench_first_due(arrivals); due < end_ns; due = bench_next_due(arrivals, due)) {
		if (*n == WINDOW_REQUESTS_MAX)
			bench_fail("served: more than %d requests in a window", WINDOW_REQUESTS_MAX);
		host_ns[*n] = clocks.host_ns + (int64_t)((double)(due - clocks.now_ns) * scale);
		due_ns[(*n)++] = due;
	}
	bench_sockets_order(host_ns, *n);
	free(host_ns);
	return due_ns;
}

static void serve_requests(int64_t end_ns, const struct bench_arrivals *arrivals)
{
	size_t n;
	if (arrivals->rate_per_s <= 0)
		bench_fail("served: requests need a rate");
	int64_t *due_ns = order_requests(end_ns, arrivals, &n);
	for (size_t i = 0; i < n; i++) {
		struct bench_request request = {.due_ns = due_ns[i]};
		int connection = bench_sockets_receive(i, host_memory, copy_bytes);
		bench_wait_until(bench_now_ns() + prepare_ns);
		request.begun_ns = bench_now_ns();
		CU(cuMemcpyHtoDAsync(device_memory, host_memory, copy_bytes, bench_stream));
		CU(cuGraphLaunch(graph, bench_stream));
		CU(cuMemcpyDtoHAsync(answer, device_memory, ANSWER_BYTES, bench_stream));
		request.launched_ns = bench_now_ns();
		CU(cuStreamSynchronize(bench_stream));
		request.ended_ns = bench_now_ns();
		bench_sockets_answer(connection, answer, ANSWER_BYTES);
		request.answered_ns = bench_now_ns();
		bench_add_request(&request);
	}
	free(due_ns);
}

static const struct bench_high kinds[] = {
	{"preempt", "KERNEL_US", 1, prepare_kernel, serve_preempt, true},
	{"launch", "own|null|thread|graph|copy", 1, prepare_launch, serve_launch, false},
	{"infer", "KERNELS KERNEL_US", 2, prepare_infer, serve_infer, false},
	{"served", "KERNELS KERNEL_US INPUT_KB PREPARE_US", 4, prepare_served, serve_requests, false},
	{"kernel", "KERNEL_US BLOCKS PAUSE_US", 3, prepare_spaced_kernel, serve_pieces, false},
	{"hinted", "KERNEL_US BLOCKS PAUSE_US LEAD_US", 4, prepare_hinted, serve_pieces, false},
	{"every_sm", "PAUSE_US", 1, prepare_every_sm, serve_pieces, false},
	{"copy", "KB h2d|d2h PAUSE_US", 3, prepare_copy, serve_pieces, false},
};

const struct bench_high *bench_find_high(const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}
