/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of initialisation and of contexts' ends. cuInit is the first moment at
 * which the process is known to use CUDA and may talk to the daemon. A context
 * that ends takes its allocations along without a free. (Other calls about
 * contexts are HB_FORWARD rows.)
 */
#include "shim/memory_account.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

/* By CUDA's device number; NULL: never retained here. */
static _Atomic(CUcontext) primary[HB_PAGE_GPUS];

CUresult hb_hook_cuInit(unsigned int flags)
{
	CUresult result = HB_REAL(cuInit)(flags);
	if (result == CUDA_SUCCESS)
		hb_tenant_join();
	return result;
}

CUresult hb_hook_cuCtxDestroy_v2(CUcontext context)
{
	hb_tenant_gpu_forget();
	CUresult result = HB_REAL(cuCtxDestroy_v2)(context);
	if (result == CUDA_SUCCESS)
		hb_memory_drop_context((uint64_t)(uintptr_t)context);
	return result;
}

CUresult hb_hook_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	hb_tenant_tend();
	CUresult result = HB_REAL(cuDevicePrimaryCtxRetain)(context, device);
	if (result == CUDA_SUCCESS && device >= 0 && device < HB_PAGE_GPUS &&
	    atomic_exchange(&primary[device], *context) != *context)
		hb_shim_count(HB_COUNT_contexts, 1);
	return result;
}

/* After a release or reset: gone for good, or still held by somebody else? */
static CUresult drop_if_gone(CUdevice device, CUresult result)
{
	unsigned flags;
	int active = 1;
	hb_tenant_gpu_forget();
	if (result == CUDA_SUCCESS && device >= 0 && device < HB_PAGE_GPUS &&
	    HB_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active)
		hb_memory_drop_context((uint64_t)(uintptr_t)atomic_exchange(&primary[device], NULL));
	return result;
}

CUresult hb_hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
	return drop_if_gone(device, HB_REAL(cuDevicePrimaryCtxRelease)(device));
}

CUresult hb_hook_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	return drop_if_gone(device, HB_REAL(cuDevicePrimaryCtxRelease_v2)(device));
}

CUresult hb_hook_cuDevicePrimaryCtxReset(CUdevice device)
{
	return drop_if_gone(device, HB_REAL(cuDevicePrimaryCtxReset)(device));
}

CUresult hb_hook_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return drop_if_gone(device, HB_REAL(cuDevicePrimaryCtxReset_v2)(device));
}
