/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of initialisation and of contexts. cuInit is the first moment at which the
 * process is known to use CUDA, so it registers with the daemon there. A context
 * that is destroyed frees its allocations without further calls. Other calls about
 * contexts are HB_FORWARD rows.
 */
#include "base/fault_point.h"
#include "shim/drain.h"
#include "shim/hold.h"
#include "shim/kernel_marks.h"
#include "shim/memory_account.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "shim/split.h"
#include "shim/takeover.h"

/* Primary contexts by CUDA's device number; NULL: never retained through this file. */
static _Atomic(CUcontext) primary[HB_PAGE_GPUS];
static atomic_int references[HB_PAGE_GPUS]; /* to the primary contexts, held by the program and its libraries */

CUresult hb_hook_cuInit(unsigned int flags)
{
	CUresult result = HB_REAL(cuInit)(flags);
	if (result == CUDA_SUCCESS) {
		hb_tenant_join();
		hb_split_start();
	}
	return result;
}

static CUresult note_created(CUresult result, const CUcontext *context, CUdevice device)
{
	hb_tenant_gpu_forget();
	if (result == CUDA_SUCCESS) {
		hb_shim_count(HB_COUNT_contexts, 1);
		hb_drain_add_context(*context, device);
		hb_takeover_add_context(*context, device);
	}
	return result;
}

#define CREATE(name) \
	CUresult hb_hook_##name(CUcontext *context, unsigned int flags, CUdevice device) \
	{ \
		hb_tenant_refresh(); \
		return note_created(HB_REAL(name)(context, flags, device), context, device); \
	}

CREATE(cuCtxCreate)
CREATE(cuCtxCreate_v2)

CUresult hb_hook_cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int n_params, unsigned int flags,
				CUdevice device)
{
	hb_tenant_refresh();
	return note_created(HB_REAL(cuCtxCreate_v3)(context, params, n_params, flags, device), context, device);
}

CUresult hb_hook_cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
	hb_tenant_refresh();
	return note_created(HB_REAL(cuCtxCreate_v4)(context, params, flags, device), context, device);
}

/* Before a call that may destroy the context. Afterwards note_gone() or note_stays() is called. */
static void note_leaves(CUcontext context)
{
	hb_tenant_gpu_forget();
	if (!context)
		return;
	hb_drain_context_leaves(context);
	hb_capture_context_leaves(context);
	hb_takeover_forget_context(context);
	hb_shim_spatial_context_leaves(context);
}

static void note_gone(CUcontext context)
{
	hb_drain_context_gone(context);
	hb_capture_context_left(context, true);
	hb_shim_spatial_context_gone(context);
	hb_kernel_marks_forget_context(context);
	hb_split_context_gone(context);
	hb_memory_drop_context((uint64_t)(uintptr_t)context);
}

static void note_stays(CUcontext context)
{
	hb_drain_context_stays(context);
	hb_capture_context_left(context, false);
	hb_shim_spatial_context_stays(context);
	for (CUdevice device = 0; device < HB_PAGE_GPUS; device++)
		if (atomic_load(&primary[device]) == context)
			hb_takeover_add_context(context, device);
}

static CUresult end_destroy(CUcontext context, CUresult result)
{
	if (result == CUDA_SUCCESS)
		note_gone(context);
	else if (context) /* the driver refuses to destroy a primary context */
		note_stays(context);
	return result;
}

/* No context is destroyed while memory moves. */
#define DESTROY(name) \
	CUresult hb_hook_##name(CUcontext context) \
	{ \
		return HB_HELD(({ \
			note_leaves(context); \
			end_destroy(context, HB_WIDE(HB_REAL(name)(context))); \
		})); \
	}

/* Programs that look up names without a header (Python's ctypes) call the old forms. A context attached twice is not recognised. */
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)
DESTROY(cuCtxDetach)

CUresult hb_hook_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	hb_tenant_refresh();
	CUresult result = HB_REAL(cuDevicePrimaryCtxRetain)(context, device);
	HB_FAULT(shim_context_made);
	if (result == CUDA_SUCCESS && device >= 0 && device < HB_PAGE_GPUS)
		atomic_fetch_add(&references[device], 1);
	if (result == CUDA_SUCCESS && device >= 0 && device < HB_PAGE_GPUS &&
	    atomic_exchange(&primary[device], *context) != *context) {
		hb_shim_count(HB_COUNT_contexts, 1);
		hb_drain_add_context(*context, device);
		hb_takeover_add_context(*context, device);
	}
	return result;
}

static CUcontext begin_release(CUdevice device)
{
	CUcontext context = device >= 0 && device < HB_PAGE_GPUS ? atomic_load(&primary[device]) : NULL;
	note_leaves(context);
	return context;
}

/* Whether the context stays because the program has more references to it: the driver only lowers a count then. */
static bool has_more_references(CUdevice device)
{
	if (device < 0 || device >= HB_PAGE_GPUS)
		return false;
	int before = atomic_fetch_sub(&references[device], 1);
	if (before <= 0) /* a release too many */
		atomic_fetch_add(&references[device], 1);
	return before > 1;
}

/*
 * A reset ends the context, whatever the number of references. Later releases count as the last one: they ask the driver
 * whether the context still exists. Returns false: the context does not stay.
 */
static bool forget_references(CUdevice device)
{
	if (device >= 0 && device < HB_PAGE_GPUS)
		atomic_store(&references[device], 0);
	return false;
}

static CUresult end_release(CUcontext context, CUdevice device, CUresult result)
{
	unsigned flags;
	int active = 1;
	if (!context)
		return result;
	if (HB_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active) {
		atomic_store(&primary[device], NULL);
		note_gone(context);
	} else {
		note_stays(context);
	}
	return result;
}

#define END_OF_PRIMARY(name, stays) \
	CUresult hb_hook_##name(CUdevice device) \
	{ \
		return HB_HELD(({ \
			CUresult result; \
			if (stays) { \
				result = HB_REAL(name)(device); \
				if (result != CUDA_SUCCESS) \
					atomic_fetch_add(&references[device], 1); \
			} else { \
				CUcontext context = begin_release(device); \
				result = end_release(context, device, HB_WIDE(HB_REAL(name)(device))); \
			} \
			result; \
		})); \
	}

END_OF_PRIMARY(cuDevicePrimaryCtxRelease, has_more_references(device))
END_OF_PRIMARY(cuDevicePrimaryCtxRelease_v2, has_more_references(device))
END_OF_PRIMARY(cuDevicePrimaryCtxReset, forget_references(device))
END_OF_PRIMARY(cuDevicePrimaryCtxReset_v2, forget_references(device))
