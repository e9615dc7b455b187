/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of cuda-tenant as the simulated driver knows them, and its clock. Used by tenant_infer.c and bench_gpu.c. */
#ifndef HB_BENCH_TENANT_TENANT_KERNELS_H
#define HB_BENCH_TENANT_TENANT_KERNELS_H

#include "simcuda/simcuda.h"

/* The simulated driver's table; NULL on a real GPU. Set before the first launch. */
extern const struct hb_sim_table *tenant_sim_table;
hb_sim_function tenant_kernel_step, tenant_kernel_twice, tenant_kernel_stamp;

#endif
