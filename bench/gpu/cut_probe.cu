// SPDX-License-Identifier: Apache-2.0
// Does low priority get the GPU in the middle of a graph of high priority, and which kernels beside the graph prevent it?
// Background: docs/evaluation.md, "Where the temporal engine loses". Each kernel of a graph of 2 ms notes when it begins and
// ends, so a pause between two kernels shows a turn of low priority. The graphs have one to 800 kernels and follow each other
// after 10 to 23 ms, with and without a copy of 300 KB before them. Prints the time from the launch to the end,
// and the pauses of more than 30 us: how many in a graph, their length, and where the first one is (0 = begin of
// the graph, 1 = its end); medians.
//
//   nvcc -O2 -arch=sm_90 -o cut-probe cut_probe.cu -lcuda
//   hb run --priority low -- cuda-tenant train 500 0 &
//   hb run --priority high --no-signs -- ./cut-probe [SECONDS]       seconds of a row, default 0.7
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <time.h>
#include <vector>

#define OK(call) \
	do { \
		int error_ = (int)(call); \
		if (error_) { \
			fprintf(stderr, "cut-probe: %s: error %d\n", #call, error_); \
			exit(1); \
		} \
	} while (0)

/* Kernels that hold the GPU for the graph. */
enum variant { NOTHING, AHEAD, AHEAD_TWO_STREAMS, AHEAD_TO_END, FROM_LAUNCH_TO_END, N_VARIANTS };
static const char *const names[N_VARIANTS] = {
	"nothing",
	"2 kernels from 0.4 ms before to 0.1 ms after the launch", /* a takeover */
	"the same on each of two streams",
	"2 kernels from 0.4 ms before the launch to the end",
	"2 kernels from the launch to the end",
};

enum {
	MOST_NODES = 800,
	GRAPH_NS = 2000000,
	COPY_BYTES = 300000,
	LEAD_NS = 400000,
	LINGER_NS = 100000,
	LIMIT_NS = 8000000,
	PAUSE_NS = 30000
};

static cudaStream_t work, own, other;
static cudaGraphExec_t graph;
static uint64_t *times; // [2 * MOST_NODES] begin and end of each kernel, in memory of the host
static uint64_t *device_times;
static volatile uint32_t *word; // kernels that hold the GPU end when it reaches their number
static CUdeviceptr device_word;
static void *host_bytes, *device_bytes;

static int64_t now_ns()
{
	timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void wait_until(int64_t due_ns)
{
	while (now_ns() < due_ns)
		;
}

__device__ static uint64_t gpu_ns()
{
	uint64_t time;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
	return time;
}

__global__ void spin(uint64_t ns, uint64_t *times)
{
	uint64_t begin = gpu_ns(), end;
	do
		end = gpu_ns();
	while (end - begin < ns);
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		times[0] = begin;
		times[1] = end;
	}
}

__global__ void hold(volatile uint32_t *word, uint32_t number, uint64_t limit_ns)
{
	for (uint64_t begin = gpu_ns(); *word < number && gpu_ns() - begin < limit_ns;)
		;
}

static void queue_hold(cudaStream_t stream, uint32_t number)
{
	hold<<<1, 1, 0, stream>>>(word, number, LIMIT_NS);
	hold<<<1, 1, 0, stream>>>(word, number, 0); /* only has to be queued */
}

/* Returns the time from the launch to the end. */
static double run_once(enum variant variant, bool copies, uint32_t number)
{
	int64_t due_ns = now_ns() + LEAD_NS;
	if (variant == AHEAD || variant == AHEAD_TWO_STREAMS || variant == AHEAD_TO_END)
		queue_hold(own, number);
	if (variant == AHEAD_TWO_STREAMS)
		queue_hold(other, number);
	wait_until(due_ns);
	int64_t begin_ns = now_ns();
	if (variant == FROM_LAUNCH_TO_END)
		queue_hold(own, number);
	if (copies)
		OK(cudaMemcpyAsync(device_bytes, host_bytes, COPY_BYTES, cudaMemcpyHostToDevice, work));
	OK(cudaGraphLaunch(graph, work));
	if (variant == AHEAD_TO_END || variant == FROM_LAUNCH_TO_END)
		OK(cuStreamWriteValue32(work, device_word, number, 0));
	if (variant == AHEAD || variant == AHEAD_TWO_STREAMS) {
		wait_until(now_ns() + LINGER_NS);
		*word = number;
	}
	OK(cudaStreamSynchronize(work));
	double took_us = (double)(now_ns() - begin_ns) * 1e-3;
	*word = number;
	return took_us;
}

static double median(std::vector<double> &values)
{
	std::sort(values.begin(), values.end());
	return values.empty() ? 0 : values[values.size() / 2];
}

static void measure(int nodes, enum variant variant, bool copies, double seconds)
{
	static uint32_t number;
	std::vector<double> took_us, pauses, pause_us, places;
	for (int64_t until_ns = now_ns() + (int64_t)(seconds * 1e9); now_ns() < until_ns;) {
		timespec gap = {.tv_sec = 0, .tv_nsec = 10000000 + rand() % 13000000};
		nanosleep(&gap, NULL);
		took_us.push_back(run_once(variant, copies, ++number));
		OK(cudaDeviceSynchronize());
		int count = 0;
		for (int i = 1; i < nodes; i++) {
			int64_t pause_ns = (int64_t)(times[2 * i] - times[2 * i - 1]);
			if (pause_ns < PAUSE_NS)
				continue;
			if (!count++)
				places.push_back((double)i / nodes);
			pause_us.push_back((double)pause_ns * 1e-3);
		}
		pauses.push_back(count);
	}
	double sum = 0;
	for (double count : pauses)
		sum += count;
	size_t n = took_us.size();
	double p50 = median(took_us);
	printf("%3d kernels%s  %-56s n %3zu  p50 %6.0f  p90 %6.0f us  pauses %.2f of %4.0f us, first at %.2f\n", nodes,
	       copies ? ", copy" : "      ", names[variant], n, p50, took_us[n * 9 / 10], sum / (double)n,
	       median(pause_us), median(places));
	fflush(stdout);
}

static void record(int nodes)
{
	cudaGraph_t captured;
	OK(cudaStreamBeginCapture(work, cudaStreamCaptureModeRelaxed));
	for (int i = 0; i < nodes; i++)
		spin<<<132, 128, 0, work>>>(GRAPH_NS / nodes - 1000, device_times + 2 * i);
	OK(cudaStreamEndCapture(work, &captured));
	OK(cudaGraphInstantiate(&graph, captured, 0));
	OK(cudaGraphDestroy(captured));
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0.7;
	if (!(seconds > 0)) {
		fprintf(stderr, "usage: cut-probe [SECONDS]\n");
		return 2;
	}
	for (cudaStream_t *stream : {&work, &own, &other})
		OK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
	OK(cudaHostAlloc((void **)&times, 2 * MOST_NODES * sizeof(*times), cudaHostAllocMapped));
	OK(cudaHostGetDevicePointer((void **)&device_times, times, 0));
	OK(cudaHostAlloc((void **)&word, sizeof(*word), cudaHostAllocMapped));
	OK(cudaHostGetDevicePointer((void **)&device_word, (void *)word, 0));
	OK(cudaHostAlloc(&host_bytes, COPY_BYTES, 0));
	OK(cudaMalloc(&device_bytes, COPY_BYTES));
	*word = 0;
	for (int nodes : {1, 100, 400, 800}) {
		record(nodes);
		for (bool copies : {false, true})
			for (int variant = 0; variant < N_VARIANTS; variant++)
				measure(nodes, (enum variant)variant, copies, seconds);
		OK(cudaGraphExecDestroy(graph));
	}
	return 0;
}
