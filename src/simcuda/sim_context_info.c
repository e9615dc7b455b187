/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the current context that programs read and set. */
#include "simcuda/sim_driver.h"

/* Checks calls without a stream: a current context and a place for the answer must exist. */
static CUresult current_for(const void *out, CUcontext *context)
{
	CUresult result = sim_current(context);
	if (result != CUDA_SUCCESS)
		return result;
	return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuCtxGetDevice(CUdevice *device)
{
	CUcontext context;
	CUresult result = current_for(device, &context);
	if (result == CUDA_SUCCESS)
		*device = context->device;
	return result;
}

CUresult sim_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	if (!ctx)
		return sim_cuCtxGetDevice(device);
	CUresult result = sim_check_context(ctx);
	if (result == CUDA_SUCCESS && !device)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*device = ctx->device;
	return result;
}

CUresult sim_cuCtxGetFlags(unsigned int *flags)
{
	CUcontext context;
	CUresult result = current_for(flags, &context);
	if (result == CUDA_SUCCESS)
		*flags = context->flags;
	return result;
}

CUresult sim_cuCtxSetFlags(unsigned int flags)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		context->flags = flags;
	return result;
}

CUresult sim_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	CUcontext context = ctx;
	CUresult result = ctx ? sim_check_context(ctx) : sim_current(&context);
	if (result == CUDA_SUCCESS && !ctxId)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*ctxId = context->unique;
	return result;
}

CUresult sim_cuCtxSynchronize(void)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids_unsafe();
	return result == CUDA_SUCCESS ? sim_wait_context(context) : result;
}

CUresult sim_cuCtxSynchronize_v2(CUcontext ctx)
{
	if (!ctx)
		return sim_cuCtxSynchronize();
	CUresult result = sim_check_context(ctx);
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids_unsafe();
	return result == CUDA_SUCCESS ? sim_wait_context(ctx) : result;
}

CUresult sim_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	CUcontext context = ctx;
	CUresult result = ctx ? sim_check_context(ctx) : sim_current(&context);
	if (result == CUDA_SUCCESS && !version)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*version = context->api_version;
	return result;
}

CUresult sim_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
	CUcontext context;
	CUresult result = current_for(pvalue, &context);
	if (result == CUDA_SUCCESS && limit >= CU_LIMIT_MAX)
		result = CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (result == CUDA_SUCCESS)
		*pvalue = context->limits[limit];
	return result;
}

CUresult sim_cuCtxSetLimit(CUlimit limit, size_t value)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && limit >= CU_LIMIT_MAX)
		result = CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (result == CUDA_SUCCESS)
		context->limits[limit] = value;
	return result;
}

CUresult sim_cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
	CUcontext context;
	CUresult result = current_for(pconfig, &context);
	if (result == CUDA_SUCCESS)
		*pconfig = context->cache;
	return result;
}

CUresult sim_cuCtxSetCacheConfig(CUfunc_cache config)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS)
		context->cache = config;
	return result;
}

CUresult sim_cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
	CUcontext context;
	CUresult result = current_for(pExecAffinity, &context);
	if (result == CUDA_SUCCESS && type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		result = CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	if (result != CUDA_SUCCESS)
		return result;
	pExecAffinity->type = type;
	pExecAffinity->param.smCount.val = context->sm_limit ? context->sm_limit : (uint32_t)sim.info.spec.sm_count;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxResetPersistingL2Cache(void)
{
	CUcontext context;
	return sim_current(&context);
}

/* Peers always have access to each other; these calls only check that enable and disable alternate, for one peer at a time. */
static CUresult set_peer(CUcontext other, unsigned flags)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result != CUDA_SUCCESS)
		return result;
	result = sim_check_context(other);
	if (result == CUDA_SUCCESS && (flags || other->device == context->device))
		result = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	return result;
}

CUresult sim_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	return set_peer(peerContext, Flags);
}

CUresult sim_cuCtxDisablePeerAccess(CUcontext peerContext)
{
	return set_peer(peerContext, 0);
}
