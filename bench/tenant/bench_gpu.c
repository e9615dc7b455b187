/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU as `cuda-tenant bench` uses it: kernels, stream and clocks; see
 * bench_mode.h. On a real GPU the kernels are PTX: a dependent chain of
 * multiplications whose speed is measured at the start, so that a preempted
 * kernel does not end early, as one that watches a clock would.
 */
#include "bench_mode.h"
#include "tenant_kernels.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char image[] = "HBSIM1\n"
			    "kernel spin ns_param=0 params=8,8\n"
			    "kernel trial ns_param=0 params=8,8,8 host=tenant_kernel_stamp\n"
			    "kernel echo ns=1000 params=8,8,4\n"
			    "kernel stencil ns_per_block=4 params=8,8,8 memory_share=0.8\n"
			    "kernel every_sm ns=2000 params=8,4\n";

#define CHAIN "mad.lo.u32 %r1, %r1, %r1, 7;\n"
/* Four steps of the chain a loop; the store never happens, but the compiler cannot know. */
#define SPIN_LOOP \
	"mov.u64 %rd2, 0;\nmov.u32 %r1, %tid.x;\n" \
	"setp.ge.u64 %p, %rd2, %rd1;\n@%p bra D;\n" \
	"L: " CHAIN CHAIN CHAIN CHAIN "add.u64 %rd2, %rd2, 1;\nsetp.lt.u64 %p, %rd2, %rd1;\n@%p bra L;\n" \
	"setp.eq.u32 %p, %r1, 123456789;\n@%p st.global.u32 [%rd3], %r1;\nD: ret;\n}\n"

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry spin(.param .u64 loops, .param .u64 out)\n{\n"
	".reg .u64 %rd<4>;\n.reg .u32 %r<2>;\n.reg .pred %p;\n"
	"ld.param.u64 %rd1, [loops];\nld.param.u64 %rd3, [out];\n" SPIN_LOOP
	".visible .entry trial(.param .u64 loops, .param .u64 stamp, .param .u64 out)\n{\n"
	".reg .u64 %rd<6>;\n.reg .u32 %r<3>;\n.reg .pred %p, %q;\n"
	"mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nor.b32 %r1, %r1, %r2;\nsetp.ne.u32 %q, %r1, 0;\n@%q bra S;\n"
	"ld.param.u64 %rd4, [stamp];\nmov.u64 %rd5, %globaltimer;\nst.volatile.global.u64 [%rd4], %rd5;\n"
	"S: ld.param.u64 %rd1, [loops];\nld.param.u64 %rd3, [out];\n" SPIN_LOOP
	/* Answers `n` times: waits for the host's word to become 1, 2, ..., and notes the time; gives up after 50 ms each. */
	".visible .entry echo(.param .u64 word, .param .u64 times, .param .u32 n)\n{\n"
	".reg .u64 %rd<7>;\n.reg .u32 %r<4>;\n.reg .pred %p;\n"
	"ld.param.u64 %rd1, [word];\nld.param.u64 %rd2, [times];\nld.param.u32 %r1, [n];\nmov.u32 %r2, 1;\n"
	"N: setp.gt.u32 %p, %r2, %r1;\n@%p bra E;\nmov.u64 %rd3, %globaltimer;\n"
	"W: mov.u64 %rd4, %globaltimer;\nsub.u64 %rd5, %rd4, %rd3;\nsetp.gt.u64 %p, %rd5, 50000000;\n@%p bra E;\n"
	"ld.volatile.global.u32 %r3, [%rd1];\nsetp.lt.u32 %p, %r3, %r2;\n@%p bra W;\n"
	"mov.u64 %rd4, %globaltimer;\nst.volatile.global.u64 [%rd2], %rd4;\nmembar.sys;\n"
	"add.u64 %rd2, %rd2, 8;\nadd.u32 %r2, %r2, 1;\nbra N;\nE: ret;\n}\n"
	".visible .entry stencil(.param .u64 from, .param .u64 to, .param .u64 n)\n{\n"
	".reg .u64 %rd<7>;\n.reg .u32 %r<4>;\n.reg .f32 %f<5>;\n.reg .pred %p;\n"
	"mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
	"mul.wide.u32 %rd1, %r1, %r2;\ncvt.u64.u32 %rd2, %r3;\nadd.u64 %rd1, %rd1, %rd2;\nadd.u64 %rd1, %rd1, 1;\n"
	"ld.param.u64 %rd3, [n];\nsub.u64 %rd3, %rd3, 1;\nsetp.ge.u64 %p, %rd1, %rd3;\n@%p bra E;\n"
	"ld.param.u64 %rd4, [from];\nld.param.u64 %rd5, [to];\nshl.b64 %rd6, %rd1, 2;\n"
	"add.u64 %rd4, %rd4, %rd6;\nadd.u64 %rd5, %rd5, %rd6;\n"
	"ld.global.f32 %f1, [%rd4+-4];\nld.global.f32 %f2, [%rd4];\nld.global.f32 %f3, [%rd4+4];\n"
	"add.f32 %f4, %f1, %f3;\nfma.rn.f32 %f4, %f2, 0f40000000, %f4;\nmul.f32 %f4, %f4, 0f3E800000;\n"
	"st.global.f32 [%rd5], %f4;\nE: ret;\n}\n"
	/* The first thread of each block counts it and waits until all blocks are counted; gives up after 20 ms. */
	".visible .entry every_sm(.param .u64 counter, .param .u32 goal)\n{\n"
	".reg .u64 %rd<5>;\n.reg .u32 %r<5>;\n.reg .pred %p;\n"
	"ld.param.u64 %rd1, [counter];\nld.param.u32 %r1, [goal];\n"
	"mov.u32 %r2, %tid.x;\nsetp.ne.u32 %p, %r2, 0;\n@%p bra W;\n"
	"atom.global.add.u32 %r3, [%rd1], 1;\nmov.u64 %rd2, %globaltimer;\n"
	"L: ld.volatile.global.u32 %r4, [%rd1];\nsub.s32 %r3, %r4, %r1;\nsetp.ge.s32 %p, %r3, 0;\n@%p bra W;\n"
	"mov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\nsetp.lt.u64 %p, %rd4, 20000000;\n@%p bra L;\n"
	"W: bar.sync 0;\nret;\n}\n";

/* Full: all threads of every SM of an H200; half leaves room for others. */
const struct bench_shape bench_shape_full = {.blocks = 528, .threads = 512};
const struct bench_shape bench_shape_half = {.blocks = 264, .threads = 512};

#define ECHOES 64
#define MOST_SHARED 232448 /* of a block, Hopper */

CUstream bench_stream;

static CUfunction spin, trial, echo, stencil, every_sm;
static CUdeviceptr scratch, counter;
static double loops_per_ns; /* of bench_shape_full */

/* Memory that host and GPU see. */
static struct shared_page {
	uint32_t word;
	int64_t stamp;
	int64_t echoes[ECHOES];
} volatile *page;
static CUdeviceptr page_device;

_Noreturn void bench_fail(const char *format, ...)
{
	va_list arguments;
	fflush(stdout);
	fputs("cuda-tenant bench: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	_Exit(1);
}

void *bench_calloc(size_t n, size_t size)
{
	void *memory = calloc(n, size);
	if (!memory)
		bench_fail("out of memory");
	return memory;
}

bool bench_simulated(void)
{
	return tenant_sim_table != NULL;
}

static void make_context(void)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	const void *found = NULL;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CU(cuInit(0));
	if (cu.cuGetExportTable(&found, &id) == CUDA_SUCCESS)
		tenant_sim_table = found;
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(&module, bench_simulated() ? image : ptx));
	CU(cuModuleGetFunction(&spin, module, "spin"));
	CU(cuModuleGetFunction(&trial, module, "trial"));
	CU(cuModuleGetFunction(&echo, module, "echo"));
	CU(cuModuleGetFunction(&stencil, module, "stencil"));
	CU(cuModuleGetFunction(&every_sm, module, "every_sm"));
	CU(cuFuncSetAttribute(spin, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, MOST_SHARED));
}

static void make_stream(void)
{
	const char *asked = getenv("HB_BENCH_STREAM");
	int least, greatest;
	CU(cuCtxGetStreamPriorityRange(&least, &greatest));
	CU(cuStreamCreateWithPriority(&bench_stream, CU_STREAM_NON_BLOCKING,
				      asked && strcmp(asked, "high") == 0 ? greatest : least));
}

static void make_page(void)
{
	void *memory;
	CU(cuMemHostAlloc(&memory, sizeof *page, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(memory, 0, sizeof *page);
	CU(cuMemHostGetDevicePointer(&page_device, memory, 0));
	page = memory;
	CU(cuMemAlloc(&scratch, 4096));
	CU(cuMemAlloc(&counter, 4096));
	CU(cuMemsetD8Async(counter, 0, 4096, bench_stream));
	CU(cuStreamSynchronize(bench_stream));
}

static void launch_loops(CUstream stream, const struct bench_shape *shape, uint64_t loops)
{
	void *arguments[] = {&loops, &scratch};
	if (shape->cooperative)
		CU(cuLaunchCooperativeKernel(spin, shape->blocks, 1, 1, shape->threads, 1, 1, shape->shared_bytes,
					     stream, arguments));
	else
		CU(cuLaunchKernel(spin, shape->blocks, 1, 1, shape->threads, 1, 1, shape->shared_bytes, stream,
				  arguments, NULL));
}

static void sleep_ns(int64_t ns)
{
	struct timespec time = {ns / HB_NS_PER_S, ns % HB_NS_PER_S};
	while (ns > 0 && nanosleep(&time, &time) < 0 && errno == EINTR)
		;
}

/* Programs of one measurement start together, but only one at a time measures its speed, unless it hangs. Closing the file ends the turn. */
static int wait_for_turn(void)
{
	enum { POLL_NS = 5000000, POLLS = 2000 };
	const char *path = getenv("HB_BENCH_LOCK");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	for (int i = 0; fd >= 0 && i < POLLS && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
		sleep_ns(POLL_NS);
	return fd;
}

/* The fastest of many short runs, after the GPU has reached its working clock. */
static void measure_speed(void)
{
	enum { LOOPS = 500, WARM_NS = 150000000, RUNS = 20 };
	loops_per_ns = 1;
	if (bench_simulated())
		return;
	int turn = wait_for_turn();
	int64_t until = bench_host_ns() + WARM_NS, best = INT64_MAX;
	for (int run = 0; run < RUNS || bench_host_ns() < until; run++) {
		int64_t begin = bench_host_ns();
		for (int i = 0; i < 8; i++)
			launch_loops(bench_stream, &bench_shape_full, LOOPS);
		CU(cuStreamSynchronize(bench_stream));
		int64_t took = bench_host_ns() - begin;
		best = took < best ? took : best;
	}
	loops_per_ns = 8.0 * LOOPS / (double)best;
	if (turn >= 0)
		close(turn);
}

void bench_gpu_open(void)
{
	make_context();
	make_stream();
	make_page();
	measure_speed();
	bench_clock_difference(&(int64_t){0});
}

void bench_gpu_close(void)
{
	CUdevice device;
	CU(cuCtxSynchronize());
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRelease(device));
}

void bench_device_name(char *name, int size)
{
	CUdevice device;
	CU(cuDeviceGet(&device, 0));
	CU(cuDeviceGetName(name, size, device));
}

/*
 * The chain's speed is bound by what an SM can issue, so fewer threads on an SM
 * go faster, down to a sixth of what fits, where latency bounds it.
 */
static uint64_t loops_of(const struct bench_shape *shape, int64_t ns)
{
	double threads = (double)shape->blocks * shape->threads;
	double full = (double)bench_shape_full.blocks * bench_shape_full.threads;
	double faster = threads < full ? full / threads : 1;
	faster = faster > 6 ? 6 : faster;
	return (uint64_t)((double)ns * loops_per_ns * (bench_simulated() ? 1 : faster));
}

void bench_spin_on(CUstream stream, const struct bench_shape *shape, int64_t ns)
{
	launch_loops(stream, shape, loops_of(shape, ns));
}

void bench_spin(const struct bench_shape *shape, int64_t ns)
{
	bench_spin_on(bench_stream, shape, ns);
}

/* The counter keeps its value from launch to launch. */
void bench_every_sm(void)
{
	static uint32_t goal;
	static int sms;
	if (!sms)
		CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	goal += 2 * (uint32_t)sms;
	void *arguments[] = {&counter, &goal};
	CU(cuLaunchKernel(every_sm, 2 * (unsigned)sms, 1, 1, 1024, 1, 1, 0, bench_stream, arguments, NULL));
}

CUgraphExec bench_record(void (*queue)(void))
{
	CUgraph recorded;
	CUgraphExec graph;
	CU(cuStreamBeginCapture(bench_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	queue();
	CU(cuStreamEndCapture(bench_stream, &recorded));
	CU(cuGraphInstantiateWithFlags(&graph, recorded, 0));
	return graph;
}

void bench_trial(int64_t ns)
{
	uint64_t loops = loops_of(&bench_shape_half, ns);
	CUdeviceptr stamp = page_device + offsetof(struct shared_page, stamp);
	void *arguments[] = {&loops, &stamp, &scratch};
	page->stamp = 0;
	CU(cuLaunchKernel(trial, bench_shape_half.blocks, 1, 1, bench_shape_half.threads, 1, 1, 0, bench_stream,
			  arguments, NULL));
}

int64_t bench_stamp(void)
{
	return page->stamp;
}

void bench_stencil(CUdeviceptr from, CUdeviceptr to, size_t bytes)
{
	uint64_t n = bytes / sizeof(float);
	void *arguments[] = {&from, &to, &n};
	CU(cuLaunchKernel(stencil, (unsigned)((n + 255) / 256), 1, 1, 256, 1, 1, 0, bench_stream, arguments, NULL));
}

/* --- clocks ------------------------------------------------------------------------------------ */

int64_t bench_host_ns(void)
{
	return hb_clock_now_ns();
}

int64_t bench_now_ns(void)
{
	return bench_simulated() ? tenant_sim_table->now_ns() : bench_host_ns();
}

/* On a real GPU the last 0.2 ms are spent spinning, because a processor that has slept launches later. */
void bench_wait_until(int64_t at_ns)
{
	enum { SPIN_NS = 200000 };
	if (bench_simulated()) {
		/* The scale of the simulated clock is not known here, so each sleep is shorter than what is left at any scale. */
		for (int64_t left; (left = at_ns - bench_now_ns()) > 0;)
			sleep_ns(left < 2000000 ? left : left / 2);
		return;
	}
	sleep_ns(at_ns - bench_now_ns() - SPIN_NS);
	while (bench_now_ns() < at_ns)
		;
}

/* Reads both clocks several times and returns the reading during which the process was interrupted least. */
struct bench_clocks bench_read_clocks(void)
{
	enum { READINGS = 20 };
	struct bench_clocks best = {0};
	int64_t shortest = INT64_MAX;
	for (int i = 0; i < READINGS; i++) {
		int64_t before = bench_host_ns(), now = bench_now_ns(), took = bench_host_ns() - before;
		if (took >= shortest)
			continue;
		shortest = took;
		best = (struct bench_clocks){.host_ns = before + took / 2, .now_ns = now};
	}
	return best;
}

int64_t bench_clock_difference(int64_t *round_trip_ns)
{
	int64_t best = INT64_MAX, difference = 0;
	*round_trip_ns = 0;
	if (bench_simulated())
		return 0;
	uint32_t n = ECHOES;
	CUdeviceptr times = page_device + offsetof(struct shared_page, echoes);
	void *arguments[] = {&page_device, &times, &n};
	page->word = 0;
	for (unsigned i = 0; i < n; i++)
		page->echoes[i] = 0;
	CU(cuLaunchKernel(echo, 1, 1, 1, 1, 1, 1, 0, bench_stream, arguments, NULL));
	for (unsigned i = 0; i < n; i++) {
		int64_t sent = bench_host_ns(), seen = sent;
		page->word = i + 1;
		while (!page->echoes[i] && seen < sent + 100000000)
			seen = bench_host_ns();
		if (!page->echoes[i])
			break; /* the kernel has given up */
		if (seen - sent >= best)
			continue;
		best = seen - sent;
		difference = page->echoes[i] - (sent + seen) / 2;
	}
	CU(cuStreamSynchronize(bench_stream));
	if (best == INT64_MAX)
		bench_fail("the GPU did not answer within 0.1 s, so its clock cannot be compared");
	*round_trip_ns = best;
	return difference;
}
