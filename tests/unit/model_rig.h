/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two-process probe of the H200 measurements, on the GPU model: background
 * programs that keep a few launches queued, and a foreground program that
 * launches, waits and notes its latency. Used by test_model_*.c.
 */
#ifndef HB_TESTS_MODEL_RIG_H
#define HB_TESTS_MODEL_RIG_H

#include "base/rng.h"
#include "gpumodel/model.h"
#include "unit.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define RIG_BUSY_MAX 8

/* A program that keeps `depth` launches of one kind queued. */
struct rig_busy {
	struct hb_gpu_model_work work;
	int stream;
	uint64_t done;  /* number of launches that have ended */
	int64_t ran_ns; /* sum of end - start */
	uint32_t depth;
};

struct rig {
	struct hb_gpu_spec spec;
	struct hb_gpu_model *model;
	int64_t now_ns;
	struct rig_busy busy[RIG_BUSY_MAX];
	uint32_t n_busy;
	struct hb_gpu_model_completion last; /* last completion of a stream that belongs to no busy program */
	uint64_t finished;                   /* number of such completions */
	uint64_t switches;
};

struct rig_latency {
	int64_t p50_ns, p90_ns, p99_ns, max_ns;
};

void rig_init(struct rig *rig);
void rig_fini(struct rig *rig);
/* A process: context, client and stream; slices in ns, 0 = the GPU's default. */
int rig_process(struct rig *rig, int64_t slice_ns, int64_t copy_slice_ns);
int rig_context(struct rig *rig, const struct hb_gpu_model_context *params);
int rig_stream(struct rig *rig, int context, uint32_t sm_limit, int priority);
struct rig_busy *rig_keep_busy(struct rig *rig, int stream, const struct hb_gpu_model_work *work, uint32_t depth);
void rig_run_until(struct rig *rig, int64_t at_ns);
/* Submits to a foreground stream and runs until all its work is done; returns the time of the end. */
void rig_submit(struct rig *rig, int stream, const struct hb_gpu_model_work *work);
int64_t rig_await(struct rig *rig, int stream);
/* Time from the launch to the return of the synchronize call, as a program sees it. */
int64_t rig_launch_and_wait(struct rig *rig, int stream, const struct hb_gpu_model_work *work);
/* Latencies of `n` launches at random distances of low_ns to high_ns, the same in every run. */
struct rig_latency rig_measure(struct rig *rig, int stream, const struct hb_gpu_model_work *work, unsigned n,
			       int64_t low_ns, int64_t high_ns);
struct rig_latency rig_latency_of(int64_t *latency_ns, size_t n);

/* A kernel as the probes launch it: `blocks` full-size blocks of block_ns. */
struct hb_gpu_model_work rig_kernel(const struct rig *rig, int64_t block_ns, uint64_t blocks, uint32_t threads);
struct hb_gpu_model_work rig_copy(uint64_t bytes);
/* The kernel of the foreground program: 264 blocks of 20 us. */
struct hb_gpu_model_work rig_foreground(const struct rig *rig);

/* Fails, and prints both, unless `value` is within `percent` of `measured`. */
void rig_assert_near(const char *what, double value, double measured, double percent);

#endif
