/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes `work`, `memory`, `hold` and `segments` of cuda-tenant. The output of `work` depends only
 * on its argument, not on programs beside it or on the shim.
 */
#include "bench_tenant.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 100000 };

static uint64_t hash_bytes(const unsigned char *bytes, size_t n)
{
	uint64_t hash = 14695981039346656037u;
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ bytes[i]) * 1099511628211u;
	return hash;
}

static void print_value(const char *what, uint64_t value)
{
	printf("%s: %llu\n", what, (unsigned long long)value);
}

static void run_copies(CUstream stream)
{
	static unsigned char out[BYTES], back[BYTES];
	CUdeviceptr memory;
	for (size_t i = 0; i < BYTES; i++)
		out[i] = (unsigned char)(i * 37);
	CU(cuMemAlloc(&memory, BYTES));
	CU(cuMemcpyHtoDAsync(memory, out, BYTES, stream));
	CU(cuMemsetD8Async(memory + 1000, 0x5a, BYTES / 2, stream));
	CU(cuMemcpyDtoHAsync(back, memory, BYTES, stream));
	CU(cuStreamSynchronize(stream));
	CU(cuMemFree(memory));
	print_value("copies", hash_bytes(back, BYTES));
}

/* The result tells the order: 2 * (2 * (0 + 1) + 2) ... */
static void run_in_order(CUstream stream, int rounds)
{
	CUdeviceptr word = tenant_word();
	for (int i = 0; i < rounds; i++) {
		tenant_step(stream, 2000, word, (uint64_t)i + 1);
		tenant_twice(stream, word);
	}
	print_value("order", tenant_read(word));
	CU(cuMemFree(word));
}

static void run_events(CUstream stream, int rounds)
{
	CUstream other;
	CUevent there, back;
	CUdeviceptr word = tenant_word();
	CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CU(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
	CU(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < rounds; i++) {
		tenant_step(stream, 20000, word, 1);
		CU(cuEventRecord(there, stream));
		CU(cuStreamWaitEvent(other, there, 0));
		tenant_twice(other, word);
		CU(cuEventRecord(back, other));
		CU(cuStreamWaitEvent(stream, back, 0));
	}
	print_value("events", tenant_read(word));
	CU(cuEventDestroy(there));
	CU(cuEventDestroy(back));
	CU(cuStreamDestroy(other));
	CU(cuMemFree(word));
}

static void run_graphs(CUstream stream, int rounds)
{
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr word = tenant_word();
	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	tenant_step(stream, 3000, word, 5);
	tenant_twice(stream, word);
	tenant_step(stream, 1000, word, 1);
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < rounds; i++)
		CU(cuGraphLaunch(exec, stream));
	print_value("graphs", tenant_read(word));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuMemFree(word));
}

static void run_pools(CUstream stream, int rounds)
{
	unsigned char back[256];
	uint64_t sum = 0;
	for (int i = 0; i < rounds; i++) {
		CUdeviceptr memory;
		CU(cuMemAllocAsync(&memory, sizeof back, stream));
		CU(cuMemsetD8Async(memory, (unsigned char)(i + 1), sizeof back, stream));
		CU(cuMemcpyDtoHAsync(back, memory, sizeof back, stream));
		CU(cuMemFreeAsync(memory, stream));
		CU(cuStreamSynchronize(stream));
		sum += hash_bytes(back, sizeof back);
	}
	print_value("pools", sum);
}

static void count_call(void *calls)
{
	++*(uint64_t *)calls;
}

static void host_functions(CUstream stream, int rounds)
{
	uint64_t calls = 0;
	for (int i = 0; i < rounds; i++) {
		tenant_step(stream, 1000, 0, 0);
		CU(cuLaunchHostFunc(stream, count_call, &calls));
	}
	CU(cuStreamSynchronize(stream));
	print_value("host functions", calls);
}

int tenant_work(int rounds)
{
	CUstream stream;
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	run_copies(stream);
	run_in_order(stream, rounds);
	run_in_order(NULL, rounds);
	run_events(stream, rounds);
	run_graphs(stream, rounds);
	run_pools(stream, rounds);
	host_functions(stream, rounds);
	CU(cuStreamDestroy(stream));
	return 0;
}

/* --- memory -------------------------------------------------------------------------------- */

/* Between the processes of one tenant, forked before any of them used CUDA. */
struct shared {
	atomic_uint_fast64_t chunks;
	atomic_int full, wrong;
	size_t chunk;
};

static void *fill_memory(void *argument)
{
	struct shared *shared = argument;
	CUcontext context;
	CUdevice device;
	CUdeviceptr memory;
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	for (;;) {
		CUresult result = cu.cuMemAlloc(&memory, shared->chunk);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			break;
		if (result != CUDA_SUCCESS)
			driver_failed("cuMemAlloc", result);
		atomic_fetch_add(&shared->chunks, 1);
	}
	/* The tenant's truth: less than a chunk is left. */
	size_t free_bytes, total_bytes;
	CU(cuMemGetInfo(&free_bytes, &total_bytes));
	if (free_bytes >= shared->chunk)
		atomic_fetch_add(&shared->wrong, 1);
	return NULL;
}

static void fill_with_threads(struct shared *shared, int threads)
{
	pthread_t *ids = calloc((size_t)threads, sizeof *ids);
	if (!ids)
		_exit(6);
	tenant_begin();
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, fill_memory, shared) != 0)
			_exit(6);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	free(ids);
}

int tenant_memory(size_t chunk, int threads, int processes)
{
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ends[2], ready[2];
	char byte;
	if (shared == MAP_FAILED || pipe(ends) < 0 || pipe(ready) < 0)
		return 6;
	shared->chunk = chunk;
	for (int i = 0; i < processes; i++) {
		if (fork() != 0)
			continue;
		close(ends[1]);
		fill_with_threads(shared, threads);
		if (write(ready[1], "r", 1) != 1 || read(ends[0], &byte, 1) != 0)
			_exit(6);
		_exit(0); /* without freeing anything */
	}
	close(ends[0]);
	close(ready[1]);
	for (int i = 0; i < processes; i++)
		if (read(ready[0], &byte, 1) != 1)
			return 6;
	printf("granted: %llu, wrong: %d\n", (unsigned long long)(atomic_load(&shared->chunks) * chunk),
	       atomic_load(&shared->wrong));
	tenant_pause("full");
	close(ends[1]);
	int status, failed = 0;
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 5 : 0;
}

static size_t count_wrong(const CUdeviceptr *chunks, size_t n, unsigned char *bytes, size_t chunk)
{
	size_t wrong = 0;
	for (size_t i = 0; i < n; i++) {
		CU(cuMemcpyDtoH(bytes, chunks[i], chunk));
		for (size_t k = 0; k < chunk; k++)
			wrong += bytes[k] != (unsigned char)(i + 1);
	}
	return wrong;
}

/* Memory of the mode `segments`: addresses for all chunks, and a physical handle for each. */
struct segment {
	CUdeviceptr base;
	CUmemGenericAllocationHandle *handles;
	size_t chunk, n;
};

static CUdeviceptr grow_segment(struct segment *segment)
{
	const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						.location = device};
	const CUmemAccessDesc access = {device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr chunk = segment->base + segment->n * segment->chunk;
	CU(cuMemCreate(&segment->handles[segment->n], segment->chunk, &properties, 0));
	CU(cuMemMap(chunk, segment->chunk, 0, segment->handles[segment->n], 0));
	CU(cuMemSetAccess(chunk, segment->chunk, &access, 1));
	segment->n++;
	return chunk;
}

static void free_segment(struct segment *segment)
{
	CU(cuMemUnmap(segment->base, segment->n * segment->chunk));
	for (size_t i = 0; i < segment->n; i++)
		CU(cuMemRelease(segment->handles[i]));
	CU(cuMemAddressFree(segment->base, segment->n * segment->chunk));
	free(segment->handles);
}

static CUdeviceptr allocate_chunk(size_t bytes)
{
	CUdeviceptr chunk;
	CU(cuMemAlloc(&chunk, bytes));
	return chunk;
}

int tenant_hold(size_t chunk, size_t n, bool segments)
{
	char line[16];
	struct segment segment = {.chunk = chunk, .handles = calloc(n, sizeof *segment.handles)};
	CUdeviceptr *chunks = calloc(n, sizeof *chunks);
	unsigned char *bytes = malloc(chunk);
	if (!chunks || !bytes || !segment.handles)
		return 6;
	tenant_begin();
	if (segments)
		CU(cuMemAddressReserve(&segment.base, n * chunk, 0, 0, 0));
	for (size_t i = 0; i < n; i++) {
		chunks[i] = segments ? grow_segment(&segment) : allocate_chunk(chunk);
		CU(cuMemsetD8Async(chunks[i], (unsigned char)(i + 1), chunk, NULL));
	}
	CU(cuCtxSynchronize());
	printf("holds: %zu\n", n * chunk);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		size_t free_bytes, total_bytes;
		CU(cuMemGetInfo(&free_bytes,
				&total_bytes)); /* at such a call it finds a daemon that was started again */
		printf("wrong: %zu\n", count_wrong(chunks, n, bytes, chunk));
		fflush(stdout);
	}
	for (size_t i = 0; i < n && !segments; i++)
		CU(cuMemFree(chunks[i]));
	if (segments)
		free_segment(&segment);
	else
		free(segment.handles);
	free(chunks);
	free(bytes);
	return 0;
}
