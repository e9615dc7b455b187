/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trial that finds the GPC of each mask bit (gpc_find.h). It launches clusters
 * whose blocks report their SM, under masks; this uses the GPU for a second or two.
 * It must run in a process of its own, in a context outside the MPS server: a
 * cluster that finds no room never starts, and after that the process must end
 * without another driver call. Clusters are launched only if a group was seen that
 * holds one under the same mask, starting with clusters of two blocks, which any TPC
 * holds. Run by `hb doctor`, never by a tenant.
 */
#ifndef HB_GPU_GPC_TRIAL_H
#define HB_GPU_GPC_TRIAL_H

#include "nvidia/gpc_find.h"
#include "nvidia/launch_mask.h"

#define HB_GPC_CALLS(X) \
	X(cuCtxGetDevice) \
	X(cuDeviceGetAttribute) \
	X(cuModuleLoadData) \
	X(cuModuleUnload) \
	X(cuModuleGetFunction) \
	X(cuFuncSetAttribute) \
	X(cuMemAlloc_v2) \
	X(cuMemFree_v2) \
	X(cuMemsetD8Async) \
	X(cuMemcpyDtoHAsync_v2) \
	X(cuLaunchKernelEx) \
	X(cuStreamCreate) \
	X(cuStreamDestroy_v2) \
	X(cuStreamQuery) \
	X(cuStreamSynchronize)

struct hb_gpc_calls {
#define X(name) __typeof__(name) *name;
	HB_GPC_CALLS(X)
#undef X
};

struct hb_gpc_effort {
	uint32_t looks, launches;
	uint32_t cluster; /* blocks per cluster of the last launch */
	bool hangs;       /* the last launch has not ended (TOO_LONG) */
	int64_t took_ns;
};

/*
 * Runs the trial in the current context, after hb_mask_probe() returned WORKS for GPU 0 of the caller. KNOWN fills *layout;
 * *seen and *effort are always filled. Reads the clock and gives up after some seconds.
 */
enum hb_gpc_state hb_gpc_trial(const struct hb_gpc_calls *cuda, struct hb_gpc_layout *layout, struct hb_gpc_seen *seen,
			       struct hb_gpc_effort *effort);

#endif
