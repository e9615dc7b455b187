/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contexts with which this process can take the GPU over (takeover_slots.h).
 * hook_context.c reports when a context is created or destroyed. The takeover
 * thread prepares each context: streams, a control word that the GPU sees, and
 * the takeover kernel, loaded and launched once. While the lock is held no call
 * is made that waits for the application's work.
 */
#include "shim/takeover_slots.h"

#include "base/log.h"
#include "decide/defaults.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_foresight.h"

#include <string.h>
#include <sys/mman.h>

/* ---- contexts ---- */

static void take_slot(struct takeover_slot *slot, CUcontext context, CUdevice device)
{
	slot->device = device;
	memset(slot->own_streams, 0, sizeof(slot->own_streams));
	memset(slot->over, 0, sizeof(slot->over));
	slot->work_done = NULL;
	slot->kept_last = TAKE;
	slot->module = NULL;
	slot->kernel = NULL;
	slot->address = 0;
	slot->state = SLOT_NEW;
	atomic_store_explicit(&slot->age, atomic_fetch_add(&hb_takeover_next_age, 1) + 1, memory_order_relaxed);
	atomic_store_explicit(&slot->context, context, memory_order_relaxed);
}

static void leave_slot(struct takeover_slot *slot)
{
	atomic_store_explicit(&slot->context, NULL, memory_order_relaxed);
	slot->state = SLOT_FREE;
}

void hb_takeover_add_context(CUcontext context, CUdevice device)
{
	struct takeover_slot *place = NULL;
	pthread_mutex_lock(&hb_takeover_lock);
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS; i++) {
		if (hb_takeover_slots[i].state != SLOT_FREE && hb_takeover_slots[i].context == context)
			place = NULL, i = HB_TAKEOVER_CONTEXTS;
		else if (hb_takeover_slots[i].state == SLOT_FREE && !place)
			place = &hb_takeover_slots[i];
	}
	if (place)
		take_slot(place, context, device);
	pthread_mutex_unlock(&hb_takeover_lock);
	hb_takeover_thread_call(0); /* the thread prepares the context */
}

/* With the context current. Whatever cannot be freed here is freed with the context. */
static void tear_down(struct takeover_slot *slot, unsigned index)
{
	for (unsigned i = 0; i < 2; i++)
		if (slot->own_streams[i])
			HB_REAL(cuStreamDestroy_v2)(slot->own_streams[i]);
	for (enum takeover_kind kind = TAKE; kind < N_TAKEOVER_KINDS; kind++)
		if (slot->over[kind])
			HB_REAL(cuEventDestroy_v2)(slot->over[kind]);
	if (slot->work_done)
		HB_REAL(cuEventDestroy_v2)(slot->work_done);
	if (slot->module)
		HB_REAL(cuModuleUnload)(slot->module);
	if (slot->address)
		HB_REAL(cuMemHostUnregister)((void *)hb_takeover_page_of(index));
}

/* Withdraws a context from use. Returns its slot if the caller has to tear it down; no other thread uses that slot. */
static struct takeover_slot *withdraw_slot(CUcontext context)
{
	struct takeover_slot *leaving = NULL;
	pthread_mutex_lock(&hb_takeover_lock);
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS; i++) {
		struct takeover_slot *slot = &hb_takeover_slots[i];
		if (slot->state == SLOT_FREE || slot->state == SLOT_LEAVING || slot->context != context)
			continue;
		if (slot->state == SLOT_READY) {
			slot->state = SLOT_LEAVING;
			leaving = slot;
		} else {
			leave_slot(slot);
		}
	}
	pthread_mutex_unlock(&hb_takeover_lock);
	return leaving;
}

/* The driver is called without the lock, because unloading our kernel may wait for the application's work. */
void hb_takeover_forget_context(CUcontext context)
{
	CUcontext popped;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* another thread may capture */
	hb_takeover_release();
	struct takeover_slot *slot = withdraw_slot(context);
	if (slot) {
		hb_takeover_release(); /* a takeover may have begun meanwhile; from now on none begins in this context */
		if (HB_REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
			HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
			tear_down(slot, (unsigned)(slot - hb_takeover_slots));
			HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
			HB_REAL(cuCtxPopCurrent_v2)(&popped);
		}
		pthread_mutex_lock(&hb_takeover_lock);
		leave_slot(slot);
		pthread_mutex_unlock(&hb_takeover_lock);
	}
	hb_shim_foresight_idle(); /* work that was launched in this context no longer exists */
}

/* ---- preparing contexts, on the takeover thread ---- */

bool hb_takeover_fail(enum hb_takeover_fault fault, CUresult result)
{
	hb_takeover_set_fault(fault);
	hb_log_warning("foresight is off in this process: taking the GPU over failed: %s (CUDA error %d)",
		       hb_takeover_fault_text(fault), (int)result);
	return false;
}

CUresult hb_takeover_launch(const struct takeover_slot *slot, enum takeover_kind kind, CUstream stream,
			    int64_t limit_ns)
{
	struct hb_takeover_params params = {.word = slot->address + hb_takeover_offset_of(kind),
					    .limit_ns = (uint64_t)limit_ns,
					    .linger_ns = HB_DEFAULT_TAKEOVER_LINGER_NS};
	void *arguments[] = {&params.word, &params.limit_ns, &params.linger_ns};
	return HB_REAL(cuLaunchKernel)(slot->kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static CUresult load_kernel(struct takeover_slot *slot)
{
	CUresult result = HB_REAL(cuModuleLoadData)(&slot->module, hb_takeover_ptx);
	slot->lingers = result == CUDA_SUCCESS;
	if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) /* the simulated driver cannot load PTX */
		result = HB_REAL(cuModuleLoadData)(&slot->module, hb_takeover_simulated);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuModuleGetFunction)(&slot->kernel, slot->module, HB_TAKEOVER_KERNEL_NAME);
	/* Asks for the largest shared memory on the kernel's SM, so that a block with 200 KiB fits beside it. Failure does not matter. */
	if (result == CUDA_SUCCESS)
		HB_REAL(cuFuncSetAttribute)(slot->kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
	return result;
}

static CUresult map_word(struct takeover_slot *slot, unsigned index)
{
	void *page = (void *)hb_takeover_page_of(index);
	CUresult result = HB_REAL(cuMemHostRegister_v2)(page, PAGE_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMemHostGetDevicePointer_v2)(&slot->address, page, 0);
	return result;
}

static CUresult make_streams(struct takeover_slot *slot)
{
	int least = 0, greatest = 0;
	HB_REAL(cuCtxGetStreamPriorityRange)(&least, &greatest);
	CUresult result = HB_REAL(cuEventCreate)(&slot->work_done, CU_EVENT_DISABLE_TIMING);
	for (unsigned i = 0; i < 2 && result == CUDA_SUCCESS; i++)
		result = HB_REAL(cuStreamCreateWithPriority)(&slot->own_streams[i], CU_STREAM_NON_BLOCKING, greatest);
	for (enum takeover_kind kind = TAKE; kind < N_TAKEOVER_KINDS && result == CUDA_SUCCESS; kind++)
		result = HB_REAL(cuEventCreate)(&slot->over[kind], CU_EVENT_DISABLE_TIMING);
	return result;
}

/*
 * Launches the kernel once, because the driver may load kernels lazily. Its word and its limit end it at once. The legacy
 * stream is used, because an own stream may slow the process's graphs (decide/takeover_steps.h). The thread does not wait
 * for it: other work may be on that stream.
 */
static CUresult try_once(struct takeover_slot *slot, unsigned index)
{
	atomic_store(&hb_takeover_page_of(index)->word, HB_TAKEOVER_END);
	CUresult result = hb_takeover_launch(slot, TAKE, CU_STREAM_LEGACY, 0);
	return result == CUDA_SUCCESS ? HB_REAL(cuEventRecord)(slot->over[TAKE], CU_STREAM_LEGACY) : result;
}

/* With the lock held and the context current. */
static bool set_up(struct takeover_slot *slot, unsigned index)
{
	CUresult result = make_streams(slot);
	if (result != CUDA_SUCCESS)
		return hb_takeover_fail(HB_TAKEOVER_NO_STREAM, result);
	result = map_word(slot, index);
	if (result != CUDA_SUCCESS)
		return hb_takeover_fail(HB_TAKEOVER_NO_MEMORY, result);
	result = load_kernel(slot);
	if (result != CUDA_SUCCESS)
		return hb_takeover_fail(HB_TAKEOVER_NO_IMAGE, result);
	result = try_once(slot, index);
	if (result != CUDA_SUCCESS)
		return hb_takeover_fail(HB_TAKEOVER_NO_LAUNCH, result);
	slot->state = SLOT_READY;
	return true;
}

static bool make_pages(void)
{
	if (atomic_load(&hb_takeover_pages))
		return true;
	char *made = mmap(NULL, (size_t)HB_TAKEOVER_CONTEXTS * PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return hb_takeover_fail(HB_TAKEOVER_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
	atomic_store_explicit(&hb_takeover_pages, made, memory_order_release);
	return true;
}

void hb_takeover_enter_thread(void)
{
	/* In this mode our calls are legal during a capture by another thread and do not invalidate it. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

/* Not during a stream capture: drivers differ in the calls that are legal beside one. */
static bool can_prepare(void)
{
	return !hb_takeover_stopped && atomic_load(&hb_captures) == 0;
}

bool hb_takeover_prepare(void)
{
	bool all = true;
	if (hb_takeover_has_fault() || !make_pages())
		return true;
	pthread_mutex_lock(&hb_takeover_lock);
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS; i++) {
		if (hb_takeover_slots[i].state != SLOT_NEW)
			continue;
		if (can_prepare() && HB_REAL(cuCtxSetCurrent)(hb_takeover_slots[i].context) == CUDA_SUCCESS)
			set_up(&hb_takeover_slots[i], i);
		HB_REAL(cuCtxSetCurrent)(NULL); /* the application may destroy any context that is not current */
		all &= hb_takeover_slots[i].state != SLOT_NEW;
	}
	pthread_mutex_unlock(&hb_takeover_lock);
	return all;
}
