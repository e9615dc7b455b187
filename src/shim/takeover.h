/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: two tiny kernels on this process's context that keep the GPU for it
 * until its real work is there, so that the context switch is over by then.
 * When to hold is shim_foresight.c's decision; this is how.
 *
 * Two promises. A hold never delays the process's own work by more than 2 us:
 * it is one thread on one SM, on a stream of its own that nothing waits for,
 * beside which the real work runs, and it is let go before every call that may
 * wait for the whole context (`wide` below), when what needs a whole SM has been
 * launched, and when the work is done. Behind other launches it lingers for a
 * moment: a gap of 6 us before the next, or a copy that the launch waits for,
 * would cost two switches. And it never outlasts its limit, whatever happens to this process. Anything that fails switches holds off for
 * the process, with the reason on the page.
 *
 * hb_shim_alert is the one word that a launch looks at, relaxed: 0 on the
 * common path. Whoever releases takes the HELD bits out of it in one step, so a
 * hold is released once, by one thread.
 */
#ifndef HB_SHIM_HOLD_H
#define HB_SHIM_HOLD_H

#include "nvidia/cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { HB_TAKEOVER_CONTEXTS = 8 };

enum hb_alert {
	HB_ALERT_TAKEN = (1 << HB_TAKEOVER_CONTEXTS) - 1, /* one bit a context for which the GPU was taken */
	HB_ALERT_KEPT =
		HB_ALERT_TAKEN << HB_TAKEOVER_CONTEXTS, /* ... and is, or will be, kept from the end of its work on */
	HB_ALERT_HELD = HB_ALERT_TAKEN | HB_ALERT_KEPT,
	HB_ALERT_WINDOW = 1 << 29, /* launches are the spatial engine's business (shim_spatial.h) */
	HB_ALERT_FIRST = 1 << 30,  /* the next launch is the first after idle */
	HB_ALERT_SLICE = 1 << 28,  /* launches may go in pieces (split.h) */
	HB_ALERT_TRACE = 1 << 27,  /* launches are noted (launch_trace.h) */
};
extern _Atomic(uint32_t) hb_shim_alert;

/* Why holds are off; shown by `hb status`. */
enum hb_takeover_fault {
#define HB_TAKEOVER_FAULT(name, text) HB_TAKEOVER_##name,
#include "hummingbird/takeover_faults.def"
#undef HB_TAKEOVER_FAULT
	HB_N_HOLD_FAULTS
};

/* ---- any thread of the application ---- */

/* Contexts as they come and go. Forget before the driver destroys. */
void hb_takeover_add_context(CUcontext context, CUdevice device);
void hb_takeover_forget_context(CUcontext context);

/* Lets go what is held; true if something was. Safe in signal handlers. */
bool hb_takeover_release(void);
/* A launch begins, or has returned: what is held ends soon by itself, unless another one comes before. */
void hb_takeover_note_launch(int64_t now_ns);
/* The calling thread's context is in use: of several on one GPU it is the one to hold. */
void hb_takeover_note_use(void);
/* Whether the GPU has come to a hold, and not only been told. */
bool hb_takeover_is_there(void);
/* Around a call that may wait for everything in the context: nothing is held before it ends. Nest freely. */
void hb_takeover_begin_wide(void);
void hb_takeover_end_wide(void);
/* Around a call that should not wait for holds but might: hb_takeover_end_doubt() with what begin gave. */
int64_t hb_takeover_begin_doubt(void);
void hb_takeover_end_doubt(int64_t since_ns);

/* The same for hooks written by hand. */
#define HB_WIDE(call) \
	({ \
		hb_takeover_begin_wide(); \
		CUresult result_ = (call); \
		hb_takeover_end_wide(); \
		result_; \
	})
#define HB_DOUBT(call) \
	({ \
		int64_t since_ns_ = hb_takeover_begin_doubt(); \
		CUresult result_ = (call); \
		hb_takeover_end_doubt(since_ns_); \
		result_; \
	})

/*
 * Holds on a thread of the application, which must not be inside the driver: a
 * thread that has to be woken needs 40 us, now and then 500. Takes about 15 us.
 */
enum hb_takeover_tried { HB_TAKEOVER_NOT_HERE, HB_TAKEOVER_FIRED };
enum hb_takeover_tried hb_takeover_try_fire(void);

/*
 * The calling thread is about to wait for `stream` (or `event`): holds in a
 * stream of their own that begin when that is done, so that the GPU stays, and
 * end keep_ns later by themselves. The work before does not notice. Takes about
 * 8 us; false: the work is done already, or it cannot be arranged now.
 */
bool hb_takeover_keep(CUstream stream, CUevent event, int64_t keep_ns);
/* The wait is over: true if the GPU is kept still. */
bool hb_takeover_keep_begins(void);

/* ---- the thread of takeover_thread.c ---- */

/* Once, before anything else of it. */
void hb_takeover_enter_thread(void);
/* Loads what contexts need that came since. False: come back for one that cannot be prepared now. */
bool hb_takeover_prepare(void);
/* Holds the GPUs in use. False: not now (nothing is ready, or a wide call is under way). */
bool hb_takeover_fire(void);
/* Nothing keeps what is held but that the process goes on launching. */
bool hb_takeover_is_lingering(int64_t now_ns);
/* A call has been in doubt for too long while something is held. */
bool hb_takeover_is_doubtful(int64_t now_ns);
/* Lets go what is held now, and leaves alone what waits for the end of work. */
void hb_takeover_release_now(void);
/* Whether something is held now. */
bool hb_takeover_is_held(void);

/* ---- */

/* No hold from now on: the process ends. */
void hb_takeover_stop(void);
void hb_takeover_leave_in_child(void);

#endif
