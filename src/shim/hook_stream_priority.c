/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of streams as they are made. Inside the MPS server all programs share
 * one range of stream priorities, by which the hardware picks whose blocks go
 * first. The range is cut in two: high priority gets the upper half, low
 * priority the lower one, whatever they ask for. Within its half a program keeps
 * the order that it asked for, as far as there are levels; equal halves of the
 * six levels of today's GPUs keep pairs together.
 *
 * The default streams have no priority of their own to set; docs/spatial-programs.md
 * says what that means. Programs outside the server get what they ask for.
 */
#include "shim/drain.h"
#include "shim/shim.h"
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

CUresult hb_hook_cuStreamDestroy_v2(CUstream stream)
{
	hb_drain_forget_stream(stream);
	return HB_REAL(cuStreamDestroy_v2)(stream);
}
