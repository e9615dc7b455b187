/* SPDX-License-Identifier: Apache-2.0 */
/* What hb-bench-work's kernels do on a simulated GPU; called by the simulated driver, which finds them by name. */
#include "work_sim_kernels.h"

#include <stddef.h>

const struct hb_sim_table *work_sim_table;

/* The first block began `ns` before the kernel's end; see work_trial(). */
__attribute__((visibility("default"))) void bench_work_stamp(const struct hb_sim_launch *launch)
{
	int64_t ns = (int64_t) * (uint64_t *)launch->args[0];
	int64_t *stamp = *(int64_t **)launch->args[1];
	*stamp = work_sim_table->now_ns() - ns;
}
