/* SPDX-License-Identifier: Apache-2.0 */
/* Events. Their times are GPU time, so they depend neither on HB_SIM_SCALE nor on the load of the host. */
#include "simcuda/sim_driver.h"

#include <stdlib.h>

static CUresult check_event(CUevent event)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return event && event->magic == SIM_MAGIC_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void sim_event_unuse(CUevent event)
{
	if (atomic_fetch_sub_explicit(&event->users, 1, memory_order_acq_rel) != 1)
		return;
	free(event->captured_nodes);
	free(event);
}

CUresult sim_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && (!phEvent || Flags > 7))
		result = CUDA_ERROR_INVALID_VALUE;
	/* Events between processes would need shared memory, which this driver does not have. */
	if (result == CUDA_SUCCESS && (Flags & CU_EVENT_INTERPROCESS))
		result = sim_unsupported("cuEventCreate with CU_EVENT_INTERPROCESS");
	if (result != CUDA_SUCCESS)
		return result;
	CUevent event = calloc(1, sizeof *event);
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->magic = SIM_MAGIC_EVENT;
	event->flags = Flags;
	event->context = context;
	atomic_store(&event->users, 1);
	*phEvent = event;
	return CUDA_SUCCESS;
}

CUresult sim_cuEventDestroy_v2(CUevent hEvent)
{
	CUresult result = check_event(hEvent);
	if (result != CUDA_SUCCESS)
		return result;
	hEvent->magic = SIM_MAGIC_DEAD;
	sim_event_unuse(hEvent);
	return CUDA_SUCCESS;
}

CUresult sim_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result == CUDA_SUCCESS)
		result = check_event(hEvent);
	if (result == CUDA_SUCCESS && (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && hEvent->context != stream->context)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result != CUDA_SUCCESS || sim_capture_record(stream, hEvent, flags, &result))
		return result;
	struct sim_task *task = sim_task_new(SIM_TASK_EVENT);
	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	atomic_fetch_add(&hEvent->users, 1);
	hEvent->captured_id = 0;
	task->u.event.event = hEvent;
	task->u.event.generation = atomic_fetch_add(&hEvent->wanted, 1) + 1;
	return sim_issue(stream, task, NULL);
}

CUresult sim_cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return sim_cuEventRecordWithFlags(hEvent, hStream, 0);
}

/* An event that was last recorded in a capture has no time. */
static CUresult check_usable(CUevent event)
{
	CUresult result = check_event(event);
	return result == CUDA_SUCCESS && event->captured_id ? CUDA_ERROR_CAPTURED_EVENT : result;
}

CUresult sim_cuEventQuery(CUevent hEvent)
{
	CUresult result = check_usable(hEvent);
	if (result == CUDA_SUCCESS)
		result = sim_context_trouble(hEvent->context);
	if (result != CUDA_SUCCESS)
		return result;
	sim_drain();
	return atomic_load_explicit(&hEvent->done, memory_order_acquire) >= atomic_load(&hEvent->wanted)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_NOT_READY;
}

CUresult sim_cuEventSynchronize(CUevent hEvent)
{
	CUresult result = check_usable(hEvent);
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids_unsafe();
	return result == CUDA_SUCCESS ? sim_wait_event(hEvent, atomic_load(&hEvent->wanted)) : result;
}

CUresult sim_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	CUresult result = check_usable(hStart);
	if (result == CUDA_SUCCESS)
		result = check_usable(hEnd);
	if (result == CUDA_SUCCESS && !pMilliseconds)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	if ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING || !atomic_load(&hStart->wanted) ||
	    !atomic_load(&hEnd->wanted))
		return CUDA_ERROR_INVALID_HANDLE;
	if ((result = sim_cuEventQuery(hStart)) != CUDA_SUCCESS || (result = sim_cuEventQuery(hEnd)) != CUDA_SUCCESS)
		return result;
	*pMilliseconds = (float)((double)(atomic_load(&hEnd->at_ns) - atomic_load(&hStart->at_ns)) / 1e6);
	return CUDA_SUCCESS;
}

CUresult sim_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	return sim_cuEventElapsedTime(pMilliseconds, hStart, hEnd);
}
