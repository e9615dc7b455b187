/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of hb-simgpu: the simulated GPUs, the client processes and their
 * streams. One thread. Time is an argument (GPU time, ns); only broker.c reads
 * the clock. broker_queue.c orders work and drives the models, broker_client.c
 * answers requests, broker_rm.c answers resource-manager calls.
 */
#ifndef HB_SIMCUDA_BROKER_H
#define HB_SIMCUDA_BROKER_H

#include "gpumodel/model.h"
#include "simcuda/sim_wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct broker_client;

/* One work item between its submission and its completion. */
struct broker_item {
	struct broker_item *next;
	struct broker_stream *stream;
	struct broker_graph *graph; /* GRAPH_LAUNCH */
	uint64_t seq, wait_seq;
	uint32_t wait_stream;
	uint32_t op, slot, flags;
	struct sim_work work;
};

struct broker_list {
	struct broker_item *head, **tail;
};

struct broker_stream {
	struct broker_client *client;
	uint32_t id, context;
	int gpu, model_stream;
	uint64_t done;     /* seq of the last finished item */
	uint64_t released; /* takeover kernels up to this seq have been released */
	bool standing;     /* a HAND was posted and the stream is paused until it is done */
	bool removing;
	struct broker_list queue;   /* items that the model does not have yet */
	struct broker_list running; /* items that the model has, in order, with the marks between them */
};

struct broker_graph {
	uint32_t users; /* unfinished launches, plus one while the client has the handle */
	size_t n, room;
	struct hb_gpu_model_work *work;
};

/* A context on a GPU: it belongs to one process, or to an MPS server with many members. */
struct broker_context {
	struct broker_client *owner;
	uint64_t token;
	int gpu, model_context;
	uint32_t members;
	uint32_t groups[4];
	bool dead, fragile;
	uint32_t fault;                /* CUDA error of a kernel, which not all members have been told yet; 0 = none */
	struct broker_client *culprit; /* the process with that kernel, until it is notified */
	int64_t others_at_ns;          /* CLOCK_MONOTONIC; when the other members are notified */
};

struct broker_member {
	struct broker_context *context; /* NULL = free */
	int model_client;
};

/* An object of the resource manager; see broker_rm.c. */
struct broker_rm_object {
	uint32_t client, handle, parent, class_id, engine, group_id;
	uint64_t slice_us;
	struct broker_context *context;
};

struct broker_client {
	int fd; /* control socket; -1 = free */
	pid_t pid;
	uid_t uid;
	struct sim_share *share; /* NULL before HELLO */
	struct broker_member member[SIM_CONTEXTS];
	struct broker_stream **streams; /* by id */
	struct broker_graph **graphs;   /* by id */
	uint32_t n_streams, n_graphs;
	int64_t memory[SIM_GPUS + 1]; /* by GPU; SIM_HOST: of the host */
	struct broker_rm_object *rm;
	size_t n_rm, rm_room;
	uint32_t n_unsettled; /* queued waits and streams to be removed; while 0, there is nothing to settle */
	bool recheck;         /* a stream made progress for which another stream may wait */
	bool posted;          /* completions exist that were not announced yet */
	bool posted_effect;
};

struct broker_gpu {
	struct hb_gpu_model *model;
	struct hb_gpu_spec spec;
	int64_t memory_total, memory_used;
	int64_t switches, submitted, finished;
	uint32_t next_group_id;
};

struct broker {
	struct broker_gpu gpu[SIM_GPUS];
	int64_t host_total, host_used; /* pinned memory of the host */
	uint32_t n_gpus;
	struct broker_client **clients;
	size_t n_clients, room;
	uint64_t next_token;
	double scale;
	int64_t origin_ns; /* CLOCK_MONOTONIC */
	int64_t now_ns;    /* GPU time reached by every model */
	int doorbell;      /* eventfd */
	bool faulty;       /* a context has a fault */
};

/* Converts a CLOCK_MONOTONIC time to GPU time. */
int64_t broker_gpu_time(const struct broker *broker, int64_t monotonic_ns);

/* broker_queue.c */

/* Takes all submissions of the clients, oldest first, and runs the GPUs up to now_ns. */
void broker_run(struct broker *broker, int64_t now_ns);
/* Returns the GPU time of the models' next event; INT64_MAX = none. */
int64_t broker_next_ns(const struct broker *broker);
bool broker_rings_empty(const struct broker *broker);
/* Drops every item of the client's streams in that context (all contexts: UINT32_MAX) and the streams. */
void broker_drop_streams(struct broker *broker, struct broker_client *client, uint32_t context);
void broker_drop_graphs(struct broker_client *client);
/* Wakes the waiters of clients that received completions since the last call. */
void broker_announce(struct broker *broker);

/* broker_fault.c */

/* Drops the work of the client in its context, marks the context lost with this CUDA error, and wakes the waiters. */
void broker_lose_context(struct broker *broker, struct broker_client *client, uint32_t context, uint32_t error);
/* All other clients lose this context. */
void broker_lose_others(struct broker *broker, struct broker_context *context, const struct broker_client *except,
			uint32_t error);
/* A kernel of the client faulted. It takes effect with broker_raise_faults(). */
void broker_note_fault(struct broker *broker, struct broker_client *client, uint32_t context, uint32_t error);
/* Tells the members of contexts with a fault; returns the real time until it has to be called again, at most limit_ns. */
int64_t broker_raise_faults(struct broker *broker, int64_t monotonic_ns, int64_t limit_ns);
/* The client has died: its unfinished work in a fragile context ends the work of the others. */
void broker_note_death(struct broker *broker, struct broker_client *client);
/* Ends the work of process `pid` in the context that `server` owns. 0; -ESRCH: it is no client there. */
int broker_terminate(struct broker *broker, struct broker_client *server, uint32_t context, pid_t pid);

/* broker_client.c */

/* Answers one request. Returns false if the client has ended. */
bool broker_client_serve(struct broker *broker, struct broker_client *client);
struct broker_client *broker_client_add(struct broker *broker, int fd);
void broker_client_remove(struct broker *broker, struct broker_client *client);

/* broker_rm.c */

void broker_rm_serve(struct broker *broker, struct broker_client *client, struct sim_rm_call *call);
/* Binds the groups of a new context and gives the model their slices. */
void broker_rm_bind(struct broker *broker, struct broker_client *client, struct broker_context *context);
void broker_rm_unbind(struct broker_client *client, const struct broker_context *context);
void broker_rm_slices(struct broker *broker, struct broker_client *client, const struct broker_context *context,
		      int64_t *slice_ns, int64_t *copy_slice_ns);

#endif
