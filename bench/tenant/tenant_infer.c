/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-tenant's mode `infer`: a service. Requests arrive at random (Poisson) and
 * each is a copy in, a sequence of kernels, a copy out. Prints one line with the
 * latency from arrival to answer, in GPU time, and whether the results are right.
 * SIGTERM ends it early, between two requests, in the same way.
 */
#include "bench_tenant.h"
#include "tenant_kernels.h"

#include "base/clock.h"
#include "base/hist.h"
#include "base/rng.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] = "usage: cuda-tenant infer [OPTION...]\n"
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

static const char image[] = "HBSIM1\n"
			    "kernel work ns_param=0 params=8 registers=32 memory_share=0.3\n";

static CUstream stream;
static CUgraphExec exec;
static void *input, *output;
static CUdeviceptr device_input, sum;
static CUfunction work; /* NULL on a real GPU */
static double scale;    /* host time per GPU time */
static volatile sig_atomic_t asked_to_end;

static void note_end(int number)
{
	(void)number;
	asked_to_end = 1;
}

/* Value of an option in a range; ends the program with a message otherwise. */
static double read_number(const char *name, const char *text, double low, double high)
{
	char *end;
	double value = strtod(text, &end);
	if (end == text || *end || !(value >= low && value <= high)) {
		fprintf(stderr, "--%s %s: expected a number from %g to %g\n", name, text, low, high);
		exit(2);
	}
	return value;
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
			options.rate = read_number(name, optarg, 0.01, 1e6);
		else if (option == 's')
			options.seconds = read_number(name, optarg, 0.001, 1e6);
		else if (option == 'k')
			options.kernels = (uint32_t)read_number(name, optarg, 1, 4000);
		else if (option == 'u')
			options.kernel_us = read_number(name, optarg, 0.1, 1e6);
		else if (option == 'b')
			options.blocks = (uint32_t)read_number(name, optarg, 1, 1e6);
		else if (option == 'i')
			options.input_bytes = (size_t)(read_number(name, optarg, 1, 1e6) * 1024);
		else if (option == 'S')
			options.seed = (uint64_t)read_number(name, optarg, 0, 1e15);
		else
			options.eager = true;
	}
}

/* --- time: GPU time, so that numbers mean the same at any HB_SIM_SCALE ------------------------------------- */

static int64_t gpu_now_ns(void)
{
	return tenant_sim_table ? tenant_sim_table->now_ns() : hb_clock_now_ns();
}

static void sleep_until(int64_t at_ns)
{
	int64_t left_ns = (int64_t)((double)(at_ns - gpu_now_ns()) * scale);
	struct timespec time = {left_ns / HB_NS_PER_S, left_ns % HB_NS_PER_S};
	if (left_ns <= 0)
		return;
	while (nanosleep(&time, &time) < 0 && errno == EINTR)
		;
}

/* Two readings of both clocks give their ratio. HB_SIM_SCALE of this process may differ: the GPU's starter set the scale. */
static double measure_scale(void)
{
	int64_t host_ns = hb_clock_now_ns(), gpu_ns = gpu_now_ns();
	const struct timespec pause = {0, 20000000};
	nanosleep(&pause, NULL);
	return (double)(hb_clock_now_ns() - host_ns) / (double)(gpu_now_ns() - gpu_ns);
}

static void open_gpu(void)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	const void *found = NULL;
	CUmodule module;
	tenant_begin();
	if (cu.cuGetExportTable(&found, &id) == CUDA_SUCCESS) {
		tenant_sim_table = found;
		CU(cuModuleLoadData(&module, image));
		CU(cuModuleGetFunction(&work, module, "work"));
	}
	sum = tenant_word();
	scale = measure_scale();
}

/* --- requests ---------------------------------------------------------------------------------------------- */

static void queue_request(void)
{
	uint64_t ns = (uint64_t)(options.kernel_us * 1000);
	void *arguments[] = {&ns};
	CU(cuMemcpyHtoDAsync(device_input, input, options.input_bytes, stream));
	for (uint32_t i = 0; i < options.kernels; i++)
		if (work)
			CU(cuLaunchKernel(work, options.blocks, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
		else
			tenant_step(stream, ns, 0, 0);
	tenant_step(stream, 1000, sum, 1);
	CU(cuMemcpyDtoHAsync(output, device_input, 4096, stream));
}

static void prepare_requests(void)
{
	int low, high;
	CUgraph graph;
	CU(cuCtxGetStreamPriorityRange(&low, &high));
	CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, high));
	CU(cuMemHostAlloc(&input, options.input_bytes, 0));
	CU(cuMemHostAlloc(&output, 4096, 0));
	CU(cuMemAlloc(&device_input, options.input_bytes < 4096 ? 4096 : options.input_bytes));
	memset(input, 1, options.input_bytes);
	if (options.eager)
		return;
	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	queue_request();
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
}

static void serve_request(void)
{
	if (options.eager)
		queue_request();
	else
		CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
}

static uint64_t serve_requests(struct hb_hist *latency)
{
	struct hb_rng rng;
	uint64_t requests = 0;
	hb_rng_init(&rng, options.seed, 0);
	int64_t arrival_ns = gpu_now_ns(), end_ns = arrival_ns + (int64_t)(options.seconds * 1e9);
	for (;;) {
		arrival_ns += (int64_t)hb_rng_exponential(&rng, 1e9 / options.rate);
		if (arrival_ns >= end_ns || asked_to_end)
			return requests;
		sleep_until(arrival_ns);
		serve_request();
		hb_hist_record(latency, gpu_now_ns() - arrival_ns);
		requests++;
	}
}

static void print_latency(const struct hb_hist *latency, uint64_t requests, bool right)
{
	printf("requests=%llu p50_us=%.1f p90_us=%.1f p99_us=%.1f max_us=%.1f results=%s\n",
	       (unsigned long long)requests, (double)hb_hist_percentile(latency, 0.5) / 1e3,
	       (double)hb_hist_percentile(latency, 0.9) / 1e3, (double)hb_hist_percentile(latency, 0.99) / 1e3,
	       (double)hb_hist_percentile(latency, 1) / 1e3, right ? "right" : "wrong");
}

int tenant_infer(int argc, char **argv)
{
	static struct hb_hist latency;
	read_options(argc, argv);
	signal(SIGTERM, note_end);
	open_gpu();
	prepare_requests();
	serve_request(); /* the first one pays for what is made once */
	uint64_t requests = serve_requests(&latency);
	bool right = tenant_read(sum) == requests + 1;
	print_latency(&latency, requests, right);
	if (exec)
		CU(cuGraphExecDestroy(exec));
	CU(cuStreamDestroy(stream));
	CU(cuMemFree(device_input));
	CU(cuMemFreeHost(input));
	CU(cuMemFreeHost(output));
	tenant_end();
	return right ? 0 : 1;
}
