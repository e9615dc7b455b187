/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of the memory that the server and a worker process share: a page with
 * two rings of lane numbers, and lanes. A lane has the inputs and outputs of one
 * batch. Written by backend_worker.c and python/hummingbird/worker.py (which
 * repeats the offsets; a test compares them).
 *
 *	server   fills a free lane, appends its number to `submitted`, rings
 *	worker   takes it, sets `stage`, fills outputs and status, appends the
 *	         number to `completed`, rings. A worker with separate copies also
 *	         raises `stage` and rings when the run and the copy out begin.
 *
 * "Rings" means: writes the doorbell of that ring, an eventfd. Each ring has one
 * writer, which stores the entry and then increments `head` (release). The
 * worker may write anything anywhere in this memory, so the server checks every
 * value that it reads and keeps its own copy of its decisions.
 */
#ifndef HB_SERVER_WORKER_RING_H
#define HB_SERVER_WORKER_RING_H

#include "server/models/model_config.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>

#define HB_WORKER_MAGIC UINT64_C(0x31524b4f57424800) /* "\0HBWOKR1" */
#define HB_WORKER_VERSION 5
#define HB_WORKER_LANES 4
#define HB_WORKER_RING 8 /* entries, more than lanes */
/* Exit status of a worker that ends because its CUDA context is broken: no call in it can succeed any more. */
#define HB_WORKER_EXIT_BROKEN 86

struct hb_worker_ring {
	_Atomic(uint32_t) head; /* number of entries appended so far */
	uint32_t reserved;
	uint32_t lanes[HB_WORKER_RING];
};

struct hb_worker_page {
	uint64_t magic;
	uint32_t version, lanes;
	uint64_t lane_bytes;            /* lane N begins at 4096 + N * lane_bytes */
	uint64_t in_offset, out_offset; /* input and output data, from the beginning of the lane */
	uint64_t out_bytes;             /* room for the outputs of a lane */
	_Atomic(uint32_t) ready;        /* written by the worker; enum hb_worker_ready */
	uint32_t n_inputs, n_outputs;
	uint32_t unused;
	struct hb_worker_ring submitted, completed;
	_Atomic(uint32_t)
		expected; /* the server increments it, and rings `submitted`, when a request begins to arrive */
	uint32_t reserved;
};

struct hb_worker_tensor {
	uint64_t offset, bytes; /* offset from the lane's in_offset or out_offset */
	uint32_t n_dims, reserved;
	int64_t dims[HB_TENSOR_DIMS_MAX];
};

enum hb_worker_ready {
	HB_WORKER_STARTING,
	HB_WORKER_READY,
	HB_WORKER_UNABLE, /* the worker can never run this model; the error text is in lane 0 */
};

enum hb_worker_status { HB_WORKER_OK = 0, HB_WORKER_ERROR = 1 };

enum hb_worker_stage { HB_WORKER_NOT_BEGUN, HB_WORKER_COPY_IN, HB_WORKER_RUN, HB_WORKER_COPY_OUT };

enum hb_worker_pause {
	HB_WORKER_NEVER_PAUSED, /* this batch will not be paused */
	HB_WORKER_NOT_PAUSED,
	HB_WORKER_PAUSED, /* the worker must not launch the next step of the batch */
};

/* A lane. The comment of each field names its writer: "server" or "worker". */
struct hb_worker_lane {
	uint32_t items, priority;   /* server; priority 0 = high */
	_Atomic(uint32_t) stage;    /* worker; enum hb_worker_stage */
	uint32_t status;            /* worker; enum hb_worker_status */
	_Atomic(uint32_t) pause;    /* server; enum hb_worker_pause */
	char error[476];            /* worker; text of an error, NUL-terminated */
	uint32_t dropped;           /* worker; set of items, a bit for each, whose outputs had no room and are empty */
	_Atomic(uint32_t) unwanted; /* server; 1 = all clients have gone, the batch need not start or continue */
	int64_t deadline_ns;        /* server; earliest deadline of the batch, CLOCK_MONOTONIC; INT64_MAX = none */
	struct hb_worker_tensor inputs[HB_TENSORS_MAX], outputs[HB_TENSORS_MAX];
};

/* Rounds an offset up to where the next tensor of a lane begins. */
static inline uint64_t hb_worker_aligned(uint64_t bytes)
{
	return (bytes + 63) & ~UINT64_C(63);
}

_Static_assert(sizeof(struct hb_worker_ring) == 40, "ring");
_Static_assert(sizeof(struct hb_worker_page) == 152 && offsetof(struct hb_worker_page, submitted) == 64, "page");
_Static_assert(sizeof(struct hb_worker_tensor) == 88, "tensor");
_Static_assert(offsetof(struct hb_worker_lane, inputs) == 512 && sizeof(struct hb_worker_lane) == 512 + 32 * 88,
	       "lane");
_Static_assert(offsetof(struct hb_worker_lane, dropped) == 496, "dropped");

#endif
