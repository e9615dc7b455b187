/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels for the tests of splitting, compiled by tests/cubin/fixtures.sh into the
 * files in this folder. Kernels named run_* can be split and count in cells[block] how
 * often each block ran; each uses something that code put before a kernel could break.
 * Kernels named whole_* must not be split, for the reason in the rest of the name.
 */
#include <cstdio>

#define LINEAR (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z))

extern "C" __global__ void run_plain(unsigned *cells, unsigned *shape)
{
	if (threadIdx.x == 0) {
		cells[LINEAR] += 1;
		shape[0] = gridDim.x;
		shape[1] = gridDim.y;
		shape[2] = gridDim.z;
	}
}

/* Odd sizes and alignments of parameters. */
struct odd {
	char bytes[13];
};
extern "C" __global__ void run_parameters(unsigned *cells, short a, struct odd odd, char b)
{
	if (threadIdx.x == 0)
		cells[LINEAR] += 1 + (a != 7) + (odd.bytes[12] != 9) + (b != 3);
}

/* Calls into its own section (division), which return to an absolute place in the code. */
extern "C" __global__ void run_calls(unsigned *cells, double *out, double a, long long b)
{
	double sum = 0;
	for (int i = 1; i < 8; i++)
		sum += a / (double)(i + threadIdx.x) + (double)((b + (long long)LINEAR) / (long long)(i + threadIdx.x));
	if (threadIdx.x == 0) {
		cells[LINEAR] += 1;
		out[LINEAR] = sum;
	}
}

/* A stack frame that is indexed, a block-wide barrier, shared memory, shuffles, divergence. */
extern "C" __global__ void run_everything(unsigned *cells, unsigned *out, int n)
{
	__shared__ unsigned shared[256];
	extern __shared__ unsigned more[];
	unsigned stack[64];
	for (int i = 0; i < 64; i++)
		stack[i] = i * (threadIdx.x + n);
	shared[threadIdx.x] = stack[(threadIdx.x * n) & 63];
	more[threadIdx.x] = threadIdx.x;
	__syncthreads();
	unsigned value = shared[(threadIdx.x + 1) % blockDim.x] + more[blockDim.x - 1 - threadIdx.x];
	if (threadIdx.x % 3 == 0)
		value = value * value + stack[(value + n) & 63];
	for (int i = 16; i; i /= 2)
		value += __shfl_xor_sync(0xffffffff, value, i);
	__syncthreads();
	if (threadIdx.x == 0) {
		cells[LINEAR] += 1;
		out[LINEAR] = value;
	}
}

/* As many registers as there are. */
extern "C" __global__ void __launch_bounds__(256, 1) run_registers(unsigned *cells, float *out, const float *in)
{
	float a[160];
#pragma unroll
	for (int i = 0; i < 160; i++)
		a[i] = in[i * blockDim.x + threadIdx.x];
	for (int k = 0; k < 3; k++)
#pragma unroll
		for (int i = 0; i < 160; i++)
			a[i] = a[i] * a[(i + 7) % 160] + in[k];
	float sum = 0;
#pragma unroll
	for (int i = 0; i < 160; i++)
		sum += a[i];
	if (threadIdx.x == 0)
		cells[LINEAR] += 1;
	out[LINEAR * blockDim.x + threadIdx.x] = sum;
}

/* Works for some time, for measurements. */
extern "C" __global__ void run_long(unsigned *cells, long long n_cycles)
{
	long long begin = clock64();
	while (clock64() - begin < n_cycles)
		;
	if (threadIdx.x == 0)
		cells[LINEAR] += 1;
}

/* Adds without a result: other blocks see the sum, but no block can wait for it. */
extern "C" __global__ void run_reduction(unsigned *cells, unsigned *total)
{
	if (threadIdx.x == 0) {
		cells[LINEAR] += 1;
		atomicAdd(total, 1u);
	}
}

extern "C" __global__ void whole_waits_volatile(unsigned *cells, volatile unsigned *flag)
{
	while (*flag != LINEAR)
		;
	cells[LINEAR] += 1;
	*flag = LINEAR + 1;
}

extern "C" __global__ void whole_waits_atomic(unsigned *cells, unsigned *ticket)
{
	cells[atomicAdd(ticket, 1u)] += 1;
}

extern "C" __global__ void whole_waits_fence(unsigned *cells, unsigned *flag)
{
	while (flag[0] != LINEAR)
		__threadfence();
	cells[LINEAR] += 1;
}

/* A barrier of the whole grid, as cooperative groups write it. */
extern "C" __global__ void whole_waits_grid(unsigned *cells, unsigned *arrived)
{
	cells[LINEAR] += 1;
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		atomicAdd(arrived, 1u);
		while (*(volatile unsigned *)arrived < gridDim.x)
			;
	}
	__syncthreads();
	cells[LINEAR] += cells[(LINEAR + 1) % gridDim.x];
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) whole_cluster(unsigned *cells)
{
	cells[LINEAR] += 1;
}

extern "C" __global__ void whole_cluster_barrier(unsigned *cells)
{
	cells[LINEAR] += 1;
	asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

extern "C" __global__ void whole_dependents(unsigned *cells)
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
	cells[LINEAR] += 1;
}
#endif

__constant__ unsigned constant_variable[4];
extern "C" __global__ void whole_variables_constant(unsigned *cells)
{
	cells[LINEAR] += constant_variable[threadIdx.x & 3];
}

__device__ unsigned variable;
extern "C" __global__ void whole_variables_global(unsigned *cells)
{
	cells[LINEAR] += variable;
}

extern "C" __global__ void whole_calls_printf(unsigned *cells)
{
	cells[LINEAR] += 1;
	printf("block %u\n", LINEAR);
}

extern "C" __global__ void whole_parameters()
{
	__nanosleep(10);
}
