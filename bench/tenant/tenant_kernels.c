/* SPDX-License-Identifier: Apache-2.0 */
/* What cuda-tenant's kernels do on a simulated GPU; called by the simulated driver, which finds them by name. */
#include "tenant_kernels.h"

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

const struct hb_sim_table *tenant_sim_table;

static uint64_t argument(const struct hb_sim_launch *launch, unsigned i)
{
	return *(uint64_t *)launch->args[i];
}

EXPORT void tenant_kernel_step(const struct hb_sim_launch *launch)
{
	uint64_t *word = (uint64_t *)(uintptr_t)argument(launch, 1);
	if (word)
		*word += argument(launch, 2);
}

EXPORT void tenant_kernel_twice(const struct hb_sim_launch *launch)
{
	*(uint64_t *)(uintptr_t)argument(launch, 0) *= 2;
}

/* The first block began `ns` before the kernel's end; see bench_trial(). */
EXPORT void tenant_kernel_stamp(const struct hb_sim_launch *launch)
{
	*(int64_t *)(uintptr_t)argument(launch, 1) = tenant_sim_table->now_ns() - (int64_t)argument(launch, 0);
}
