/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: handles, default streams, attributes, waiting, host functions, memory words. */
#include "simcuda/sim_driver.h"

#include <stdlib.h>
#include <string.h>

#define PRIORITY_LOWEST 0
#define PRIORITY_HIGHEST (-5)

static int within_range(int priority)
{
	return priority < PRIORITY_HIGHEST ? PRIORITY_HIGHEST : priority > PRIORITY_LOWEST ? PRIORITY_LOWEST : priority;
}

CUstream sim_stream_new(CUcontext context, unsigned flags, int priority)
{
	CUstream stream = calloc(1, sizeof *stream);
	if (!stream)
		return NULL;
	stream->magic = SIM_MAGIC_STREAM;
	stream->context = context;
	stream->flags = flags;
	stream->priority = within_range(priority);
	stream->unique = atomic_fetch_add(&sim.unique, 1) + 1;
	if (sim_stream_start(stream) != CUDA_SUCCESS) {
		free(stream);
		return NULL;
	}
	return stream;
}

/* Called under sim.lock after all work is done. */
void sim_streams_of_context_end(CUcontext context)
{
	for (;;) {
		/* Starts from the front each time, because the helper thread removes and frees ended streams. */
		pthread_mutex_lock(&sim.submit);
		CUstream stream = context->streams;
		while (stream && stream->magic != SIM_MAGIC_STREAM)
			stream = stream->next;
		pthread_mutex_unlock(&sim.submit);
		if (!stream)
			return;
		sim_capture_lose(stream);
		sim_stream_end(stream);
	}
}

/* --- the thread's own default streams --------------------------------------------------- */

struct own_stream {
	CUcontext context;
	CUstream stream;
	struct own_stream *next;
};

static _Thread_local struct own_stream *own_streams;
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void end_own_streams(void *list)
{
	struct own_stream *own = list;
	while (own) {
		struct own_stream *next = own->next;
		if (atomic_load(&sim.state) == SIM_READY && own->context->alive) {
			sim_capture_lose(own->stream);
			sim_stream_end(own->stream);
		}
		free(own);
		own = next;
	}
}

static void make_own_key(void)
{
	pthread_key_create(&own_key, end_own_streams);
}

static CUstream own_stream(CUcontext context)
{
	for (struct own_stream *own = own_streams; own; own = own->next)
		if (own->context == context)
			return own->stream;
	struct own_stream *own = calloc(1, sizeof *own);
	if (!own)
		return NULL;
	own->context = context;
	own->stream = sim_stream_new(context, 0, 0);
	if (!own->stream) {
		free(own);
		return NULL;
	}
	own->stream->builtin = true;
	own->next = own_streams;
	own_streams = own;
	pthread_once(&own_once, make_own_key);
	pthread_setspecific(own_key, own);
	return own->stream;
}

CUresult sim_stream_resolve(CUstream handle, CUstream *stream)
{
	CUcontext context;
	if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD || !handle) {
		CUresult result = sim_current(&context);
		if (result != CUDA_SUCCESS)
			return result;
		bool own = handle == CU_STREAM_PER_THREAD || (!handle && sim_per_thread);
		*stream = own ? own_stream(context) : context->legacy;
		return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (handle->magic != SIM_MAGIC_STREAM)
		return CUDA_ERROR_INVALID_HANDLE;
	*stream = handle;
	return sim_context_trouble(handle->context);
}

/* --- creation and queries -------------------------------------------------------------------- */

CUresult sim_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && (!phStream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	*phStream = sim_stream_new(context, flags, priority);
	return *phStream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return sim_cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult sim_cuStreamDestroy_v2(CUstream hStream)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!hStream || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD ||
	    hStream->magic != SIM_MAGIC_STREAM || hStream->builtin)
		return CUDA_ERROR_INVALID_HANDLE;
	result = sim_capture_forbids(hStream);
	if (result == CUDA_SUCCESS)
		sim_stream_end(hStream);
	return result;
}

/* Defines a call that returns one value of a stream. */
#define STREAM_GETTER(call, type, value) \
	CUresult sim_##call(CUstream hStream, type *out) \
	{ \
		CUstream stream; \
		CUresult result = sim_stream_resolve(hStream, &stream); \
		if (result == CUDA_SUCCESS && !out) \
			result = CUDA_ERROR_INVALID_VALUE; \
		if (result == CUDA_SUCCESS) \
			*out = value; \
		return result; \
	}

STREAM_GETTER(cuStreamGetPriority, int, stream->priority)
STREAM_GETTER(cuStreamGetFlags, unsigned int, stream->flags)
STREAM_GETTER(cuStreamGetCtx, CUcontext, stream->context)
STREAM_GETTER(cuStreamGetId, unsigned long long, stream->unique)
STREAM_GETTER(cuStreamGetDevice, CUdevice, stream->context->device)

static bool known_attribute(CUstreamAttrID id)
{
	return id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
	       id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN || id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
}

CUresult sim_cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result != CUDA_SUCCESS || !value_out)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		value_out->priority = stream->priority;
		return CUDA_SUCCESS;
	}
	if (!known_attribute(attr))
		return CUDA_ERROR_INVALID_VALUE;
	*value_out = stream->attributes[attr];
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	/* The getter returns the new value; the model keeps the value of the stream's creation. */
	if (result == CUDA_SUCCESS && value && attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		stream->priority = within_range(value->priority);
		return CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS && (!value || !known_attribute(attr)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		stream->attributes[attr] = *value;
	return result;
}

CUresult sim_cuStreamCopyAttributes(CUstream dst, CUstream src)
{
	CUstream to, from;
	CUresult result = sim_stream_resolve(dst, &to);
	if (result == CUDA_SUCCESS)
		result = sim_stream_resolve(src, &from);
	if (result == CUDA_SUCCESS)
		memmove(to->attributes, from->attributes, sizeof to->attributes);
	return result;
}

CUresult sim_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(SIM_TASK_EMPTY) : NULL;
	return task ? sim_issue(stream, task, NULL) : result;
}

/* --- waiting -------------------------------------------------------------------------------- */

static uint64_t last_seq(CUstream stream)
{
	pthread_mutex_lock(&sim.submit);
	uint64_t seq = stream->last_seq;
	pthread_mutex_unlock(&sim.submit);
	return seq;
}

CUresult sim_cuStreamQuery(CUstream hStream)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids(stream);
	if (result != CUDA_SUCCESS)
		return result;
	sim_drain();
	/* An idle legacy stream still represents the blocking streams for which its next work would wait. */
	return atomic_load(&stream->done_seq) >= last_seq(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Waiting for the legacy stream means waiting for everything that its next operation would wait for. */
static CUresult legacy_mark(CUstream stream, uint64_t *seq)
{
	struct sim_task *task = sim_task_new(SIM_TASK_EMPTY);
	return task ? sim_submit(stream, NULL, task, seq) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuStreamSynchronize(CUstream hStream)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids(stream);
	if (result != CUDA_SUCCESS)
		return result;
	uint64_t seq;
	if (stream->legacy)
		result = legacy_mark(stream, &seq);
	else
		seq = last_seq(stream);
	return result == CUDA_SUCCESS ? sim_wait_stream(stream, seq) : result;
}

CUresult sim_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (!hEvent || hEvent->magic != SIM_MAGIC_EVENT)
		return CUDA_ERROR_INVALID_HANDLE;
	if (Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_capture_wait(stream, hEvent, Flags, &result))
		return result;
	if (!atomic_load(&hEvent->wanted))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim.submit);
	uint32_t other = hEvent->stream_id;
	uint64_t seq = hEvent->stream_seq;
	pthread_mutex_unlock(&sim.submit);
	sim_submit_wait(stream, other, seq);
	return CUDA_SUCCESS;
}

/* --- host functions --------------------------------------------------------------------------- */

CUresult sim_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result == CUDA_SUCCESS && !fn)
		result = CUDA_ERROR_INVALID_VALUE;
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(SIM_TASK_HOST) : NULL;
	if (!task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	task->u.host.fn = fn;
	task->u.host.argument = userData;
	return sim_issue(stream, task, NULL);
}

CUresult sim_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result == CUDA_SUCCESS && (!callback || flags))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids(stream);
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(SIM_TASK_CALLBACK) : NULL;
	if (!task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	task->u.callback.fn = callback;
	task->u.callback.stream = hStream;
	task->u.callback.argument = userData;
	return sim_issue(stream, task, NULL);
}

/* --- memory words --------------------------------------------------------------------------------- */

static CUresult issue_value_task(CUstream handle, enum sim_task_kind kind, CUdeviceptr address, uint64_t number,
				 unsigned flags, bool wide)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(handle, &stream);
	if (result == CUDA_SUCCESS && (!address || address % (wide ? 8 : 4)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids(stream);
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(kind) : NULL;
	if (!task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	task->u.value.address = address;
	task->u.value.value = number;
	task->u.value.flags = flags;
	task->u.value.wide = wide;
	return sim_issue(stream, task, NULL);
}

CUresult sim_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, uint32_t number, unsigned int flags)
{
	return issue_value_task(stream, SIM_TASK_WAIT_VALUE, addr, number, flags, false);
}

CUresult sim_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, uint64_t number, unsigned int flags)
{
	return issue_value_task(stream, SIM_TASK_WAIT_VALUE, addr, number, flags, true);
}

CUresult sim_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, uint32_t number, unsigned int flags)
{
	return issue_value_task(stream, SIM_TASK_WRITE_VALUE, addr, number, flags, false);
}

CUresult sim_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, uint64_t number, unsigned int flags)
{
	return issue_value_task(stream, SIM_TASK_WRITE_VALUE, addr, number, flags, true);
}

static CUresult one_mem_op(CUstream stream, const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return issue_value_task(stream, SIM_TASK_WAIT_VALUE, op->waitValue.address, op->waitValue.value,
					op->waitValue.flags, false);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return issue_value_task(stream, SIM_TASK_WAIT_VALUE, op->waitValue.address, op->waitValue.value64,
					op->waitValue.flags, true);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return issue_value_task(stream, SIM_TASK_WRITE_VALUE, op->writeValue.address, op->writeValue.value, 0,
					false);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return issue_value_task(stream, SIM_TASK_WRITE_VALUE, op->writeValue.address, op->writeValue.value64, 0,
					true);
	case CU_STREAM_MEM_OP_BARRIER:
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult sim_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
				   unsigned int flags)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!paramArray || count > 256 || flags))
		result = CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = one_mem_op(stream, &paramArray[i]);
	return result;
}
