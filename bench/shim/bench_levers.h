/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmarks' shim: the product's shim plus baselines and test levers, which
 * are switched on by HB_BENCH_* in a program's environment. The functions below
 * fill the table of shim/extension.h, whose comments say when each is called.
 */
#ifndef HB_BENCH_LEVERS_H
#define HB_BENCH_LEVERS_H

#include "shim/extension.h"

/* ---- bench_orion.c, bench_allowance.c ---- */

bool hb_bench_orion_is_on(void);
void hb_bench_orion_high_begin(const struct hb_spatial_high *high);
void hb_bench_orion_high_launch(CUfunction function);
void hb_bench_orion_low(const struct hb_spatial_low *low, CUfunction function, const struct hb_spatial_view *view,
			struct hb_spatial_answer *answer);
/* Fixes the delay that LP may cause to requests of this process, if the environment asks for it. */
void hb_bench_fix_allowance(struct hb_spatial_high *high);

/* ---- split_by_time.c ---- */

bool hb_bench_start_split(void);
enum hb_split_reason hb_bench_split(const struct hb_split_launch *launch, CUresult *result);
void hb_bench_after_unsplit(const struct hb_split_launch *launch);
void hb_bench_note_unsplit(enum hb_split_reason reason);

/* ---- split_times.c: how long kernels run, by function and launch shape ---- */

struct hb_split_shape;
struct hb_split_known {
	struct hb_split_shape *shape; /* NULL: the table has no room now */
	uint64_t key;                 /* identifies the shape; the entry may be reused for another one */
	int64_t duration_ns;          /* shortest run seen; 0 = unknown */
	uint32_t n_resident;          /* blocks that fit on the GPU at once */
};
/* Returns what is known of a launch shape; asks the driver for n_resident the first time. */
struct hb_split_known hb_split_shape_of(const struct hb_split_function *function, uint32_t n_blocks, uint32_t n_threads,
					uint32_t shared_bytes);
/* Before an unsplit launch: starts a sample unless there are enough. True: call hb_split_time_end() after the launch. */
bool hb_split_time_begin(const struct hb_split_known *known, CUstream stream);
void hb_split_time_end(const struct hb_split_known *known, CUstream stream);
void hb_split_times_context_leaves(CUcontext context);
void hb_split_times_before_capture(void);
void hb_split_times_leave_in_child(void);

#endif
