/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda-tenant's mode `gang`: one program on all its GPUs, as training and inference
 * on several GPUs are. A collective is a kernel on each GPU that keeps running until
 * the kernels of the others have begun, as NCCL's do. So if a GPU never gets its
 * kernel, the others spin for ever: what the tests look for. On simulated GPUs only.
 *
 *   gang SHAPE KERNEL_US STEPS [PAUSE_US]
 *     dp     each step: one kernel, and a collective of all GPUs
 *     tp     each step: four kernels, and a collective of all GPUs behind each
 *     pp     each step: a kernel between collectives with the GPU before and the one behind
 *     one    as dp, but a single thread launches on all GPUs, one after the other
 *     chain  each step: one kernel on each GPU, by a single thread, which waits for the last GPU only
 *
 * 0 steps: until SIGTERM. After every SYNC steps each thread waits for its GPU, and then for PAUSE_US. Prints JSON; `right`
 * says whether each GPU made each step.
 */
#include "bench_tenant.h"
#include "tenant_kernels.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	RANKS = 16,
	SYNC = 8,    /* steps between two waits: about the most by which a thread is ahead of its GPU */
	RING = 4096, /* cells of a set; far more than any two ranks are apart */
	AHEAD = 512, /* steps, more than any two ranks are apart */
};

static const char image[] = "HBSIM1\n"
			    "kernel step ns_param=0 params=8,8,8 host=tenant_kernel_step\n"
			    "kernel arrive ns=1000 params=8,8 host=tenant_kernel_arrive\n"
			    "takeover meet\n";

/* Set 0 is for collectives of all ranks, or set r for those of ranks r and r + 1. */
static struct tenant_cell cells[RANKS][RING];
static volatile sig_atomic_t asked_to_end;
static _Atomic(uint64_t) end_at = UINT64_MAX;

static struct gang {
	int n;
	bool pipeline, chain;
	int collectives; /* in a step, of all ranks */
	uint64_t kernel_ns, pause_us;
	struct rank {
		CUcontext context;
		CUstream stream;
		CUfunction step, arrive, meet;
		CUdeviceptr word;
		uint64_t made;
		uint64_t met[RANKS], cleared[RANKS]; /* collectives of each set: launched; cells cleared by this rank */
		pthread_t thread;
	} ranks[RANKS];
} gang;

static void end_soon(int signal)
{
	asked_to_end = 1;
}

static void open_rank(int number)
{
	struct rank *rank = &gang.ranks[number];
	CUmodule module;
	CUdevice device;
	CU(cuDeviceGet(&device, number));
	CU(cuDevicePrimaryCtxRetain(&rank->context, device));
	CU(cuCtxSetCurrent(rank->context));
	CU(cuModuleLoadData(&module, image));
	CU(cuModuleGetFunction(&rank->step, module, "step"));
	CU(cuModuleGetFunction(&rank->arrive, module, "arrive"));
	CU(cuModuleGetFunction(&rank->meet, module, "meet"));
	CU(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
	rank->word = tenant_word();
}

static void compute(struct rank *rank, uint64_t value)
{
	void *arguments[] = {&gang.kernel_ns, &rank->word, &value};
	CU(cuLaunchKernel(rank->step, 264, 1, 1, 512, 1, 1, 0, rank->stream, arguments, NULL));
}

static void meet(struct rank *rank, int set, uint64_t n)
{
	/* The simulated driver ends all kernels of this kind that are queued in a stream together, so there is one at a time. */
	CU(cuStreamSynchronize(rank->stream));
	struct tenant_cell *cell = &cells[set][rank->met[set]++ % RING];
	uint64_t address = (uint64_t)(uintptr_t)cell, open = (uint64_t)(uintptr_t)&cell->open;
	void *arrived[] = {&address, &n}, *waits[] = {&open};
	CU(cuLaunchKernel(rank->arrive, 1, 1, 1, 32, 1, 1, 0, rank->stream, arrived, NULL));
	CU(cuLaunchKernel(rank->meet, 16, 1, 1, 512, 1, 1, 0, rank->stream, waits, NULL));
}

/* All of this rank's collectives have ended, so the other ranks have passed all of them but the last. */
static void clear_cells(struct rank *rank, int set)
{
	for (; rank->cleared[set] + 1 < rank->met[set]; rank->cleared[set]++) {
		struct tenant_cell *cell = &cells[set][rank->cleared[set] % RING];
		atomic_store(&cell->arrived, 0);
		atomic_store(&cell->open, 0);
	}
}

static void wait_for_gpu(int number)
{
	struct rank *rank = &gang.ranks[number];
	CU(cuStreamSynchronize(rank->stream));
	if (gang.pipeline || number == 0)
		clear_cells(rank, gang.pipeline ? number : 0);
}

/* Rank 0 decides where the gang ends: behind what any other rank has launched. */
static bool is_over(int number, uint64_t made)
{
	if (number == 0 && asked_to_end && atomic_load(&end_at) == UINT64_MAX)
		atomic_store(&end_at, made + AHEAD);
	return made >= atomic_load(&end_at);
}

static void make_step(int number)
{
	struct rank *rank = &gang.ranks[number];
	if (gang.chain)
		compute(rank, 1);
	if (gang.pipeline) {
		if (number > 0)
			meet(rank, number - 1, 2);
		compute(rank, 1);
		if (number + 1 < gang.n)
			meet(rank, number, 2);
	}
	for (int i = 0; !gang.pipeline && i < gang.collectives; i++) {
		compute(rank, i == 0);
		meet(rank, 0, (uint64_t)gang.n);
	}
	rank->made++;
}

static void pause_program(void)
{
	if (gang.pause_us)
		usleep((useconds_t)gang.pause_us);
}

static void *run_rank(void *argument)
{
	int number = (int)((struct rank *)argument - gang.ranks);
	struct rank *rank = argument;
	CU(cuCtxSetCurrent(rank->context));
	for (; !is_over(number, rank->made); rank->made % SYNC == 0 ? pause_program() : (void)0) {
		make_step(number);
		if (rank->made % SYNC == 0)
			wait_for_gpu(number);
		if (number == 0 && rank->made == SYNC)
			tenant_say("running");
	}
	wait_for_gpu(number);
	return NULL;
}

static void run_in_one_thread(void)
{
	while (!is_over(0, gang.ranks[0].made)) {
		for (int i = 0; i < gang.n; i++) {
			CU(cuCtxSetCurrent(gang.ranks[i].context));
			make_step(i);
		}
		for (int i = gang.chain ? gang.n - 1 : 0; gang.ranks[0].made % SYNC == 0 && i < gang.n; i++) {
			CU(cuCtxSetCurrent(gang.ranks[i].context));
			wait_for_gpu(i);
		}
		if (gang.ranks[0].made == SYNC)
			tenant_say("running");
		if (gang.ranks[0].made % SYNC == 0)
			pause_program();
	}
}

static void run_in_threads(void)
{
	for (int i = 0; i < gang.n; i++)
		if (pthread_create(&gang.ranks[i].thread, NULL, run_rank, &gang.ranks[i]) != 0)
			_exit(6);
	for (int i = 0; i < gang.n; i++)
		pthread_join(gang.ranks[i].thread, NULL);
}

static bool is_right(void)
{
	bool right = true;
	for (int i = 0; i < gang.n; i++) {
		CU(cuCtxSetCurrent(gang.ranks[i].context));
		CU(cuStreamSynchronize(gang.ranks[i].stream));
		right &= tenant_read(gang.ranks[i].word) == gang.ranks[0].made;
		CU(cuDevicePrimaryCtxRelease(i));
	}
	return right;
}

int tenant_gang(const char *shape, double kernel_us, uint64_t steps, uint64_t pause_us)
{
	bool one = strcmp(shape, "one") == 0 || strcmp(shape, "chain") == 0;
	signal(SIGTERM, end_soon);
	CU(cuInit(0));
	CU(cuDeviceGetCount(&gang.n));
	if (gang.n > RANKS)
		gang.n = RANKS;
	gang.pipeline = strcmp(shape, "pp") == 0;
	gang.chain = strcmp(shape, "chain") == 0;
	gang.collectives = gang.chain ? 0 : strcmp(shape, "tp") == 0 ? 4 : 1;
	gang.kernel_ns = (uint64_t)(kernel_us * 1e3);
	gang.pause_us = pause_us;
	if (steps)
		atomic_store(&end_at, steps);
	for (int i = 0; i < gang.n; i++)
		open_rank(i);
	if (one)
		run_in_one_thread();
	else
		run_in_threads();
	bool right = is_right();
	tenant_say("{\"gpus\": %d, \"steps\": %llu, \"right\": %s}", gang.n, (unsigned long long)gang.ranks[0].made,
		   right ? "true" : "false");
	return right ? 0 : 5;
}
