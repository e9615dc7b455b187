/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small driver-API programs for measurements on a real GPU; started by
 * bench/gpu/temporal.py and foresight_gpu.py, natively and under `hb run`. The driver is opened by
 * name, so LD_LIBRARY_PATH decides whose libcuda it is. Every mode prints one
 * JSON object.
 *
 *   gpu-micro launch ROUNDS            ns of single calls: kernel on an own micro.stream, on the null micro.stream, per-thread
 *                                      entry, graph, async copy
 *   gpu-micro kernel US BLOCKS N       launch to synchronize of one kernel every 3 to 7 ms, N times
 *   gpu-micro copy BYTES h2d|d2h N     the same for one copy from or to pinned memory, every 2 to 5 ms
 *   gpu-micro hinted US BLOCKS N LEAD_US
 *                                      `kernel`, with an API hint that long before each launch (0 = at the launch)
 *   gpu-micro busy US S                kernels of that length without pause, 4 queued, for S seconds; tells the gaps
 *   gpu-micro fill US BLOCKS S         such kernels without pause, 4 queued, for S seconds: how many a second
 *   gpu-micro whole N                  `kernel` with one that has the GPU to itself: launch to synchronize, which is when
 *                                      all others' blocks have left
 *   gpu-micro stream BYTES h2d|d2h S   copies without pause, 4 queued, for S seconds
 */
#include "hummingbird/client.h"
#include "micro_driver.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- launch --- */

enum { BATCH = 500 };
static CUgraphExec graph;
static CUdeviceptr device_memory;
static void *host_memory;

static void call_own(void)
{
	p_cuLaunchKernel(micro.empty, 1, 1, 1, 32, 1, 1, 0, micro.stream, NULL, NULL);
}
static void call_null(void)
{
	p_cuLaunchKernel(micro.empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}
static void call_thread(void)
{
	p_cuLaunchKernel_ptsz(micro.empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}
static void call_graph(void)
{
	p_cuGraphLaunch(graph, micro.stream);
}
static void call_copy(void)
{
	p_cuMemcpyHtoDAsync_v2(device_memory, host_memory, 4096, micro.stream);
}

static const struct {
	const char *name;
	void (*call)(void);
} kinds[] = {
	{"own_stream", call_own}, {"null_stream", call_null}, {"per_thread", call_thread},
	{"graph", call_graph},    {"async_copy", call_copy},
};

static void make_graph(void)
{
	CUgraph template;
	CHECK(cuStreamBeginCapture_v2(micro.stream, 0));
	for (int i = 0; i < 4; i++)
		call_own();
	CHECK(cuStreamEndCapture(micro.stream, &template));
	CHECK(cuGraphInstantiateWithFlags(&graph, template, 0));
}

static void mode_launch(int rounds)
{
	size_t n = (size_t)rounds * BATCH;
	int64_t *values = micro_allocate(n, sizeof *values);
	make_graph();
	CHECK(cuMemAlloc_v2(&device_memory, 1 << 20));
	CHECK(cuMemHostAlloc(&host_memory, 1 << 20, 0));
	printf("{");
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		for (int round = -3; round < rounds; round++) {
			for (int i = 0; i < BATCH; i++) {
				int64_t begin = micro_now_ns();
				kinds[kind].call();
				if (round >= 0)
					values[round * BATCH + i] = micro_now_ns() - begin;
			}
			CHECK(cuCtxSynchronize());
		}
		micro_print_values(kinds[kind].name, values, n, false,
				   kind + 1 < sizeof kinds / sizeof *kinds ? ", " : "}\n");
	}
	free(values);
}

/* --- latency of one kernel or copy now and then --- */

static void copy_once(size_t bytes, bool to_device)
{
	if (to_device)
		CHECK(cuMemcpyHtoDAsync_v2(device_memory, host_memory, bytes, micro.stream));
	else
		CHECK(cuMemcpyDtoHAsync_v2(host_memory, device_memory, bytes, micro.stream));
}

/*
 * Ends when all of its blocks are on the GPU, two on each SM with 1024 threads: no thread of another kernel can be there
 * then. After 20 ms it gives up.
 */
static const char whole_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				".visible .entry whole(.param .u64 counter, .param .u32 goal)\n{\n"
				".reg .u64 %rd<5>;\n.reg .u32 %r<5>;\n.reg .pred %p;\n"
				"ld.param.u64 %rd1, [counter];\nld.param.u32 %r1, [goal];\n"
				"mov.u32 %r2, %tid.x;\nsetp.ne.u32 %p, %r2, 0;\n@%p bra W;\n"
				"atom.global.add.u32 %r3, [%rd1], 1;\nmov.u64 %rd2, %globaltimer;\n"
				"L: ld.volatile.global.u32 %r4, [%rd1];\nsub.s32 %r3, %r4, %r1;\n"
				"setp.ge.s32 %p, %r3, 0;\n@%p bra W;\n"
				"mov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
				"setp.lt.u64 %p, %rd4, 20000000;\n@%p bra L;\n"
				"W: bar.sync 0;\nret;\n}\n";
static CUfunction whole;
static unsigned whole_blocks;

static void prepare_whole(void)
{
	CUmodule module;
	int sms;
	CHECK(cuModuleLoadData(&module, whole_ptx));
	CHECK(cuModuleGetFunction(&whole, module, "whole"));
	CHECK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	whole_blocks = 2 * (unsigned)sms;
	CHECK(cuMemAlloc_v2(&device_memory, 4096));
	CHECK(cuMemsetD8Async(device_memory, 0, 4096, micro.stream));
	CHECK(cuStreamSynchronize(micro.stream));
}

/* The counter goes on from launch to launch. */
static void launch_whole(void)
{
	static uint32_t goal;
	goal += whole_blocks;
	void *arguments[] = {&device_memory, &goal};
	CHECK(cuLaunchKernel(whole, whole_blocks, 1, 1, 1024, 1, 1, 0, micro.stream, arguments, NULL));
}

struct job {
	bool is_whole;
	uint64_t kernel_ns;
	unsigned blocks;
	size_t bytes;
	bool to_device;
	int64_t pause_ns, jitter_ns;
	bool hinted;
	int64_t lead_ns;
};

/*
 * What happened in one trial, in ns by our clock relative to the job's launch; those of the GPU are as exact as
 * micro_clock_offset().
 */
enum moment { HINTED, TOLD, RETURNED, GPU_BEGAN, GPU_ENDED, DONE, MOMENTS };
static const char *const moment_names[MOMENTS] = {"hinted", "told", "returned", "gpu_began", "gpu_ended", "done"};

static void prepare_job(const struct job *job, int64_t *at)
{
	int64_t start = micro_now_ns() + job->lead_ns;
	at[HINTED] = start - job->lead_ns;
	if (job->hinted)
		hb_hint(start);
	at[TOLD] = micro_now_ns();
	micro_wait_until(start);
}

/* All but the launch itself become relative to it. */
static void note_moments(int64_t *at, int64_t begin, int64_t offset)
{
	at[GPU_BEGAN] = (int64_t)micro.marks->began_ns + offset;
	at[GPU_ENDED] = (int64_t)micro.marks->ended_ns + offset;
	for (int i = 0; i < MOMENTS; i++)
		at[i] = at[i] ? at[i] - begin : 0;
}

static void run_job(const struct job *job)
{
	if (job->is_whole)
		launch_whole();
	else if (job->bytes)
		copy_once(job->bytes, job->to_device);
	else
		micro_spin(job->kernel_ns, job->blocks, micro.marks_address);
}

static void mode_latency(const struct job *job, int n)
{
	int64_t *values = micro_allocate((size_t)n, sizeof *values), offset = micro_clock_offset();
	int64_t *moments = micro_allocate((size_t)n * MOMENTS, sizeof *moments);
	srand(1);
	int64_t began = micro_now_ns();
	for (int i = 0; i < n; i++) {
		int64_t *at = moments + (size_t)i * MOMENTS;
		prepare_job(job, at);
		int64_t begin = micro_now_ns();
		run_job(job);
		at[RETURNED] = micro_now_ns();
		CHECK(cuStreamSynchronize(micro.stream));
		at[DONE] = micro_now_ns();
		values[i] = at[DONE] - begin;
		note_moments(at, begin, offset);
		micro_wait_until(micro_now_ns() + job->pause_ns +
				 (int64_t)((double)rand() / RAND_MAX * (double)job->jitter_ns));
	}
	printf("{\"began_ns\": %lld, \"ended_ns\": %lld, ", (long long)began, (long long)micro_now_ns());
	micro_print_moments(moment_names, MOMENTS, moments, n);
	micro_print_values("latency", values, (size_t)n, true, "}\n");
	free(values);
	free(moments);
}

/* Copies without pause, QUEUED in flight; tells the bytes done every 100 ms so that any window can be read off. */
static void mode_stream(size_t bytes, bool to_device, double seconds)
{
	enum { QUEUED = 4 };
	CUevent events[QUEUED];
	for (int i = 0; i < QUEUED; i++)
		CHECK(cuEventCreate(&events[i], 2));
	int64_t end = micro_now_ns() + (int64_t)(seconds * 1e9), next = 0;
	uint64_t done = 0;
	const char *before = "";
	printf("{\"marks\": [");
	for (uint64_t i = 0; micro_now_ns() < end; i++) {
		if (i >= QUEUED) {
			CHECK(cuEventSynchronize(events[i % QUEUED]));
			done += bytes;
		}
		copy_once(bytes, to_device);
		CHECK(cuEventRecord(events[i % QUEUED], micro.stream));
		if (micro_now_ns() < next)
			continue;
		next = micro_now_ns() + 100000000;
		printf("%s[%lld,%llu]", before, (long long)micro_now_ns(), (unsigned long long)done);
		before = ",";
	}
	CHECK(cuStreamSynchronize(micro.stream));
	printf("]}\n");
}

/* What keeps the GPU busy tells when it was not: a kernel that begins later than it should after the one before. */
static void mode_busy(uint64_t kernel_ns, double seconds)
{
	enum { QUEUED = 4, GAP_NS = 30000 };
	CUevent events[QUEUED];
	for (int i = 0; i < QUEUED; i++)
		CHECK(cuEventCreate(&events[i], 2));
	int64_t offset = micro_clock_offset(), end = micro_now_ns() + (int64_t)(seconds * 1e9);
	uint64_t last_ns = 0, done = 0;
	const char *before = "";
	printf("{\"gaps\": [");
	for (uint64_t i = 0; micro_now_ns() < end; i++) {
		struct micro_marks *marks = micro.marks + 8 + i % QUEUED;
		if (i >= QUEUED) {
			CHECK(cuEventSynchronize(events[i % QUEUED]));
			done++;
			if (last_ns && marks->ended_ns > last_ns + kernel_ns + GAP_NS)
				printf("%s[%lld,%lld]", before, (long long)last_ns + offset,
				       (long long)(marks->ended_ns - last_ns)),
					before = ",";
			last_ns = marks->ended_ns;
		}
		micro_spin(kernel_ns, 264, micro.marks_address + 16 * (8 + i % QUEUED));
		CHECK(cuEventRecord(events[i % QUEUED], micro.stream));
	}
	CHECK(cuCtxSynchronize());
	printf("], \"done\": %llu}\n", (unsigned long long)done);
}

/* The same with any number of blocks; tells only how many. */
static void mode_fill(uint64_t kernel_ns, unsigned blocks, double seconds)
{
	enum { QUEUED = 4 };
	CUevent events[QUEUED];
	for (int i = 0; i < QUEUED; i++)
		CHECK(cuEventCreate(&events[i], 2));
	int64_t begin = micro_now_ns(), end = begin + (int64_t)(seconds * 1e9);
	uint64_t n = 0;
	for (; micro_now_ns() < end; n++) {
		if (n >= QUEUED)
			CHECK(cuEventSynchronize(events[n % QUEUED]));
		micro_spin(kernel_ns, blocks, micro.marks_address + 16 * (8 + n % QUEUED));
		CHECK(cuEventRecord(events[n % QUEUED], micro.stream));
	}
	CHECK(cuCtxSynchronize());
	printf("{\"kernels\": %llu, \"per_s\": %.2f}\n", (unsigned long long)n,
	       (double)n * 1e9 / (double)(micro_now_ns() - begin));
}

static void allocate(size_t bytes)
{
	CHECK(cuMemAlloc_v2(&device_memory, bytes));
	CHECK(cuMemHostAlloc(&host_memory, bytes, 0));
	memset(host_memory, 1, bytes);
}

static struct job kernel_job(char **us_blocks)
{
	return (struct job){.kernel_ns = strtoull(us_blocks[0], NULL, 10) * 1000,
			    .blocks = (unsigned)atoi(us_blocks[1]),
			    .pause_ns = 3000000,
			    .jitter_ns = 4000000};
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	micro_set_up();
	/* Tells the harness that it may start the others. */
	fprintf(stderr, "ready\n");
	if (strcmp(mode, "launch") == 0) {
		mode_launch(atoi(argv[2]));
	} else if (strcmp(mode, "kernel") == 0 && argc == 5) {
		struct job job = kernel_job(argv + 2);
		mode_latency(&job, atoi(argv[4]));
	} else if (strcmp(mode, "whole") == 0 && argc == 3) {
		struct job job = {.is_whole = true, .pause_ns = 3000000, .jitter_ns = 4000000};
		prepare_whole();
		mode_latency(&job, atoi(argv[2]));
	} else if (strcmp(mode, "fill") == 0 && argc == 5) {
		mode_fill(strtoull(argv[2], NULL, 10) * 1000, (unsigned)atoi(argv[3]), atof(argv[4]));
	} else if (strcmp(mode, "hinted") == 0 && argc == 6) {
		struct job job = kernel_job(argv + 2);
		job.hinted = true;
		job.lead_ns = atoll(argv[5]) * 1000;
		mode_latency(&job, atoi(argv[4]));
	} else if (strcmp(mode, "busy") == 0 && argc == 4) {
		mode_busy(strtoull(argv[2], NULL, 10) * 1000, atof(argv[3]));
	} else if (argc == 5 && (strcmp(mode, "copy") == 0 || strcmp(mode, "stream") == 0)) {
		struct job job = {.bytes = strtoull(argv[2], NULL, 10),
				  .to_device = strcmp(argv[3], "h2d") == 0,
				  .pause_ns = 2000000,
				  .jitter_ns = 3000000};
		allocate(job.bytes);
		if (*mode == 'c')
			mode_latency(&job, atoi(argv[4]));
		else
			mode_stream(job.bytes, job.to_device, atof(argv[4]));
	} else {
		fprintf(stderr, "usage: see the top of bench/gpu/gpu_micro.c\n");
		return 2;
	}
	fflush(stdout);
	return 0;
}
