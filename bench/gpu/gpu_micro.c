/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small driver-API programs for measurements on a real GPU; started by
 * bench/gpu/temporal.py and foresight_gpu.py, natively and under `hb run`. The driver is opened by
 * name, so LD_LIBRARY_PATH decides whose libcuda it is. Every mode prints one
 * JSON object.
 *
 *   gpu-micro launch ROUNDS            ns of single calls: kernel on an own stream, on the null stream, per-thread
 *                                      entry, graph, async copy
 *   gpu-micro kernel US BLOCKS N       launch to synchronize of one kernel every 3 to 7 ms, N times
 *   gpu-micro copy BYTES h2d|d2h N     the same for one copy from or to pinned memory, every 2 to 5 ms
 *   gpu-micro hinted US BLOCKS N LEAD_US
 *                                      `kernel`, with an API hint that long before each launch (0 = at the launch)
 *   gpu-micro held VARIANT US BLOCKS N LEAD_US
 *                                      `kernel`, with holds of its own that long before: what keeps a group resident
 *                                      (variants: table `variants`)
 *   gpu-micro stream BYTES h2d|d2h S   copies without pause, 4 queued, for S seconds
 */
#include "gpu/cuda_abi.h"
#include "gpu/hold_kernel.h"
#include "hummingbird/client.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Spins on the GPU's nanosecond clock; `empty` returns at once. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry spin(.param .u64 ns)\n{\n"
			  ".reg .u64 %rd<5>;\n.reg .pred %p;\n"
			  "ld.param.u64 %rd1, [ns];\nmov.u64 %rd2, %globaltimer;\n"
			  "L: mov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
			  "setp.lt.u64 %p, %rd4, %rd1;\n@%p bra L;\nret;\n}\n"
			  ".visible .entry empty()\n{\nret;\n}\n";

/* clang-format off */
#define CALLS(X) \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) \
	X(cuCtxGetStreamPriorityRange) X(cuModuleLoadData) X(cuModuleGetFunction) \
	X(cuStreamCreateWithPriority) X(cuStreamSynchronize) X(cuLaunchKernel) \
	X(cuLaunchKernel_ptsz) X(cuMemAlloc_v2) X(cuMemHostAlloc) X(cuMemcpyHtoDAsync_v2) \
	X(cuMemcpyDtoHAsync_v2) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) \
	X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuEventCreate) X(cuEventRecord) \
	X(cuEventSynchronize) X(cuCtxSynchronize) X(cuMemHostGetDevicePointer_v2) X(cuMemsetD8Async) \
	X(cuStreamWriteValue32_v2) X(cuStreamWaitValue32_v2) X(cuStreamWaitEvent)
/* clang-format on */

#define DECLARE(name) static __typeof__(&name) p_##name;
CALLS(DECLARE)

static void die(const char *what, int code)
{
	fprintf(stderr, "gpu-micro: %s: %d\n", what, code);
	exit(1);
}

#define CHECK(call) \
	do { \
		CUresult result_ = p_##call; \
		if (result_) \
			die(#call, (int)result_); \
	} while (0)

static CUfunction spin, empty;
static CUstream stream;

static int64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void wait_until(int64_t at_ns)
{
	while (now_ns() < at_ns)
		;
}

static void open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		die(dlerror(), 0);
#define RESOLVE(name) \
	p_##name = (__typeof__(p_##name))dlsym(library, #name); \
	if (!p_##name) \
		die("missing " #name, 0);
	CALLS(RESOLVE)
}

static void set_up(void)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	int least, greatest;
	open_driver();
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, ptx));
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	CHECK(cuModuleGetFunction(&empty, module, "empty"));
	CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(cuStreamCreateWithPriority(&stream, 1 /* non-blocking */, greatest));
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static void print_values(const char *name, int64_t *values, size_t n, bool raw, const char *end)
{
	printf("\"%s\": {\"n\": %zu", name, n);
	if (raw) {
		printf(", \"raw_ns\": [");
		for (size_t i = 0; i < n; i++)
			printf("%s%lld", i ? "," : "", (long long)values[i]);
		printf("]");
	}
	qsort(values, n, sizeof *values, by_value);
	printf(", \"p50_ns\": %lld, \"p90_ns\": %lld, \"p99_ns\": %lld, \"max_ns\": %lld}%s", (long long)values[n / 2],
	       (long long)values[n * 9 / 10], (long long)values[n * 99 / 100], (long long)values[n - 1], end);
}

static void launch_spin(uint64_t ns, unsigned blocks)
{
	void *arguments[] = {&ns};
	CHECK(cuLaunchKernel(spin, blocks, 1, 1, 512, 1, 1, 0, stream, arguments, NULL));
}

/* Runs the GPU up to its working clock. */
static void warm_up(void)
{
	int64_t until = now_ns() + 300000000;
	while (now_ns() < until) {
		launch_spin(100000, 264);
		CHECK(cuStreamSynchronize(stream));
	}
}

/* --- launch --- */

enum { BATCH = 500 };
static CUgraphExec graph;
static CUdeviceptr device_memory;
static void *host_memory;

static void call_own(void)
{
	p_cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}
static void call_null(void)
{
	p_cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}
static void call_thread(void)
{
	p_cuLaunchKernel_ptsz(empty, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}
static void call_graph(void)
{
	p_cuGraphLaunch(graph, stream);
}
static void call_copy(void)
{
	p_cuMemcpyHtoDAsync_v2(device_memory, host_memory, 4096, stream);
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
	CHECK(cuStreamBeginCapture_v2(stream, 0));
	for (int i = 0; i < 4; i++)
		call_own();
	CHECK(cuStreamEndCapture(stream, &template));
	CHECK(cuGraphInstantiateWithFlags(&graph, template, 0));
}

static void mode_launch(int rounds)
{
	size_t n = (size_t)rounds * BATCH;
	int64_t *values = malloc(n * sizeof *values);
	if (!values)
		die("memory", 0);
	make_graph();
	CHECK(cuMemAlloc_v2(&device_memory, 1 << 20));
	CHECK(cuMemHostAlloc(&host_memory, 1 << 20, 0));
	printf("{");
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		for (int round = -3; round < rounds; round++) {
			for (int i = 0; i < BATCH; i++) {
				int64_t begin = now_ns();
				kinds[kind].call();
				if (round >= 0)
					values[round * BATCH + i] = now_ns() - begin;
			}
			CHECK(cuCtxSynchronize());
		}
		print_values(kinds[kind].name, values, n, false,
			     kind + 1 < sizeof kinds / sizeof *kinds ? ", " : "}\n");
	}
	free(values);
}

/* --- latency of one kernel or copy now and then --- */

static void copy_once(size_t bytes, bool to_device)
{
	if (to_device)
		CHECK(cuMemcpyHtoDAsync_v2(device_memory, host_memory, bytes, stream));
	else
		CHECK(cuMemcpyDtoHAsync_v2(host_memory, device_memory, bytes, stream));
}

/* --- holds of our own --- */

static struct {
	CUfunction kernel;
	CUstream stream, second;
	CUevent event;
	CUdeviceptr word, memory;
	_Atomic(uint32_t) *host_word;
} own;

static void own_hold(CUstream on, uint64_t limit_ns)
{
	uint64_t linger_ns = 0, word = own.word;
	void *arguments[] = {&word, &limit_ns, &linger_ns};
	CHECK(cuLaunchKernel(own.kernel, 1, 1, 1, 1, 1, 1, 0, on, arguments, NULL));
}

#define LIMIT_NS 20000000
static void hold_one(void)
{
	own_hold(own.stream, LIMIT_NS);
}
static void hold_two(void)
{
	hold_one();
	own_hold(own.stream, 0);
}
static void hold_two_streams(void)
{
	hold_one();
	own_hold(own.second, LIMIT_NS);
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
	own_hold(own.second, 0);
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
	CHECK(cuMemcpyHtoDAsync_v2(own.memory, host_memory, 4, own.stream));
}
static void wait_in_the_stream(void)
{
	CHECK(cuStreamWaitValue32_v2(own.stream, own.word, HB_HOLD_END, 0));
	own_hold(own.stream, 0);
}
static void hold_nothing(void)
{
}

static const struct variant {
	const char *name;
	void (*hold)(void);
} variants[] = {
	{"none", hold_nothing},
	{"one", hold_one},
	{"two", hold_two},
	{"two-streams", hold_two_streams},
	{"one+event", hold_and_event},
	{"one+kernel-behind-event", hold_and_other_waits},
	{"one+write", hold_and_write},
	{"one+memset", hold_and_set},
	{"one+copy", hold_and_copy},
	{"stream-wait+kernel", wait_in_the_stream},
};

static void set_up_holds(void)
{
	CUmodule module;
	int least, greatest;
	void *page;
	CHECK(cuModuleLoadData(&module, hb_hold_ptx));
	CHECK(cuModuleGetFunction(&own.kernel, module, HB_HOLD_KERNEL_NAME));
	CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(cuStreamCreateWithPriority(&own.stream, 1, greatest));
	CHECK(cuStreamCreateWithPriority(&own.second, 1, greatest));
	CHECK(cuEventCreate(&own.event, 2));
	CHECK(cuMemHostAlloc(&page, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer_v2(&own.word, page, 0));
	CHECK(cuMemAlloc_v2(&own.memory, 4096));
	CHECK(cuMemHostAlloc(&host_memory, 4096, 0));
	own.host_word = page;
	hold_two(); /* loads the kernel */
	*own.host_word = HB_HOLD_END;
	CHECK(cuCtxSynchronize());
}

static const struct variant *find_variant(const char *name)
{
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
		if (strcmp(variants[i].name, name) == 0)
			return &variants[i];
	die(name, 0);
	return NULL;
}

struct job {
	uint64_t kernel_ns;
	unsigned blocks;
	size_t bytes;
	bool to_device;
	int64_t pause_ns, jitter_ns;
	bool hinted;
	int64_t lead_ns;
	const struct variant *held;
};

static void prepare_job(const struct job *job)
{
	int64_t start = now_ns() + job->lead_ns;
	if (job->hinted)
		hb_hint(start);
	if (job->held) {
		*own.host_word = HB_HOLD_KEEP;
		job->held->hold();
	}
	wait_until(start);
}

static void finish_job(const struct job *job)
{
	if (job->held)
		*own.host_word = HB_HOLD_END;
	CHECK(cuStreamSynchronize(stream));
}

static void run_job(const struct job *job)
{
	if (job->bytes)
		copy_once(job->bytes, job->to_device);
	else
		launch_spin(job->kernel_ns, job->blocks);
}

static void mode_latency(const struct job *job, int n)
{
	int64_t *values = malloc((size_t)n * sizeof *values);
	if (!values)
		die("memory", 0);
	srand(1);
	int64_t began = now_ns();
	for (int i = 0; i < n; i++) {
		prepare_job(job);
		int64_t begin = now_ns();
		run_job(job);
		finish_job(job);
		values[i] = now_ns() - begin;
		wait_until(now_ns() + job->pause_ns + (int64_t)((double)rand() / RAND_MAX * (double)job->jitter_ns));
	}
	printf("{\"began_ns\": %lld, \"ended_ns\": %lld, ", (long long)began, (long long)now_ns());
	print_values("latency", values, (size_t)n, true, "}\n");
	free(values);
}

/* Copies without pause, QUEUED in flight; tells the bytes done every 100 ms so that any window can be read off. */
static void mode_stream(size_t bytes, bool to_device, double seconds)
{
	enum { QUEUED = 4 };
	CUevent events[QUEUED];
	for (int i = 0; i < QUEUED; i++)
		CHECK(cuEventCreate(&events[i], 2));
	int64_t end = now_ns() + (int64_t)(seconds * 1e9), next = 0;
	uint64_t done = 0;
	const char *before = "";
	printf("{\"marks\": [");
	for (uint64_t i = 0; now_ns() < end; i++) {
		if (i >= QUEUED) {
			CHECK(cuEventSynchronize(events[i % QUEUED]));
			done += bytes;
		}
		copy_once(bytes, to_device);
		CHECK(cuEventRecord(events[i % QUEUED], stream));
		if (now_ns() < next)
			continue;
		next = now_ns() + 100000000;
		printf("%s[%lld,%llu]", before, (long long)now_ns(), (unsigned long long)done);
		before = ",";
	}
	CHECK(cuStreamSynchronize(stream));
	printf("]}\n");
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
	set_up();
	warm_up();
	/* Tells the harness that it may start the others. */
	fprintf(stderr, "ready\n");
	if (strcmp(mode, "launch") == 0) {
		mode_launch(atoi(argv[2]));
	} else if (strcmp(mode, "kernel") == 0 && argc == 5) {
		struct job job = kernel_job(argv + 2);
		mode_latency(&job, atoi(argv[4]));
	} else if (strcmp(mode, "hinted") == 0 && argc == 6) {
		struct job job = kernel_job(argv + 2);
		job.hinted = true;
		job.lead_ns = atoll(argv[5]) * 1000;
		mode_latency(&job, atoi(argv[4]));
	} else if (strcmp(mode, "held") == 0 && argc == 7) {
		struct job job = kernel_job(argv + 3);
		job.held = find_variant(argv[2]);
		job.lead_ns = atoll(argv[6]) * 1000;
		set_up_holds();
		mode_latency(&job, atoi(argv[5]));
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
