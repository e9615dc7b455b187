/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the slots of stubs.S on first use: decides whether calls of a function
 * go through a hook or directly to the driver, and finds the driver's function.
 * Called by the thunks of stubs.S on the application's threads, without a lock.
 * Once a slot is filled, calls through it never come here again.
 */
#include "shim/shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Short names for the duty column of hooks.def. */
enum {
	FREE = HB_DUTY_FREE,
	GATE = HB_DUTY_GATE,
	REFRESH = HB_DUTY_REFRESH,
	CONTEXT = HB_DUTY_CONTEXT,
	WIDE = HB_DUTY_WIDE,
	DOUBT = HB_DUTY_DOUBT,
	IDLE = HB_DUTY_IDLE,
	SIGN = HB_DUTY_SIGN,
	GRAPH = HB_DUTY_GRAPH,
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
	static _Atomic(int) state; /* 0 = environment not read yet, 1 = on, 2 = off */
	int known = atomic_load_explicit(&state, memory_order_relaxed);
	if (!known) {
		const char *value = getenv("HB_OFF");
		known = value && strcmp(value, "1") == 0 ? 2 : 1;
		atomic_store_explicit(&state, known, memory_order_relaxed);
	}
	return known == 2;
}

/* These two run in place of a function if the driver, or this function of it, is missing. */
static CUresult return_no_driver(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

static CUresult return_no_such_function(void)
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
		target = hb_real_library() ? (void *)return_no_such_function : (void *)return_no_driver;
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
