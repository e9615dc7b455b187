/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protocol between the simulated driver (in the application) and its broker
 * (hb-simgpu). Rare operations are requests over a SOCK_SEQPACKET socket. Work
 * goes through a ring in shared memory and completions return through another,
 * so a launch makes no system call while the broker is awake.
 *
 * One page set per client process. The submission ring has one writer (the
 * client, under its submit lock) and one reader (the broker); the completion
 * ring has one writer (the broker) and one reader (the thread that holds the
 * client's drain lock). At most SIM_SLOTS items are outstanding, so completions never overflow.
 */
#ifndef HB_SIMCUDA_SIM_WIRE_H
#define HB_SIMCUDA_SIM_WIRE_H

#include "gpumodel/spec.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define SIM_WIRE_VERSION 1u
#define SIM_RING 8192u   /* entries of the submission ring, a power of two */
#define SIM_SLOTS 4096u  /* items a client may have outstanding, a power of two */
#define SIM_CONTEXTS 64u /* contexts of one client alive at once */
#define SIM_GPUS 16u
#define SIM_HOST SIM_GPUS /* in SIM_REQ_MEMORY instead of a GPU: pinned host memory of cuMemCreate */
#define SIM_RM_PARAMS 4096u

enum sim_op {
	SIM_OP_STREAM_ADD,    /* a stream begins: context, priority */
	SIM_OP_STREAM_REMOVE, /* removes a stream once its work is done */
	SIM_OP_WORK,          /* a kernel, copy or takeover kernel; completes */
	SIM_OP_MARK,          /* completes after all earlier items of the stream */
	SIM_OP_WAIT,          /* nothing after it starts before item `wait_seq` of stream `wait_stream` is done */
	SIM_OP_HAND,          /* like MARK; the stream is then paused until HAND_DONE */
	SIM_OP_HAND_DONE,
	SIM_OP_RELEASE,      /* ends the stream's takeover kernels up to `seq` */
	SIM_OP_GRAPH_ADD,    /* adds one work item to a new graph */
	SIM_OP_GRAPH_LAUNCH, /* completes with the last item */
	SIM_OP_GRAPH_FREE,
};

/* hb_gpu_model_work without the fields that the broker adds. */
struct sim_work {
	uint32_t kind, threads;
	int64_t duration_ns;
	uint64_t blocks, bytes;
	uint32_t registers, shared_bytes, cluster, sm_limit;
	float memory_share;
	uint32_t sm_spread; /* not 0: sm_limit removes SMs of all GPCs; 0: it removes complete GPCs */
	uint32_t fault;     /* not 0: the kernel does not end; its context is lost with this CUDA error */
};

struct sim_entry {
	uint32_t op;
	uint32_t stream; /* for GRAPH_ADD and GRAPH_FREE: the graph */
	uint64_t seq;    /* per stream, 1, 2, ... over ops that complete */
	int64_t at_ns;   /* CLOCK_MONOTONIC time of the application's call */
	uint32_t slot;   /* returned in the completion */
	uint32_t flags;
	union {
		struct sim_work work;
		struct {
			uint64_t seq;
			uint32_t stream;
		} wait;
		struct {
			uint32_t context;
			int32_t priority;
		} add;
		uint32_t graph;
	} u;
};
static_assert(sizeof(struct sim_entry) <= 96, "a ring entry is one and a half cache lines");

/* The completion has an effect that must run even if no thread waits for it. */
#define SIM_FLAG_EFFECT 1u
/* The item is a HAND. */
#define SIM_FLAG_HAND 2u

struct sim_done {
	int64_t start_ns, end_ns; /* GPU time */
	uint32_t slot, flags;
};

/* Any other state is the CUDA error with which the context was lost. */
enum sim_context_state { SIM_CONTEXT_NONE, SIM_CONTEXT_ALIVE };

struct sim_share {
	/* Submission. */
	_Alignas(64) _Atomic uint64_t submit_head; /* entries written */
	_Alignas(64) _Atomic uint64_t submit_tail; /* entries read */
	_Atomic uint32_t broker_asleep;            /* the writer must ring the broker's doorbell */
	/* Completion. */
	_Alignas(64) _Atomic uint64_t done_head;
	_Atomic uint32_t
		done_word; /* futex: changes with every batch of completions, every freed ring space and loss */
	_Alignas(64) _Atomic uint64_t done_tail;
	_Atomic uint32_t waiters;   /* threads waiting on done_word */
	_Atomic uint32_t hand_word; /* futex of the client's own helper thread */
	_Atomic uint32_t context_state[SIM_CONTEXTS];
	_Alignas(64) struct sim_entry submit[SIM_RING];
	_Alignas(64) struct sim_done done[SIM_SLOTS];
};

enum sim_request_kind {
	SIM_REQ_HELLO,          /* -> gpus, clock, memory, spec; with the descriptors of the share and the doorbell */
	SIM_REQ_CONTEXT_CREATE, /* gpu, groups, token of an MPS server or 0 -> context index */
	SIM_REQ_CONTEXT_DESTROY,
	SIM_REQ_CONTEXT_TOKEN, /* context -> token with which others may join it */
	SIM_REQ_MEMORY,        /* gpu or SIM_HOST, bytes to add (negative: give back); -ENOMEM -> free, total */
	SIM_REQ_RM,            /* a resource-manager call */
	SIM_REQ_STATS,         /* gpu -> counters, for tests */
	SIM_REQ_TERMINATE, /* context of an MPS server, pid in `bytes`: ends the work of that process in the context */
	SIM_REQ_USERS,     /* gpu -> memory, and struct sim_user records in rm.params; needs no HELLO */
};

/* A process with memory on the GPU. */
struct sim_user {
	int32_t pid;
	uint32_t padding;
	uint64_t bytes;  /* contexts included */
	int64_t busy_ns; /* real time in which kernels of its contexts ran */
};

struct sim_rm_call {
	uint32_t number, size;    /* number and size of the escape */
	unsigned char escape[48]; /* the escape's structure, written back */
	uint32_t params_size, padding;
	unsigned char params[SIM_RM_PARAMS];
};

/* The owner of a context. In a FRAGILE one the death of a client with unfinished work ends the other clients' work. */
enum sim_mps_kind { SIM_MPS_NONE, SIM_MPS_SERVER, SIM_MPS_FRAGILE };

struct sim_request {
	uint32_t kind;
	uint32_t version;
	uint32_t gpu, context;
	uint64_t token;
	int64_t bytes;
	uint32_t sm_limit;
	uint32_t preempt;
	uint32_t groups[4]; /* channel groups made for the context: compute, then copies */
	uint32_t mps;       /* enum sim_mps_kind */
	uint32_t padding;
	struct sim_rm_call rm; /* SIM_REQ_RM only; not sent otherwise */
};

struct sim_reply {
	int32_t result; /* 0 or negative errno */
	uint32_t context;
	uint64_t token;
	uint32_t gpus, padding;
	uint64_t memory_total, memory_free, memory_own;
	double scale;      /* real time = GPU time x scale */
	int64_t origin_ns; /* CLOCK_MONOTONIC at GPU time 0 */
	int64_t switches, busy_ns, submitted, finished;
	struct hb_gpu_spec spec; /* SIM_REQ_HELLO only */
	struct sim_rm_call rm;   /* SIM_REQ_RM only */
};

#define SIM_REQUEST_SHORT offsetof(struct sim_request, rm)
#define SIM_REPLY_SHORT offsetof(struct sim_reply, rm)

#endif
