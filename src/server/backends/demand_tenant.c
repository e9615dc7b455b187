/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-demand-tenant: the program beside which the demand of a model is measured (server/models/demand_trial.h). The server
 * starts it like a worker of low priority, with the page of demand_page.h as the first of the descriptors in HB_WORKER_FDS
 * and a doorbell, an eventfd, as the second.
 *
 * At its start it measures how long a kernel takes that fills all SMs, so that the server sees whether a limit of SMs is in
 * force, and the speed of the link to the host. Then it executes what the page asks for. It must give the GPU back soon:
 * its kernels are short, and only a few are launched ahead.
 */
#include "nvidia/cuda_abi.h"
#include "server/backends/demand_page.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define THREADS 1024
/* Half of an H200's SMs with a block of this size each can use all of the memory bandwidth. */
#define SMS_PER_BLOCK 2
#define PROBE_BLOCKS_PER_SM 16
#define PROBE_TRIES 5
#define PROBE_NS 50000
#define KERNEL_NS 500000
#define AHEAD 6
/* Each half is larger than the L2 cache of any GPU that we know. */
#define HALF_BYTES (UINT64_C(128) << 20)
#define LINK_BYTES (UINT64_C(32) << 20)
#define SMALL_BYTES 4096

#define CALLS(X) \
	X(cuInit) \
	X(cuDeviceGet) \
	X(cuDeviceGetAttribute) \
	X(cuDevicePrimaryCtxRetain) \
	X(cuCtxSetCurrent) \
	X(cuModuleLoadData) \
	X(cuModuleGetFunction) \
	X(cuMemAlloc_v2) \
	X(cuMemHostAlloc) \
	X(cuMemFreeHost) \
	X(cuMemcpyHtoDAsync_v2) \
	X(cuMemcpyDtoHAsync_v2) \
	X(cuStreamCreate) \
	X(cuEventCreate) \
	X(cuEventRecord) \
	X(cuEventSynchronize) \
	X(cuEventQuery) \
	X(cuEventElapsedTime) \
	X(cuLaunchKernel)

static struct {
#define X(name) __typeof__(name) *name;
	CALLS(X)
#undef X
} cu;

static struct hb_demand_page *page;
static int doorbell;
static CUstream stream;
static CUfunction kernels[HB_DEMAND_END];
static CUdeviceptr buffer;
static CUevent begin, end, ahead[AHEAD];

/* Both kernels run for `ns`. The second one copies memory; each thread copies 64 bytes between two looks at the clock. */
static const char ptx[] = ".version 7.0\n"
			  ".target sm_70\n"
			  ".address_size 64\n"
			  ".visible .entry hb_demand_compute(.param .u64 ns)\n"
			  "{\n"
			  ".reg .u64 %now, %end;\n"
			  ".reg .pred %more;\n"
			  "ld.param.u64 %end, [ns];\n"
			  "mov.u64 %now, %globaltimer;\n"
			  "add.u64 %end, %end, %now;\n"
			  "SPIN:\n"
			  "mov.u64 %now, %globaltimer;\n"
			  "setp.lt.u64 %more, %now, %end;\n"
			  "@%more bra SPIN;\n"
			  "ret;\n"
			  "}\n"
			  ".visible .entry hb_demand_memory(.param .u64 ns, .param .u64 from, .param .u64 bytes)\n"
			  "{\n"
			  ".reg .u64 %now, %end, %from, %bytes, %first, %at, %stride, %most, %in<4>, %out<4>;\n"
			  ".reg .u32 %block, %size, %thread, %blocks, %a<4>, %b<4>, %c<4>, %d<4>;\n"
			  ".reg .pred %more, %over;\n"
			  "ld.param.u64 %end, [ns];\n"
			  "ld.param.u64 %from, [from];\n"
			  "ld.param.u64 %bytes, [bytes];\n"
			  "mov.u64 %now, %globaltimer;\n"
			  "add.u64 %end, %end, %now;\n"
			  "mov.u32 %block, %ctaid.x;\n"
			  "mov.u32 %size, %ntid.x;\n"
			  "mov.u32 %thread, %tid.x;\n"
			  "mov.u32 %blocks, %nctaid.x;\n"
			  "mad.lo.u32 %thread, %block, %size, %thread;\n"
			  "mul.wide.u32 %first, %thread, 16;\n"
			  "mul.lo.u32 %blocks, %blocks, %size;\n"
			  "mul.wide.u32 %stride, %blocks, 16;\n"
			  "shl.b64 %most, %stride, 2;\n"
			  "sub.u64 %most, %bytes, %most;\n"
			  "mov.u64 %at, %first;\n"
			  "COPY:\n"
			  "add.u64 %in0, %from, %at;\n"
			  "add.u64 %in1, %in0, %stride;\n"
			  "add.u64 %in2, %in1, %stride;\n"
			  "add.u64 %in3, %in2, %stride;\n"
			  "ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%in0];\n"
			  "ld.global.v4.u32 {%b0, %b1, %b2, %b3}, [%in1];\n"
			  "ld.global.v4.u32 {%c0, %c1, %c2, %c3}, [%in2];\n"
			  "ld.global.v4.u32 {%d0, %d1, %d2, %d3}, [%in3];\n"
			  "add.u64 %out0, %in0, %bytes;\n"
			  "add.u64 %out1, %in1, %bytes;\n"
			  "add.u64 %out2, %in2, %bytes;\n"
			  "add.u64 %out3, %in3, %bytes;\n"
			  "st.global.v4.u32 [%out0], {%a0, %a1, %a2, %a3};\n"
			  "st.global.v4.u32 [%out1], {%b0, %b1, %b2, %b3};\n"
			  "st.global.v4.u32 [%out2], {%c0, %c1, %c2, %c3};\n"
			  "st.global.v4.u32 [%out3], {%d0, %d1, %d2, %d3};\n"
			  "sub.u64 %at, %out3, %bytes;\n"
			  "sub.u64 %at, %at, %from;\n"
			  "add.u64 %at, %at, %stride;\n"
			  "setp.gt.u64 %over, %at, %most;\n"
			  "@%over mov.u64 %at, %first;\n"
			  "mov.u64 %now, %globaltimer;\n"
			  "setp.lt.u64 %more, %now, %end;\n"
			  "@%more bra COPY;\n"
			  "ret;\n"
			  "}\n";

static const char simulated[] = "HBSIM1\n"
				"kernel hb_demand_compute ns_param=0 params=8\n"
				"kernel hb_demand_memory ns_param=0 params=8,8,8 memory_share=1\n";

static _Noreturn void give_up(const char *what, int result)
{
	snprintf(page->error, sizeof(page->error), "%s: CUDA error %d", what, result);
	atomic_store(&page->state, HB_DEMAND_UNABLE);
	exit(1);
}

/* Ends the program if the driver refuses a call. */
#define CU(call) \
	do { \
		CUresult result_ = cu.call; \
		if (result_ != CUDA_SUCCESS) \
			give_up(#call, (int)result_); \
	} while (0)

static void find_calls(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
#define X(name) \
	if (!driver || !(*(void **)&cu.name = dlsym(driver, #name))) \
		give_up("libcuda.so.1 has no " #name, 0);
	CALLS(X)
#undef X
}

static void launch(enum hb_demand_mode mode, uint32_t blocks, uint64_t ns)
{
	uint64_t bytes = HALF_BYTES;
	void *arguments[] = {&ns, &buffer, &bytes};
	CU(cuLaunchKernel(kernels[mode], blocks ? blocks : 1, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL));
}

/* Returns the GPU's time from `begin` to `end`, which has been recorded. */
static double elapsed_ns(void)
{
	float ms = 0;
	CU(cuEventSynchronize(end));
	CU(cuEventElapsedTime(&ms, begin, end));
	return (double)ms * 1e6;
}

/* ---- the start ---- */

static void open_gpu(void)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	int sms = 0;
	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	if (!page->sms)
		page->sms = (uint32_t)sms;
	if (cu.cuModuleLoadData(&module, ptx) != CUDA_SUCCESS)
		CU(cuModuleLoadData(&module, simulated));
	CU(cuModuleGetFunction(&kernels[HB_DEMAND_COMPUTE], module, "hb_demand_compute"));
	CU(cuModuleGetFunction(&kernels[HB_DEMAND_MEMORY], module, "hb_demand_memory"));
	CU(cuMemAlloc_v2(&buffer, 2 * HALF_BYTES));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&end, CU_EVENT_DEFAULT));
	for (int i = 0; i < AHEAD; i++)
		CU(cuEventCreate(&ahead[i], CU_EVENT_DEFAULT));
}

static double keep_least(double least, double ns, int try)
{
	return try == 0 || ns < least ? ns : least;
}

static void probe_sms(void)
{
	for (int try = 0; try < PROBE_TRIES; try++) {
		CU(cuEventRecord(begin, stream));
		launch(HB_DEMAND_COMPUTE, PROBE_BLOCKS_PER_SM * page->sms, PROBE_NS);
		CU(cuEventRecord(end, stream));
		page->probe_ns = keep_least(page->probe_ns, elapsed_ns(), try);
	}
}

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* By the clock of the host, as the server times the copies of workers. */
static double time_copy(void *host, uint64_t bytes, bool back)
{
	double least_ns = 0;
	for (int try = 0; try < PROBE_TRIES; try++) {
		double begin_ns = now_ns();
		if (back)
			CU(cuMemcpyDtoHAsync_v2(host, buffer, bytes, stream));
		else
			CU(cuMemcpyHtoDAsync_v2(buffer, host, bytes, stream));
		CU(cuEventRecord(end, stream));
		CU(cuEventSynchronize(end));
		least_ns = keep_least(least_ns, now_ns() - begin_ns, try);
	}
	return least_ns;
}

static void probe_link(void)
{
	void *host;
	CU(cuMemHostAlloc(&host, LINK_BYTES, 0));
	memset(host, 0, LINK_BYTES);
	for (int back = 0; back < 2; back++) {
		double small_ns = time_copy(host, SMALL_BYTES, back), large_ns = time_copy(host, LINK_BYTES, back);
		page->latency_ns[back] = small_ns;
		page->bytes_per_ns[back] = large_ns > small_ns ? (double)LINK_BYTES / (large_ns - small_ns) : 0;
	}
	CU(cuMemFreeHost(host));
}

/* ---- work ---- */

/* Executes kernels of a mode until the page asks for another. A few are launched ahead, so that the GPU does not wait. */
static void execute_mode(enum hb_demand_mode mode)
{
	uint32_t launched = 0;
	for (; atomic_load(&page->mode) == (uint32_t)mode; launched++) {
		if (launched >= AHEAD) {
			CU(cuEventSynchronize(ahead[launched % AHEAD]));
			atomic_store(&page->running, (uint32_t)mode);
		}
		/* If this thread was late, the GPU has been without its kernels: the server does not count the batch. */
		if (launched > 0 && cu.cuEventQuery(ahead[(launched - 1) % AHEAD]) == CUDA_SUCCESS)
			atomic_fetch_add(&page->gaps, 1);
		launch(mode, page->sms / SMS_PER_BLOCK, KERNEL_NS);
		CU(cuEventRecord(ahead[launched % AHEAD], stream));
	}
	for (uint32_t i = 0; i < AHEAD && i < launched; i++)
		CU(cuEventSynchronize(ahead[i]));
	atomic_store(&page->running, HB_DEMAND_IDLE);
}

/* Waits for the doorbell. Returns whether it was rung; the server may have ended. */
static bool await_ring(void)
{
	uint64_t value;
	ssize_t n;
	do
		n = read(doorbell, &value, sizeof(value));
	while (n < 0 && errno == EINTR);
	return n == sizeof(value);
}

static void execute_page(void)
{
	for (;;) {
		uint32_t mode = atomic_load(&page->mode);
		if (mode == HB_DEMAND_END || (mode == HB_DEMAND_IDLE && !await_ring()))
			return;
		if (mode == HB_DEMAND_COMPUTE || mode == HB_DEMAND_MEMORY)
			execute_mode((enum hb_demand_mode)mode);
	}
}

static bool map_page(void)
{
	const char *fds = getenv("HB_WORKER_FDS");
	int memory;
	if (!fds || sscanf(fds, "%d,%d", &memory, &doorbell) != 2)
		return false;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	return page != MAP_FAILED;
}

int main(void)
{
	if (!map_page()) {
		fprintf(stderr, "hb-demand-tenant: hb serve starts this program\n");
		return 2;
	}
	find_calls();
	open_gpu();
	probe_sms();
	probe_link();
	atomic_store(&page->state, HB_DEMAND_READY);
	execute_page();
	return 0;
}
