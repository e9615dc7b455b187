/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch of low priority is: which kernel, how many blocks, on which
 * stream, and whether it may be masked or held back. Decided from arguments and
 * attributes; where those say nothing the launch goes whole. Kernels of
 * collectives are known by their names, which are looked at when the program
 * looks them up: a rank that waits must not be the one that others wait for.
 */
#include "core/slack_low.h"
#include "shim/hold.h"
#include "shim/shim.h"
#include "shim/slice.h"
#include "shim/window.h"

#include <string.h>

/* Clusters up to this size fit where a mask leaves half of each GPC. */
#define CLUSTER_MOST 8
#define MARKED_MAX 1024

/* Kernels that are not to be masked, and those that are not to be held back either. */
struct marked {
	_Atomic(const void *) kernels[MARKED_MAX];
	atomic_uint n;
};
static struct marked collectives, may_be_wide;

static bool is_marked(struct marked *set, const void *kernel)
{
	unsigned n = atomic_load_explicit(&set->n, memory_order_relaxed);
	for (unsigned i = 0; i < n && i < MARKED_MAX; i++)
		if (atomic_load_explicit(&set->kernels[i], memory_order_acquire) == kernel)
			return true;
	return n > MARKED_MAX; /* some were not noted: any may be one of them */
}

/* Once: libraries set the attributes of a kernel again before each launch. Two threads may both do it, which is harmless. */
static void mark(struct marked *set, const void *kernel)
{
	if (is_marked(set, kernel))
		return;
	unsigned i = atomic_fetch_add(&set->n, 1);
	if (i < MARKED_MAX)
		atomic_store_explicit(&set->kernels[i], kernel, memory_order_release);
}

static bool names_collective(const char *name)
{
	return name && (strstr(name, "nccl") || strstr(name, "nvshmem"));
}

static void note_kernel(CUresult result, const void *handle, const char *name)
{
	if (result == CUDA_SUCCESS && names_collective(name))
		mark(&collectives, handle);
}

CUresult hb_hook_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result = HB_DOUBT(HB_REAL(cuModuleGetFunction)(function, module, name));
	note_kernel(result, result == CUDA_SUCCESS ? *function : NULL, name);
	return result;
}

CUresult hb_hook_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	CUresult result = HB_REAL(cuLibraryGetKernel)(kernel, library, name);
	note_kernel(result, result == CUDA_SUCCESS ? *kernel : NULL, name);
	return result;
}

/*
 * The leave to use clusters of more than eight blocks. Libraries give it to all their kernels (cuBLAS does) and then name
 * the size at each launch; where a launch names none it may be in the kernel's code.
 */
CUresult hb_hook_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && value)
		mark(&may_be_wide, function);
	return HB_DOUBT(HB_REAL(cuFuncSetAttribute)(function, attribute, value));
}

CUresult hb_hook_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && value)
		mark(&may_be_wide, kernel);
	return HB_DOUBT(HB_REAL(cuKernelSetAttribute)(attribute, value, kernel, device));
}

/* ---- launches ---- */

static bool is_per_thread(unsigned fn)
{
	return fn == HB_FN_cuLaunchKernel_ptsz || fn == HB_FN_cuLaunchKernelEx_ptsz ||
	       fn == HB_FN_cuLaunchCooperativeKernel_ptsz || fn == HB_FN_cuGraphLaunch_ptsz;
}

static CUstream stream_of(unsigned fn, uint64_t argument)
{
	CUstream stream = (CUstream)(uintptr_t)
		argument; /* NOLINT(performance-no-int-to-ptr): as the caller passed it */
	if (stream)
		return stream;
	return is_per_thread(fn) ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static void set_kernel(struct hb_window_launch *launch, struct hb_slack_shape *shape, const unsigned grid[3],
		       const unsigned block[3], uint32_t shared_bytes)
{
	launch->threads = block[0] * block[1] * block[2];
	launch->shared_bytes = shared_bytes;
	shape->blocks = (uint64_t)grid[0] * grid[1] * grid[2];
	shape->key = hb_slack_key((uint64_t)(uintptr_t)launch->function, grid[0], grid[1], grid[2], launch->threads,
				  shared_bytes);
}

/* Whether a kernel's code can be cut is looked at when slack wants it in pieces. */
static uint32_t can_slice(void)
{
	return hb_slice_is_possible() ? HB_SLACK_SLICEABLE : 0;
}

static void describe_plain(unsigned fn, const uint64_t *args, bool cooperative, struct hb_window_launch *launch,
			   struct hb_slack_shape *shape)
{
	unsigned grid[3], block[3];
	for (int i = 0; i < 3; i++) {
		grid[i] = (unsigned)hb_argument(args, 1 + i);
		block[i] = (unsigned)hb_argument(args, 4 + i);
	}
	launch->function = (CUfunction)(uintptr_t)hb_argument(args, 0); /* NOLINT(performance-no-int-to-ptr) */
	launch->stream = stream_of(fn, hb_argument(args, 8));
	shape->flags = cooperative ? 0 : HB_SLACK_MASKABLE | can_slice();
	set_kernel(launch, shape, grid, block, (uint32_t)hb_argument(args, 7));
}

static uint32_t flags_of(const CUlaunchConfig *config)
{
	uint32_t flags = HB_SLACK_MASKABLE | can_slice();
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute->value.cooperative)
			flags &= ~(uint32_t)HB_SLACK_MASKABLE;
		if (attribute->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			continue;
		flags |= HB_SLACK_CLUSTER;
		if (attribute->value.clusterDim.x * attribute->value.clusterDim.y * attribute->value.clusterDim.z >
		    CLUSTER_MOST)
			flags &= ~(uint32_t)HB_SLACK_MASKABLE;
	}
	return flags;
}

static void describe_config(unsigned fn, const uint64_t *args, struct hb_window_launch *launch,
			    struct hb_slack_shape *shape)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)hb_argument(
		args, 0); /* NOLINT(performance-no-int-to-ptr) */
	if (!config)
		return;
	const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
	const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
	launch->function = (CUfunction)(uintptr_t)hb_argument(args, 1); /* NOLINT(performance-no-int-to-ptr) */
	launch->stream = stream_of(fn, (uint64_t)(uintptr_t)config->hStream);
	shape->flags = flags_of(config);
	set_kernel(launch, shape, grid, block, config->sharedMemBytes);
}

CUfunction hb_window_function(unsigned fn, const uint64_t *args)
{
	switch (fn) {
	case HB_FN_cuLaunchKernel:
	case HB_FN_cuLaunchKernel_ptsz:
	case HB_FN_cuLaunchCooperativeKernel:
	case HB_FN_cuLaunchCooperativeKernel_ptsz:
		return (CUfunction)(uintptr_t)hb_argument(args, 0); /* NOLINT(performance-no-int-to-ptr) */
	case HB_FN_cuLaunchKernelEx:
	case HB_FN_cuLaunchKernelEx_ptsz:
		return (CUfunction)(uintptr_t)hb_argument(args, 1); /* NOLINT(performance-no-int-to-ptr) */
	default:
		return NULL;
	}
}

void hb_window_describe(unsigned fn, const uint64_t *args, struct hb_window_launch *launch,
			struct hb_slack_shape *shape)
{
	*launch = (struct hb_window_launch){.stream = NULL};
	*shape = (struct hb_slack_shape){.key = hb_slack_key(fn, 0, 0, 0, 0, 0)};
	switch (fn) {
	case HB_FN_cuLaunchKernel:
	case HB_FN_cuLaunchKernel_ptsz:
		describe_plain(fn, args, false, launch, shape);
		break;
	case HB_FN_cuLaunchCooperativeKernel:
	case HB_FN_cuLaunchCooperativeKernel_ptsz:
		describe_plain(fn, args, true, launch, shape);
		break;
	case HB_FN_cuLaunchKernelEx:
	case HB_FN_cuLaunchKernelEx_ptsz:
		describe_config(fn, args, launch, shape);
		break;
	case HB_FN_cuGraphLaunch:
	case HB_FN_cuGraphLaunch_ptsz:
		launch->stream = stream_of(fn, hb_argument(args, 1));
		shape->key = hb_slack_key(hb_argument(args, 0), 0, 0, 0, 0, 1);
		break;
	default: /* memsets, copies inside the device, launches of old: short, or rare */
		if (hb_hooks[fn].stream >= 0)
			launch->stream = stream_of(fn, hb_argument(args, hb_hooks[fn].stream));
		shape->flags = HB_SLACK_FREE;
		break;
	}
	if (launch->function && is_marked(&collectives, launch->function))
		shape->flags = HB_SLACK_FREE;
	if (launch->function && !(shape->flags & HB_SLACK_CLUSTER) && is_marked(&may_be_wide, launch->function))
		shape->flags &= ~(uint32_t)HB_SLACK_MASKABLE;
	/* What is known of a kernel holds for launches that may all be masked, or none of them. */
	if (!(shape->flags & HB_SLACK_MASKABLE))
		shape->key ^= 2;
}

void hb_window_classify(const struct hb_window_launch *launch, struct hb_slack_shape *shape)
{
	int per_sm = 0;
	if (!launch->function)
		return;
	if (HB_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&per_sm, launch->function, (int)launch->threads,
								 launch->shared_bytes) == CUDA_SUCCESS &&
	    per_sm > 0)
		shape->per_sm = (uint32_t)per_sm;
}
