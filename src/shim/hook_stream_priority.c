/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Priorities: of streams as they are made or changed, of single launches, and of
 * nodes of graphs. Inside the MPS server all programs share
 * one range of stream priorities, by which the hardware picks whose blocks go
 * first. The range is cut in two: high priority gets the upper half, low
 * priority the lower one, whatever they ask for. Within its half a program keeps
 * the order that it asked for, as far as there are levels; equal halves of the
 * six levels of today's GPUs keep pairs together.
 *
 * Launches are looked at in the spatial engine only, and while something is
 * recorded; the caller's structures are copied, not changed.
 *
 * The default streams have no priority of their own to set; docs/spatial-programs.md
 * says what that means. Programs outside the server get what they ask for.
 */
#include "shim/drain.h"
#include "shim/priority.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"

/* True: *priority is what this program may have in place of what it asks. CUDA counts down: the least is 0, more is below. */
static bool moves_priority(int *priority)
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

static CUresult stream_created(CUresult result, const CUstream *stream, bool moved)
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
	if (moves_priority(&priority))
		return stream_created(HB_REAL(cuStreamCreateWithPriority)(stream, flags, priority), stream, true);
	return stream_created(HB_REAL(cuStreamCreate)(stream, flags), stream, false);
}

CUresult hb_hook_cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	bool moved = moves_priority(&priority);
	return stream_created(HB_REAL(cuStreamCreateWithPriority)(stream, flags, priority), stream, moved);
}

CUresult hb_hook_cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags, int priority)
{
	bool moved = moves_priority(&priority);
	return stream_created(HB_REAL(cuGreenCtxStreamCreate)(stream, context, flags, priority), stream, moved);
}

/* ---- attributes ---- */

/* True: *copy is `value` with another priority. */
static bool moves_value(CUlaunchAttributeID id, const CUlaunchAttributeValue *value, CUlaunchAttributeValue *copy)
{
	if (id != CU_LAUNCH_ATTRIBUTE_PRIORITY || !value)
		return false;
	int priority = value->priority;
	if (!moves_priority(&priority))
		return false;
	*copy = *value;
	copy->priority = priority;
	hb_shim_count(HB_COUNT_priorities_moved, 1);
	return true;
}

CUresult hb_hook_cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUlaunchAttributeValue copy;
	return HB_REAL(cuStreamSetAttribute)(stream, id, moves_value(id, value, &copy) ? &copy : value);
}

CUresult hb_hook_cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUlaunchAttributeValue copy;
	return HB_REAL(cuStreamSetAttribute_ptsz)(stream, id, moves_value(id, value, &copy) ? &copy : value);
}

CUresult hb_hook_cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
					       const CUkernelNodeAttrValue *value)
{
	CUlaunchAttributeValue copy;
	return HB_REAL(cuGraphKernelNodeSetAttribute)(node, id, moves_value(id, value, &copy) ? &copy : value);
}

/* ---- launches ---- */

static bool has_priority(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
			return true;
	return false;
}

const CUlaunchConfig *hb_priority_config(const CUlaunchConfig *config, struct hb_priority_copy *copy)
{
	if (!has_priority(config) || config->numAttrs > HB_PRIORITY_ATTRIBUTES || !hb_tenant_inside_mps())
		return config;
	copy->config = *config;
	copy->config.attrs = copy->attributes;
	for (unsigned i = 0; i < config->numAttrs; i++) {
		copy->attributes[i] = config->attrs[i];
		moves_value(config->attrs[i].id, &config->attrs[i].value, &copy->attributes[i].value);
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
	bool is_plain = fn == HB_FN_cuLaunchKernelEx, is_per_thread = fn == HB_FN_cuLaunchKernelEx_ptsz;
	if (!target || (!is_plain && !is_per_thread) || !has_priority((const CUlaunchConfig *)hb_argument(args, 0)))
		return target;
	return is_plain ? (void *)launch_cuLaunchKernelEx : (void *)launch_cuLaunchKernelEx_ptsz;
}

#define DESTROY(name) \
	CUresult hb_hook_##name(CUstream stream) \
	{ \
		hb_drain_forget_stream(stream); \
		hb_shim_spatial_forget_stream(stream); \
		hb_capture_stream_leaves(stream); \
		CUresult result = HB_REAL(name)(stream); \
		hb_capture_stream_left(stream, result == CUDA_SUCCESS); \
		return result; \
	}

DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
