/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of hb-bench-work share: one context, a few kernels that take a
 * given time, a clock, and the two tables of what it can do. The same program
 * runs on a real GPU (PTX) and on a simulated one (docs/simcuda.md).
 */
#ifndef HB_BENCH_WORKLOADS_BENCH_WORK_H
#define HB_BENCH_WORKLOADS_BENCH_WORK_H

#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>

/* X(function): found by name, so that LD_LIBRARY_PATH decides whose libcuda it is. */
#define WORK_CALLS(X) \
	X(cuInit) \
	X(cuDeviceGet) \
	X(cuDeviceGetName) \
	X(cuGetErrorName) \
	X(cuGetExportTable) \
	X(cuDevicePrimaryCtxRetain) \
	X(cuDevicePrimaryCtxRelease_v2) \
	X(cuCtxSetCurrent) \
	X(cuCtxSynchronize) \
	X(cuCtxGetStreamPriorityRange) \
	X(cuModuleLoadData) \
	X(cuModuleGetFunction) \
	X(cuFuncSetAttribute) \
	X(cuStreamCreateWithPriority) \
	X(cuStreamSynchronize) \
	X(cuStreamBeginCapture_v2) \
	X(cuStreamEndCapture) \
	X(cuGraphInstantiateWithFlags) \
	X(cuGraphLaunch) \
	X(cuEventCreate) \
	X(cuEventRecord) \
	X(cuEventSynchronize) \
	X(cuLaunchKernel) \
	X(cuLaunchCooperativeKernel) \
	X(cuMemAlloc_v2) \
	X(cuMemFree_v2) \
	X(cuMemHostAlloc) \
	X(cuMemHostGetDevicePointer_v2) \
	X(cuMemsetD8Async) \
	X(cuMemcpyHtoDAsync_v2) \
	X(cuMemcpyDtoHAsync_v2)

struct work_driver {
#define X(name) __typeof__(&name) name;
	WORK_CALLS(X)
#undef X
};
extern struct work_driver gpu;

/* Ends the program, naming the call and the driver's error. */
#define GPU(call) \
	do { \
		CUresult result_ = gpu.call; \
		if (result_ != CUDA_SUCCESS) \
			work_gpu_failed(#call, result_); \
	} while (0)
_Noreturn void work_gpu_failed(const char *call, CUresult result);
_Noreturn void work_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Opens the driver, makes the context, the kernels and `work_stream`, warms the GPU up. */
void work_gpu_open(void);
void work_gpu_close(void);
extern CUstream work_stream;
bool work_simulated(void);
void work_device_name(char *name, int size);
void *work_calloc(size_t n, size_t size);

/* How a kernel occupies the GPU. */
struct work_shape {
	unsigned blocks, threads, shared_bytes;
	bool cooperative;
};
extern const struct work_shape work_shape_full, work_shape_half;
/* Keeps the blocks computing for so long when alone; work, not waiting, so a kernel that is preempted takes longer. */
void work_spin(const struct work_shape *shape, int64_t ns);
/* The same, and the first block notes the device's time in *work_stamp() as its first act. */
void work_trial(int64_t ns);
int64_t work_stamp(void);
/* One step of a three-point stencil over `bytes`; times alone follow from the memory's bandwidth. */
void work_stencil(CUdeviceptr from, CUdeviceptr to, size_t bytes);

/* --- clock: what latencies are measured with; the GPU's own on a simulated one ------------- */

int64_t work_now_ns(void);
void work_wait_until(int64_t at_ns);
/* The host's clock, by which whoever asks cuts out windows. */
int64_t work_host_ns(void);
/*
 * Compares the device's clock with work_now_ns(): 0 for a simulated GPU. The
 * true difference is within half of *round_trip_ns of what is returned.
 */
int64_t work_clock_difference(int64_t *round_trip_ns);

/* --- what it can do --------------------------------------------------------------------------- */

/* When requests are due: Poisson unless periodic; rate 0: one after the other. */
struct work_arrivals {
	double rate_per_s;
	bool periodic;
	double phase; /* the first periodic one comes so many periods later */
};
/* The due time of the request after one that was due at `due_ns`. */
int64_t work_next_due(const struct work_arrivals *arrivals, int64_t due_ns);

/* A service: measures single things. Latencies in ns go to work_high_add(). */
struct work_high {
	const char *name, *arguments;
	int n_arguments;
	void (*prepare)(char **arguments);
	void (*serve)(int64_t end_ns, const struct work_arrivals *arrivals);
	bool device_clock; /* latencies end on the device's clock: they are corrected when the window is over */
};
const struct work_high *work_high_find(const char *name);
/* `at_ns`: when it was measured. */
void work_high_add(int64_t at_ns, int64_t latency_ns);
/* 0 to 1; the same in every window with the same seed. */
double work_random(void);

/* A program without pause: one iteration is queued by each call. */
struct work_low {
	const char *name, *arguments;
	int n_arguments;
	void (*prepare)(char **arguments);
	/* `left_ns`: for how long work is wanted; nothing an iteration queues may take much longer alone. */
	void (*iterate)(int64_t left_ns);
	bool single;  /* iterations are not queued behind each other */
	bool endless; /* its iterations say nothing about its speed, so they are not told */
};
const struct work_low *work_low_find(const char *name);

#endif
