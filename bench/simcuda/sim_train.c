/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training job on the simulated GPU: iterations without pause, each a row of
 * kernels from short to long that fill the GPU. Prints one line with its speed
 * in iterations a second of GPU time, and whether the results are right.
 */
#include "sim_workload.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] = "usage: sim_train [OPTION...]\n"
			    "  --seconds N     how long, GPU time; 0 = until SIGTERM or SIGINT (3)\n"
			    "  --scale N       length of the kernels, 1 = 12 to 600 us (1)\n"
			    "  --blocks N      blocks of a kernel (1056)\n"
			    "  --memory-mb N   GPU memory held (1024)\n"
			    "  --copy-mb N     bytes copied to the GPU each iteration (0)\n";

/* Median, typical and longest kernels of training, as traces have them. */
static const double kernel_us[] = {12, 35, 12, 80, 35, 273, 12, 600};
#define KERNELS (sizeof kernel_us / sizeof *kernel_us)

static struct {
	double seconds, scale;
	uint32_t blocks;
	size_t memory_bytes, copy_bytes;
} options = {.seconds = 3, .scale = 1, .blocks = 1056, .memory_bytes = (size_t)1 << 30};

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static void read_options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"seconds", required_argument, NULL, 's'}, {"scale", required_argument, NULL, 'x'},
		{"blocks", required_argument, NULL, 'b'},  {"memory-mb", required_argument, NULL, 'm'},
		{"copy-mb", required_argument, NULL, 'c'}, {NULL, 0, NULL, 0},
	};
	int option, index;
	while ((option = getopt_long(argc, argv, "", longs, &index)) >= 0) {
		if (option == '?') {
			fputs(usage, stderr);
			exit(2);
		}
		const char *name = longs[index].name;
		if (option == 's')
			options.seconds = sim_workload_number(name, optarg, 0, 1e6);
		else if (option == 'x')
			options.scale = sim_workload_number(name, optarg, 0.001, 1000);
		else if (option == 'b')
			options.blocks = (uint32_t)sim_workload_number(name, optarg, 1, 1e6);
		else if (option == 'm')
			options.memory_bytes = (size_t)sim_workload_number(name, optarg, 1, 1e6) << 20;
		else
			options.copy_bytes = (size_t)sim_workload_number(name, optarg, 0, 1024) << 20;
	}
}

static void iterate(CUstream stream, CUfunction work, CUfunction add, CUdeviceptr memory, const void *host)
{
	uint64_t one = 1;
	CUdeviceptr sum = sim_workload_sum();
	if (options.copy_bytes)
		MUST(cuMemcpyHtoDAsync_v2(memory, host, options.copy_bytes, stream));
	for (size_t i = 0; i < KERNELS; i++) {
		uint64_t ns = (uint64_t)(kernel_us[i] * options.scale * 1000);
		MUST(cuLaunchKernel(work, options.blocks, 1, 1, 1024, 1, 1, 0, stream, (void *[]){&ns}, NULL));
	}
	MUST(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&sum, &one}, NULL));
}

/* Two iterations are queued at a time, as a framework that runs ahead of the GPU has them. */
static uint64_t train(CUstream stream, CUdeviceptr memory, const void *host)
{
	CUfunction work = sim_workload_kernel("work"), add = sim_workload_kernel("add");
	CUevent done[2];
	uint64_t n = 0;
	int64_t end_ns = options.seconds > 0 ? sim_workload_now_ns() + (int64_t)(options.seconds * 1e9) : INT64_MAX;
	for (int i = 0; i < 2; i++)
		MUST(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
	while (!stopped && sim_workload_now_ns() < end_ns) {
		iterate(stream, work, add, memory, host);
		MUST(cuEventRecord(done[n % 2], stream));
		n++;
		MUST(cuEventSynchronize(done[n % 2]));
	}
	MUST(cuStreamSynchronize(stream));
	for (int i = 0; i < 2; i++)
		MUST(cuEventDestroy_v2(done[i]));
	return n;
}

int main(int argc, char **argv)
{
	CUstream stream;
	CUdeviceptr memory;
	void *host = NULL;
	read_options(argc, argv);
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	sim_workload_open();
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc_v2(&memory,
			   options.memory_bytes > options.copy_bytes ? options.memory_bytes : options.copy_bytes));
	if (options.copy_bytes)
		MUST(cuMemHostAlloc(&host, options.copy_bytes, 0));
	int64_t start_ns = sim_workload_now_ns();
	uint64_t iterations = train(stream, memory, host);
	double seconds = (double)(sim_workload_now_ns() - start_ns) / 1e9;
	bool right = sim_workload_read_sum() == iterations;
	printf("iterations=%llu seconds=%.3f per_second=%.2f results=%s\n", (unsigned long long)iterations, seconds,
	       (double)iterations / seconds, right ? "right" : "wrong");
	MUST(cuStreamDestroy_v2(stream));
	MUST(cuMemFree_v2(memory));
	MUST(cuMemFreeHost(host));
	sim_workload_close();
	return right ? 0 : 1;
}
