/* SPDX-License-Identifier: Apache-2.0 */
/* What hb-bench-work does without pause; see the table at the end and docs/bench.md. */
#include "bench_work.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

/* --- kernels of one length ------------------------------------------------------------------------ */

static int64_t kernel_ns;
static int batch;
static struct work_shape shape;

/* An iteration is at least a millisecond of kernels. */
static void use_kernels(const char *us, const struct work_shape *with)
{
	kernel_ns = (int64_t)(atof(us) * 1e3);
	batch = kernel_ns < MS ? (int)(MS / (kernel_ns > 1000 ? kernel_ns : 1000)) : 1;
	shape = *with;
}

static void prepare_spin(char **arguments)
{
	use_kernels(arguments[0], &work_shape_full);
}

static void prepare_cooperative(char **arguments)
{
	static const struct work_shape cooperative = {.blocks = 264, .threads = 512, .cooperative = true};
	use_kernels(arguments[0], &cooperative);
}

/* As cuBLAS's on Hopper: one block an SM, nearly all of its shared memory, its own loop over tiles. */
static void prepare_persistent(char **arguments)
{
	static const struct work_shape persistent = {.blocks = 132, .threads = 384, .shared_bytes = 220 * 1024};
	use_kernels(arguments[0], &persistent);
}

static void iterate_spin(int64_t left_ns)
{
	for (int i = 0; i < batch; i++)
		work_spin(&shape, kernel_ns);
}

/* One kernel for as long as work is wanted. */
static void prepare_endless(char **arguments)
{
}

static void iterate_endless(int64_t left_ns)
{
	work_spin(&work_shape_full, left_ns);
}

/* --- a graph ------------------------------------------------------------------------------------------ */

static CUgraphExec graph;

static void prepare_graph(char **arguments)
{
	CUgraph recorded;
	int nodes = atoi(arguments[0]);
	use_kernels(arguments[1], &work_shape_full);
	GPU(cuStreamBeginCapture_v2(work_stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < nodes; i++)
		work_spin(&work_shape_full, kernel_ns);
	GPU(cuStreamEndCapture(work_stream, &recorded));
	GPU(cuGraphInstantiateWithFlags(&graph, recorded, 0));
}

static void iterate_graph(int64_t left_ns)
{
	GPU(cuGraphLaunch(graph, work_stream));
}

/* --- memory --------------------------------------------------------------------------------------------- */

static size_t bytes;
static CUdeviceptr memory[2];
static void *host;

/* Allocations that come and go, filled at once: page tables, bandwidth and the allocator's locks. */
static void prepare_thrash(char **arguments)
{
	bytes = (size_t)atoi(arguments[0]) << 20;
}

static void iterate_thrash(int64_t left_ns)
{
	CUdeviceptr fresh;
	GPU(cuMemAlloc_v2(&fresh, bytes));
	for (int i = 0; i < 4; i++)
		GPU(cuMemsetD8Async(fresh, (unsigned char)i, bytes, work_stream));
	GPU(cuStreamSynchronize(work_stream));
	GPU(cuMemFree_v2(fresh));
}

static void prepare_stencil(char **arguments)
{
	bytes = (size_t)atoi(arguments[0]) << 20;
	for (int i = 0; i < 2; i++) {
		GPU(cuMemAlloc_v2(&memory[i], bytes));
		GPU(cuMemsetD8Async(memory[i], 0, bytes, work_stream));
	}
}

/* Ten steps there and back. */
static void iterate_stencil(int64_t left_ns)
{
	for (int i = 0; i < 20; i++)
		work_stencil(memory[i & 1], memory[!(i & 1)], bytes);
}

/* A frame in, a few kernels, a frame out. */
static void prepare_transcode(char **arguments)
{
	bytes = (size_t)atoi(arguments[0]) << 20;
	use_kernels(arguments[1], &work_shape_half);
	GPU(cuMemAlloc_v2(&memory[0], bytes));
	GPU(cuMemHostAlloc(&host, bytes, 0));
	memset(host, 1, bytes);
}

static void iterate_transcode(int64_t left_ns)
{
	GPU(cuMemcpyHtoDAsync_v2(memory[0], host, bytes, work_stream));
	for (int i = 0; i < 4; i++)
		work_spin(&shape, kernel_ns);
	GPU(cuMemcpyDtoHAsync_v2(host, memory[0], bytes, work_stream));
}

static const struct work_low kinds[] = {
	{"spin", "KERNEL_US", 1, prepare_spin, iterate_spin, false},
	{"endless", "", 0, prepare_endless, iterate_endless, true, true},
	{"cooperative", "KERNEL_US", 1, prepare_cooperative, iterate_spin, false},
	{"persistent", "KERNEL_US", 1, prepare_persistent, iterate_spin, false},
	{"graph", "NODES KERNEL_US", 2, prepare_graph, iterate_graph, false},
	{"thrash", "MIB", 1, prepare_thrash, iterate_thrash, true},
	{"stencil", "MIB", 1, prepare_stencil, iterate_stencil, false},
	{"transcode", "MIB KERNEL_US", 2, prepare_transcode, iterate_transcode, false},
};

const struct work_low *work_low_find(const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}
