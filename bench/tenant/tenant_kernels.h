/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of cuda-tenant as the simulated driver knows them, and its clock. Used by tenant_infer.c, tenant_gang.c and bench_gpu.c. */
#ifndef HB_BENCH_TENANT_TENANT_KERNELS_H
#define HB_BENCH_TENANT_TENANT_KERNELS_H

#include "simcuda/simcuda.h"

#include <stdatomic.h>

/* The simulated driver's table; NULL on a real GPU. Set before the first launch. */
extern const struct hb_sim_table *tenant_sim_table;

/* One collective: how many GPUs have come to it, and whether all have. */
struct tenant_cell {
	_Atomic(uint32_t) arrived, open;
};

hb_sim_function tenant_kernel_step, tenant_kernel_arrive, tenant_kernel_twice, tenant_kernel_stamp;

#endif
