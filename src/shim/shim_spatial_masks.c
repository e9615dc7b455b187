/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which SM masks LP launches can have (nvidia/launch_mask.h). Which mask bits stand
 * for real hardware differs from GPU to GPU, so a trial runs once in each process on
 * each GPU, in the context that is current then. The page has one state for the
 * process: the worst of its GPUs, because one GPU without masks is enough to delay HP.
 */
#include "nvidia/gpc_find.h"
#include "nvidia/launch_mask.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"

_Static_assert(HB_MASK_GPUS >= HB_PAGE_GPUS, "masks know the page's numbers of GPUs");

static struct {
	atomic_bool judged;      /* the trial has an outcome that a second trial would confirm */
	_Atomic(uint32_t) state; /* enum hb_mask_state of the last trial */
	/* enum hb_gpc_state last read from the GPU page, and what came of it; guarded by the lock of shim_spatial_rows.h. */
	uint32_t chosen, layout;
} masks[HB_PAGE_GPUS];

bool hb_shim_spatial_masks_are_judged(unsigned gpu)
{
	return atomic_load_explicit(&masks[gpu].judged, memory_order_relaxed);
}

static void set_state(unsigned gpu, uint32_t state, bool judged)
{
	uint32_t worst = HB_MASK_UNTRIED;
	atomic_store(&masks[gpu].state, state);
	for (unsigned i = 0; i < HB_PAGE_GPUS; i++)
		if (atomic_load(&masks[i].state) > worst)
			worst = atomic_load(&masks[i].state);
	atomic_store_explicit(&hb_place()->process->mask_state, worst, memory_order_relaxed);
	atomic_store(&masks[gpu].judged, judged);
}

void hb_shim_spatial_find_masks(unsigned gpu)
{
	const struct hb_gpu_page *page = hb_place()->gpus[gpu];
	uint32_t refused = page ? atomic_load_explicit(&page->masks_refused, memory_order_relaxed) : 0;
	if (refused) {
		set_state(gpu, refused, refused != HB_MASK_PENDING);
		return;
	}
	static const struct hb_mask_calls *calls;
	static struct hb_mask_calls found;
	if (!calls) {
#define X(name) found.name = HB_REAL(name);
		HB_MASK_CALLS(X)
#undef X
		calls = &found;
	}
	enum hb_mask_state state = hb_mask_probe(calls, gpu);
	set_state(gpu, (uint32_t)state, state != HB_MASK_UNCLEAR && state != HB_MASK_CALL_FAILED);
}

uint32_t hb_shim_spatial_masked_sms(unsigned gpu)
{
	return gpu < HB_PAGE_GPUS ? hb_mask_sms(gpu) : 0;
}

void hb_shim_spatial_choose_masks(unsigned gpu, const struct hb_gpu_page *page)
{
	uint32_t wanted = HB_GPC_UNTRIED, worst = HB_GPC_UNTRIED;
	if (!hb_shim_spatial_masked_sms(gpu))
		return;
	if (atomic_load_explicit(&page->masks_whole, memory_order_relaxed))
		wanted = atomic_load_explicit(&page->gpc_state, memory_order_acquire);
	if (wanted == masks[gpu].chosen)
		return;
	masks[gpu].chosen = wanted;
	if (wanted == HB_GPC_KNOWN && !hb_mask_use_gpcs(gpu, page->gpc_of))
		wanted = HB_GPC_OTHER_BITS;
	if (wanted != HB_GPC_KNOWN)
		hb_mask_use_gpcs(gpu, NULL);
	masks[gpu].layout = wanted;
	for (unsigned i = 0; i < HB_PAGE_GPUS; i++)
		if (masks[i].layout > worst)
			worst = masks[i].layout;
	atomic_store_explicit(&hb_place()->process->gpc_state, worst, memory_order_relaxed);
}

void hb_shim_spatial_masks_leave_in_child(void)
{
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++) {
		atomic_store(&masks[gpu].judged, false);
		atomic_store(&masks[gpu].state, HB_MASK_UNTRIED);
		masks[gpu].chosen = masks[gpu].layout = HB_GPC_UNTRIED;
		hb_mask_use_gpcs(gpu, NULL);
	}
}
