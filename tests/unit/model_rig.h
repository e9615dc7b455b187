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
	uint64_t done;  /* launches that have ended */
	int64_t ran_ns; /* sum of end - start */
	uint32_t depth;
};

struct rig {
	struct hb_gpu_spec spec;
	struct hb_gpu_model *model;
	int64_t now_ns;
	struct rig_busy busy[RIG_BUSY_MAX];
	uint32_t n_busy;
	struct hb_gpu_model_completion last; /* of a stream that is not a busy program's */
	uint64_t finished;                   /* how many of those */
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
/* Submits to a foreground stream, and runs until all of that stream is done; returns when. */
void rig_submit(struct rig *rig, int stream, const struct hb_gpu_model_work *work);
int64_t rig_await(struct rig *rig, int stream);
/* Launch to synchronize returning, as a program sees it. */
int64_t rig_launch_and_wait(struct rig *rig, int stream, const struct hb_gpu_model_work *work);
/* `n` of these, at random distances of low_ns to high_ns; the same ones each time. */
struct rig_latency rig_measure(struct rig *rig, int stream, const struct hb_gpu_model_work *work, unsigned n,
			       int64_t low_ns, int64_t high_ns);
struct rig_latency rig_latency_of(int64_t *latency_ns, size_t n);

/* Kernels as the probes launch them: full-size blocks of block_ns, `blocks` of them. */
struct hb_gpu_model_work rig_kernel(const struct rig *rig, int64_t block_ns, uint64_t blocks, uint32_t threads);
struct hb_gpu_model_work rig_copy(uint64_t bytes);
/* 264 blocks of 20 us: the foreground's kernel. */
struct hb_gpu_model_work rig_foreground(const struct rig *rig);

/* Fails unless value is within percent of measured; says both. */
void rig_assert_near(const char *what, double value, double measured, double percent);

#endif
