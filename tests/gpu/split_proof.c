/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves on a GPU that split kernels compute the same as unsplit ones. Started
 * by tests/gpu/split_check.py; prints one JSON object. Opens the driver by name
 * and needs no other running part of Hummingbird.
 *
 *   split-proof exact KERNELS    runs every run_* kernel of tests/cubin in 1, 2 and 3 dimensions, unsplit and in parts
 *                                of many sizes: each block ran once, outputs equal the original's bit for bit
 *   split-proof library FILE...  splices every cubin in the files and has the driver load the copies
 *   split-proof cost KERNELS     measures what the range check and the parts cost
 *
 * With HB_PROOF_BREAK=once|twice the parts omit a block, or overlap by one: `exact` must then fail.
 */
#include "cubin/fatbin.h"
#include "cubin/splice.h"
#include "shim/cuda_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* clang-format off */
#define CALLS(X) \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoadData) X(cuModuleUnload) \
	X(cuModuleGetFunction) X(cuLaunchKernel) X(cuStreamSynchronize) X(cuMemAlloc_v2) X(cuMemcpyDtoH_v2) \
	X(cuMemcpyHtoD_v2) X(cuMemsetD8_v2) X(cuLinkCreate_v2) X(cuLinkAddData_v2) X(cuLinkComplete) X(cuLinkDestroy)
/* clang-format on */
#define PROGRAM "split-proof"
#include "driver_calls.h"

static struct hb_prologue prologue;
static double compile_ms;

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void compile_prologue(void)
{
	CUlinkState link;
	void *cubin;
	size_t size;
	const char *why;
	double begin = now_ms();
	CHECK(p_cuLinkCreate_v2(0, NULL, NULL, &link));
	CHECK(p_cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)hb_prologue_ptx,
				 strlen(hb_prologue_ptx) + 1, "range", 0, NULL, NULL));
	CHECK(p_cuLinkComplete(link, &cubin, &size));
	if (hb_prologue_take(&prologue, cubin, size, &why)) {
		fprintf(stderr, "split-proof: %s\n", why);
		exit(1);
	}
	CHECK(p_cuLinkDestroy(link));
	compile_ms = now_ms() - begin;
}

static void open_driver(void)
{
	CUdevice device;
	CUcontext context;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define LOAD(name) p_##name = library ? (__typeof__(&name))dlsym(library, #name) : NULL;
	CALLS(LOAD)
	if (!library || !p_cuInit) {
		fprintf(stderr, "split-proof: libcuda.so.1: %s\n", dlerror());
		exit(77);
	}
	CHECK(p_cuInit(0));
	CHECK(p_cuDeviceGet(&device, 0));
	CHECK(p_cuDevicePrimaryCtxRetain(&context, device));
	CHECK(p_cuCtxSetCurrent(context));
	compile_prologue();
}

static const uint8_t *map_file(const char *path, size_t *size)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) != 0) {
		fprintf(stderr, "split-proof: %s: cannot be read\n", path);
		exit(1);
	}
	void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	*size = (size_t)status.st_size;
	return bytes == MAP_FAILED ? NULL : bytes;
}

/* The kernels of tests/cubin, original and split. */
static struct {
	struct hb_cubin cubin;
	struct hb_splice splice;
	CUmodule whole, sliced;
} kernels;

static void load_kernels(const char *path)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	uint8_t *bytes;
	size_t size;
	const uint8_t *file = map_file(path, &size);
	if (!file || hb_fatbin_open(&fatbin, file, size) || hb_fatbin_next(&fatbin, &entry) != 1 ||
	    hb_fatbin_unpack(&entry, &bytes, &size) || hb_cubin_open(&kernels.cubin, bytes, size) ||
	    hb_splice(&kernels.cubin, &prologue, &kernels.splice) || !kernels.splice.bytes) {
		fprintf(stderr, "split-proof: %s: cannot be sliced\n", path);
		exit(1);
	}
	CHECK(p_cuModuleLoadData(&kernels.whole, bytes));
	CHECK(p_cuModuleLoadData(&kernels.sliced, kernels.splice.bytes));
}

enum { CELLS = 1 << 20, OUT_BYTES = 8 << 20 };
static CUdeviceptr cells, out, in;
static uint32_t host_cells[CELLS];
static uint8_t host_out[2][OUT_BYTES];

struct grid {
	unsigned x, y, z;
};

struct test {
	const char *kernel;
	unsigned n_threads, shared_bytes;
	void *arguments[6];
	unsigned n;
};

static void launch(CUfunction function, const struct test *test, struct grid grid, struct hb_bounds *bounds)
{
	void *arguments[8];
	memcpy(arguments, test->arguments, test->n * sizeof *arguments);
	arguments[test->n] = bounds;
	CHECK(p_cuLaunchKernel(function, grid.x, grid.y, grid.z, test->n_threads, 1, 1, test->shared_bytes, NULL,
			       arguments, NULL));
}

static void clear(void)
{
	CHECK(p_cuMemsetD8_v2(cells, 0, CELLS * 4));
	CHECK(p_cuMemsetD8_v2(out, 0x5a, OUT_BYTES));
}

static bool is_right(unsigned n_blocks, int which)
{
	bool right = true;
	CHECK(p_cuStreamSynchronize(NULL));
	CHECK(p_cuMemcpyDtoH_v2(host_cells, cells, CELLS * 4));
	CHECK(p_cuMemcpyDtoH_v2(host_out[which], out, OUT_BYTES));
	for (unsigned i = 0; i < CELLS; i++)
		right &= host_cells[i] == (i < n_blocks ? 1u : 0u);
	return right;
}

/* Returns how many of the ways to run the kernel gave a wrong result. */
static unsigned run_grid(const struct test *test, struct grid grid, unsigned *n_tried)
{
	static const unsigned piece_counts[] = {1, 2, 3, 7, 64};
	CUfunction whole, sliced;
	unsigned n_wrong = 0, n_blocks = grid.x * grid.y * grid.z;
	const char *fault = getenv("HB_PROOF_BREAK");
	CHECK(p_cuModuleGetFunction(&whole, kernels.whole, test->kernel));
	CHECK(p_cuModuleGetFunction(&sliced, kernels.sliced, test->kernel));
	clear();
	launch(whole, test, grid, NULL);
	n_wrong += !is_right(n_blocks, 0);
	for (size_t k = 0; k < sizeof piece_counts / sizeof *piece_counts; k++) {
		unsigned size = (n_blocks + piece_counts[k] - 1) / piece_counts[k];
		clear();
		for (unsigned first = 0; first < n_blocks; first += size) {
			struct hb_bounds bounds = {first, size};
			if (fault && first)
				bounds.first += *fault == 'o' ? 1 : UINT32_MAX; /* omit one block, or run one twice */
			if (fault && *fault == 't' && first)
				bounds.count++;
			launch(sliced, test, grid, &bounds);
		}
		n_wrong += !is_right(n_blocks, 1) || memcmp(host_out[0], host_out[1], OUT_BYTES) != 0;
		++*n_tried;
	}
	return n_wrong;
}

static void allocate(void)
{
	CHECK(p_cuMemAlloc_v2(&cells, CELLS * 4));
	CHECK(p_cuMemAlloc_v2(&out, OUT_BYTES));
	CHECK(p_cuMemAlloc_v2(&in, OUT_BYTES));
	float *values = malloc(OUT_BYTES);
	for (unsigned i = 0; values && i < OUT_BYTES / 4; i++)
		values[i] = (float)(i * 2654435761u % 1000) / 997.0f;
	CHECK(p_cuMemcpyHtoD_v2(in, values, OUT_BYTES));
	free(values);
}

static int exact(const char *path)
{
	static const struct grid grids[] = {{1, 1, 1},   {2, 1, 1},   {997, 1, 1}, {5000, 1, 1}, {13, 17, 1},
					    {1, 300, 1}, {1, 1, 129}, {7, 5, 11},  {64, 1, 3},   {3, 2, 1}};
	static short a = 7;
	static char odd[13] = {[12] = 9}, b = 3;
	static double x = 1.25;
	static long long y = 12345678901;
	static int n = 5;
	static long long n_cycles = 1000;
	const struct test tests[] = {
		{"run_plain", 64, 0, {&cells, &out}, 2},           {"run_parameters", 32, 0, {&cells, &a, odd, &b}, 4},
		{"run_calls", 64, 0, {&cells, &out, &x, &y}, 4},   {"run_everything", 256, 1024, {&cells, &out, &n}, 3},
		{"run_registers", 256, 0, {&cells, &out, &in}, 3}, {"run_long", 128, 0, {&cells, &n_cycles}, 2},
		{"run_reduction", 32, 0, {&cells, &out}, 2},
	};
	unsigned n_wrong = 0, n_tried = 0, n_kernels = sizeof tests / sizeof *tests;
	load_kernels(path);
	allocate();
	printf("{\"compile_ms\": %.1f, \"kernels\": {", compile_ms);
	for (unsigned i = 0; i < n_kernels; i++) {
		unsigned wrong = 0;
		for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
			wrong += run_grid(&tests[i], grids[g], &n_tried);
		printf("%s\"%s\": %u", i ? ", " : "", tests[i].kernel, wrong);
		n_wrong += wrong;
	}
	printf("}, \"sliced\": %u, \"tried\": %u, \"wrong\": %u}\n", kernels.splice.n_split, n_tried, n_wrong);
	return n_wrong || kernels.splice.n_split != n_kernels;
}

struct tally {
	unsigned n_cubins, n_skipped, n_kernels, n_split, n_refused, n_missing;
	size_t old_bytes, new_bytes;
	double splice_ms, load_ms;
};

static void load_copy(struct tally *tally, const struct hb_cubin *cubin, const struct hb_splice *splice)
{
	CUmodule module;
	CUfunction function;
	double begin = now_ms();
	if (p_cuModuleLoadData(&module, splice->bytes) != CUDA_SUCCESS) {
		tally->n_refused++;
		return;
	}
	for (uint32_t i = 0; i < cubin->n_kernels; i++)
		if (splice->kernels[i].reason == HB_SPLIT_none)
			tally->n_missing += p_cuModuleGetFunction(&function, module, cubin->kernels[i].name) !=
					    CUDA_SUCCESS;
	CHECK(p_cuModuleUnload(module));
	tally->load_ms += now_ms() - begin;
}

static void try_cubin(struct tally *tally, const uint8_t *bytes, size_t size)
{
	struct hb_cubin cubin;
	struct hb_splice splice;
	double begin = now_ms();
	tally->n_cubins++;
	if (hb_cubin_open(&cubin, bytes, size)) {
		tally->n_skipped++;
		return;
	}
	if (hb_splice(&cubin, &prologue, &splice)) {
		tally->n_skipped++;
	} else {
		tally->splice_ms += now_ms() - begin;
		tally->n_kernels += splice.n_kernels;
		tally->n_split += splice.n_split;
		tally->old_bytes += size;
		tally->new_bytes += splice.bytes ? splice.size : size;
		if (splice.bytes)
			load_copy(tally, &cubin, &splice);
		hb_splice_free(&splice);
	}
	hb_cubin_close(&cubin);
}

static void try_fatbin(struct tally *tally, struct hb_fatbin *fatbin)
{
	struct hb_fatbin_entry entry;
	uint8_t *bytes;
	size_t size;
	while (hb_fatbin_next(fatbin, &entry) == 1) {
		if (entry.kind != HB_FATBIN_CUBIN || entry.arch != prologue.arch ||
		    hb_fatbin_unpack(&entry, &bytes, &size))
			continue;
		try_cubin(tally, bytes, size);
		free(bytes);
	}
}

static int library(int n, char **paths)
{
	unsigned n_bad = 0;
	printf("{\"compile_ms\": %.1f, \"files\": {", compile_ms);
	for (int i = 0; i < n; i++) {
		struct tally t = {0};
		struct hb_fatbin fatbin;
		size_t size;
		double limit = now_ms() + 30e3; /* stop with the rest of a file after this time */
		const uint8_t *file = map_file(paths[i], &size);
		for (size_t at = 0; file && at + 16 <= size && now_ms() < limit;) {
			if (hb_fatbin_open(&fatbin, file + at, size - at)) {
				at += 8;
				continue;
			}
			at = (size_t)(fatbin.end - file + 7) & ~(size_t)7;
			try_fatbin(&t, &fatbin);
		}
		printf("%s\"%s\": {\"cubins\": %u, \"unreadable\": %u, \"kernels\": %u, \"sliced\": %u, \"refused_cubins\": %u, "
		       "\"missing\": %u, \"bytes\": %zu, \"sliced_bytes\": %zu, \"splice_ms\": %.0f, \"load_ms\": %.0f}",
		       i ? ", " : "", strrchr(paths[i], '/') ? strrchr(paths[i], '/') + 1 : paths[i], t.n_cubins,
		       t.n_skipped, t.n_kernels, t.n_split, t.n_refused, t.n_missing, t.old_bytes, t.new_bytes,
		       t.splice_ms, t.load_ms);
		n_bad += t.n_refused + t.n_missing;
	}
	printf("}}\n");
	return n_bad != 0;
}

/* Median over several runs of `n_parts` parts (0: the original). */
static double time_us(const struct test *test, struct grid grid, unsigned n_parts)
{
	enum { ROUNDS = 15 };
	double times[ROUNDS];
	CUfunction function;
	unsigned n_blocks = grid.x * grid.y * grid.z, size = n_parts ? (n_blocks + n_parts - 1) / n_parts : n_blocks;
	CHECK(p_cuModuleGetFunction(&function, n_parts ? kernels.sliced : kernels.whole, test->kernel));
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(p_cuStreamSynchronize(NULL));
		double begin = now_ms();
		for (unsigned first = 0; first < n_blocks; first += size) {
			struct hb_bounds bounds = {first, size};
			launch(function, test, grid, &bounds);
		}
		CHECK(p_cuStreamSynchronize(NULL));
		double took = (now_ms() - begin) * 1e3;
		int k = i;
		for (; k && times[k - 1] > took; k--)
			times[k] = times[k - 1];
		times[k] = took;
	}
	return times[ROUNDS / 2];
}

static int cost(const char *path)
{
	static const unsigned counts[] = {0, 1, 2, 4, 8, 16};
	static long long n_cycles;
	const struct test test = {"run_long", 1024, 0, {&cells, &n_cycles}, 2};
	static const struct {
		unsigned n_blocks;
		long long n_cycles;
	} cases[] = {{264, 0}, {26400, 0}, {264000, 0}, {26400, 9900}, {26400, 39600}, {5280, 198000}};
	load_kernels(path);
	allocate();
	printf("{\"us\": [");
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		n_cycles = cases[c].n_cycles;
		printf("%s{\"blocks\": %u, \"block_cycles\": %lld", c ? ", " : "", cases[c].n_blocks, n_cycles);
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
			printf(", \"%u\": %.1f", counts[i],
			       time_us(&test, (struct grid){cases[c].n_blocks, 1, 1}, counts[i]));
		printf("}");
	}
	printf("]}\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: split-proof exact|cost KERNELS, split-proof library FILE...\n");
		return 2;
	}
	open_driver();
	if (strcmp(argv[1], "exact") == 0)
		return exact(argv[2]);
	if (strcmp(argv[1], "cost") == 0)
		return cost(argv[2]);
	return library(argc - 2, argv + 2);
}
