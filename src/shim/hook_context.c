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

static void note_work_leaves(CUcontext context)
{
	hb_drain_context_leaves(context);
	hb_capture_context_leaves(context);
	hb_shim_spatial_context_leaves(context);
	hb_split_context_leaves(context);
}

static void note_work_gone(CUcontext context)
{
	hb_drain_context_gone(context);
	hb_capture_context_left(context, true);
	hb_shim_spatial_context_gone(context);
}

/* Before a call that may destroy the context. Afterwards note_gone() or note_stays() is called. */
static void note_leaves(CUcontext context)
{
	hb_tenant_gpu_forget();
	if (!context)
		return;
	note_work_leaves(context);
	hb_takeover_forget_context(context);
}

static void note_gone(CUcontext context)
{
	note_work_gone(context);
	hb_kernel_marks_forget_context(context);
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

static bool has_place(CUdevice device)
{
	return device >= 0 && device < HB_PAGE_GPUS;
}

CUresult hb_hook_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	hb_tenant_refresh();
	CUresult result = HB_REAL(cuDevicePrimaryCtxRetain)(context, device);
	HB_FAULT(shim_context_made);
	if (result != CUDA_SUCCESS || !has_place(device))
		return result;
	atomic_fetch_add(&references[device], 1);
	if (atomic_exchange(&primary[device], *context) != *context) {
		hb_shim_count(HB_COUNT_contexts, 1);
		hb_drain_add_context(*context, device);
		hb_takeover_add_context(*context, device);
	}
	return result;
}

static CUcontext begin_release(CUdevice device)
{
	CUcontext context = has_place(device) ? atomic_load(&primary[device]) : NULL;
	note_leaves(context);
	return context;
}

/* Before a release: whether the context stays, because the program has more references to it. */
static bool drop_reference(CUdevice device)
{
	if (!has_place(device))
		return false;
	int before = atomic_fetch_sub(&references[device], 1);
	if (before <= 0) /* a release too many */
		atomic_fetch_add(&references[device], 1);
	return before > 1;
}

/* After a release with which the driver only lowered its count. */
static CUresult end_drop(CUdevice device, CUresult result)
{
	if (result != CUDA_SUCCESS)
		atomic_fetch_add(&references[device], 1);
	return result;
}

/*
 * A reset ends the context, whatever the number of references. Each later release counts as the last one, which asks the
 * driver whether the context still exists.
 */
static void forget_references(CUdevice device)
{
	if (has_place(device))
		atomic_store(&references[device], 0);
}

static bool has_primary(CUdevice device)
{
	unsigned flags;
	int active = 1;
	return HB_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || active;
}

static CUresult end_release(CUcontext context, CUdevice device, CUresult result)
{
	if (!context)
		return result;
	if (!has_primary(device)) {
		atomic_store(&primary[device], NULL);
		note_gone(context);
	} else {
		note_stays(context);
	}
	return result;
}

#define END_PRIMARY(name) \
	({ \
		CUcontext context = begin_release(device); \
		end_release(context, device, HB_WIDE(HB_REAL(name)(device))); \
	})
#define RELEASE(name) \
	CUresult hb_hook_##name(CUdevice device) \
	{ \
		return HB_HELD(drop_reference(device) ? end_drop(device, HB_REAL(name)(device)) : END_PRIMARY(name)); \
	}
#define RESET(name) \
	CUresult hb_hook_##name(CUdevice device) \
	{ \
		return HB_HELD((forget_references(device), END_PRIMARY(name))); \
	}

RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
RESET(cuDevicePrimaryCtxReset)
RESET(cuDevicePrimaryCtxReset_v2)

/* ---- green contexts ---- */

/*
 * A green context shares memory and code of the primary context of its device, and has a reference to it. So the primary
 * context may end with it if the program has no references of its own.
 */
struct green_context {
	CUcontext context; /* under which the program uses it; NULL: unknown */
	CUdevice device;   /* -1: unknown */
};

static struct green_context find_green(CUgreenCtx handle)
{
	struct green_context green = {.device = -1};
	CUcontext popped;
	if (HB_REAL(cuCtxFromGreenCtx)(&green.context, handle) != CUDA_SUCCESS)
		return (struct green_context){.device = -1};
	if (HB_REAL(cuCtxPushCurrent_v2)(green.context) == CUDA_SUCCESS) {
		if (HB_REAL(cuCtxGetDevice)(&green.device) != CUDA_SUCCESS)
			green.device = -1;
		HB_REAL(cuCtxPopCurrent_v2)(&popped);
	}
	return green;
}

/* Its memory, and the marks of its kernels, stay as long as the primary context. */
static void note_green_gone(const struct green_context *green)
{
	uint64_t owner = (uint64_t)(uintptr_t)green->context;
	note_work_gone(green->context);
	if (!has_primary(green->device)) {
		hb_kernel_marks_forget_context(green->context);
		hb_memory_drop_context(owner);
		return;
	}
	CUcontext next = has_place(green->device) ? atomic_load(&primary[green->device]) : NULL;
	if (next)
		hb_memory_table_give_owned(owner, (uint64_t)(uintptr_t)next);
}

static CUresult destroy_green(CUgreenCtx handle)
{
	struct green_context green = find_green(handle);
	bool is_last = has_place(green.device) && atomic_load(&references[green.device]) == 0;
	CUcontext ends = is_last ? begin_release(green.device) : NULL;
	hb_tenant_gpu_forget();
	if (green.context)
		note_work_leaves(green.context);
	CUresult result = HB_WIDE(HB_REAL(cuGreenCtxDestroy)(handle));
	if (green.context && result == CUDA_SUCCESS)
		note_green_gone(&green);
	else if (green.context)
		note_stays(green.context);
	return end_release(ends, green.device, result);
}

CUresult hb_hook_cuGreenCtxDestroy(CUgreenCtx context)
{
	return HB_HELD(destroy_green(context));
}
