/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU model: one simulated GPU in virtual time. Work is submitted to
 * streams, time is advanced by the caller, completions are popped. It reads no
 * clock, so the simulator runs it on an event heap and the simulated driver
 * runs it against real time; one thread at a time.
 *
 * The model covers SM occupancy in blocks (threads, registers, shared memory,
 * block slots), in-order streams with priorities, several contexts that the
 * hardware time-slices, clients of one shared (MPS) context with SM limits,
 * per-launch SM masks, holds, copy engines, graphs as one submission, and
 * memory-bandwidth contention. Constants come from a data file (spec.h).
 */
#ifndef HB_GPU_MODEL_H
#define HB_GPU_MODEL_H

#include "gpumodel/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hb_gpu_model;

/* The ways in which the compute work of a context is taken off the GPU. */
enum hb_gpu_model_preempt { HB_PREEMPT_INSTRUCTION, HB_PREEMPT_BLOCK, HB_PREEMPT_WAIT_IDLE };

struct hb_gpu_model_context {
	int64_t slice_ns;      /* compute time slice; 0 = the GPU's default */
	int64_t copy_slice_ns; /* copy engines; 0 = default */
	enum hb_gpu_model_preempt preempt;
	bool mps; /* the context of an MPS server: its clients pay the server's boundaries */
};

enum hb_gpu_model_kind { HB_GPU_MODEL_KERNEL, HB_GPU_MODEL_COPY_H2D, HB_GPU_MODEL_COPY_D2H, HB_GPU_MODEL_TAKEOVER };

/* One piece of work. Kernels and memsets run on SMs, copies on a copy engine. */
struct hb_gpu_model_work {
	enum hb_gpu_model_kind kind;
	int64_t duration_ns;   /* kernel: duration alone on the GPU, > 0; copy: ignored */
	uint64_t blocks;       /* kernel: grid size, >= 1 */
	uint32_t threads;      /* per block */
	uint32_t registers;    /* registers of a thread; 0 = 32 */
	uint32_t shared_bytes; /* per block */
	uint32_t cluster;      /* blocks per cluster, placed together; 0 or 1 = none */
	uint64_t bytes;        /* copies */
	double block_spread; /* relative difference between the durations of the kernel's blocks; 0 = all are equal, and waves stay in step */
	double memory_share; /* 0..1: share of the GPU's memory bandwidth that the kernel uses alone */
	double power_share; /* 0..1: share of matrix arithmetic in the kernel; its power lowers the clock for all programs */
	double recorded_power; /* share of time its program spent in matrix kernels when duration_ns was recorded */
	uint32_t sm_limit;     /* number of SMs that a mask on the launch leaves to the kernel; 0 = all */
	bool sm_spread; /* with sm_limit: the SMs are spread over the GPCs; else complete GPCs are left out where possible */
	uint64_t cookie;  /* number chosen by the caller, returned in the completion */
	const char *name; /* name of the span on a timeline; not copied, may be NULL */
};

struct hb_gpu_model_completion {
	uint64_t cookie;
	int64_t start_ns; /* start of the first block; of a copy: of the first byte */
	int64_t end_ns;
	int stream;
};

/* A context switch, for timelines and counters. */
struct hb_gpu_model_switch {
	int64_t start_ns, end_ns;
	int from_context, to_context; /* -1 = idle */
};

/* Returns the number of blocks of a kernel that one SM holds; at least 1. */
uint32_t hb_gpu_model_occupancy(const struct hb_gpu_spec *spec, const struct hb_gpu_model_work *work);

/* Creates a GPU without contexts. Copies the spec. Returns NULL without memory. */
struct hb_gpu_model *hb_gpu_model_new(const struct hb_gpu_spec *spec);
void hb_gpu_model_free(struct hb_gpu_model *model);

/*
 * Functions that add an object return its id, a small integer >= 0, or a negative errno. Removing an object drops its
 * unfinished work.
 */
int hb_gpu_model_add_context(struct hb_gpu_model *model, const struct hb_gpu_model_context *context);
int hb_gpu_model_set_slice(struct hb_gpu_model *model, int context, int64_t slice_ns, int64_t copy_slice_ns);
void hb_gpu_model_remove_context(struct hb_gpu_model *model, int64_t now_ns, int context);
/* Adds a client, which stands for a process. Under MPS several clients share a context. sm_limit 0 = all SMs. */
int hb_gpu_model_add_client(struct hb_gpu_model *model, int context, uint32_t sm_limit);
/* The copy slice of one client, which has copy groups of its own also in an MPS context; 0 = that of its context. */
int hb_gpu_model_set_copy_slice(struct hb_gpu_model *model, int client, int64_t copy_slice_ns);
void hb_gpu_model_remove_client(struct hb_gpu_model *model, int64_t now_ns, int client);
/* Adds a stream. A lower number is a higher priority, as in CUDA (-5..0). */
int hb_gpu_model_add_stream(struct hb_gpu_model *model, int client, int priority);
void hb_gpu_model_remove_stream(struct hb_gpu_model *model, int64_t now_ns, int stream);

/*
 * Queues work on a stream at now_ns, which must not be before the last
 * advance. Returns 0, -EINVAL (bad work or stream), -ENOMEM.
 */
int hb_gpu_model_submit(struct hb_gpu_model *model, int64_t now_ns, int stream, const struct hb_gpu_model_work *work);
/* Queues a graph: its pieces run one after another without host launches between them. `cookie` completes with the last
 * piece; the array `work` must exist until then. */
int hb_gpu_model_submit_graph(struct hb_gpu_model *model, int64_t now_ns, int stream,
			      const struct hb_gpu_model_work *work, size_t n_work, uint64_t cookie);
/* Releases the holds that run or are queued on the stream. A hold runs until it is released or, where its duration_ns is
 * above 0, until that long after its launch. */
void hb_gpu_model_release_takeovers(struct hb_gpu_model *model, int64_t now_ns, int stream);

/* Returns the time of the next event inside the model; INT64_MAX = none is due. */
int64_t hb_gpu_model_next_ns(const struct hb_gpu_model *model);
/* Runs everything due up to and including now_ns. */
void hb_gpu_model_advance(struct hb_gpu_model *model, int64_t now_ns);
/* Removes the next completion or context switch, in order of time. Returns false if none is left. */
bool hb_gpu_model_pop(struct hb_gpu_model *model, struct hb_gpu_model_completion *completion);
bool hb_gpu_model_pop_switch(struct hb_gpu_model *model, struct hb_gpu_model_switch *change);

/* Return the time in which at least one kernel ran, of any context or of one, and the number of unfinished submissions on a stream. */
int64_t hb_gpu_model_busy_ns(const struct hb_gpu_model *model);
int64_t hb_gpu_model_context_busy_ns(const struct hb_gpu_model *model, int context);
size_t hb_gpu_model_pending(const struct hb_gpu_model *model, int stream);

#endif
