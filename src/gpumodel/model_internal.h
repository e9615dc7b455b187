/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and functions that the files of the GPU model share; included by model*.c only.
 *
 *   model.c        contexts, clients, streams, queues, the advance loop
 *   model_kernel.c kernels from start to end
 *   model_shape.c  occupancy, block length, power
 *   model_sm.c     blocks on SMs: placement, cohorts
 *   model_switch.c which context owns the SMs: time slices and switches
 *   model_copy.c   copy engines
 *   model_heap.c   the event heap
 *
 * There are two kinds of time. `now` is global. A context's own time is paused
 * while the context is switched out, so its events need no rescheduling: own =
 * global - context.offset_ns while it is resident. Events of kernels on SMs are
 * in own time and in the context's own heap.
 *
 * A kernel that has its context to itself is `solo`: one event, at its recorded
 * duration, however many blocks it has. Only when a second kernel wants SMs is
 * it spread out into cohorts (blocks that started together and end together).
 */
#ifndef HB_GPU_MODEL_INTERNAL_H
#define HB_GPU_MODEL_INTERNAL_H

#include "gpumodel/model.h"
#include "nvidia/gpc_mask_order.h"

#define HB_GPU_MODEL_SMS_MAX 256
#define HB_GPU_MODEL_GPCS_MAX 32
#define HB_GPU_MODEL_NEVER INT64_MAX

enum hb_gpu_model_event_kind {
	EVENT_ARRIVE,   /* global: a launch has reached the front of its stream; object = stream */
	EVENT_NEXT,     /* own: the boundary after a kernel is over; object = stream */
	EVENT_SOLO_END, /* own: object = kernel */
	EVENT_COHORT,   /* own: object = cohort */
	EVENT_SWITCH,   /* global: compute engine: slice end, yield or switch done; generation in object */
	EVENT_COPY,     /* global: copy engine: object = direction, generation checked */
};

struct model_event {
	int64_t at_ns;
	uint64_t order; /* events of the same time happen in the order in which they were pushed */
	uint32_t object;
	uint32_t generation;
	uint8_t kind;
};

struct model_heap {
	struct model_event *events;
	uint32_t count, capacity;
	uint64_t next_order;
};

int hb_gpu_model_heap_push(struct model_heap *heap, int64_t at_ns, enum hb_gpu_model_event_kind kind, uint32_t object,
			   uint32_t generation);
bool hb_gpu_model_heap_pop(struct model_heap *heap, int64_t until_ns, struct model_event *event);
int64_t hb_gpu_model_heap_next(const struct model_heap *heap);
void hb_gpu_model_heap_fini(struct model_heap *heap);

/* One submission: a piece of work, or a graph's pieces in order. */
struct model_entry {
	struct hb_gpu_model_work single;
	const struct hb_gpu_model_work *pieces; /* graph: the caller's array; else &single */
	uint32_t n_pieces, next_piece;
	uint64_t cookie;
	int64_t ready_ns; /* global time before which the entry must not start */
	int64_t start_ns; /* global start of the first piece; -1 = it has not started */
	struct model_entry *next;
	bool graph;
};

enum stream_state { STREAM_EMPTY, STREAM_ARRIVING, STREAM_BOUNDARY, STREAM_RUNNING };

struct model_stream {
	struct model_entry *head, *tail;
	uint32_t queued;
	int32_t client;
	int32_t priority;
	uint32_t kernel; /* index of the running kernel; valid in state RUNNING if the stream's work is a kernel */
	uint32_t generation;
	enum stream_state state;
	bool used;
};

struct model_client {
	int32_t context;
	uint32_t sm_limit;     /* SMs that the client may use; 0 = all */
	int64_t copy_slice_ns; /* 0 = that of its context */
	double power;          /* share of the last power window spent in matrix kernels, at power_ns */
	int64_t power_ns;
	bool used;
};

/* Blocks of one kernel that started together. */
struct model_cohort {
	uint32_t kernel;
	uint32_t generation;
	uint32_t slots;  /* number of resident blocks */
	uint64_t blocks; /* blocks that the resident ones stand for: short blocks run several in a row */
	uint32_t next_free;
	uint8_t count[HB_GPU_MODEL_SMS_MAX]; /* resident blocks on each SM */
};

/* Written to duration_ns of a hold (a takeover kernel) that is released. One that has not started ends as soon as it starts. */
#define MODEL_RELEASED_NS 1

struct model_kernel {
	const struct hb_gpu_model_work *work;
	uint32_t stream;
	uint32_t generation;
	uint64_t blocks_left; /* blocks that were not placed yet */
	uint64_t blocks_running;
	int64_t start_ns; /* global start of the first block; -1 = no block has started */
	int64_t block_ns; /* duration of one block alone on the GPU */
	int64_t solo_start_own_ns, solo_end_own_ns;
	uint32_t hold_cohort;
	uint32_t occupancy; /* number of blocks that an SM holds */
	uint32_t cluster;   /* blocks placed together, in one GPC; 0 or 1 = each by itself */
	uint32_t sms;       /* number of SMs it may use: those of a lower rank */
	const uint8_t *rank;
	uint32_t registers_block, shared_block, threads_block;
	int32_t priority;
	bool solo, used, hold;
	bool released; /* the kernel is a hold that may end, which needs the GPU for its context */
	uint32_t next_free;
};

struct model_sm {
	int32_t threads, blocks, registers, shared; /* free resources of the SM */
};

struct model_context {
	struct hb_gpu_model_context params;
	struct model_heap heap; /* events in own time */
	int64_t offset_ns;      /* global - own, while resident */
	int64_t frozen_own_ns;  /* own time at which it was switched out */
	uint32_t *active;       /* kernels on SMs or waiting for SMs, sorted by priority and order */
	uint32_t n_active, active_capacity;
	uint32_t n_started;  /* number of these kernels that have blocks on SMs */
	uint32_t n_boundary; /* streams that are between two queued kernels */
	struct model_sm sm[HB_GPU_MODEL_SMS_MAX];
	bool placed; /* sm[] is in use, because cohorts exist */
	bool used, had_demand;
	uint32_t n_clients;
	int64_t idle_since_ns; /* global time since which the context has no work */
	int64_t busy_ns; /* summed time with at least one kernel of the context on the GPU, until the current such time */
};

struct copy_job {
	int32_t stream;
	int64_t left_ns;  /* transfer time still needed */
	int64_t start_ns; /* global start of the first byte; -1 = the copy has not started */
};

struct copy_engine {
	struct copy_job *jobs; /* the queue: at most one job for each stream, because streams are in order */
	uint32_t n_jobs, capacity;
	int32_t client;   /* the client that is served; -1 = none */
	uint32_t job;     /* index of the job that is served */
	int64_t since_ns; /* time from which the job's left_ns counts */
	int64_t turn_ns;  /* time from which the client's slices count */
	uint32_t generation;
	bool deciding; /* a copy has just ended and the next job is not chosen yet */
};

enum engine_state { ENGINE_RUN, ENGINE_DRAIN, ENGINE_SWITCH };

struct hb_gpu_model {
	struct hb_gpu_spec spec;
	uint32_t sms;
	/* Rank of each SM, see hb_gpu_model_rank_sms. rank_gpc has one row for each number of SMs left out beyond complete rooms. */
	uint8_t rank_spread[HB_GPU_MODEL_SMS_MAX], rank_gpc[HB_GPC_ROOM_SMS][HB_GPU_MODEL_SMS_MAX];
	int64_t now_ns;
	struct model_heap heap; /* events in global time */
	struct model_context *contexts;
	struct model_client *clients;
	struct model_stream *streams;
	uint32_t n_contexts, n_clients, n_streams;
	struct model_kernel *kernels;
	struct model_cohort *cohorts;
	uint32_t kernel_capacity, cohort_capacity, free_kernel, free_cohort;
	struct model_entry *free_entries;
	bool failed; /* an allocation inside the model failed; later submissions return -ENOMEM */
	/* State of the compute engine. */
	enum engine_state engine;
	int32_t resident, incoming;
	uint32_t engine_generation;
	int64_t run_since_ns, switch_since_ns;
	int64_t timer_ns; /* time of the valid EVENT_SWITCH; HB_GPU_MODEL_NEVER = there is none */
	/* Time in which at least one kernel ran. */
	bool busy;
	int64_t busy_ns, busy_since_ns;
	int32_t busy_context; /* whose kernels run while busy */
	struct copy_engine copies[2];
	/* Results that callers take: completions and switches. */
	struct hb_gpu_model_completion *done;
	size_t done_head, done_count, done_capacity;
	struct hb_gpu_model_switch *switches;
	size_t switch_head, switch_count, switch_capacity;
};

static inline bool model_running(const struct hb_gpu_model *model, int32_t context)
{
	return model->resident == context && model->engine != ENGINE_SWITCH;
}

static inline int64_t model_own_ns(const struct hb_gpu_model *model, const struct model_context *context)
{
	bool running = model_running(model, (int32_t)(context - model->contexts));
	return running ? model->now_ns - context->offset_ns : context->frozen_own_ns;
}

/* Texture processing clusters of two SMs are dealt out to the GPCs in turn. */
static inline uint32_t model_gpc_of(uint32_t sm, uint32_t gpcs)
{
	return sm / 2 % gpcs;
}

static inline uint32_t model_min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint64_t model_div_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* model.c */
void hb_gpu_model_stream_finished(struct hb_gpu_model *model, uint32_t stream, int64_t start_ns);
int hb_gpu_model_note_switch(struct hb_gpu_model *model, const struct hb_gpu_model_switch *change);
/* model_shape.c */
void hb_gpu_model_shape_kernel(const struct hb_gpu_model *model, struct model_kernel *kernel);
void hb_gpu_model_note_power(struct hb_gpu_model *model, struct model_client *client,
			     const struct model_kernel *kernel);
/* model_kernel.c */
int hb_gpu_model_kernel_start(struct hb_gpu_model *model, uint32_t stream, const struct hb_gpu_model_work *work);
void hb_gpu_model_kernel_event(struct hb_gpu_model *model, struct model_context *context,
			       const struct model_event *event);
void hb_gpu_model_kernel_drop(struct hb_gpu_model *model, uint32_t kernel);
void hb_gpu_model_hold_end(struct hb_gpu_model *model, uint32_t kernel);
/* model_sm.c */
void hb_gpu_model_place(struct hb_gpu_model *model, struct model_context *context);
void hb_gpu_model_rank_sms(struct hb_gpu_model *model);
void hb_gpu_model_spread(struct hb_gpu_model *model, struct model_context *context);
void hb_gpu_model_drop_cohort(struct hb_gpu_model *model, struct model_context *context, uint32_t cohort);
/* model_switch.c */
void hb_gpu_model_engine_update(struct hb_gpu_model *model);
void hb_gpu_model_engine_event(struct hb_gpu_model *model, const struct model_event *event);
void hb_gpu_model_engine_leave(struct hb_gpu_model *model, int32_t context);
/* model_copy.c */
int64_t hb_gpu_model_copy_delay_ns(const struct hb_gpu_model *model, const struct model_stream *stream,
				   enum hb_gpu_model_kind kind);
int hb_gpu_model_copy_start(struct hb_gpu_model *model, uint32_t stream, const struct hb_gpu_model_work *work);
void hb_gpu_model_copy_event(struct hb_gpu_model *model, const struct model_event *event);
void hb_gpu_model_copy_drop(struct hb_gpu_model *model, int32_t stream);

#endif
