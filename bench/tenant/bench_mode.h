/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the parts of `cuda-tenant bench`: a stream, a few kernels that take
 * a given time, a clock, and the two tables of kinds of programs. The same
 * program runs on a real GPU (PTX) and on a simulated one (docs/simcuda.md).
 */
#ifndef HB_BENCH_TENANT_BENCH_MODE_H
#define HB_BENCH_TENANT_BENCH_MODE_H

#include "driver.h"

#include <stdbool.h>
#include <stddef.h>

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *bench_calloc(size_t n, size_t size);

/* Makes the context, the kernels and `bench_stream`, and runs the GPU up to its working clock. */
void bench_gpu_open(void);
void bench_gpu_close(void);
extern CUstream bench_stream;
bool bench_simulated(void);
void bench_device_name(char *name, int size);

/* How a kernel occupies the GPU. */
struct bench_shape {
	unsigned blocks, threads, shared_bytes;
	bool cooperative;
};
extern const struct bench_shape bench_shape_full, bench_shape_half;
/* Keeps the blocks computing for `ns` when alone. The kernel computes instead of waiting, so a preempted one takes longer. */
void bench_spin(const struct bench_shape *shape, int64_t ns);
void bench_spin_on(CUstream stream, const struct bench_shape *shape, int64_t ns);
/* A spinning kernel whose first block notes the GPU's time in *bench_stamp() as its first act. */
void bench_trial(int64_t ns);
int64_t bench_stamp(void);
/* Ends when all of its blocks run at once, two on each SM, so no block of another kernel is left then. */
void bench_every_sm(void);
/* One step of a three-point stencil over `bytes`; its time alone follows from the memory's bandwidth. */
void bench_stencil(CUdeviceptr from, CUdeviceptr to, size_t bytes);
/* Records the work that `queue` puts into the stream as a graph. */
CUgraphExec bench_record(void (*queue)(void));

/* --- clocks: latencies are measured with bench_now_ns(), which is the GPU's own clock on a simulated GPU --- */

int64_t bench_now_ns(void);
void bench_wait_until(int64_t at_ns);
/* The host's clock, with which the harness cuts out windows. */
int64_t bench_host_ns(void);
/* Both at the same moment. */
struct bench_clocks {
	int64_t host_ns, now_ns;
};
struct bench_clocks bench_read_clocks(void);
/*
 * Compares the GPU's clock with bench_now_ns(): 0 for a simulated GPU. The true
 * difference is within half of *round_trip_ns of what is returned.
 */
int64_t bench_clock_difference(int64_t *round_trip_ns);

/* --- kinds of programs ------------------------------------------------------------------------------- */

/* When requests are due: Poisson unless periodic; rate 0: one after another. */
struct bench_arrivals {
	double rate_per_s;
	bool periodic;
	double phase;      /* the first periodic request is due this many periods later */
	int64_t repeat_ns; /* the same arrivals come again after this time; 0 = they do not */
};
/* The due time of the first request, and of the request after one that was due at `due_ns`. */
int64_t bench_first_due(const struct bench_arrivals *arrivals);
int64_t bench_next_due(const struct bench_arrivals *arrivals, int64_t due_ns);

/* A service, which measures single things. Its latencies in ns go to bench_add_latency(). */
struct bench_high {
	const char *name, *arguments;
	int n_arguments;
	void (*prepare)(char **arguments);
	void (*serve)(int64_t end_ns, const struct bench_arrivals *arrivals);
	bool device_clock; /* latencies end on the GPU's clock, so they are corrected when the window is over */
};
const struct bench_high *bench_find_high(const char *name);
/* `at_ns`: when the latency was measured. */
void bench_add_latency(int64_t at_ns, int64_t latency_ns);
/* A request of an open loop, on the clock of bench_now_ns(). */
struct bench_request {
	int64_t due_ns;
	int64_t begun_ns;    /* its first call of the driver began */
	int64_t launched_ns; /* its last launch had returned */
	int64_t ended_ns;    /* its work on the GPU had ended */
	int64_t answered_ns; /* its latency counts until then */
};
void bench_add_request(const struct bench_request *request);
/* 0 to 1; the same sequence in every window with the same seed. */
double bench_random(void);

/* A program without pause; each call of iterate() queues one iteration. */
struct bench_low {
	const char *name, *arguments;
	int n_arguments;
	void (*prepare)(char **arguments);
	/* `left_ns`: how long work is still wanted; nothing that an iteration queues may take much longer alone. */
	void (*iterate)(int64_t left_ns);
	bool single;  /* iterations are not queued behind each other */
	bool endless; /* its iterations say nothing about its speed, so they are not reported */
};
const struct bench_low *bench_find_low(const char *name);

#endif
