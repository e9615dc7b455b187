/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-tenant's mode `cost CALLS IDLE_MS BUSY_MS`: what calls of the driver cost this process. Started natively and under
 * `hb run` by bench/own_cost.py, which compares. Kernels end at once, and every batch of calls is awaited before the next, so
 * that no call waits for room in the driver's queue.
 *
 * Lines: {"event": "ready"} with a context, {"event": "cost", ...} after the calls and IDLE_MS of sleep; then BUSY_MS of
 * kernels between {"event": "busy"} and {"event": "done", "kernels": N}.
 */
#include "bench_tenant.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 64, GRAPH_NODES = 8, ALLOCATION = 2 << 20, BUSY_NS = 50000, BUSY_BATCH = 16 };

static CUstream stream;
static CUgraphExec graph;

static int compare_values(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* Makes BATCH calls; they are awaited outside the measured time. */
typedef void make_calls(void);

static void make_launches(void)
{
	for (int i = 0; i < BATCH; i++)
		tenant_step(stream, 0, 0, 0);
}

static void make_graph_launches(void)
{
	for (int i = 0; i < BATCH; i++)
		CU(cuGraphLaunch(graph, stream));
}

static void make_round_trips(void)
{
	for (int i = 0; i < BATCH; i++) {
		tenant_step(stream, 0, 0, 0);
		CU(cuStreamSynchronize(stream));
	}
}

static void make_allocations(void)
{
	for (int i = 0; i < BATCH; i++) {
		CUdeviceptr memory;
		CU(cuMemAlloc(&memory, ALLOCATION));
		CU(cuMemFree(memory));
	}
}

/* Returns the median over the batches of the time of one call, in ns. */
static double measure_calls(make_calls *make, unsigned n_batches)
{
	double *times = calloc(n_batches, sizeof *times);
	if (!times)
		exit(5);
	for (unsigned i = 0; i < n_batches; i++) {
		int64_t begin_ns = hb_clock_now_ns();
		make();
		times[i] = (double)(hb_clock_now_ns() - begin_ns) / BATCH;
		CU(cuStreamSynchronize(stream));
	}
	qsort(times, n_batches, sizeof *times, compare_values);
	double median = times[n_batches / 2];
	free(times);
	return median;
}

static void record_graph_of_steps(void)
{
	CUgraph recorded;
	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < GRAPH_NODES; i++)
		tenant_step(stream, 0, 0, 0);
	CU(cuStreamEndCapture(stream, &recorded));
	CU(cuGraphInstantiateWithFlags(&graph, recorded, 0));
	CU(cuGraphDestroy(recorded));
}

static double read_cpu_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Returns a value of /proc/self/smaps_rollup in KiB; -1 = unknown. */
static long read_memory_kib(const char *key)
{
	char line[256];
	long kib = -1;
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, key, strlen(key)) == 0)
			kib = strtol(line + strlen(key), NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

/* Returns the processor time that all threads of this process take in one second of sleep, in ms. */
static double measure_idle(unsigned idle_ms)
{
	struct timespec pause = {.tv_sec = idle_ms / 1000, .tv_nsec = (long)(idle_ms % 1000) * 1000000};
	double before_ms = read_cpu_ms();
	nanosleep(&pause, NULL);
	return idle_ms ? (read_cpu_ms() - before_ms) * 1000 / idle_ms : 0;
}

static unsigned long run_busy(unsigned busy_ms)
{
	unsigned long kernels = 0;
	int64_t end_ns = hb_clock_now_ns() + (int64_t)busy_ms * 1000000;
	while (hb_clock_now_ns() < end_ns) {
		for (int i = 0; i < BUSY_BATCH; i++)
			tenant_step(stream, BUSY_NS, 0, 0);
		CU(cuStreamSynchronize(stream));
		kernels += BUSY_BATCH;
	}
	return kernels;
}

int tenant_cost(unsigned calls, unsigned idle_ms, unsigned busy_ms)
{
	unsigned n_batches = calls / BATCH + 1;
	tenant_say("{\"event\": \"ready\"}");
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	record_graph_of_steps();
	measure_calls(make_launches, 4); /* the first calls load the kernel */
	double launch_ns = measure_calls(make_launches, n_batches);
	double graph_ns = measure_calls(make_graph_launches, n_batches / 4 + 1);
	double trip_ns = measure_calls(make_round_trips, n_batches / 8 + 1);
	double allocation_ns = measure_calls(make_allocations, n_batches / 8 + 1);
	double idle = measure_idle(idle_ms);
	tenant_say("{\"event\": \"cost\", \"launch_ns\": %.1f, \"graph_launch_ns\": %.1f, \"round_trip_ns\": %.1f, "
		   "\"allocation_ns\": %.1f, \"idle_cpu_ms_per_s\": %.4f, \"pss_kib\": %ld, \"private_kib\": %ld}",
		   launch_ns, graph_ns, trip_ns, allocation_ns, idle, read_memory_kib("Pss:"),
		   read_memory_kib("Private_Dirty:"));
	tenant_say("{\"event\": \"busy\"}");
	tenant_say("{\"event\": \"done\", \"kernels\": %lu}", run_busy(busy_ms));
	CU(cuGraphExecDestroy(graph));
	CU(cuStreamDestroy(stream));
	return 0;
}
