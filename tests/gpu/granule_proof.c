/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves on a GPU that granules (shim/granules.h) move without loss, and answers what
 * docs/decisions/0025-elastic-memory.md leaves to be tried: what the driver reports
 * about memory that has moved, whether graphs survive a move, what can be exported,
 * and what allocations cost. Prints one JSON object; the exit status is 0 if no byte
 * was lost. Opens the driver by name and needs no other running part of Hummingbird:
 *
 *   granule-proof [MIB]      moves MIB (default 1024) to the host and, with two GPUs, to the second one, and back
 *
 * Results of driver calls are CUDA's numbers. In an MPS server: with CUDA_MPS_PIPE_DIRECTORY set as for any client.
 * With HB_PROOF_BREAK=1 one word changes while the memory is away, and the exit status is 0 if that is noticed.
 */
#include "base/clock.h"
#include "shim/granules.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PATTERN_BYTES (16 * MIB)
#define ROUNDS 20

/* clang-format off */
#define CALLS(X) \
	X(cuInit) X(cuDeviceGetCount) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) \
	X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) \
	X(cuMemSetAccess) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyPeer) \
	X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemsetD32Async) X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamCreate) \
	X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy) \
	X(cuMemGetAddressRange_v2) X(cuPointerGetAttribute) X(cuMemRetainAllocationHandle) X(cuIpcGetMemHandle) \
	X(cuMemExportToShareableHandle)
/* clang-format on */
#define PROGRAM "granule-proof"
#include "driver_calls.h"

static const CUmemLocation local = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, peer = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
			   host = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
static struct hb_granule_driver driver;
static CUstream stream;
static int n_devices;
static uint32_t *pattern, *read_back;
static bool lost; /* some byte was not what it should be */

static void open_driver(void)
{
	CUcontext context;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "granule-proof: libcuda.so.1: %s\n", dlerror());
		exit(77);
	}
#define LOAD(name) \
	p_##name = (__typeof__(&name))dlsym(library, #name); \
	if (!p_##name) { \
		fprintf(stderr, "granule-proof: libcuda.so.1 has no " #name "\n"); \
		exit(77); \
	}
	CALLS(LOAD)
	CHECK(p_cuInit(0));
	CHECK(p_cuDeviceGetCount(&n_devices));
	CHECK(p_cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(p_cuCtxSetCurrent(context));
	CHECK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	driver = (struct hb_granule_driver){.address_reserve = p_cuMemAddressReserve,
					    .address_free = p_cuMemAddressFree,
					    .create = p_cuMemCreate,
					    .release = p_cuMemRelease,
					    .map = p_cuMemMap,
					    .unmap = p_cuMemUnmap,
					    .set_access = p_cuMemSetAccess,
					    .copy = p_cuMemcpyDtoDAsync_v2,
					    .query = p_cuStreamQuery,
					    .synchronize = p_cuStreamSynchronize};
}

static struct hb_granules *new_granules(CUmemAllocationHandleType handle_types)
{
	const struct hb_granule_config config = {.driver = &driver,
						 .device = 0,
						 .host = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
						 .granule_bytes = HB_GRANULE_BYTES_MAX,
						 .handle_types = handle_types};
	struct hb_granules *granules = hb_granules_new(&config);
	if (!granules) {
		fprintf(stderr, "granule-proof: out of memory\n");
		exit(1);
	}
	return granules;
}

static double seconds_since(int64_t begin_ns)
{
	return (double)(hb_clock_now_ns() - begin_ns) * 1e-9;
}

/* --- contents: each piece differs from all others -------------------------------------------------- */

static void make_pattern(size_t piece)
{
	for (size_t i = 0; i < PATTERN_BYTES / 4; i++)
		pattern[i] = (uint32_t)(i * 2654435761u + piece * 40503u);
}

static void fill(CUdeviceptr base, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PATTERN_BYTES) {
		make_pattern(at / PATTERN_BYTES);
		CHECK(p_cuMemcpyHtoD_v2(base + at, pattern, PATTERN_BYTES));
	}
}

static bool is_intact(CUdeviceptr base, size_t bytes)
{
	bool intact = true;
	for (size_t at = 0; at < bytes && intact; at += PATTERN_BYTES) {
		make_pattern(at / PATTERN_BYTES);
		CHECK(p_cuMemcpyDtoH_v2(read_back, base + at, PATTERN_BYTES));
		intact = memcmp(read_back, pattern, PATTERN_BYTES) == 0;
	}
	lost |= !intact;
	return intact;
}

/* --- what the driver reports -------------------------------------------------------------------------- */

static void print_attribute(const char *name, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	uint64_t value = 0;
	CUresult result = p_cuPointerGetAttribute(&value, attribute, pointer);
	printf("\"%s\": {\"result\": %d, \"value\": %llu}, ", name, (int)result, (unsigned long long)value);
}

static void print_attributes(CUdeviceptr pointer)
{
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUresult result = p_cuMemGetAddressRange_v2(&base, &bytes, pointer);
	printf("\"attributes\": {");
	print_attribute("memory_type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
	print_attribute("device", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
	print_attribute("context", CU_POINTER_ATTRIBUTE_CONTEXT, pointer);
	print_attribute("range_bytes", CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer);
	print_attribute("handle_types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, pointer);
	print_attribute("ipc_capable", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer);
	printf("\"address_range\": {\"result\": %d, \"bytes\": %zu}}", (int)result, bytes);
}

/* --- a graph that was instantiated before the moves ------------------------------------------------------ */

static CUgraphExec instantiate_graph(CUdeviceptr granules, CUdeviceptr copy, uint32_t *word)
{
	CUgraph graph;
	CUgraphExec exec;
	CHECK(p_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(p_cuMemcpyDtoDAsync_v2(copy, granules, PATTERN_BYTES, stream));
	CHECK(p_cuMemsetD32Async(granules, *word, 1, stream));
	CHECK(p_cuStreamEndCapture(stream, &graph));
	CHECK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(p_cuGraphDestroy(graph));
	return exec;
}

/* The graph copies from the granules, then changes their first word, which is restored here. */
static bool does_graph_work(CUgraphExec exec, CUdeviceptr granules, CUdeviceptr copy, uint32_t word)
{
	uint32_t first = 0;
	make_pattern(0);
	memset(read_back, 0xee, PATTERN_BYTES); /* else the copy could be missing without being missed */
	CHECK(p_cuMemcpyHtoD_v2(copy, read_back, PATTERN_BYTES));
	CHECK(p_cuGraphLaunch(exec, stream));
	CHECK(p_cuStreamSynchronize(stream));
	CHECK(p_cuMemcpyDtoH_v2(read_back, copy, PATTERN_BYTES));
	CHECK(p_cuMemcpyDtoH_v2(&first, granules, 4));
	bool works = memcmp(read_back, pattern, PATTERN_BYTES) == 0 && first == word;
	CHECK(p_cuMemcpyHtoD_v2(granules, pattern, 4));
	lost |= !works;
	return works;
}

/* --- moves -------------------------------------------------------------------------------------------------- */

/* Prints the time of each step. */
static void move_granules(struct hb_granules *granules, const CUmemLocation *from, const CUmemLocation *to,
			  size_t bytes)
{
	struct hb_granule_move *move;
	CUresult result;
	int64_t begin_ns = hb_clock_now_ns();
	CHECK(hb_granule_move_begin(granules, from, to, bytes, &move));
	double prepare_s = seconds_since(begin_ns);
	begin_ns = hb_clock_now_ns();
	CHECK(hb_granule_move_copy(move, stream));
	while ((result = hb_granule_move_poll(move)) == CUDA_ERROR_NOT_READY)
		;
	CHECK(result);
	double copy_s = seconds_since(begin_ns);
	begin_ns = hb_clock_now_ns();
	CHECK(hb_granule_move_exchange(move));
	double exchange_s = seconds_since(begin_ns);
	begin_ns = hb_clock_now_ns();
	hb_granule_move_end(move);
	printf("\"prepare_s\": %.6f, \"copy_s\": %.6f, \"exchange_s\": %.6f, \"end_s\": %.6f", prepare_s, copy_s,
	       exchange_s, seconds_since(begin_ns));
}

/* There and back. */
static void prove_place(const char *name, const CUmemLocation *place, size_t bytes)
{
	struct hb_granules *granules = new_granules(0);
	CUdeviceptr base, copy;
	uint32_t word = 4711;
	bool more = true;
	hb_granules_limit_host(granules, bytes);
	CHECK(hb_granules_allocate(granules, bytes, &base));
	CHECK(p_cuMemAlloc_v2(&copy, PATTERN_BYTES));
	fill(base, bytes);
	CUgraphExec exec = instantiate_graph(base, copy, &word);
	printf("\"%s\": {\"graph_before\": %d, ", name, does_graph_work(exec, base, copy, word));
	int64_t begin_ns = hb_clock_now_ns();
	while (place == &host && more)
		CHECK(hb_granules_keep_spares(granules, &more));
	printf("\"pin_s\": %.6f, \"away\": {", seconds_since(begin_ns));
	move_granules(granules, &local, place, bytes);
	printf(", \"graph\": %d, \"intact\": %d, ", does_graph_work(exec, base, copy, word), is_intact(base, bytes));
	print_attributes(base + 64);
	if (getenv("HB_PROOF_BREAK"))
		CHECK(p_cuMemcpyHtoD_v2(base + bytes - 4, &word, 4));
	printf("}, \"back\": {");
	move_granules(granules, place, &local, bytes);
	printf(", \"graph\": %d, \"intact\": %d, ", does_graph_work(exec, base, copy, word), is_intact(base, bytes));
	print_attributes(base + 64);
	printf("}}, ");
	CHECK(p_cuGraphExecDestroy(exec));
	CHECK(hb_granules_release(granules, base, 0, NULL));
	CHECK(p_cuMemFree_v2(copy));
	hb_granules_limit_host(granules, 0);
	for (more = true; more;)
		CHECK(hb_granules_keep_spares(granules, &more));
	hb_granules_free(granules);
}

/* --- single questions ------------------------------------------------------------------------------------------ */

static int export_result(const CUmemLocation *place)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						.location = *place};
	CUmemGenericAllocationHandle handle;
	int fd = -1;
	CUresult result = p_cuMemCreate(&handle, HB_GRANULE_UNIT, &properties, 0);
	if (result != CUDA_SUCCESS)
		return (int)result;
	result = p_cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (fd >= 0)
		close(fd);
	CHECK(p_cuMemRelease(handle));
	return (int)result;
}

/* Maps `bytes` from `offset` of a handle of two units. */
static int map_result(size_t bytes, size_t offset)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = local};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base;
	CHECK(p_cuMemCreate(&handle, 2 * HB_GRANULE_UNIT, &properties, 0));
	CHECK(p_cuMemAddressReserve(&base, bytes, 0, 0, 0));
	CUresult result = p_cuMemMap(base, bytes, offset, handle, 0);
	if (result == CUDA_SUCCESS)
		CHECK(p_cuMemUnmap(base, bytes));
	CHECK(p_cuMemAddressFree(base, bytes));
	CHECK(p_cuMemRelease(handle));
	return (int)result;
}

static void print_pointer_results(const char *name, CUdeviceptr pointer)
{
	CUipcMemHandle ipc;
	CUmemGenericAllocationHandle handle;
	CUresult retained = p_cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)pointer);
	if (retained == CUDA_SUCCESS)
		CHECK(p_cuMemRelease(handle));
	printf("\"%s\": {\"ipc_handle\": %d, \"retain_handle\": %d", name, (int)p_cuIpcGetMemHandle(&ipc, pointer),
	       (int)retained);
	if (n_devices > 1) {
		CUcontext own, other;
		CUdeviceptr there;
		CHECK(p_cuDevicePrimaryCtxRetain(&own, 0));
		CHECK(p_cuDevicePrimaryCtxRetain(&other, 1));
		CHECK(p_cuCtxSetCurrent(other));
		CHECK(p_cuMemAlloc_v2(&there, MIB));
		CHECK(p_cuCtxSetCurrent(own));
		printf(", \"copy_to_peer\": %d", (int)p_cuMemcpyPeer(there, other, pointer, own, MIB));
		CHECK(p_cuCtxSynchronize());
		CHECK(p_cuMemFree_v2(there));
	}
	printf(", ");
	print_attributes(pointer + 64);
	printf("}, ");
}

static void answer_questions(void)
{
	struct hb_granules *granules = new_granules(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CUdeviceptr native, base;
	CHECK(p_cuMemAlloc_v2(&native, HB_GRANULE_BYTES_MAX));
	CHECK(hb_granules_allocate(granules, HB_GRANULE_BYTES_MAX + HB_GRANULE_UNIT, &base));
	print_pointer_results("native", native);
	print_pointer_results("granules", base);
	printf("\"export_device\": %d, \"export_host\": %d, ", export_result(&local), export_result(&host));
	printf("\"map_part\": %d, \"map_from_offset\": %d, ", map_result(HB_GRANULE_UNIT, 0),
	       map_result(HB_GRANULE_UNIT, HB_GRANULE_UNIT));
	CHECK(p_cuMemFree_v2(native));
	CHECK(hb_granules_release(granules, base, 0, NULL));
	hb_granules_free(granules);
}

/* Mean time to allocate and free 64 MiB. */
static double measure_granules(CUmemAllocationHandleType handle_types)
{
	struct hb_granules *granules = new_granules(handle_types);
	CUdeviceptr base;
	int64_t begin_ns = hb_clock_now_ns();
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(hb_granules_allocate(granules, HB_GRANULE_BYTES_MAX, &base));
		CHECK(p_cuCtxSynchronize());
		CHECK(hb_granules_release(granules, base, 0, NULL));
	}
	double mean_s = seconds_since(begin_ns) / ROUNDS;
	hb_granules_free(granules);
	return mean_s;
}

static double measure_native(void)
{
	CUdeviceptr base;
	int64_t begin_ns = hb_clock_now_ns();
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(p_cuMemAlloc_v2(&base, HB_GRANULE_BYTES_MAX));
		CHECK(p_cuMemFree_v2(base));
	}
	return seconds_since(begin_ns) / ROUNDS;
}

int main(int argc, char **argv)
{
	size_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
	size_t bytes = (mib + 15) / 16 * PATTERN_BYTES;
	pattern = malloc(PATTERN_BYTES);
	read_back = calloc(1, PATTERN_BYTES);
	if (!bytes || !pattern || !read_back) {
		fprintf(stderr, "granule-proof: %s: not a number of MiB\n", argc > 1 ? argv[1] : "");
		return 2;
	}
	open_driver();
	printf("{\"bytes\": %zu, \"devices\": %d, ", bytes, n_devices);
	prove_place("host", &host, bytes);
	if (n_devices > 1)
		prove_place("peer", &peer, bytes); /* before there is a context on the peer */
	answer_questions();
	printf("\"allocate_and_free_64_mib_s\": {\"native\": %.6f, \"granules\": %.6f, \"exportable\": %.6f}, ",
	       measure_native(), measure_granules(0), measure_granules(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	printf("\"lost\": %d}\n", lost);
	return lost != (getenv("HB_PROOF_BREAK") != NULL);
}
