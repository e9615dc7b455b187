/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of priorities: of streams when they are created or changed, of single
 * launches, and of graph nodes.
 *
 * Inside the MPS server all programs share one range of stream priorities, by
 * which the hardware chooses whose blocks start first. The shim cuts the range in
 * two: HP gets the upper half and LP the lower half, whatever they request. Within
 * its half a program keeps the order of its requests as far as there are levels.
 * Current GPUs have six levels, so pairs of levels become one.
 *
 * Launches are checked in the spatial engine only, and while a stream captures.
 * The caller's structures are copied, not changed. The default streams have no
 * priority that can be set; docs/spatial-programs.md describes the consequence.
 * Outside the MPS server programs get what they request.
 */
#include "shim/drain.h"
#include "shim/priority.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "shim/takeover.h"

/* Changes a requested priority to the permitted one. True: it changed. CUDA counts down: 0 is the lowest, -5 the highest. */
static bool limit_priority(int *priority)
{
	int least = 0, greatest = 0, asked = *priority;
	if (!hb_tenant_inside_mps() || HB_REAL(cuCtxGetStreamPriorityRange)(&least, &greatest) != CUDA_SUCCESS ||
	    least - greatest < 1)
		return false;
	int levels = least - greatest + 1, half = levels / 2;
	int rank = least - (asked > least ? least : asked < greatest ? greatest : asked);
	int within = rank * half / levels;
	*priority = hb_tenant_is_high() ? least - (levels - half) - within : least - within;
	return *priority != asked;
}

static CUresult note_created(CUresult result, const CUstream *stream, bool moved)
{
	if (result != CUDA_SUCCESS)
		return result;
	hb_drain_add_stream(*stream);
	if (moved)
		hb_shim_count(HB_COUNT_streams_moved, 1);
	return result;
}

CUresult hb_hook_cuStreamCreate(CUstream *stream, unsigned int flags)
{
	int priority = 0;
	if (limit_priority(&priority))
		return note_created(HB_REAL(cuStreamCreateWithPriority)(stream, flags, priority), stream, true);
	return note_created(HB_REAL(cuStreamCreate)(stream, flags), stream, false);
}

CUresult hb_hook_cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	bool moved = limit_priority(&priority);
	return note_created(HB_REAL(cuStreamCreateWithPriority)(stream, flags, priority), stream, moved);
}

CUresult hb_hook_cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority)
{
	bool moved = limit_priority(&priority);
	return note_created(HB_REAL(cuGreenCtxStreamCreate)(stream, context, flags, priority), stream, moved);
}

/* ---- attributes ---- */

/* True: *copy is `value` with the permitted priority, which differs. */
static bool copy_limited(CUlaunchAttributeID id, const CUlaunchAttributeValue *value, CUlaunchAttributeValue *copy)
{
	if (id != CU_LAUNCH_ATTRIBUTE_PRIORITY || !value)
		return false;
	int priority = value->priority;
	if (!limit_priority(&priority))
		return false;
	*copy = *value;
	copy->priority = priority;
	hb_shim_count(HB_COUNT_priorities_moved, 1);
	return true;
}

CUresult hb_hook_cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUlaunchAttributeValue copy;
	return HB_REAL(cuStreamSetAttribute)(stream, id, copy_limited(id, value, &copy) ? &copy : value);
}

CUresult hb_hook_cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUlaunchAttributeValue copy;
	return HB_REAL(cuStreamSetAttribute_ptsz)(stream, id, copy_limited(id, value, &copy) ? &copy : value);
}

CUresult hb_hook_cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
					       const CUkernelNodeAttrValue *value)
{
	CUlaunchAttributeValue copy;
	hb_shim_spatial_note_attribute(id, value);
	return HB_REAL(cuGraphKernelNodeSetAttribute)(node, id, copy_limited(id, value, &copy) ? &copy : value);
}

/* ---- launches ---- */

static bool sets_priority(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
			return true;
	return false;
}

const CUlaunchConfig *hb_priority_config(const CUlaunchConfig *config, struct hb_priority_copy *copy)
{
	if (!sets_priority(config) || config->numAttrs > HB_PRIORITY_ATTRIBUTES || !hb_tenant_inside_mps())
		return config;
	copy->config = *config;
	copy->config.attrs = copy->attributes;
	for (unsigned i = 0; i < config->numAttrs; i++) {
		copy->attributes[i] = config->attrs[i];
		copy_limited(config->attrs[i].id, &config->attrs[i].value, &copy->attributes[i].value);
	}
	return &copy->config;
}

#define LAUNCH(name) \
	static CUresult launch_##name(const CUlaunchConfig *config, CUfunction function, void **parameters, \
				      void **extra) \
	{ \
		struct hb_priority_copy copy; \
		return HB_REAL(name)(hb_priority_config(config, &copy), function, parameters, extra); \
	}

LAUNCH(cuLaunchKernelEx)
LAUNCH(cuLaunchKernelEx_ptsz)

void *hb_priority_way(unsigned fn, const uint64_t *args, void *target)
{
	bool is_plain = fn == HB_FN_cuLaunchKernelEx, is_thread_stream = fn == HB_FN_cuLaunchKernelEx_ptsz;
	if (!target || (!is_plain && !is_thread_stream) || !sets_priority((const CUlaunchConfig *)hb_argument(args, 0)))
		return target;
	return is_plain ? (void *)launch_cuLaunchKernelEx : (void *)launch_cuLaunchKernelEx_ptsz;
}

#define DESTROY(name) \
	CUresult hb_hook_##name(CUstream stream) \
	{ \
		hb_drain_forget_stream(stream); \
		hb_shim_spatial_forget_stream(stream); \
		hb_takeover_forget_stream(stream); \
		hb_capture_stream_leaves(stream); \
		CUresult result = HB_REAL(name)(stream); \
		hb_capture_stream_left(stream, result == CUDA_SUCCESS); \
		return result; \
	}

DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
