/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps the memory channels of a GPU (channel_find.h) with a kernel that hammers two addresses. The kernel uses all SMs, one
 * test after the other, for as long as the caller allows, so other programs on the GPU become slower meanwhile. It must run in a
 * context outside the MPS server, where no other kernel runs beside it. Run by `hb doctor --channels`, never by a tenant.
 */
#ifndef HB_NVIDIA_CHANNEL_TRIAL_H
#define HB_NVIDIA_CHANNEL_TRIAL_H

#include "nvidia/channel_find.h"
#include "nvidia/cuda_abi.h"

#define HB_CHANNEL_CALLS(X) \
	X(cuCtxGetDevice) \
	X(cuDeviceGetAttribute) \
	X(cuModuleLoadData) \
	X(cuModuleUnload) \
	X(cuModuleGetFunction) \
	X(cuMemAlloc_v2) \
	X(cuMemFree_v2) \
	X(cuMemsetD8Async) \
	X(cuMemcpyDtoHAsync_v2) \
	X(cuLaunchKernel) \
	X(cuStreamCreate) \
	X(cuStreamDestroy_v2) \
	X(cuStreamSynchronize)

struct hb_channel_calls {
#define X(name) __typeof__(name) *name;
	HB_CHANNEL_CALLS(X)
#undef X
};

struct hb_channel_request {
	uint32_t pages;       /* pages to map, 1 to HB_CHANNEL_PAGES_MOST */
	CUdeviceptr memory;   /* of the caller, at a page boundary, to be written over; 0: the trial's own */
	uint32_t check_units; /* units to classify a second time */
	int64_t limit_ns; /* the trial keeps what it has after nine tenths of this time, and then looks a second time */
};

struct hb_channel_finding {
	struct hb_channel_finder *finder; /* holds the map; hb_channel_finder_free() */
	struct hb_channel_check check;
	int64_t map_ns, check_ns;
	const char *failed; /* the driver call that failed with `code`, or NULL */
	CUresult code;
};

/*
 * Runs the trial in the current context. Fills *finding, also after an error. Returns 0 if at least one page is mapped,
 * -EIO (*finding names the call that failed), -ETIME without a complete page, or what hb_channel_find() returned.
 */
int hb_channel_trial(const struct hb_channel_calls *cuda, const struct hb_channel_request *request,
		     struct hb_channel_finding *finding);

#endif
