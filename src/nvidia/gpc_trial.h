/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trial that finds which mask bits are of one GPC (gpc_find.h): launches of
 * clusters, whose blocks tell on which SM they are, under masks. A second or two
 * of the GPU. For a process of its own, in a context of its own outside the MPS
 * server: a launch of clusters that find no room never ends, and where that
 * happened the process must end without another call of the driver. Clusters are launched only where a group was
 * seen that holds one, under the same mask: first those of two blocks, which
 * any TPC holds. Run by `hb doctor`, never by a tenant.
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
	uint32_t looks, launches, cluster; /* of the last launch: its blocks in a cluster */
	bool hangs;                        /* that one has not ended; TOO_LONG */
	int64_t took_ns;
};

/*
 * In the current context, where hb_mask_probe() has said WORKS. KNOWN fills *layout; *seen and *effort always. Reads the
 * clock, to give up after some seconds.
 */
enum hb_gpc_state hb_gpc_trial(const struct hb_gpc_calls *cuda, struct hb_gpc_layout *layout, struct hb_gpc_seen *seen,
			       struct hb_gpc_effort *effort);

#endif
