// SPDX-License-Identifier: Apache-2.0
// Which kernels keep the GPU in the gap between two graphs of a high-priority program, while low priority wants it? Background:
// docs/decisions/0046-keeping-between-tokens.md. Runs a graph of 1 ms, a gap, and the graph again; each variant queues other
// kernels behind the graph and releases them when the next graph is launched. Prints the time from a graph's launch to its end,
// and the share of graphs before which the keeping kernel had begun.
//
//   nvcc -O2 -arch=sm_90 -o keep-probe keep_probe.cu
//   hb run --priority low -- cuda-tenant train 500 0 &
//   hb run --priority high -- ./keep-probe [SECONDS]       seconds of a variant, default 0.5
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <time.h>
#include <vector>

#define OK(call) \
	do { \
		cudaError_t error_ = (call); \
		if (error_ != cudaSuccess) { \
			fprintf(stderr, "keep-probe: %s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(1); \
		} \
	} while (0)

enum variant {
	NOTHING,
	OWN,
	OWN_THREE,
	TWO_STREAMS,
	SAME,
	SAME_FOUR,
	BESIDE,
	BEFORE_RELEASE,
	THREE_BEFORE_RELEASE,
	STANDING,
	STANDING_TWO,
	N_VARIANTS
};
static const char *const names[N_VARIANTS] = {
	"nothing",
	"two kernels on a stream of their own",
	"three kernels there",
	"two kernels on each of two streams",
	"two kernels on the stream of the graph",
	"four kernels on the stream of the graph",
	"a kernel beside the last 100 us",
	"two kernels, queued before the release",
	"three kernels, queued before the release",
	"a kernel that runs beside the whole graph",
	"a kernel beside the whole graph, one behind",
};

enum { NODES = 100, NODE_NS = 9000, LIMIT_NS = 3000000 };

static cudaStream_t work, own, other;
static cudaEvent_t done;
static cudaGraphExec_t graph;
static volatile uint32_t *words; // [2]; a kernel that keeps the GPU ends when its word reaches its number
static volatile uint64_t *begun; // [2]; not 0: the kernel of the word has begun

static int64_t now_ns()
{
	timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

__device__ static uint64_t gpu_ns()
{
	uint64_t time;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
	return time;
}

__global__ void spin(uint64_t ns)
{
	for (uint64_t begin = gpu_ns(); gpu_ns() - begin < ns;)
		;
}

__global__ void keep(volatile uint32_t *word, uint32_t number, uint64_t limit_ns, volatile uint64_t *begun)
{
	if (begun)
		*begun = gpu_ns();
	for (uint64_t begin = gpu_ns(); *word < number && gpu_ns() - begin < limit_ns;)
		;
}

static void queue(cudaStream_t stream, bool behind, int word, uint32_t number, int kernels)
{
	if (behind)
		OK(cudaStreamWaitEvent(stream, done, 0));
	keep<<<1, 1, 0, stream>>>(words + word, number, LIMIT_NS, begun + word);
	for (int i = 1; i < kernels; i++)
		keep<<<1, 1, 0, stream>>>(words + word, number, 0, NULL);
}

/* Two words are used in turn if the kernels of a step are queued before those of the step before are released. */
static bool uses_two_words(enum variant variant)
{
	return variant >= BEFORE_RELEASE;
}

static void queue_variant(enum variant variant, int64_t launched_ns, int word, uint32_t number)
{
	bool waits = variant == OWN || variant == OWN_THREE || variant == TWO_STREAMS || variant == BEFORE_RELEASE ||
		     variant == THREE_BEFORE_RELEASE;
	int kernels = variant == OWN_THREE || variant == THREE_BEFORE_RELEASE ? 3
		      : variant == SAME_FOUR                                  ? 4
		      : variant == STANDING                                   ? 1
									      : 2;
	while (variant == BESIDE && now_ns() - launched_ns < NODES * NODE_NS - 50000)
		;
	begun[word] = 0;
	if (variant != NOTHING)
		queue(variant == SAME || variant == SAME_FOUR ? work : own, waits, word, number, kernels);
	if (variant == TWO_STREAMS)
		queue(other, true, word, number, 2);
}

static void measure(enum variant variant, int64_t gap_ns, double seconds)
{
	std::vector<double> took_us, kept_us;
	uint32_t number = 0;
	for (int64_t until_ns = now_ns() + (int64_t)(seconds * 1e9); now_ns() < until_ns; number++) {
		bool two = uses_two_words(variant), stands = variant == STANDING || variant == STANDING_TWO;
		int last = two ? (number + 1) % 2 : 0, word = two ? number % 2 : 0;
		int64_t begin_ns = now_ns();
		bool kept = number > 0 && begun[last] != 0;
		if (stands) {
			queue_variant(variant, begin_ns, word, number + 1);
			words[last] = number;
		}
		OK(cudaGraphLaunch(graph, work));
		if (!two)
			words[0] = number;
		OK(cudaEventRecord(done, work));
		if (!stands)
			queue_variant(variant, begin_ns, word, number + 1);
		if (two && !stands)
			words[last] = number;
		OK(cudaEventSynchronize(done));
		int64_t end_ns = now_ns();
		took_us.push_back((double)(end_ns - begin_ns) * 1e-3);
		if (kept)
			kept_us.push_back(took_us.back());
		while (now_ns() - end_ns < gap_ns)
			;
	}
	words[0] = words[1] = UINT32_MAX;
	OK(cudaDeviceSynchronize());
	words[0] = words[1] = 0;
	std::sort(took_us.begin(), took_us.end());
	std::sort(kept_us.begin(), kept_us.end());
	size_t n = took_us.size(), kept = kept_us.size();
	printf("gap %3lld us  %-40s p50 %7.1f  p90 %7.1f  p99 %7.1f us  n %zu  kept %.0f %%, p50 of these %.1f us\n",
	       (long long)gap_ns / 1000, names[variant], took_us[n / 2], took_us[n * 9 / 10], took_us[n * 99 / 100], n,
	       100.0 * (double)kept / (double)n, kept ? kept_us[kept / 2] : 0.0);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0.5;
	cudaGraph_t captured;
	if (!(seconds > 0)) {
		fprintf(stderr, "usage: keep-probe [SECONDS]\n");
		return 2;
	}
	for (cudaStream_t *stream : {&work, &own, &other})
		OK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
	OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
	OK(cudaHostAlloc((void **)&words, 2 * sizeof(*words), cudaHostAllocMapped));
	OK(cudaHostAlloc((void **)&begun, 2 * sizeof(*begun), cudaHostAllocMapped));
	words[0] = words[1] = 0;
	OK(cudaStreamBeginCapture(work, cudaStreamCaptureModeRelaxed));
	for (int i = 0; i < NODES; i++)
		spin<<<132, 128, 0, work>>>(NODE_NS);
	OK(cudaStreamEndCapture(work, &captured));
	OK(cudaGraphInstantiate(&graph, captured, 0));
	for (int64_t gap_ns : {60000, 150000, 300000})
		for (int variant = 0; variant < N_VARIANTS; variant++)
			measure((enum variant)variant, gap_ns, seconds);
	return 0;
}
