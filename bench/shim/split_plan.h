/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides into how many parts a launch is split, and when each part is issued.
 * Pure arithmetic on predicted times: calls no driver and reads no clock. Called
 * by split_by_time.c for each launch that could be split.
 *
 * A part consists of complete waves (a wave is as many blocks as fit on the GPU at
 * once), because an incomplete wave takes as long as a complete one. Each part
 * starts all blocks of the grid; those that belong to other parts exit at once. A
 * grid of very many short blocks therefore costs more to split than it gains. The
 * cost is limited to a share of the kernel's time.
 *
 * Pacing: a part is issued shortly before the previous part is predicted to end.
 * The GPU then does not run dry, and when the gate closes, about one part at most
 * is in the queue.
 */
#ifndef HB_BENCH_SPLIT_PLAN_H
#define HB_BENCH_SPLIT_PLAN_H

#include "cubin/split_reason.h"

#include <stdint.h>

/* Time to launch and to drain between two kernels that fill the GPU: 1.8 us measured on an H200. */
#define HB_SPLIT_BOUNDARY_NS 2000
/* Time of a block that exits at once, by its threads: 0.6 ns for small blocks, 1.25 ns for 1024 threads (H200). */
#define HB_SPLIT_SKIP_PS 600
#define HB_SPLIT_SKIP_PS_PER_1024 650
/* Default: most that all parts may cost, in percent of the kernel's time. */
#define HB_SPLIT_COST_PERCENT 10
/* A sleeping thread wakes up to this much too late. */
#define HB_SPLIT_LEAD_NS 60000

struct hb_split_question {
	int64_t duration_ns; /* predicted run time of the unsplit kernel */
	int64_t allowed_ns;  /* longest run time of a part */
	uint32_t n_blocks, n_threads;
	uint32_t n_resident;   /* blocks that fit on the GPU at once */
	uint32_t cost_percent; /* most that all parts may cost of the kernel's time */
};

struct hb_split_plan {
	uint32_t n_parts, n_blocks_each; /* the last part may have fewer blocks */
	int64_t part_ns;                 /* predicted run time of a part */
};

/* Returns HB_SPLIT_none and a plan of two parts or more, or why the kernel is not split. */
enum hb_split_reason hb_split_plan(const struct hb_split_question *question, struct hb_split_plan *plan);

/* Predicted time at which the issued parts will have ended; 0 = none is known to run. */
struct hb_split_clock {
	int64_t drained_ns;
};

/* Returns how long to wait before the next part is issued. */
int64_t hb_split_wait_ns(const struct hb_split_clock *clock, int64_t now_ns);
/* Notes that a part was issued now. */
void hb_split_issued(struct hb_split_clock *clock, int64_t now_ns, int64_t part_ns);

#endif
