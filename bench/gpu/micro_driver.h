/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the small driver-API programs of this folder share (gpu_micro.c,
 * hold_micro.c): the driver, opened by name so that LD_LIBRARY_PATH decides
 * whose libcuda it is; a context, a stream, a kernel that spins; clocks; how
 * numbers are printed. Any error ends the program. One thread.
 */
#ifndef HB_BENCH_MICRO_DRIVER_H
#define HB_BENCH_MICRO_DRIVER_H

#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define MICRO_CALLS(X) \
	X(cuInit) X(cuDeviceGet) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) \
	X(cuCtxGetStreamPriorityRange) X(cuModuleLoadData) X(cuModuleGetFunction) \
	X(cuStreamCreateWithPriority) X(cuStreamSynchronize) X(cuStreamQuery) X(cuLaunchKernel) \
	X(cuLaunchKernel_ptsz) X(cuMemAlloc_v2) X(cuMemHostAlloc) X(cuMemcpyHtoDAsync_v2) \
	X(cuMemcpyDtoHAsync_v2) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) \
	X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphUpload) X(cuEventCreate) X(cuEventRecord) \
	X(cuEventSynchronize) X(cuCtxSynchronize) X(cuMemHostGetDevicePointer_v2) X(cuMemsetD8Async) \
	X(cuStreamWriteValue32_v2) X(cuStreamWaitValue32_v2) X(cuStreamWaitEvent) X(cuFuncSetAttribute)
/* clang-format on */

#define MICRO_DECLARE(name) extern __typeof__(&name) p_##name;
MICRO_CALLS(MICRO_DECLARE)

_Noreturn void micro_die(const char *what, int code);

#define CHECK(call) \
	do { \
		CUresult result_ = p_##call; \
		if (result_) \
			micro_die(#call, (int)result_); \
	} while (0)

/* When a spinning kernel's first thread began and ended, by the GPU's clock. In mapped memory. */
struct micro_marks {
	volatile uint64_t began_ns, ended_ns;
};

extern struct micro {
	CUfunction spin, empty;
	CUstream stream; /* non-blocking, of the highest priority */
	struct micro_marks *marks;
	CUdeviceptr marks_address, other_marks_address; /* the second: for kernels whose times nobody reads */
} micro;

int64_t micro_now_ns(void);
void micro_wait_until(int64_t at_ns);
/* Opens the driver, makes the context, runs the GPU up to its working clock. */
void micro_set_up(void);
void micro_spin(uint64_t ns, unsigned blocks, CUdeviceptr marks);
/* Ours less the GPU's clock: the least delay of many small kernels, each of which shows within a microsecond or two. */
int64_t micro_clock_offset(void);
/* A page that both sides see, zeroed. */
void *micro_map_page(CUdeviceptr *address);
/* Memory or the end. */
void *micro_allocate(size_t n, size_t bytes);
/* One member of a JSON object; sorts the values. */
void micro_print_values(const char *name, int64_t *values, size_t n, bool raw, const char *end);
/* {"NAMES[0]": [...], ...}: `table` has n rows of n_names. */
void micro_print_moments(const char *const *names, int n_names, const int64_t *table, int n);

#endif
