/* SPDX-License-Identifier: Apache-2.0 */
/* The low-priority programs of `cuda-tenant bench`, which work without pause; see the table at the end and docs/bench.md. */
#include "bench_mode.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

/* --- kernels of one length ------------------------------------------------------------------------ */

static int64_t kernel_ns;
static int batch;
static struct bench_shape shape;

/* An iteration is at least a millisecond of kernels. */
static void use_kernels(const char *us, const struct bench_shape *with)
{
	kernel_ns = (int64_t)(atof(us) * 1e3);
	batch = kernel_ns < MS ? (int)(MS / (kernel_ns > 1000 ? kernel_ns : 1000)) : 1;
	shape = *with;
}

static void prepare_spin(char **arguments)
{
	use_kernels(arguments[0], &bench_shape_full);
}

static void prepare_cooperative(char **arguments)
{
	static const struct bench_shape cooperative = {.blocks = 264, .threads = 512, .cooperative = true};
	use_kernels(arguments[0], &cooperative);
}

/* Like kernels of cuBLAS on Hopper: one block an SM, nearly all of its shared memory, its own loop over tiles. */
static void prepare_persistent(char **arguments)
{
	static const struct bench_shape persistent = {.blocks = 132, .threads = 384, .shared_bytes = 220 * 1024};
	use_kernels(arguments[0], &persistent);
}

static void iterate_spin(int64_t left_ns)
{
	for (int i = 0; i < batch; i++)
		bench_spin(&shape, kernel_ns);
}

/* One kernel that runs as long as work is wanted. */
static void prepare_endless(char **arguments)
{
}

static void iterate_endless(int64_t left_ns)
{
	bench_spin(&bench_shape_full, left_ns);
}

/* --- a graph ------------------------------------------------------------------------------------------ */

static CUgraphExec graph;
static int nodes;

static void queue_nodes(void)
{
	for (int i = 0; i < nodes; i++)
		bench_spin(&bench_shape_full, kernel_ns);
}

static void prepare_graph(char **arguments)
{
	nodes = atoi(arguments[0]);
	use_kernels(arguments[1], &bench_shape_full);
	graph = bench_record(queue_nodes);
}

static void iterate_graph(int64_t left_ns)
{
	CU(cuGraphLaunch(graph, bench_stream));
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
	CU(cuMemAlloc(&fresh, bytes));
	for (int i = 0; i < 4; i++)
		CU(cuMemsetD8Async(fresh, (unsigned char)i, bytes, bench_stream));
	CU(cuStreamSynchronize(bench_stream));
	CU(cuMemFree(fresh));
}

static void prepare_stencil(char **arguments)
{
	bytes = (size_t)atoi(arguments[0]) << 20;
	for (int i = 0; i < 2; i++) {
		CU(cuMemAlloc(&memory[i], bytes));
		CU(cuMemsetD8Async(memory[i], 0, bytes, bench_stream));
	}
}

/* Ten steps there and back. */
static void iterate_stencil(int64_t left_ns)
{
	for (int i = 0; i < 20; i++)
		bench_stencil(memory[i & 1], memory[!(i & 1)], bytes);
}

/* A frame in, a few kernels, a frame out. */
static void prepare_transcode(char **arguments)
{
	bytes = (size_t)atoi(arguments[0]) << 20;
	use_kernels(arguments[1], &bench_shape_half);
	CU(cuMemAlloc(&memory[0], bytes));
	CU(cuMemHostAlloc(&host, bytes, 0));
	memset(host, 1, bytes);
}

static void iterate_transcode(int64_t left_ns)
{
	CU(cuMemcpyHtoDAsync(memory[0], host, bytes, bench_stream));
	for (int i = 0; i < 4; i++)
		bench_spin(&shape, kernel_ns);
	CU(cuMemcpyDtoHAsync(host, memory[0], bytes, bench_stream));
}

static bool to_device;

static void prepare_copies(char **arguments)
{
	bytes = (size_t)atoi(arguments[0]) << 20;
	to_device = strcmp(arguments[1], "h2d") == 0;
	CU(cuMemAlloc(&memory[0], bytes));
	CU(cuMemHostAlloc(&host, bytes, 0));
	memset(host, 1, bytes);
}

static void iterate_copies(int64_t left_ns)
{
	if (to_device)
		CU(cuMemcpyHtoDAsync(memory[0], host, bytes, bench_stream));
	else
		CU(cuMemcpyDtoHAsync(host, memory[0], bytes, bench_stream));
}

static const struct bench_low kinds[] = {
	{"spin", "KERNEL_US", 1, prepare_spin, iterate_spin, false},
	{"endless", "", 0, prepare_endless, iterate_endless, true, true},
	{"cooperative", "KERNEL_US", 1, prepare_cooperative, iterate_spin, false},
	{"persistent", "KERNEL_US", 1, prepare_persistent, iterate_spin, false},
	{"graph", "NODES KERNEL_US", 2, prepare_graph, iterate_graph, false},
	{"thrash", "MIB", 1, prepare_thrash, iterate_thrash, true},
	{"stencil", "MIB", 1, prepare_stencil, iterate_stencil, false},
	{"copies", "MIB h2d|d2h", 2, prepare_copies, iterate_copies, false},
	{"transcode", "MIB KERNEL_US", 2, prepare_transcode, iterate_transcode, false},
};

const struct bench_low *bench_find_low(const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	return NULL;
}
