/* SPDX-License-Identifier: Apache-2.0 */
/* What cuda-tenant's kernels do on a simulated GPU; called by the simulated driver, which finds them by name. */
#include "simcuda/simcuda.h"

#define EXPORT __attribute__((visibility("default")))
hb_sim_function tenant_kernel_step, tenant_kernel_twice;

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
