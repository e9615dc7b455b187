/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optional functions in the benchmarks' shim; see bench_levers.h. */
#include "bench_levers.h"

static void begin_request(struct hb_spatial_high *high)
{
	hb_bench_fix_allowance(high);
	hb_bench_orion_high_begin(high);
}

const struct hb_shim_extension hb_shim_extension = {
	.high_begin = begin_request,
	.high_launch = hb_bench_orion_high_launch,
	.replaces_low_rule = hb_bench_orion_is_on,
	.apply_low_rule = hb_bench_orion_low,
	.start_split = hb_bench_start_split,
	.split = hb_bench_split,
	.after_unsplit = hb_bench_after_unsplit,
	.note_unsplit = hb_bench_note_unsplit,
	.context_leaves = hb_split_times_context_leaves,
	.before_capture = hb_split_times_before_capture,
	.leave_in_child = hb_split_times_leave_in_child,
};
