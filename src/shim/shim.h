/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the shim know of each other. docs/shim.md tells how a call
 * travels.
 *
 * Every exported name has a number (enum hb_fn), an entry slot (where its
 * exported stub jumps to) and a real slot (the driver's function). Slots start
 * at small thunks of stubs.S that find the target on first use (bind.c) and
 * store it, so later calls take one indirect jump and no lock. Two threads may
 * bind the same slot at once; both store the same value.
 */
#ifndef HB_SHIM_SHIM_H
#define HB_SHIM_SHIM_H

#include "hummingbird/page.h"
#include "nvidia/cuda_abi.h"
#include "shim/cuda_calls.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hb_fn {
#define X(name) HB_FN_##name,
#include "nvidia/exports.def"
#undef X
	HB_N_FNS
};

/* What happens to a forwarded call; the words of hooks.def. */
enum hb_duty {
	HB_DUTY_FREE = 0,
	HB_DUTY_WAIT = 1,   /* held while the gate is closed */
	HB_DUTY_TEND = 2,   /* a slow call: look after slices and the daemon first */
	HB_DUTY_MOVE = 4,   /* may change the current context of the thread */
	HB_DUTY_WIDE = 8,   /* may wait for everything in the context: nothing may be held meanwhile */
	HB_DUTY_DOUBT = 16, /* should not wait for holds, but let go what is held when it takes long */
	HB_DUTY_ENDS = 32,  /* when it has returned and nothing was launched meanwhile, the GPU is idle */
	HB_DUTY_SIGN = 64,  /* after idle: a sign that the first launch is near */
	HB_DUTY_MASK = 128, /* writes launch descriptors for later */
	HB_DUTY_KEEP = 256, /* waits for a stream or an event: the GPU may be kept beyond it */
	HB_DUTY_READ = 512, /* may wait for what was launched before it */
};

/* One row of hooks.def, as forward.c wants it. */
struct hb_hook {
	void *target;    /* where the entry slot leads; NULL: no hook, straight to the driver */
	uint8_t counter; /* enum hb_page_counter, or HB_COUNT_none */
	uint16_t duty;   /* enum hb_duty, several */
	int8_t stream;   /* number of the stream argument, or HB_NO_STREAM, HB_STREAM_IN_CONFIG */
	int8_t size;     /* number of the byte-count argument, or a rule below */
};
enum { HB_COUNT_none = UINT8_MAX };
enum { HB_NO_STREAM = -1, HB_STREAM_IN_CONFIG = -2 };
enum { HB_SIZE_NONE = -1, HB_SIZE_RECT = -2, HB_SIZE_BOX = -3, HB_SIZE_BOX_PEER = -4, HB_SIZE_LIST = -5 };

/* bind.c */
extern const struct hb_hook hb_hooks[HB_N_FNS];
const char *hb_fn_name(unsigned fn);
/* The driver's function of this number, or NULL when the driver (or the name in it) is missing. */
void *hb_bind_lookup(unsigned fn);
/* HB_OFF=1: every call goes straight to the driver. */
bool hb_shim_off(void);
/* Called by the thunks of stubs.S; both return where to jump. */
void *hb_bind_entry(unsigned fn);
void *hb_bind_real(unsigned fn);

/* stubs.S */
extern _Atomic(void *) hb_shim_entry[HB_N_FNS];
extern _Atomic(void *) hb_shim_real[HB_N_FNS];
#define HB_REAL(name) ((__typeof__(&name))atomic_load_explicit(&hb_shim_real[HB_FN_##name], memory_order_acquire))

/* Where a forwarded call goes on, and what is called with its result; `after` NULL: it jumps and never comes back. */
struct hb_way {
	void *target;
	void (*after)(CUresult result);
};
/* The n-th argument as a word, from what stubs.S saved. */
static inline uint64_t hb_argument(const uint64_t *args, int n)
{
#if defined(__x86_64__)
	return args[n < 6 ? n : n + 2]; /* between: the saved frame pointer and the return address */
#else
	return args[n];
#endif
}
/* forward.c: called by the forwarding thunks with the caller's arguments. */
struct hb_way hb_shim_forward(unsigned fn, const uint64_t *args);

/* real_library.c: the driver's own libcuda, opened on first use; NULL when there is none. */
void *hb_real_library(void);

/* resolve.c: the hook that stands for this address of the driver, or the address itself. Counts what it does not know. */
void *hb_resolve_address(const char *symbol, void *address);

/* hook_capture.c: streams of this process that record a graph now; 0 means that no call needs to ask. */
extern atomic_int hb_captures;
/* Whether work on this stream is recorded instead of run. Legal at any time. */
bool hb_stream_captures(CUstream stream);
/* Around a call that may end the stream or context, and with it what is recorded there. */
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
