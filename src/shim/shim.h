/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the shim share. docs/shim.md says how a call
 * travels.
 *
 * Every exported name has a number (enum hb_fn), an entry slot (the target of its
 * exported stub) and a real slot (the driver's function). Slots start at small
 * thunks of stubs.S that find the target on first use (bind.c) and store it, so
 * later calls take one indirect jump and no lock. Two threads may bind the same
 * slot at the same time; both store the same value.
 */
#ifndef HB_SHIM_SHIM_H
#define HB_SHIM_SHIM_H

#include "hummingbird/page.h"
#include "nvidia/cuda_abi.h"
#include "shim/cuda_calls.h"
#include "shim/duties.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hb_fn {
#define X(name) HB_FN_##name,
#include "nvidia/exports.def"
#undef X
	HB_N_FNS
};

/* One row of hooks.def. */
struct hb_hook {
	void *target;    /* stored into the entry slot; NULL: no hook, the slot gets the driver's function */
	uint8_t counter; /* enum hb_page_counter, or HB_COUNT_none */
	uint16_t duty;   /* set of enum hb_duty */
	int8_t stream;   /* index of the stream argument, HB_NO_STREAM or HB_STREAM_IN_CONFIG */
	int8_t size;     /* index of the byte-count argument, or a rule below */
};
enum { HB_COUNT_none = UINT8_MAX };
enum { HB_NO_STREAM = -1, HB_STREAM_IN_CONFIG = -2 };
enum { HB_SIZE_NONE = -1, HB_SIZE_RECT = -2, HB_SIZE_BOX = -3, HB_SIZE_BOX_PEER = -4, HB_SIZE_LIST = -5 };

/* bind.c */
extern const struct hb_hook hb_hooks[HB_N_FNS];
const char *hb_fn_name(unsigned fn);
/* Returns the driver's function, or NULL if the driver is missing or lacks the name. */
void *hb_bind_lookup(unsigned fn);
/* True with HB_OFF=1: every call goes to the driver directly. */
bool hb_shim_off(void);
/* Called by the thunks of stubs.S on first use. Both store and return the address to jump to. */
void *hb_bind_entry(unsigned fn);
void *hb_bind_real(unsigned fn);

/* stubs.S */
extern _Atomic(void *) hb_shim_entry[HB_N_FNS];
extern _Atomic(void *) hb_shim_real[HB_N_FNS];
#define HB_REAL(name) ((__typeof__(&name))atomic_load_explicit(&hb_shim_real[HB_FN_##name], memory_order_acquire))

/* Where a forwarded call continues, and the function to call with its result. `after` NULL: the thunk jumps to `target`. */
struct hb_way {
	void *target;
	void (*after)(CUresult result);
};
/* Returns the n-th argument as a word, from the registers and stack that stubs.S saved. */
static inline uint64_t hb_argument(const uint64_t *args, int n)
{
#if defined(__x86_64__)
	return args[n < 6 ? n : n + 2]; /* the saved frame pointer and return address lie between */
#else
	return args[n];
#endif
}
/* forward.c: called by the forwarding thunks of stubs.S with the caller's arguments. */
struct hb_way hb_shim_forward(unsigned fn, const uint64_t *args);

/* real_library.c: returns the handle of the driver's libcuda, opened on first use; NULL if there is none. */
void *hb_real_library(void);

/* resolve.c: returns the hook for this function of the driver, or the address itself. Counts unknown functions. */
void *hb_resolve_address(const char *symbol, void *address);

/* hook_capture.c: number of streams of this process that capture now; 0: no call needs to ask about its stream. */
extern atomic_int hb_captures;
/* Whether work on this stream is captured into a graph instead of run. Legal at any time. */
bool hb_stream_captures(CUstream stream);
/* Before and after a call that may end a stream or context, and with it the captures on it. */
void hb_capture_stream_leaves(CUstream stream);
void hb_capture_stream_left(CUstream stream, bool is_gone);
void hb_capture_context_leaves(CUcontext context);
void hb_capture_context_left(CUcontext context, bool is_gone);
void hb_capture_leave_in_child(void);

/* The hooks of hooks.def: hand-written ones and the forwarding thunks of stubs.S. */
#define HB_FORWARD(name, counter, duty, stream, size) void hb_forward_##name(void);
#define HB_HOOK(name) __typeof__(name) hb_hook_##name;
#include "shim/hooks.def"
#undef HB_FORWARD
#undef HB_HOOK

#endif
