/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of hb-bench-work as the simulated driver knows them; used by work_gpu.c only. */
#ifndef HB_BENCH_WORKLOADS_WORK_SIM_KERNELS_H
#define HB_BENCH_WORKLOADS_WORK_SIM_KERNELS_H

#include "simcuda/simcuda.h"

/* Set before the first launch; NULL on a real GPU. */
extern const struct hb_sim_table *work_sim_table;
hb_sim_function bench_work_stamp;

#endif
