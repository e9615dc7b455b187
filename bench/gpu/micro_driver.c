/* SPDX-License-Identifier: Apache-2.0 */
/* See micro_driver.h. */
#include "micro_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Spins on the GPU's nanosecond clock and tells, for its first thread, when it began and ended; `empty` returns at once. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry spin(.param .u64 ns, .param .u64 marks)\n{\n"
			  ".reg .u64 %rd<6>;\n.reg .u32 %r<4>;\n.reg .pred %p, %first;\n"
			  "ld.param.u64 %rd1, [ns];\nmov.u64 %rd2, %globaltimer;\n"
			  "ld.param.u64 %rd5, [marks];\n"
			  "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\nor.b32 %r3, %r1, %r2;\n"
			  "setp.eq.u32 %first, %r3, 0;\n@%first st.volatile.u64 [%rd5], %rd2;\n"
			  "L: mov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
			  "setp.lt.u64 %p, %rd4, %rd1;\n@%p bra L;\n"
			  "@%first st.volatile.u64 [%rd5+8], %rd3;\nret;\n}\n"
			  ".visible .entry empty()\n{\nret;\n}\n";

#define DEFINE(name) __typeof__(&name) p_##name;
MICRO_CALLS(DEFINE)

struct micro micro;

_Noreturn void micro_die(const char *what, int code)
{
	fprintf(stderr, "%s: %s: %d\n", program_invocation_short_name, what, code);
	exit(1);
}

int64_t micro_now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

void micro_wait_until(int64_t at_ns)
{
	while (micro_now_ns() < at_ns)
		;
}

static void open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		micro_die(dlerror(), 0);
#define RESOLVE(name) \
	p_##name = (__typeof__(p_##name))dlsym(library, #name); \
	if (!p_##name) \
		micro_die("missing " #name, 0);
	MICRO_CALLS(RESOLVE)
}

void *micro_map_page(CUdeviceptr *address)
{
	void *page;
	CHECK(cuMemHostAlloc(&page, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer_v2(address, page, 0));
	memset(page, 0, 4096);
	return page;
}

void micro_spin(uint64_t ns, unsigned blocks, CUdeviceptr marks)
{
	void *arguments[] = {&ns, &marks};
	CHECK(cuLaunchKernel(micro.spin, blocks, 1, 1, 512, 1, 1, 0, micro.stream, arguments, NULL));
}

static void warm_up(void)
{
	int64_t until = micro_now_ns() + 300000000;
	while (micro_now_ns() < until) {
		micro_spin(100000, 264, micro.marks_address);
		CHECK(cuStreamSynchronize(micro.stream));
	}
}

void micro_set_up(void)
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
	CHECK(cuModuleGetFunction(&micro.spin, module, "spin"));
	CHECK(cuModuleGetFunction(&micro.empty, module, "empty"));
	CHECK(cuCtxGetStreamPriorityRange(&least, &greatest));
	CHECK(cuStreamCreateWithPriority(&micro.stream, 1 /* non-blocking */, greatest));
	micro.marks = micro_map_page(&micro.marks_address);
	micro.other_marks_address = micro.marks_address + 1024;
	warm_up();
}

int64_t micro_clock_offset(void)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i < 200; i++) {
		micro_spin(0, 1, micro.marks_address);
		CHECK(cuStreamSynchronize(micro.stream));
		int64_t offset = micro_now_ns() - (int64_t)micro.marks->ended_ns;
		least = offset < least ? offset : least;
	}
	return least;
}

void *micro_allocate(size_t n, size_t bytes)
{
	void *memory = calloc(n, bytes);
	if (!memory)
		micro_die("memory", 0);
	return memory;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

void micro_print_values(const char *name, int64_t *values, size_t n, bool raw, const char *end)
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

void micro_print_moments(const char *const *names, int n_names, const int64_t *table, int n)
{
	printf("\"moments\": {");
	for (int which = 0; which < n_names; which++) {
		printf("%s\"%s\": [", which ? ", " : "", names[which]);
		for (int i = 0; i < n; i++)
			printf("%s%lld", i ? "," : "", (long long)table[i * n_names + which]);
		printf("]");
	}
	printf("}, ");
}
