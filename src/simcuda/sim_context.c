/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys contexts; the thread's stack of contexts; primary contexts. */
#include "simcuda/sim_driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STACK 64

static _Thread_local struct {
	CUcontext contexts[STACK];
	int n;
} stack;

CUresult sim_check_context(CUcontext context)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!context || context->magic != SIM_MAGIC_CONTEXT)
		return CUDA_ERROR_INVALID_CONTEXT;
	return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_current(CUcontext *context)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!stack.n || !stack.contexts[stack.n - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = stack.contexts[stack.n - 1];
	if (!(*context)->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return sim_context_trouble(*context);
}

/* --- creation and destruction ------------------------------------------------------------ */

static CUresult result_of(int error)
{
	switch (error) {
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -ENODEV:
		return CUDA_ERROR_INVALID_DEVICE;
	case -ESTALE:
		return CUDA_ERROR_MPS_SERVER_NOT_READY;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

static void default_limits(CUcontext context)
{
	context->limits[CU_LIMIT_STACK_SIZE] = 1024;
	context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128;
}

/* Outside MPS the channel groups are made first, as in the real driver, because the context runs in them. */
static int open_context(CUcontext context, uint64_t token)
{
	struct sim_request request = {.kind = SIM_REQ_CONTEXT_CREATE, .gpu = (uint32_t)sim_gpu_of(context->device)};
	struct sim_reply reply;
	request.token = token;
	request.sm_limit = context->sm_limit;
	request.preempt = HB_PREEMPT_INSTRUCTION;
	if (getenv("HB_SIM_MPS_SERVER"))
		request.mps = getenv("HB_SIM_MPS_FRAGILE") ? SIM_MPS_FRAGILE : SIM_MPS_SERVER;
	context->member = token != 0;
	int result = token ? 0 : sim_rm_make_groups(context);
	if (result < 0)
		return result;
	memcpy(request.groups, context->rm_groups, sizeof request.groups);
	result = sim_request(&request, &reply);
	if (result < 0) {
		sim_rm_free_groups(context);
		return result;
	}
	context->index = reply.context;
	return 0;
}

/* Under sim.lock. */
static CUresult make_context(CUdevice device, unsigned flags, unsigned version, uint32_t sm_limit, CUcontext *out)
{
	uint64_t token = 0;
	CUcontext context = calloc(1, sizeof *context);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->magic = SIM_MAGIC_CONTEXT;
	context->device = device;
	context->flags = flags;
	context->api_version = version;
	context->sm_limit = sm_limit;
	context->unique = atomic_fetch_add(&sim.unique, 1) + 1;
	default_limits(context);
	CUresult result = sim_mps_join(sim_gpu_of(device), &token, &context->sm_limit);
	if (result == CUDA_SUCCESS) {
		int error = open_context(context, token);
		result = error < 0 ? result_of(error) : CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS) {
		context->legacy = sim_stream_new(context, 0, 0);
		result = context->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(context);
		return result;
	}
	context->legacy->legacy = context->legacy->builtin = true;
	context->alive = true;
	context->next = sim.contexts;
	sim.contexts = context;
	*out = context;
	return CUDA_SUCCESS;
}

/* Under sim.lock, after the context's work is done. */
static void destroy_context(CUcontext context)
{
	struct sim_request request = {.kind = SIM_REQ_CONTEXT_DESTROY, .context = context->index};
	struct sim_reply reply;
	context->alive = false;
	atomic_store(&context->error, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	sim_streams_of_context_end(context);
	sim_modules_of_context_end(context);
	sim_memory_of_context_end(context);
	sim_rm_free_groups(context);
	sim_request(&request, &reply);
}

static CUresult push_context(CUcontext context)
{
	if (stack.n == STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.contexts[stack.n++] = context;
	return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *pctx, unsigned version, uint32_t sm_limit, unsigned flags, CUdevice device)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!pctx || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim.lock);
	result = make_context(device, flags, version, sm_limit, pctx);
	pthread_mutex_unlock(&sim.lock);
	return result == CUDA_SUCCESS ? push_context(*pctx) : result;
}

CUresult sim_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return create_context(pctx, 3020, 0, flags, dev);
}

static CUresult affinity_limit(const CUexecAffinityParam *params, int n, uint32_t *limit)
{
	*limit = 0;
	for (int i = 0; i < n; i++) {
		if (params[i].type != CU_EXEC_AFFINITY_TYPE_SM_COUNT ||
		    params[i].param.smCount.val > (uint32_t)sim.info.spec.sm_count)
			return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
		*limit = params[i].param.smCount.val;
	}
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
			    CUdevice dev)
{
	uint32_t limit;
	CUresult result = affinity_limit(paramsArray, paramsArray ? numParams : 0, &limit);
	return result == CUDA_SUCCESS ? create_context(pctx, 3020, limit, flags, dev) : result;
}

CUresult sim_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	const CUexecAffinityParam *params = ctxCreateParams ? ctxCreateParams->execAffinityParams : NULL;
	uint32_t limit;
	CUresult result = affinity_limit(params, params ? ctxCreateParams->numExecAffinityParams : 0, &limit);
	return result == CUDA_SUCCESS ? create_context(pctx, 3020, limit, flags, dev) : result;
}

CUresult sim_cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult result = sim_check_context(ctx);
	if (result != CUDA_SUCCESS)
		return result;
	if (ctx->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	sim_wait_context(ctx);
	pthread_mutex_lock(&sim.lock);
	if (ctx->alive)
		destroy_context(ctx);
	pthread_mutex_unlock(&sim.lock);
	if (stack.n && stack.contexts[stack.n - 1] == ctx)
		stack.n--;
	return CUDA_SUCCESS;
}

/* --- the thread's stack ------------------------------------------------------------- */

CUresult sim_cuCtxPushCurrent_v2(CUcontext ctx)
{
	CUresult result = sim_check_context(ctx);
	return result == CUDA_SUCCESS ? push_context(ctx) : result;
}

CUresult sim_cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!stack.n)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUcontext top = stack.contexts[--stack.n];
	if (pctx)
		*pctx = top;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCurrent(CUcontext ctx)
{
	CUresult result = ctx ? sim_check_context(ctx) : sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!ctx) {
		stack.n -= stack.n > 0;
		return CUDA_SUCCESS;
	}
	if (!stack.n)
		return push_context(ctx);
	stack.contexts[stack.n - 1] = ctx;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = stack.n ? stack.contexts[stack.n - 1] : NULL;
	return CUDA_SUCCESS;
}

/* --- primary contexts ----------------------------------------------------------------- */

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	CUcontext context = sim.primary[dev];
	if (!context || !context->alive) {
		result = make_context(dev, sim.primary_flags[dev], 3020, 0, &context);
		if (result == CUDA_SUCCESS) {
			context->primary = true;
			sim.primary[dev] = context;
		}
	}
	if (result == CUDA_SUCCESS) {
		context->uses++;
		*pctx = context;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

static CUresult end_primary(CUdevice device, bool at_once)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!sim_device_valid(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim.lock);
	CUcontext context = sim.primary[device];
	bool alive = context && context->alive;
	bool last = alive && (at_once || --context->uses == 0);
	pthread_mutex_unlock(&sim.lock);
	if (!alive)
		return at_once ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (!last)
		return CUDA_SUCCESS;
	sim_wait_context(context);
	pthread_mutex_lock(&sim.lock);
	if (context->alive)
		destroy_context(context);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return end_primary(dev, false);
}

CUresult sim_cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return end_primary(dev, false);
}

CUresult sim_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return end_primary(dev, true);
}

CUresult sim_cuDevicePrimaryCtxReset(CUdevice dev)
{
	return end_primary(dev, true);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	*flags = sim.primary_flags[dev];
	*active = sim.primary[dev] && sim.primary[dev]->alive;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	if (!sim_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	sim.primary_flags[dev] = flags;
	if (sim.primary[dev])
		sim.primary[dev]->flags = flags;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return sim_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}
