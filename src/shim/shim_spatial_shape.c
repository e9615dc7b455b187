/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes an LP launch: its kernel, number of blocks and stream, and whether it
 * may be masked, split or held back. Decides from the arguments, the launch
 * attributes and the marks of the kernel (kernel_marks.h); if these do not say, the
 * launch goes unmasked and unsplit. Also estimates how many SMs an HP launch fills,
 * from its arguments alone (a few ns).
 */
#include "decide/spatial_kind.h"
#include "decide/spatial_low.h"
#include "shim/kernel_marks.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/split.h"
#include "shim/takeover.h"

/* Clusters up to this size fit if a mask leaves half of each GPC. */
#define CLUSTER_MOST 8

/* ---- launches ---- */

static bool uses_thread_stream(unsigned fn)
{
	return fn == HB_FN_cuLaunchKernel_ptsz || fn == HB_FN_cuLaunchKernelEx_ptsz ||
	       fn == HB_FN_cuLaunchCooperativeKernel_ptsz || fn == HB_FN_cuGraphLaunch_ptsz;
}

static CUstream find_stream(unsigned fn, uint64_t argument)
{
	CUstream stream = (CUstream)(uintptr_t)
		argument; /* NOLINT(performance-no-int-to-ptr): as the caller passed it */
	if (stream)
		return stream;
	return uses_thread_stream(fn) ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

static void set_kernel(struct hb_low_launch *launch, struct hb_spatial_shape *shape, const unsigned grid[3],
		       const unsigned block[3], uint32_t shared_bytes)
{
	launch->threads = block[0] * block[1] * block[2];
	launch->shared_bytes = shared_bytes;
	shape->blocks = (uint64_t)grid[0] * grid[1] * grid[2];
	shape->key = hb_spatial_key((uint64_t)(uintptr_t)launch->function, grid[0], grid[1], grid[2], launch->threads,
				    shared_bytes);
}

/* Whether the kernel's code can be split is checked later, when the engine wants to split it. */
static uint32_t splittable_flag(void)
{
	return hb_split_is_possible() ? HB_SPATIAL_SPLITTABLE : 0;
}

static void describe_plain(unsigned fn, const uint64_t *args, bool cooperative, struct hb_low_launch *launch,
			   struct hb_spatial_shape *shape)
{
	unsigned grid[3], block[3];
	for (int i = 0; i < 3; i++) {
		grid[i] = (unsigned)hb_argument(args, 1 + i);
		block[i] = (unsigned)hb_argument(args, 4 + i);
	}
	launch->function = (CUfunction)(uintptr_t)hb_argument(args, 0); /* NOLINT(performance-no-int-to-ptr) */
	launch->stream = find_stream(fn, hb_argument(args, 8));
	shape->flags = cooperative ? 0 : HB_SPATIAL_MASKABLE | splittable_flag();
	set_kernel(launch, shape, grid, block, (uint32_t)hb_argument(args, 7));
}

/* Whether a kernel with this attribute may need all SMs. */
static bool forbids_masks(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		return value->cooperative;
	return id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
	       value->clusterDim.x * value->clusterDim.y * value->clusterDim.z > CLUSTER_MOST;
}

static uint32_t read_attributes(const CUlaunchConfig *config)
{
	uint32_t flags = HB_SPATIAL_MASKABLE | splittable_flag();
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];
		if (forbids_masks(attribute->id, &attribute->value))
			flags &= ~(uint32_t)HB_SPATIAL_MASKABLE;
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			flags |= HB_SPATIAL_CLUSTER;
	}
	return flags;
}

static void describe_config(unsigned fn, const uint64_t *args, struct hb_low_launch *launch,
			    struct hb_spatial_shape *shape)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)hb_argument(
		args, 0); /* NOLINT(performance-no-int-to-ptr) */
	if (!config)
		return;
	const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
	const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
	launch->function = (CUfunction)(uintptr_t)hb_argument(args, 1); /* NOLINT(performance-no-int-to-ptr) */
	launch->stream = find_stream(fn, (uint64_t)(uintptr_t)config->hStream);
	shape->flags = read_attributes(config);
	set_kernel(launch, shape, grid, block, config->sharedMemBytes);
}

CUfunction hb_shim_spatial_find_function(unsigned fn, const uint64_t *args)
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

uint32_t hb_shim_spatial_needed_sms(unsigned fn, const uint64_t *args)
{
	const CUlaunchConfig *config;
	switch (fn) {
	case HB_FN_cuLaunchKernel:
	case HB_FN_cuLaunchKernel_ptsz:
	case HB_FN_cuLaunchCooperativeKernel:
	case HB_FN_cuLaunchCooperativeKernel_ptsz:
		return hb_spatial_needed_sms(
			hb_argument(args, 1) * hb_argument(args, 2) * hb_argument(args, 3),
			(uint32_t)(hb_argument(args, 4) * hb_argument(args, 5) * hb_argument(args, 6)),
			(uint32_t)hb_argument(args, 7));
	case HB_FN_cuLaunchKernelEx:
	case HB_FN_cuLaunchKernelEx_ptsz:
		config = (const CUlaunchConfig *)(uintptr_t)hb_argument(args,
									0); /* NOLINT(performance-no-int-to-ptr) */
		return !config ? 0
			       : hb_spatial_needed_sms((uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ,
						       config->blockDimX * config->blockDimY * config->blockDimZ,
						       config->sharedMemBytes);
	default: /* a graph, a copy or a memset may fill the GPU */
		return 0;
	}
}

void hb_shim_spatial_describe(unsigned fn, const uint64_t *args, struct hb_low_launch *launch,
			      struct hb_spatial_shape *shape)
{
	*launch = (struct hb_low_launch){.stream = NULL};
	*shape = (struct hb_spatial_shape){.key = hb_spatial_key(fn, 0, 0, 0, 0, 0)};
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
		launch->stream = find_stream(fn, hb_argument(args, 1));
		shape->key = hb_spatial_key(hb_argument(args, 0), 0, 0, 0, 0, 1);
		break;
	default: /* memsets, copies inside the device, old forms of launches: short, or rare */
		if (hb_hooks[fn].stream >= 0)
			launch->stream = find_stream(fn, hb_argument(args, hb_hooks[fn].stream));
		shape->flags = HB_SPATIAL_FREE;
		break;
	}
	if (launch->function && hb_kernel_is_marked(HB_MARK_COLLECTIVE, launch->function))
		shape->flags = HB_SPATIAL_FREE;
	if (launch->function && !(shape->flags & HB_SPATIAL_CLUSTER) &&
	    hb_kernel_is_marked(HB_MARK_WIDE, launch->function))
		shape->flags &= ~(uint32_t)HB_SPATIAL_MASKABLE;
	/* Launches of a kernel that may be masked and those that may not are learned as two kernels. */
	if (!(shape->flags & HB_SPATIAL_MASKABLE))
		shape->key ^= 2;
}

/* ---- kernels of graphs ---- */

static atomic_bool graphs_need_all_sms;

void hb_shim_spatial_note_captured(unsigned fn, const uint64_t *args)
{
	struct hb_low_launch launch;
	struct hb_spatial_shape shape;
	hb_shim_spatial_describe(fn, args, &launch, &shape);
	if (launch.function && !(shape.flags & HB_SPATIAL_MASKABLE))
		atomic_store(&graphs_need_all_sms, true);
}

void hb_shim_spatial_note_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	if (value && forbids_masks(id, value))
		atomic_store(&graphs_need_all_sms, true);
}

bool hb_shim_spatial_may_mask_graphs(void)
{
	return !atomic_load(&graphs_need_all_sms);
}

/* ---- occupancy ---- */

void hb_shim_spatial_classify(const struct hb_low_launch *launch, struct hb_spatial_shape *shape)
{
	int per_sm = 0;
	if (!launch->function)
		return;
	if (HB_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&per_sm, launch->function, (int)launch->threads,
								 launch->shared_bytes) == CUDA_SUCCESS &&
	    per_sm > 0)
		shape->per_sm = (uint32_t)per_sm;
}
