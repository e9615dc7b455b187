/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the slots of stubs.S on first use: decides for a name whether calls to
 * it go through a hook or straight to the driver, and finds the driver's
 * function. Called from the thunks of stubs.S on the application's threads; no
 * lock, and nothing here may be needed again once a slot is filled.
 */
#include "shim/shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The words of hooks.def. */
enum {
	FREE = HB_DUTY_FREE,
	WAIT = HB_DUTY_WAIT,
	TEND = HB_DUTY_TEND,
	MOVE = HB_DUTY_MOVE,
	WIDE = HB_DUTY_WIDE,
	DOUBT = HB_DUTY_DOUBT,
	ENDS = HB_DUTY_ENDS,
	SIGN = HB_DUTY_SIGN,
	MASK = HB_DUTY_MASK,
	KEEP = HB_DUTY_KEEP,
	READ = HB_DUTY_READ,
};

const struct hb_hook hb_hooks[HB_N_FNS] = {
#define HB_FORWARD(name, counter_, duty_, stream_, size_) \
	[HB_FN_##name] = {.target = (void *)hb_forward_##name, \
			  .counter = HB_COUNT_##counter_, \
			  .duty = (duty_), \
			  .stream = stream_, \
			  .size = size_},
#define HB_HOOK(name) [HB_FN_##name] = {.target = (void *)hb_hook_##name},
#include "shim/hooks.def"
#undef HB_FORWARD
#undef HB_HOOK
};

static const char *const names[HB_N_FNS] = {
#define X(name) #name,
#include "nvidia/exports.def"
#undef X
};

const char *hb_fn_name(unsigned fn)
{
	return names[fn];
}

bool hb_shim_off(void)
{
	static _Atomic(int) answer; /* 0 = not asked yet, 1 = on, 2 = off */
	int known = atomic_load_explicit(&answer, memory_order_relaxed);
	if (!known) {
		const char *value = getenv("HB_OFF");
		known = value && strcmp(value, "1") == 0 ? 2 : 1;
		atomic_store_explicit(&answer, known, memory_order_relaxed);
	}
	return known == 2;
}

/* What a caller gets where the driver itself, or this name in it, is missing. */
static CUresult answer_no_driver(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

static CUresult answer_no_such_function(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

void *hb_bind_lookup(unsigned fn)
{
	void *library = hb_real_library();
	return library ? dlsym(library, names[fn]) : NULL;
}

void *hb_bind_real(unsigned fn)
{
	void *target = hb_bind_lookup(fn);
	if (!target)
		target = hb_real_library() ? (void *)answer_no_such_function : (void *)answer_no_driver;
	atomic_store_explicit(&hb_shim_real[fn], target, memory_order_release);
	return target;
}

void *hb_bind_entry(unsigned fn)
{
	void *target = hb_hooks[fn].target;
	if (!target || hb_shim_off())
		target = hb_bind_real(fn);
	atomic_store_explicit(&hb_shim_entry[fn], target, memory_order_release);
	return target;
}
