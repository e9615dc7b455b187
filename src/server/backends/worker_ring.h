/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server and a worker share: one memory file, two rings of lane
 * numbers, and lanes that each hold one batch, inputs and outputs. Written by
 * backend_worker.c and python/hummingbird/worker.py (which repeats the offsets;
 * a test compares them).
 *
 *	server   fills a free lane, puts its number on `submitted`, rings
 *	worker   takes it, sets `stage`, fills outputs and status, puts the number
 *	         on `completed`, rings; one that tells copies and run apart raises
 *	         `stage` when each begins and rings
 *
 * Each ring has one writer, who stores the entry and then raises `head`
 * (release). A bell is an eventfd. The worker may scribble on all of it: the
 * server checks whatever it reads and keeps its own copy of what it decided.
 */
#ifndef HB_FRONT_WORKER_RING_H
#define HB_FRONT_WORKER_RING_H

#include "server/models/model_config.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>

#define HB_WORKER_MAGIC UINT64_C(0x31524b4f57424800) /* "\0HBWOKR1" */
#define HB_WORKER_VERSION 5
#define HB_WORKER_LANES 4
#define HB_WORKER_RING 8 /* entries, more than lanes */

struct hb_worker_ring {
	_Atomic(uint32_t) head; /* entries ever put, by the writer */
	uint32_t reserved;
	uint32_t lanes[HB_WORKER_RING];
};

struct hb_worker_page {
	uint64_t magic;
	uint32_t version, lanes;
	uint64_t lane_bytes;            /* a lane lies at 4096 + number * lane_bytes */
	uint64_t in_offset, out_offset; /* of its data, from its begin */
	uint64_t out_bytes;             /* room for outputs */
	_Atomic(uint32_t) ready;        /* worker; enum hb_worker_ready */
	uint32_t n_inputs, n_outputs;
	uint32_t unused;
	struct hb_worker_ring submitted, completed;
	_Atomic(uint32_t) expected; /* server: raised, with the bell of `submitted`, when a request begins to arrive */
	uint32_t reserved;
};

struct hb_worker_tensor {
	uint64_t offset, bytes; /* from the lane's in_offset or out_offset */
	uint32_t n_dims, reserved;
	int64_t dims[HB_TENSOR_DIMS_MAX];
};

enum hb_worker_ready {
	HB_WORKER_STARTS,
	HB_WORKER_READY,
	HB_WORKER_CANNOT, /* run the model, ever: lane 0 has the error */
};

enum hb_worker_status { HB_WORKER_OK = 0, HB_WORKER_ERROR = 1 };

enum hb_worker_stage { HB_WORKER_NOT_BEGUN, HB_WORKER_COPIES_IN, HB_WORKER_RUNS, HB_WORKER_COPIES_OUT };

enum hb_worker_hold {
	HB_WORKER_NEVER_HELD, /* it need not look again */
	HB_WORKER_GOES_ON,
	HB_WORKER_HELD, /* it is to launch nothing more until this is over */
};

struct hb_worker_lane {
	uint32_t items, priority;   /* server; priority: 0 = high */
	_Atomic(uint32_t) stage;    /* worker; enum hb_worker_stage */
	uint32_t status;            /* worker */
	_Atomic(uint32_t) hold;     /* server; enum hb_worker_hold */
	char error[476];            /* worker; NUL-terminated */
	uint32_t dropped;           /* worker: items whose outputs found no room, one bit each; theirs are empty */
	_Atomic(uint32_t) unwanted; /* server, which rings: 1 = nobody waits: it need not be begun, or gone on with */
	int64_t deadline_ns;        /* server: of the most urgent request, CLOCK_MONOTONIC; INT64_MAX = none */
	struct hb_worker_tensor inputs[HB_TENSORS_MAX], outputs[HB_TENSORS_MAX];
};

/* Where the next tensor of a lane begins. */
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
