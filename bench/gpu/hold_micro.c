/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a process's channel group on the GPU, and what gives it away
 * again: holds by hand, without Hummingbird's own decisions. Started by
 * foresight_gpu.py; prints one JSON object.
 *
 *   hold-micro VARIANT WORK N LEAD_US LATE_US
 *
 * Variants that begin with "after": a graph of small kernels runs first, what
 * holds is launched behind it, and LEAD_US counts from the end of its
 * synchronize; "first" is how long that took from the graph's launch.
 *
 * Every 3 to 7 ms, N times: what VARIANT (table `variants`) launches, LEAD_US
 * later WORK (table `works`), LATE_US after that has been launched the release.
 * Latencies count from the launch of the work to the end of the synchronize;
 * "moments" are relative to that launch too.
 */
#include "micro_driver.h"
#include "nvidia/takeover_kernel.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS 20000000
#define COPY_BYTES 300000
#define GRAPH_KERNELS 60

static struct {
	CUfunction kernel;
	CUstream stream, second;
	CUevent event;
	CUdeviceptr word, memory;
	struct hb_takeover_page *page;
	void *host_memory;
	CUgraphExec two, three; /* holds as a graph: one submission */
	CUgraphExec work;
} own;

static void launch_hold(CUstream on, uint64_t limit_ns)
{
	uint64_t linger_ns = 0, word = own.word;
	void *arguments[] = {&word, &limit_ns, &linger_ns};
	CHECK(cuLaunchKernel(own.kernel, 1, 1, 1, 1, 1, 1, 0, on, arguments, NULL));
}

/* ---- what is launched to hold ---- */

static void hold_nothing(void)
{
}
static void hold_one(void)
{
	launch_hold(own.stream, LIMIT_NS);
}
static void hold_two(void)
{
	hold_one();
	launch_hold(own.stream, 0);
}
static void hold_two_in_its_stream(void)
{
	launch_hold(micro.stream, LIMIT_NS);
	launch_hold(micro.stream, 0);
}
static void hold_two_streams(void)
{
	hold_one();
	launch_hold(own.second, LIMIT_NS);
}
static void hold_and_event(void)
{
	hold_one();
	CHECK(cuEventRecord(own.event, own.stream));
}
static void hold_and_other_waits(void)
{
	hold_and_event();
	CHECK(cuStreamWaitEvent(own.second, own.event, 0));
	launch_hold(own.second, 0);
}
static void hold_and_write(void)
{
	hold_one();
	CHECK(cuStreamWriteValue32_v2(own.stream, own.memory, 1, 0));
}
static void hold_and_set(void)
{
	hold_one();
	CHECK(cuMemsetD8Async(own.memory, 0, 4, own.stream));
}
static void hold_and_copy(void)
{
	hold_one();
	CHECK(cuMemcpyHtoDAsync_v2(own.memory, own.host_memory, 4, own.stream));
}
static void wait_in_the_stream(void)
{
	CHECK(cuStreamWaitValue32_v2(own.stream, own.word, HB_TAKEOVER_END, 0));
	launch_hold(own.stream, 0);
}
static void hold_graph(void)
{
	CHECK(cuGraphLaunch(own.two, own.stream));
}
static void hold_graph_of_three(void)
{
	CHECK(cuGraphLaunch(own.three, own.stream));
}
static void hold_graph_in_its_stream(void)
{
	CHECK(cuGraphLaunch(own.two, micro.stream));
}

/* Its SM keeps as much shared memory as it can have, so that a block with much of it finds room beside. */
static void hold_two_beside_any(void)
{
	static bool done;
	if (!done)
		CHECK(cuFuncSetAttribute(own.kernel, (CUfunction_attribute)9 /* preferred carve-out in % */, 100));
	done = true;
	hold_two();
}

/* Behind the work, without running beside it: what the shim does while a process waits. */
static uint64_t keep_ns;
static void keep_two(void)
{
	CHECK(cuEventRecord(own.event, micro.stream));
	CHECK(cuStreamWaitEvent(own.stream, own.event, 0));
	launch_hold(own.stream, keep_ns);
	launch_hold(own.stream, 0);
}
static void keep_one(void)
{
	CHECK(cuEventRecord(own.event, micro.stream));
	CHECK(cuStreamWaitEvent(own.stream, own.event, 0));
	launch_hold(own.stream, keep_ns);
}

static const struct variant {
	const char *name;
	void (*hold)(void);
	bool after;
} variants[] = {
	{"after", hold_nothing, true},
	{"after-two", keep_two, true},
	{"after-one", keep_one, true},
	{"none", hold_nothing},
	{"one", hold_one},
	{"two", hold_two},
	{"two-in-its-stream", hold_two_in_its_stream},
	{"two-streams", hold_two_streams},
	{"one+event", hold_and_event},
	{"one+kernel-behind-event", hold_and_other_waits},
	{"one+write", hold_and_write},
	{"one+memset", hold_and_set},
	{"one+copy", hold_and_copy},
	{"stream-wait+kernel", wait_in_the_stream},
	{"graph", hold_graph},
	{"graph-of-three", hold_graph_of_three},
	{"graph-in-its-stream", hold_graph_in_its_stream},
	{"two-most-shared", hold_two_beside_any},
};

/* ---- the work ---- */

static void do_kernel(void)
{
	micro_spin(20000, 264, micro.marks_address);
}
static void do_copy(void)
{
	CHECK(cuMemcpyHtoDAsync_v2(own.memory, own.host_memory, COPY_BYTES, micro.stream));
}
static void do_copy_and_kernel(void)
{
	do_copy();
	do_kernel();
}
static void do_graph(void)
{
	CHECK(cuGraphLaunch(own.work, micro.stream));
}
static void do_copy_and_graph(void)
{
	do_copy();
	do_graph();
}
/* As an eager program: launches one after the other. */
static void do_chain(void)
{
	do_kernel();
	for (int i = 1; i < GRAPH_KERNELS; i++)
		micro_spin(3000, 64, micro.other_marks_address);
}

/* One block an SM, with that much shared memory. */
static void do_wide(int bytes)
{
	static int set;
	uint64_t ns = 20000;
	void *arguments[] = {&ns, &micro.marks_address};
	if (set != bytes)
		CHECK(cuFuncSetAttribute(micro.spin, (CUfunction_attribute)8 /* dynamic shared memory at most */,
					 bytes));
	set = bytes;
	CHECK(cuLaunchKernel(micro.spin, 132, 1, 1, 512, 1, 1, (unsigned)bytes, micro.stream, arguments, NULL));
}
static void do_100k(void)
{
	do_wide(100 << 10);
}
static void do_200k(void)
{
	do_wide(200 << 10);
}
static void do_227k(void)
{
	do_wide(227 << 10);
}

static const struct work {
	const char *name;
	void (*start)(void);
} works[] = {
	{"kernel", do_kernel}, {"copy+kernel", do_copy_and_kernel},
	{"graph", do_graph},   {"copy+graph", do_copy_and_graph},
	{"chain", do_chain},   {"100k", do_100k},
	{"200k", do_200k},     {"227k", do_227k},
};

/* ---- */

static CUgraphExec record(void (*start)(void), CUstream on)
{
	CUgraph template;
	CUgraphExec graph;
	CHECK(cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_RELAXED));
	start();
	CHECK(cuStreamEndCapture(on, &template));
	CHECK(cuGraphInstantiateWithFlags(&graph, template, 0));
	CHECK(cuGraphUpload(graph, on));
	return graph;
}

static void hold_three(void)
{
	hold_two();
	launch_hold(own.stream, 0);
}

static void set_up_holds(void)
{
	CUmodule module;
	int least, greatest;
	CHECK(cuModuleLoadData(&module, hb_takeover_ptx));
	CHECK(cuModuleGetFunction(&own.kernel, module, HB_TAKEOVER_KERNEL_NAME));
	CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(cuStreamCreateWithPriority(&own.stream, 1, greatest));
	CHECK(cuStreamCreateWithPriority(&own.second, 1, greatest));
	CHECK(cuEventCreate(&own.event, 2));
	own.page = micro_map_page(&own.word);
	CHECK(cuMemAlloc_v2(&own.memory, COPY_BYTES));
	CHECK(cuMemHostAlloc(&own.host_memory, COPY_BYTES, 0));
	own.page->word = HB_TAKEOVER_END;
	hold_two(); /* loads the kernel */
	own.two = record(hold_two, own.stream);
	own.three = record(hold_three, own.stream);
	own.work = record(do_chain, micro.stream);
	hold_graph();
	hold_graph_of_three();
	do_copy_and_graph();
	CHECK(cuCtxSynchronize());
}

enum moment { TOLD, RETURNED, RELEASED, DONE, GPU_BEGAN, GPU_ENDED, HOLD_BEGAN, HOLD_ENDED, FIRST, MOMENTS };
static const char *const moment_names[MOMENTS] = {"told",      "returned",   "released",   "done", "gpu_began",
						  "gpu_ended", "hold_began", "hold_ended", "first"};

/* Returns how long it took. */
static int64_t work_before(const struct variant *variant)
{
	int64_t begin = micro_now_ns();
	do_graph();
	variant->hold();
	CHECK(cuStreamSynchronize(micro.stream));
	return micro_now_ns() - begin;
}

static void one_trial(const struct variant *variant, const struct work *work, int64_t lead_ns, int64_t late_ns,
		      int64_t offset, int64_t *at)
{
	int64_t start = micro_now_ns() + lead_ns, first_ns = 0;
	own.page->began_ns = own.page->ended_ns = 0;
	own.page->word = HB_TAKEOVER_KEEP;
	if (variant->after) {
		first_ns = work_before(variant);
		start = micro_now_ns() + lead_ns;
	} else {
		variant->hold();
	}
	at[TOLD] = micro_now_ns();
	micro_wait_until(start);
	int64_t begin = micro_now_ns();
	work->start();
	at[RETURNED] = micro_now_ns();
	at[DONE] = 0;
	while (micro_now_ns() < at[RETURNED] + late_ns)
		if (!at[DONE] && p_cuStreamQuery(micro.stream) == CUDA_SUCCESS)
			at[DONE] = micro_now_ns();
	own.page->word = HB_TAKEOVER_END;
	at[RELEASED] = micro_now_ns();
	CHECK(cuStreamSynchronize(micro.stream));
	if (!at[DONE])
		at[DONE] = micro_now_ns();
	CHECK(cuStreamSynchronize(own.stream));
	at[GPU_BEGAN] = (int64_t)micro.marks->began_ns + offset;
	at[GPU_ENDED] = (int64_t)micro.marks->ended_ns + offset;
	at[HOLD_BEGAN] = own.page->began_ns ? (int64_t)own.page->began_ns + offset : begin;
	at[HOLD_ENDED] = own.page->ended_ns ? (int64_t)own.page->ended_ns + offset : begin;
	at[FIRST] = begin + first_ns;
	for (int i = 0; i < MOMENTS; i++)
		at[i] -= begin;
}

static void run(const struct variant *variant, const struct work *work, int n, int64_t lead_ns, int64_t late_ns)
{
	int64_t *table = micro_allocate((size_t)n * MOMENTS, sizeof *table);
	int64_t *values = micro_allocate((size_t)n, sizeof *values), offset = micro_clock_offset();
	srand(1);
	int64_t began = micro_now_ns();
	for (int i = 0; i < n; i++) {
		int64_t *at = table + (size_t)i * MOMENTS;
		one_trial(variant, work, lead_ns, late_ns, offset, at);
		values[i] = at[DONE];
		micro_wait_until(micro_now_ns() + 3000000 + (int64_t)((double)rand() / RAND_MAX * 4e6));
	}
	printf("{\"began_ns\": %lld, \"ended_ns\": %lld, ", (long long)began, (long long)micro_now_ns());
	micro_print_moments(moment_names, MOMENTS, table, n);
	micro_print_values("latency", values, (size_t)n, true, "}\n");
	free(table);
	free(values);
}

int main(int argc, char **argv)
{
	const struct variant *variant = NULL;
	const struct work *work = NULL;
	for (size_t i = 0; argc == 6 && i < sizeof variants / sizeof *variants; i++)
		if (strcmp(variants[i].name, argv[1]) == 0)
			variant = &variants[i];
	for (size_t i = 0; argc == 6 && i < sizeof works / sizeof *works; i++)
		if (strcmp(works[i].name, argv[2]) == 0)
			work = &works[i];
	if (!variant || !work || atoi(argv[3]) < 1) {
		fprintf(stderr, "usage: see the top of bench/gpu/hold_micro.c\n");
		return 2;
	}
	micro_set_up();
	set_up_holds();
	keep_ns = (uint64_t)atoll(argv[4]) * 1000 + 100000;
	run(variant, work, atoi(argv[3]), atoll(argv[4]) * 1000, atoll(argv[5]) * 1000);
	return 0;
}
