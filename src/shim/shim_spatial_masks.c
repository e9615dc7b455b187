/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which SM masks LP launches can have (nvidia/launch_mask.h). A trial runs once in
 * each process, on the GPU of the context that is current then. Which mask bits
 * stand for real hardware differs from GPU to GPU, so launches on the other GPUs
 * of the process get no masks.
 */
#include "nvidia/gpc_find.h"
#include "nvidia/launch_mask.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"

static atomic_bool judged; /* the trial has an outcome that a second trial would confirm */
static _Atomic(unsigned) masks_gpu = HB_PAGE_GPUS;
static uint32_t chosen; /* enum hb_gpc_state last read from the GPU page; guarded by the lock of shim_spatial_rows.h */

bool hb_shim_spatial_masks_are_judged(void)
{
	return atomic_load_explicit(&judged, memory_order_relaxed);
}

void hb_shim_spatial_find_masks(void)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = hb_tenant_gpu();
	const struct hb_gpu_page *page = gpu < HB_PAGE_GPUS ? place->gpus[gpu] : NULL;
	uint32_t refused = page ? atomic_load_explicit(&page->masks_refused, memory_order_relaxed) : 0;
	if (refused) {
		atomic_store_explicit(&place->process->mask_state, refused, memory_order_relaxed);
		atomic_store(&judged, refused != HB_MASK_PENDING);
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
	atomic_store(&masks_gpu, gpu);
	enum hb_mask_state state = hb_mask_probe(calls);
	atomic_store_explicit(&place->process->mask_state, (uint32_t)state, memory_order_relaxed);
	atomic_store(&judged, state != HB_MASK_UNCLEAR && state != HB_MASK_CALL_FAILED);
}

uint32_t hb_shim_spatial_masked_sms(unsigned gpu)
{
	return gpu < HB_PAGE_GPUS && gpu == atomic_load_explicit(&masks_gpu, memory_order_relaxed) ? hb_mask_sms() : 0;
}

void hb_shim_spatial_choose_masks(unsigned gpu, const struct hb_gpu_page *page)
{
	uint32_t wanted = HB_GPC_UNTRIED;
	if (!hb_shim_spatial_masked_sms(gpu))
		return;
	if (atomic_load_explicit(&page->masks_whole, memory_order_relaxed))
		wanted = atomic_load_explicit(&page->gpc_state, memory_order_acquire);
	if (wanted == chosen)
		return;
	chosen = wanted;
	if (wanted == HB_GPC_KNOWN && !hb_mask_use_gpcs(page->gpc_of))
		wanted = HB_GPC_OTHER_BITS;
	if (wanted != HB_GPC_KNOWN)
		hb_mask_use_gpcs(NULL);
	atomic_store_explicit(&hb_place()->process->gpc_state, wanted, memory_order_relaxed);
}

void hb_shim_spatial_masks_leave_in_child(void)
{
	atomic_store(&judged, false);
	atomic_store(&masks_gpu, HB_PAGE_GPUS);
	chosen = HB_GPC_UNTRIED;
	hb_mask_use_gpcs(NULL);
}
