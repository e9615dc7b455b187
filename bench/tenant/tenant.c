/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-tenant: small CUDA programs for tests and demonstrations, on a GPU or on
 * a simulated one. Started plainly or under `hb run`. The usage below lists its modes;
 * tenant_cost.c, tenant_gang.c, tenant_infer.c and bench_mode.c have those of their names.
 */
#include "bench_tenant.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char usage[] =
	"usage: cuda-tenant [--route ROUTE] [--wait] [--default-signals] MODE\n"
	"       cuda-tenant --routes\n"
	"\n"
	"Small CUDA programs for tests and demonstrations. The modes:\n"
	"\n"
	"  work ROUNDS                     every kind of work; prints results that depend on nothing else\n"
	"  train KERNEL_US N               N kernels of KERNEL_US us without pause (N = 0: until SIGTERM);\n"
	"                                  prints JSON\n"
	"  memory CHUNK THREADS PROCESSES  each thread allocates until it is refused; prints what was granted\n"
	"  hold CHUNK N                    N chunks of memory with known bytes; checks them at each line of\n"
	"                                  its input\n"
	"  segments CHUNK N                the same, in a segment that grows by cuMemCreate, as those of\n"
	"                                  PyTorch can\n"
	"  cost CALLS IDLE_MS BUSY_MS      what calls cost this process\n"
	"  devices                         the UUIDs of the devices\n"
	"  capture                         records a graph, pausing in the middle\n"
	"  child fork|exec|spawn           uses CUDA, and again in a child\n"
	"  gang SHAPE KERNEL_US N [PAUSE_US]  N steps on all GPUs, which wait for each other\n"
	"  infer [OPTION...]               a service with requests at random; prints their latency;\n"
	"                                  options: --rate, --seconds, --kernels, --kernel-us, --blocks,\n"
	"                                  --input-kb, --eager, --seed\n"
	"  bench KIND [ARGUMENT...]        a program of the benchmark harness\n"
	"\n"
	"  --route ROUTE      find the driver by this route; --routes lists them\n"
	"  --wait             say \"joined\" before the work and \"done\" after it, and wait for a line of\n"
	"                     the standard input each time\n"
	"  --default-signals  SIGTERM kills it while its kernels run\n"
	"  -h, --help\n";

/* The format is described in docs/simcuda.md; host functions are those of tenant_kernels.c. */
static const char image[] = "HBSIM1\n"
			    "kernel step ns_param=0 params=8,8,8 host=tenant_kernel_step\n"
			    "kernel twice ns=1000 params=8 host=tenant_kernel_twice\n";

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry step(.param .u64 ns, .param .u64 word, .param .u64 value)\n{\n"
	".reg .u64 %rd<8>;\n.reg .u32 %r<3>;\n.reg .pred %p, %q;\n"
	"ld.param.u64 %rd1, [ns];\nmov.u64 %rd2, %globaltimer;\n"
	"L: mov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
	"setp.lt.u64 %p, %rd4, %rd1;\n@%p bra L;\n"
	"ld.param.u64 %rd5, [word];\nld.param.u64 %rd6, [value];\n"
	"mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nor.b32 %r1, %r1, %r2;\nsetp.ne.u32 %q, %r1, 0;\n@%q bra E;\n"
	"setp.eq.u64 %q, %rd5, 0;\n@%q bra E;\nld.global.u64 %rd7, [%rd5];\nadd.u64 %rd7, %rd7, %rd6;\n"
	"st.global.u64 [%rd5], %rd7;\nE: ret;\n}\n"
	".visible .entry twice(.param .u64 word)\n{\n.reg .u64 %rd<3>;\n"
	"ld.param.u64 %rd1, [word];\nld.global.u64 %rd2, [%rd1];\nadd.u64 %rd2, %rd2, %rd2;\n"
	"st.global.u64 [%rd1], %rd2;\nret;\n}\n";

enum { BLOCKS = 264, THREADS = 512, QUEUED = 8 };

static CUmodule module;
static CUfunction step, twice;
static bool waiting, default_signals;
static volatile sig_atomic_t asked_to_end;

void tenant_begin(void)
{
	CUdevice device;
	CUcontext context;
	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	if (cu.cuModuleLoadData(&module, image) != CUDA_SUCCESS) /* not a simulated GPU */
		CU(cuModuleLoadData(&module, ptx));
	CU(cuModuleGetFunction(&step, module, "step"));
	CU(cuModuleGetFunction(&twice, module, "twice"));
}

void tenant_end(void)
{
	CUdevice device;
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRelease(device));
}

void tenant_step(CUstream stream, uint64_t ns, CUdeviceptr word, uint64_t value)
{
	void *arguments[] = {&ns, &word, &value};
	CU(cuLaunchKernel(step, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL));
}

void tenant_twice(CUstream stream, CUdeviceptr word)
{
	void *arguments[] = {&word};
	CU(cuLaunchKernel(twice, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

CUdeviceptr tenant_word(void)
{
	CUdeviceptr word;
	CU(cuMemAlloc(&word, sizeof(uint64_t)));
	CU(cuMemsetD8Async(word, 0, sizeof(uint64_t), NULL));
	CU(cuStreamSynchronize(NULL));
	return word;
}

uint64_t tenant_read(CUdeviceptr word)
{
	uint64_t value = 0;
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH(&value, word, sizeof value));
	return value;
}

/* --- talking ------------------------------------------------------------------------------ */

void tenant_say(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

void tenant_pause(const char *word)
{
	int c;
	tenant_say("%s", word);
	while ((c = getchar()) != EOF && c != '\n')
		;
}

static void end_soon(int signal)
{
	asked_to_end = 1;
}

static void join_gpu(void)
{
	if (!default_signals)
		signal(SIGTERM, end_soon);
	tenant_begin();
	if (waiting)
		tenant_pause("joined");
}

static int end_mode(int status)
{
	if (waiting)
		tenant_pause("done");
	tenant_end();
	return status;
}

/* --- train -------------------------------------------------------------------------------- */

/* Launches with QUEUED in flight; returns how many. */
static uint64_t launch_repeatedly(CUstream stream, CUevent events[QUEUED], double kernel_us, uint64_t n,
				  CUdeviceptr word)
{
	uint64_t made = 0;
	for (; (!n || made < n) && !asked_to_end; made++) {
		CUevent event = events[made % QUEUED];
		if (made >= QUEUED)
			CU(cuEventSynchronize(event));
		tenant_step(stream, (uint64_t)(kernel_us * 1e3), word, 1);
		CU(cuEventRecord(event, stream));
		if (made == 0)
			tenant_say("running");
	}
	return made;
}

static int run_training(double kernel_us, uint64_t n)
{
	CUstream stream;
	CUevent events[QUEUED], first, last;
	float ms = 0;
	join_gpu();
	CUdeviceptr word = tenant_word();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < QUEUED; i++)
		CU(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	CU(cuEventCreate(&first, 0));
	CU(cuEventCreate(&last, 0));
	CU(cuEventRecord(first, stream));
	uint64_t made = launch_repeatedly(stream, events, kernel_us, n, word);
	CU(cuEventRecord(last, stream));
	CU(cuEventSynchronize(last));
	CU(cuEventElapsedTime(&ms, first, last));
	for (int i = 0; i < QUEUED; i++)
		CU(cuEventDestroy(events[i]));
	CU(cuEventDestroy(first));
	CU(cuEventDestroy(last));
	bool right = tenant_read(word) == made;
	tenant_say("{\"kernels\": %llu, \"right\": %s, \"ms\": %.3f, \"share\": %.4f}", (unsigned long long)made,
		   right ? "true" : "false", (double)ms, (double)made * kernel_us / 1e3 / (ms > 0 ? (double)ms : 1));
	return end_mode(right ? 0 : 5);
}

/* --- small ones ---------------------------------------------------------------------------- */

static int print_devices(void)
{
	int n;
	CU(cuInit(0));
	CU(cuDeviceGetCount(&n));
	for (int i = 0; i < n; i++) {
		CUdevice device;
		CUuuid uuid;
		CU(cuDeviceGet(&device, i));
		CU(cuDeviceGetUuid(&uuid, device));
		for (size_t k = 0; k < sizeof uuid.bytes; k++)
			printf("%02x", (unsigned char)uuid.bytes[k]);
		putchar('\n');
	}
	return 0;
}

static int record_graph(void)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	join_gpu();
	CUdeviceptr word = tenant_word();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	tenant_step(stream, 1000, word, 3);
	tenant_pause("capturing");
	tenant_twice(stream, word);
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 3; i++)
		CU(cuGraphLaunch(exec, stream));
	uint64_t value = tenant_read(word);
	tenant_say("graph: %llu", (unsigned long long)value);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	return end_mode(value == 42 ? 0 : 5);
}

static int wait_for(pid_t child)
{
	int status = -1;
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void execute_mode(const char *mode)
{
	char *arguments[] = {(char *)(uintptr_t) "cuda-tenant", (char *)(uintptr_t)mode, (char *)(uintptr_t) "2", NULL};
	execve("/proc/self/exe", arguments, environ);
	_exit(127);
}

/*
 * fork: the child does not use CUDA, the parent continues; exec: the child becomes another program that uses CUDA; spawn:
 * children that are forked before CUDA is used, and use it.
 */
static int use_in_child(const char *how)
{
	bool early = strcmp(how, "spawn") == 0;
	fflush(stdout);
	pid_t first = early ? fork() : -1;
	if (first == 0) {
		join_gpu();
		return tenant_work(1);
	}
	join_gpu();
	CUdeviceptr word = tenant_word();
	tenant_step(NULL, 500000, word, 1);
	fflush(stdout);
	pid_t second = fork();
	if (second == 0) {
		if (strcmp(how, "fork") == 0)
			_exit(7);
		execute_mode("work");
	}
	int status = wait_for(second);
	if (early)
		tenant_say("early child: %d", wait_for(first));
	tenant_step(NULL, 1000, word, 1);
	tenant_say("child: %d, word: %llu", status, (unsigned long long)tenant_read(word));
	return end_mode(0);
}

static int refuse_arguments(void)
{
	fputs(usage, stderr);
	return 2;
}

static int run(int argc, char **argv)
{
	const char *mode = argc > 0 ? argv[0] : "";
	if (strcmp(mode, "infer") == 0)
		return tenant_infer(argc, argv);
	if (strcmp(mode, "bench") == 0)
		return tenant_bench(argc - 1, argv + 1);
	if (strcmp(mode, "work") == 0 && argc == 2) {
		join_gpu();
		return end_mode(tenant_work(atoi(argv[1])));
	}
	if (strcmp(mode, "train") == 0 && argc == 3)
		return run_training(atof(argv[1]), strtoull(argv[2], NULL, 10));
	if (strcmp(mode, "gang") == 0 && argc >= 4)
		return tenant_gang(argv[1], atof(argv[2]), strtoull(argv[3], NULL, 10),
				   argc > 4 ? strtoull(argv[4], NULL, 10) : 0);
	if (strcmp(mode, "memory") == 0 && argc == 4)
		return tenant_memory(strtoull(argv[1], NULL, 10), atoi(argv[2]), atoi(argv[3]));
	if (strcmp(mode, "hold") == 0 && argc == 3)
		return tenant_hold(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), false);
	if (strcmp(mode, "segments") == 0 && argc == 3)
		return tenant_hold(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), true);
	if (strcmp(mode, "cost") == 0 && argc == 4) {
		join_gpu();
		return end_mode(tenant_cost((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), (unsigned)atoi(argv[3])));
	}
	if (strcmp(mode, "devices") == 0)
		return print_devices();
	if (strcmp(mode, "capture") == 0)
		return record_graph();
	if (strcmp(mode, "child") == 0 && argc == 2)
		return use_in_child(argv[1]);
	return refuse_arguments();
}

int main(int argc, char **argv)
{
	const char *route = NULL;
	int i = 1;
	for (; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			return 0;
		}
		if (strcmp(argv[i], "--routes") == 0) {
			driver_list_routes();
			return 0;
		}
		if (strcmp(argv[i], "--wait") == 0)
			waiting = true;
		else if (strcmp(argv[i], "--default-signals") == 0)
			default_signals = true;
		else if (strcmp(argv[i], "--route") == 0 && i + 1 < argc)
			route = argv[++i];
		else
			return refuse_arguments();
	}
	if (i == argc)
		return refuse_arguments();
	driver_open(route);
	return run(argc - i, argv + i);
}
