/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program written for the simulated driver may use beyond the driver
 * API: the host functions that give kernels an effect, and a table of a few
 * calls (cuGetExportTable with HB_SIM_TABLE_ID). Format of images, environment
 * and limits: docs/simcuda.md. Included by test programs and by the MPS server.
 */
#ifndef HB_SIMCUDA_SIMCUDA_H
#define HB_SIMCUDA_SIMCUDA_H

#include "nvidia/cuda_abi.h"

/*
 * What a kernel's host function is given. `args[i]` points to parameter i as it
 * was at the launch. It runs once a launch, when the kernel completes, on a
 * thread of the process's choice, one at a time: it must not call the driver.
 */
struct hb_sim_launch {
	const char *kernel;
	unsigned grid[3], block[3];
	unsigned shared_bytes;
	unsigned sms; /* that it could use: all, or what a mask left */
	int priority; /* that the launch or its node asked for, 0 where none is; changes nothing here */
	unsigned n_args;
	void **args;
	unsigned cluster;     /* blocks of a cluster; 0 or 1 = none */
	const uint32_t *mask; /* four words: TPCs that it did without, by bit */
};
typedef void hb_sim_function(const struct hb_sim_launch *launch);

struct hb_sim_stats {
	uint64_t memory_total, memory_free, memory_own; /* own: of this process, contexts included */
	int64_t switches, busy_ns, submitted, finished; /* of the GPU, all processes */
	uint64_t
		unsupported; /* calls of this process that ended in CUDA_ERROR_NOT_SUPPORTED for want of an implementation */
};

struct hb_sim_table {
	size_t size; /* of this structure */
	/* A number by which other processes join this context, as clients join an MPS server's. */
	CUresult (*context_token)(CUcontext context, uint64_t *token);
	CUresult (*stats)(int gpu, struct hb_sim_stats *stats);
	/* GPU time now, ns; the clock of event times. */
	int64_t (*now_ns)(void);
};

#define HB_SIM_TABLE_ID ((CUuuid){"hb-simcuda-tbl1"})

#endif
