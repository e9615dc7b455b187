/* SPDX-License-Identifier: Apache-2.0 */
/* What hb-bench-work measures as a service; see the table at the end and docs/bench.md. */
#include "bench_work.h"

#include <stdlib.h>
#include <string.h>

/* --- preempt: when does the first block of a kernel run? ---------------------------------------- */

static int64_t kernel_ns;

static void prepare_preempt(char **arguments)
{
	kernel_ns = (int64_t)(atof(arguments[0]) * 1e3);
}

/* Pauses of 0.2 to 0.4 ms, so that the others get the GPU back and trials meet them at any moment. */
static void serve_preempt(int64_t end_ns, const struct work_arrivals *arrivals)
{
	while (work_now_ns() < end_ns) {
		work_wait_until(work_now_ns() + 200000 + (int64_t)(work_random() * 200000));
		int64_t begin = work_now_ns();
		work_trial(kernel_ns);
		GPU(cuStreamSynchronize(work_stream));
		work_high_add(begin, work_stamp() - begin);
	}
}

/* --- launch: what does a launch cost its caller? --------------------------------------------------- */

static void prepare_nothing(char **arguments)
{
}

static void serve_launch(int64_t end_ns, const struct work_arrivals *arrivals)
{
	enum { BATCH = 100 };
	static const struct work_shape tiny = {.blocks = 1, .threads = 32};
	while (work_now_ns() < end_ns) {
		for (int i = 0; i < BATCH; i++) {
			int64_t begin = work_host_ns();
			work_spin(&tiny, 0);
			work_high_add(begin, work_host_ns() - begin);
		}
		GPU(cuStreamSynchronize(work_stream));
	}
}

/* --- infer: requests of many kernels, Poisson or one after the other --------------------------------- */

static int kernels;
static CUgraphExec graph;

static void launch_kernels(void)
{
	for (int i = 0; i < kernels; i++)
		work_spin(&work_shape_half, kernel_ns);
}

static void prepare_infer(char **arguments)
{
	CUgraph recorded;
	kernels = atoi(arguments[0]);
	kernel_ns = (int64_t)(atof(arguments[1]) * 1e3);
	GPU(cuStreamBeginCapture_v2(work_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_kernels();
	GPU(cuStreamEndCapture(work_stream, &recorded));
	GPU(cuGraphInstantiateWithFlags(&graph, recorded, 0));
	GPU(cuGraphLaunch(graph, work_stream));
	GPU(cuStreamSynchronize(work_stream));
}

/* Open loop: a request that finds the previous one running waits, and the wait counts. */
static void serve_infer(int64_t end_ns, const struct work_arrivals *arrivals)
{
	int64_t due = work_now_ns();
	if (arrivals->periodic)
		due += (int64_t)(arrivals->phase * 1e9 / arrivals->rate_per_s);
	for (;;) {
		due = work_next_due(arrivals, due);
		if (due >= end_ns)
			return;
		work_wait_until(due);
		GPU(cuGraphLaunch(graph, work_stream));
		GPU(cuStreamSynchronize(work_stream));
		work_high_add(due, work_now_ns() - due);
	}
}

static const struct work_high kinds[] = {
	{"preempt", "KERNEL_US", 1, prepare_preempt, serve_preempt, true},
	{"launch", "", 0, prepare_nothing, serve_launch, false},
	{"infer", "KERNELS KERNEL_US", 2, prepare_infer, serve_infer, false},
};

const struct work_high *work_high_find(const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}
