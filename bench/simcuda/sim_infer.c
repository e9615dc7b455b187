/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service on the simulated GPU: requests arrive at random (Poisson) and each
 * is a copy in, a sequence of kernels, a copy out. Prints one line with the
 * latency from arrival to answer, in GPU time, and whether the results are right.
 * SIGTERM ends it early, between two requests, in the same way.
 */
#include "sim_workload.h"

#include "base/clock.h"
#include "base/hist.h"
#include "base/rng.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: sim_infer [OPTION...]\n"
			    "  --rate N        requests a second of GPU time (60)\n"
			    "  --seconds N     how long requests arrive, GPU time (3), or until SIGTERM\n"
			    "  --kernels N     kernels of a request (80)\n"
			    "  --kernel-us N   time of a kernel alone (9)\n"
			    "  --blocks N      blocks of a kernel (132)\n"
			    "  --input-kb N    bytes copied in for each request (600)\n"
			    "  --eager         launch kernel by kernel instead of as a graph\n"
			    "  --seed N        of the arrivals (1)\n";

static struct {
	double rate, seconds, kernel_us;
	uint32_t kernels, blocks;
	size_t input_bytes;
	bool eager;
	uint64_t seed;
} options = {
	.rate = 60, .seconds = 3, .kernel_us = 9, .kernels = 80, .blocks = 132, .input_bytes = 600 << 10, .seed = 1};

static CUstream stream;
static CUgraphExec exec;
static void *input, *output;
static CUdeviceptr device_input;
static volatile sig_atomic_t told_to_end;

static void be_told_to_end(int number)
{
	(void)number;
	told_to_end = 1;
}

static void read_options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"rate", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 's'},
		{"kernels", required_argument, NULL, 'k'},
		{"kernel-us", required_argument, NULL, 'u'},
		{"blocks", required_argument, NULL, 'b'},
		{"input-kb", required_argument, NULL, 'i'},
		{"eager", no_argument, NULL, 'e'},
		{"seed", required_argument, NULL, 'S'},
		{NULL, 0, NULL, 0},
	};
	int option, index;
	while ((option = getopt_long(argc, argv, "", longs, &index)) >= 0) {
		if (option == '?') {
			fputs(usage, stderr);
			exit(2);
		}
		const char *name = longs[index].name;
		if (option == 'r')
			options.rate = sim_workload_number(name, optarg, 0.01, 1e6);
		else if (option == 's')
			options.seconds = sim_workload_number(name, optarg, 0.001, 1e6);
		else if (option == 'k')
			options.kernels = (uint32_t)sim_workload_number(name, optarg, 1, 4000);
		else if (option == 'u')
			options.kernel_us = sim_workload_number(name, optarg, 0.1, 1e6);
		else if (option == 'b')
			options.blocks = (uint32_t)sim_workload_number(name, optarg, 1, 1e6);
		else if (option == 'i')
			options.input_bytes = (size_t)(sim_workload_number(name, optarg, 1, 1e6) * 1024);
		else if (option == 'S')
			options.seed = (uint64_t)sim_workload_number(name, optarg, 0, 1e15);
		else
			options.eager = true;
	}
}

static void queue_request(void)
{
	CUfunction work = sim_workload_kernel("work"), add = sim_workload_kernel("add");
	uint64_t ns = (uint64_t)(options.kernel_us * 1000), one = 1;
	CUdeviceptr sum = sim_workload_sum();
	MUST(cuMemcpyHtoDAsync_v2(device_input, input, options.input_bytes, stream));
	for (uint32_t i = 0; i < options.kernels; i++)
		MUST(cuLaunchKernel(work, options.blocks, 1, 1, 256, 1, 1, 0, stream, (void *[]){&ns}, NULL));
	MUST(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&sum, &one}, NULL));
	MUST(cuMemcpyDtoHAsync_v2(output, device_input, 4096, stream));
}

static void prepare(void)
{
	int low, high;
	CUgraph graph;
	MUST(cuCtxGetStreamPriorityRange(&low, &high));
	MUST(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, high));
	MUST(cuMemHostAlloc(&input, options.input_bytes, 0));
	MUST(cuMemHostAlloc(&output, 4096, 0));
	MUST(cuMemAlloc_v2(&device_input, options.input_bytes < 4096 ? 4096 : options.input_bytes));
	memset(input, 1, options.input_bytes);
	if (options.eager)
		return;
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	queue_request();
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
}

static void serve_one(void)
{
	if (options.eager)
		queue_request();
	else
		MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
}

static uint64_t serve(struct hb_hist *latency)
{
	struct hb_rng rng;
	uint64_t requests = 0;
	hb_rng_init(&rng, options.seed, 0);
	int64_t arrival_ns = sim_workload_now_ns(), end_ns = arrival_ns + (int64_t)(options.seconds * 1e9);
	for (;;) {
		arrival_ns += (int64_t)hb_rng_exponential(&rng, 1e9 / options.rate);
		if (arrival_ns >= end_ns || told_to_end)
			return requests;
		sim_workload_sleep_until(arrival_ns);
		serve_one();
		hb_hist_record(latency, sim_workload_now_ns() - arrival_ns);
		requests++;
	}
}

int main(int argc, char **argv)
{
	static struct hb_hist latency;
	read_options(argc, argv);
	signal(SIGTERM, be_told_to_end);
	sim_workload_open();
	prepare();
	serve_one(); /* the first one pays for what is made once */
	uint64_t requests = serve(&latency);
	bool right = sim_workload_read_sum() == requests + 1;
	printf("requests=%llu p50_us=%.1f p90_us=%.1f p99_us=%.1f max_us=%.1f results=%s\n",
	       (unsigned long long)requests, (double)hb_hist_percentile(&latency, 0.5) / 1e3,
	       (double)hb_hist_percentile(&latency, 0.9) / 1e3, (double)hb_hist_percentile(&latency, 0.99) / 1e3,
	       (double)hb_hist_percentile(&latency, 1) / 1e3, right ? "right" : "wrong");
	if (exec)
		MUST(cuGraphExecDestroy(exec));
	MUST(cuStreamDestroy_v2(stream));
	MUST(cuMemFree_v2(device_input));
	MUST(cuMemFreeHost(input));
	MUST(cuMemFreeHost(output));
	sim_workload_close();
	return right ? 0 : 1;
}
