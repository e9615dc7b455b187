/* SPDX-License-Identifier: Apache-2.0 */
/* The effects of cuda-tenant's kernels on a simulated GPU. The simulated driver finds and calls these functions by name. */
#include "tenant_kernels.h"

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

const struct hb_sim_table *tenant_sim_table;

static uint64_t read_argument(const struct hb_sim_launch *launch, unsigned i)
{
	return *(uint64_t *)launch->args[i];
}

EXPORT void tenant_kernel_step(const struct hb_sim_launch *launch)
{
	uint64_t *word = (uint64_t *)(uintptr_t)read_argument(launch, 1);
	if (word)
		*word += read_argument(launch, 2);
}

EXPORT void tenant_kernel_arrive(const struct hb_sim_launch *launch)
{
	struct tenant_cell *cell = (struct tenant_cell *)(uintptr_t)read_argument(launch, 0);
	if (atomic_fetch_add(&cell->arrived, 1) + 1 == read_argument(launch, 1))
		atomic_store(&cell->open, 1);
}

EXPORT void tenant_kernel_twice(const struct hb_sim_launch *launch)
{
	*(uint64_t *)(uintptr_t)read_argument(launch, 0) *= 2;
}

/* The first block began `ns` before the kernel's end; see bench_trial(). */
EXPORT void tenant_kernel_stamp(const struct hb_sim_launch *launch)
{
	*(int64_t *)(uintptr_t)read_argument(launch, 1) = tenant_sim_table->now_ns() -
							  (int64_t)read_argument(launch, 0);
}
