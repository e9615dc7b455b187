/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orion's rule between processes, for `hb bench` (low_rule: orion): HP's process
 * tells on the page of the GPU what kind of kernel it launched last and how long
 * a request takes alone; LP's asks decide/orion_rule.h for each launch beside a
 * request. See shim_spatial.h. Both know kernels as far as a closed library lets them
 * be known: the kind from the name, the size from grid and occupancy, the
 * duration from launches while HP was away (a kernel that was never measured
 * waits, as without a profile in Orion). What HP runs out of a graph has no kind.
 */
#include "shim/shim_orion.h"
#include "decide/kernel_class.h"
#include "decide/orion_rule.h"
#include "decide/spatial_high.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"

/* Kinds that were looked up; a collision only asks the driver again. */
#define KNOWN 1024
/* Function and kind in one word, so that threads cannot mix two up: addresses of programs have 47 bits. */
#define CLASS_SHIFT 56
static _Atomic uint64_t known[KNOWN];

/* LP time that went beside HP since HP was idle; under the lock of shim_spatial_rows.h. */
static int64_t used_ns[HB_PAGE_GPUS];

bool hb_orion_is_asked_for(const struct hb_gpu_page *page)
{
	return atomic_load_explicit(&page->low_rule, memory_order_relaxed) == HB_LOW_RULE_ORION;
}

static enum hb_class look_up(CUfunction function)
{
	const char *name = NULL;
	if (HB_REAL(cuFuncGetName)(&name, function) != CUDA_SUCCESS &&
	    HB_REAL(cuKernelGetName)(&name, (CUkernel)function) != CUDA_SUCCESS)
		return HB_CLASS_UNKNOWN;
	return name ? hb_kernel_class(name) : HB_CLASS_UNKNOWN;
}

static enum hb_class class_of(CUfunction function)
{
	uint64_t address = (uintptr_t)function;
	_Atomic uint64_t *entry = &known[(address >> 4) % KNOWN];
	if (!function)
		return HB_CLASS_UNKNOWN;
	uint64_t found = atomic_load_explicit(entry, memory_order_relaxed);
	if ((found & ((UINT64_C(1) << CLASS_SHIFT) - 1)) == address)
		return (enum hb_class)(found >> CLASS_SHIFT);
	enum hb_class class = look_up(function);
	atomic_store_explicit(entry, address | (uint64_t) class << CLASS_SHIFT, memory_order_relaxed);
	return class;
}

void hb_orion_high_begin(struct hb_gpu_page *page, const struct hb_spatial_high *high)
{
	int64_t alone_ns = high->alone_ns < HB_ORION_LEARNING ? high->alone_ns : HB_ORION_LEARNING - 1;
	atomic_store_explicit(&page->high_alone_ns, high->closed ? HB_ORION_LEARNING : (uint32_t)alone_ns,
			      memory_order_relaxed);
	atomic_store_explicit(&page->high_class, HB_CLASS_UNKNOWN, memory_order_relaxed);
}

void hb_orion_high_launch(struct hb_gpu_page *page, CUfunction function)
{
	atomic_store_explicit(&page->high_class, (uint32_t)class_of(function), memory_order_relaxed);
}

static uint32_t sms_of(const struct hb_spatial_kernel *kernel, uint32_t all)
{
	if (!kernel->blocks || !kernel->per_sm)
		return 0;
	uint64_t sms = (kernel->blocks + kernel->per_sm - 1) / kernel->per_sm;
	return sms < all ? (uint32_t)sms : all;
}

void hb_orion_ask(unsigned gpu, struct hb_gpu_page *page, const struct hb_spatial_low *low, CUfunction function,
		  const struct hb_spatial_view *view, struct hb_spatial_answer *answer)
{
	if (!view->present) {
		used_ns[gpu] = 0;
		return;
	}
	const struct hb_orion_launch launch = {.sms = sms_of(&low->kernels[answer->kernel], low->limits.sms),
					       .duration_ns = answer->known ? answer->ns : 0,
					       .class = class_of(function)};
	uint32_t alone_ns = atomic_load_explicit(&page->high_alone_ns, memory_order_relaxed);
	uint32_t class = atomic_load_explicit(&page->high_class, memory_order_relaxed);
	int64_t left_ns = alone_ns == HB_ORION_LEARNING ? 0 : hb_orion_budget_ns(alone_ns) - used_ns[gpu];
	if (hb_orion_fits(&launch, low->limits.sms / 2, left_ns, (enum hb_class) class)) {
		used_ns[gpu] += launch.duration_ns;
		return;
	}
	answer->verdict = HB_SPATIAL_WAIT;
	answer->for_high = true;
	answer->until_ns = view->look_at_ns;
}
