/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a launch is cut: into how many pieces, and when each is issued. Pure
 * arithmetic on predicted times; knows no driver and reads no clock. Called by
 * the shim for each launch that could be cut.
 *
 * Pieces are whole waves (as many blocks as fit on the GPU at once), because a
 * part of a wave takes as long as a whole one. A piece starts all blocks of the grid,
 * those outside it only to leave, so pieces of a grid of very many short blocks
 * cost more than they gain; the cost is bounded to a share of the kernel's time.
 *
 * Pacing (the kernel tick of Hummingbird): the next piece is issued shortly before
 * the last one is predicted to have drained, so that the GPU does not run dry and
 * no more than about one piece lies in the queue when the gate closes.
 */
#ifndef HB_CUBIN_PIECE_PLAN_H
#define HB_CUBIN_PIECE_PLAN_H

#include "cubin/split_reason.h"

#include <stdint.h>

/* Launch, and the drain between two kernels that fill the GPU: 1.8 us measured on an H200. */
#define HB_SPLIT_BOUNDARY_NS 2000
/* A block that leaves at once, by its threads: 0.6 ns for small ones, 1.25 ns for 1024 threads (H200). */
#define HB_SPLIT_SKIP_PS 600
#define HB_SPLIT_SKIP_PS_PER_1024 650
/* What pieces may cost of a kernel's time, usually. */
#define HB_SPLIT_COST_PERCENT 10
/* A nap of a thread ends up to this late. */
#define HB_SPLIT_LEAD_NS 60000

struct hb_split_question {
	int64_t duration_ns; /* of the whole kernel, predicted */
	int64_t allowed_ns;  /* how long a piece may run */
	uint32_t n_blocks, n_threads;
	uint32_t n_resident;   /* blocks that fit on the GPU at once */
	uint32_t cost_percent; /* what all pieces may cost of the kernel's time */
};

struct hb_split_plan {
	uint32_t n_pieces, n_blocks_each; /* the last one may be shorter */
	int64_t piece_ns;
};

/* HB_SLICE_none and the plan (two pieces or more), or why it runs whole. */
enum hb_split_reason hb_split_plan(const struct hb_split_question *question, struct hb_split_plan *plan);

/* When what was issued will have drained; 0 = nothing is known to run. */
struct hb_split_clock {
	int64_t drained_ns;
};

/* How long to wait before the next piece. */
int64_t hb_split_wait_ns(const struct hb_split_clock *clock, int64_t now_ns);
void hb_split_issued(struct hb_split_clock *clock, int64_t now_ns, int64_t piece_ns);

#endif
