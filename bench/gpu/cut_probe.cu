// SPDX-License-Identifier: Apache-2.0
// When does low priority get the GPU before or in the middle of a graph of high priority, and which kernels prevent it?
// Background: docs/evaluation.md, "Where the temporal engine loses". Each kernel of a graph of 2 ms notes when it begins and
// ends, so a pause between two kernels shows a turn of low priority. The graphs have 100 or 800 kernels and follow each other
// after 10 to 23 ms. In all rows but the first and the last, kernels on another stream of this program (the holder) hold the
// GPU from a while before the launch (the lead) until 0.1 ms after it, as those of a takeover do. HOLDER is the kind of that
// stream: own (non-blocking), blocking, or legacy. STREAMS is the number of further streams that are created and used before
// the holder, because the order decides which hardware channel a stream gets.
//
// Prints the time from the launch to the end: its median, its 90th and 95th percentiles, and the share of graphs that took
// 0.15 ms longer than the median of graphs without a switch, for which the GPU was held from 0.4 ms before. Then the pauses
// of more than 30 us: how many in a graph, their median length, and where the first one is (0 = begin of the graph, 1 = its end).
//
//   nvcc -O2 -arch=sm_90 -o cut-probe cut_probe.cu -lcuda
//   hb run --priority low -- cuda-tenant train 500 0 &
//   hb run --priority high --no-signs -- ./cut-probe HOLDER [SECONDS [STREAMS]]       seconds of a row, default 0.7
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

enum {
	NONE = -1, /* nothing holds the GPU */
	MOST_NODES = 800,
	GRAPH_NS = 2000000,
	LINGER_NS = 100000,
	LIMIT_NS = 8000000,
	PAUSE_NS = 30000,
	LONGER_NS = 150000
};

static const int leads_us[] = {NONE, 400, 200, 100, 50, 20, 0, NONE};

static cudaStream_t work, holder;
static cudaGraphExec_t graph;
static uint64_t *times; // [2 * MOST_NODES] begin and end of each kernel, in memory of the host
static uint64_t *device_times;
static volatile uint32_t *word; // kernels that hold the GPU end when it reaches their number

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
	for (uint64_t begin = gpu_ns(); gpu_ns() - begin < limit_ns && *word < number;)
		;
}

/* Returns the time from the launch to the end. */
static int64_t run_once(int lead_us, uint32_t number)
{
	int64_t due_ns = now_ns() + 1000 * (int64_t)lead_us;
	if (lead_us != NONE) {
		hold<<<1, 1, 0, holder>>>(word, number, LIMIT_NS);
		hold<<<1, 1, 0, holder>>>(word, number, 0); /* only has to be queued */
		wait_until(due_ns);
	}
	int64_t begin_ns = now_ns();
	OK(cudaGraphLaunch(graph, work));
	if (lead_us != NONE) {
		wait_until(now_ns() + LINGER_NS);
		*word = number;
	}
	OK(cudaStreamSynchronize(work));
	return now_ns() - begin_ns;
}

static double percentile(std::vector<double> &values, int percent)
{
	std::sort(values.begin(), values.end());
	return values.empty() ? 0 : values[(values.size() - 1) * percent / 100];
}

static void measure(int nodes, int lead_us, double seconds, double held_us, uint32_t *number)
{
	std::vector<double> took_us, pause_us, places;
	size_t n_longer = 0;
	for (int64_t until_ns = now_ns() + (int64_t)(seconds * 1e9); now_ns() < until_ns;) {
		timespec gap = {.tv_sec = 0, .tv_nsec = 10000000 + rand() % 13000000};
		nanosleep(&gap, NULL);
		took_us.push_back((double)run_once(lead_us, ++*number) * 1e-3);
		n_longer += took_us.back() > held_us + LONGER_NS * 1e-3;
		OK(cudaDeviceSynchronize());
		bool first = true;
		for (int i = 1; i < nodes; i++) {
			int64_t pause_ns = (int64_t)(times[2 * i] - times[2 * i - 1]);
			if (pause_ns < PAUSE_NS)
				continue;
			if (first)
				places.push_back((double)i / nodes);
			first = false;
			pause_us.push_back((double)pause_ns * 1e-3);
		}
	}
	size_t n = took_us.size();
	char lead[32] = "nothing";
	if (lead_us != NONE)
		snprintf(lead, sizeof(lead), "lead %3d us", lead_us);
	printf("%3d kernels  %-11s n %3zu  p50 %6.0f  p90 %6.0f  p95 %6.0f us  longer %5.1f %%  pauses %.2f of %4.0f us, "
	       "first at %.2f\n",
	       nodes, lead, n, percentile(took_us, 50), percentile(took_us, 90), percentile(took_us, 95),
	       100.0 * (double)n_longer / (double)n, (double)pause_us.size() / (double)n, percentile(pause_us, 50),
	       percentile(places, 50));
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

/* Returns the median of some graphs for which the GPU was held long before the launch, so that no switch is in it. */
static double measure_held(uint32_t *number)
{
	std::vector<double> took_us;
	for (int i = 0; i < 40; i++) {
		took_us.push_back((double)run_once(leads_us[1], ++*number) * 1e-3);
		OK(cudaDeviceSynchronize());
	}
	return percentile(took_us, 50);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	double seconds = argc > 2 ? atof(argv[2]) : 0.7;
	int n_streams = argc > 3 ? atoi(argv[3]) : 0;
	bool legacy = !strcmp(kind, "legacy"), blocking = !strcmp(kind, "blocking");
	if (!(seconds > 0) || !(legacy || blocking || !strcmp(kind, "own"))) {
		fprintf(stderr, "usage: cut-probe own|blocking|legacy [SECONDS [STREAMS]]\n");
		return 2;
	}
	OK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
	hold<<<1, 1, 0, work>>>(NULL, 0, 0);
	for (int i = 0; i < n_streams; i++) {
		OK(cudaStreamCreateWithFlags(&holder, cudaStreamNonBlocking));
		hold<<<1, 1, 0, holder>>>(NULL, 0, 0);
	}
	holder = cudaStreamLegacy;
	if (!legacy)
		OK(cudaStreamCreateWithFlags(&holder, blocking ? cudaStreamDefault : cudaStreamNonBlocking));
	OK(cudaHostAlloc((void **)&times, 2 * MOST_NODES * sizeof(*times), cudaHostAllocMapped));
	OK(cudaHostGetDevicePointer((void **)&device_times, times, 0));
	OK(cudaHostAlloc((void **)&word, sizeof(*word), cudaHostAllocMapped));
	*word = 0;
	uint32_t number = 0; /* of the last graph for which the GPU was held */
	for (int nodes : {100, 800}) {
		record(nodes);
		double held_us = measure_held(&number);
		printf("%3d kernels, held, holder %s, %d streams between: p50 %.0f us\n", nodes, kind, n_streams,
		       held_us);
		for (int lead_us : leads_us)
			measure(nodes, lead_us, seconds, held_us, &number);
		printf("%3d kernels, held, after the rows: p50 %.0f us\n", nodes, measure_held(&number));
		OK(cudaGraphExecDestroy(graph));
	}
	return 0;
}
