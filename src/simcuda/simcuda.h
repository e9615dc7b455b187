/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extensions of the driver API for programs that are written for the simulated
 * driver: host functions that give kernels an effect, and a table of a few calls (cuGetExportTable with HB_SIM_TABLE_ID). Format of images, environment
 * and limits: docs/simcuda.md. Included by test programs and by the MPS server.
 */
#ifndef HB_SIMCUDA_SIMCUDA_H
#define HB_SIMCUDA_SIMCUDA_H

#include "nvidia/cuda_abi.h"

/*
 * The argument of a kernel's host function. `args[i]` points to parameter i as
 * it was at the launch. The function runs once for each launch, when the kernel
 * completes, on any thread of the process, one at a time. It must not call the
 * driver.
 */
struct hb_sim_launch {
	const char *kernel;
	unsigned grid[3], block[3];
	unsigned shared_bytes;
	unsigned sms; /* SMs that the launch could use: all, or those that a mask left */
	int priority; /* priority of the launch or its node, 0 = none; has no effect here */
	unsigned n_args;
	void **args;
	unsigned cluster;     /* blocks of a cluster; 0 or 1 = no clusters */
	const uint32_t *mask; /* four words: a bit for each TPC that the launch did not use */
};
typedef void hb_sim_function(const struct hb_sim_launch *launch);

struct hb_sim_stats {
	uint64_t memory_total, memory_free, memory_own; /* own: memory of this process, contexts included */
	int64_t switches, busy_ns, submitted, finished; /* of the GPU, over all processes */
	uint64_t
		unsupported; /* calls of this process that returned CUDA_ERROR_NOT_SUPPORTED because they are not implemented */
};

struct hb_sim_table {
	size_t size; /* of this structure */
	/* Returns a number with which other processes join this context, as clients join an MPS server's. */
	CUresult (*context_token)(CUcontext context, uint64_t *token);
	CUresult (*stats)(int gpu, struct hb_sim_stats *stats);
	/* Returns the GPU time in ns; events use the same clock. */
	int64_t (*now_ns)(void);
	/* Ends the work of a process that has joined this context. Its context is lost; the others do not notice. */
	CUresult (*terminate_client)(CUcontext context, int pid);
	/*
	 * Replaces the failures of HB_SIM_FAIL in this process, "" = none, and counts calls anew. Returns how many calls the
	 * failures before have hit.
	 */
	uint64_t (*set_faults)(const char *list);
};

#define HB_SIM_TABLE_ID ((CUuuid){"hb-simcuda-tbl1"})

#endif
