/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takeovers: two tiny kernels in a context of this process keep the GPU for the
 * process until its real work arrives, so that the context switch is over by
 * then. shim_foresight.c decides when to take over; this file does it.
 *
 * Two promises:
 *  - A takeover delays the process's own work by at most 2 us. A takeover kernel
 *    is one thread on one SM in a stream that the work does not wait for; real work
 *    runs beside it. It is released before every call that may wait for the entire
 *    context (`wide` below) or for its stream (hb_takeover_meet), after a launch that
 *    needs a whole SM, and when the work is done. After other launches it lingers
 *    (decide/takeover_steps.h). Exception: a call on the legacy stream can wait once
 *    for the work behind which kernels that keep the GPU are queued (hb_takeover_meet).
 *  - A takeover never outlasts its limit, whatever happens to this process. If
 *    anything fails, takeovers are switched off for the process, and the reason is
 *    written to the tenant page.
 *
 * A release takes the TAKEN and KEPT bits out of hb_shim_alert (duties.h) in one
 * atomic step, so each takeover is released once, by one thread.
 */
#ifndef HB_SHIM_TAKEOVER_H
#define HB_SHIM_TAKEOVER_H

#include "decide/takeover_steps.h"
#include "nvidia/cuda_abi.h"
#include "shim/duties.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Why takeovers are off; shown by `hb status`. */
enum hb_takeover_fault {
#define HB_TAKEOVER_FAULT(name, text) HB_TAKEOVER_##name,
#include "hummingbird/takeover_faults.def"
#undef HB_TAKEOVER_FAULT
	HB_N_TAKEOVER_FAULTS
};

/* ---- any thread of the application ---- */

/* A context was created; a context is about to be destroyed. */
void hb_takeover_add_context(CUcontext context, CUdevice device);
void hb_takeover_forget_context(CUcontext context);

/* Releases all takeovers; true if there was one. Safe in signal handlers. */
bool hb_takeover_release(void);
/* A launch begins, or has returned: the takeover lingers from now on. */
void hb_takeover_note_launch(int64_t now_ns);
/* The first launch of a request goes to this stream (NULL: the legacy stream, or the launch names none). */
void hb_takeover_note_stream(CUstream stream, int64_t now_ns);
/* Whether a takeover is on the legacy stream, so that calls have to report their stream: */
bool hb_takeover_is_on_legacy(void);
/* Before a call on this stream, during a takeover: releases it if the call would wait for it. */
void hb_takeover_meet(CUstream stream);
/* Before a stream is destroyed. */
void hb_takeover_forget_stream(CUstream stream);
/* Before a capture begins, after it was counted: waits until no takeover is being launched. */
void hb_takeover_yield_to_capture(void);
/* The calling thread's context is in use: takeovers of its GPU use this context from now on. */
void hb_takeover_note_use(void);
/* Whether takeover kernels run on the GPU now, and are not only queued. */
bool hb_takeover_is_there(void);
/* Around a call that may wait for everything in the context: there is no takeover until it ends. May be nested. */
void hb_takeover_begin_wide(void);
void hb_takeover_end_wide(void);
/* Around a call that should not wait for takeover kernels but might. Pass the result of begin to end. */
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
 * Takes the GPU over on a thread of the application, which must not be inside the
 * driver. Takes about 15 us; the takeover thread needs 40 us to wake, sometimes 500.
 */
enum hb_takeover_tried { HB_TAKEOVER_NOT_HERE, HB_TAKEOVER_FIRED };
enum hb_takeover_tried hb_takeover_try_fire(void);

/*
 * The calling thread is about to wait for `stream` (or `event`). Queues takeover
 * kernels behind that work, which keep the GPU for keep_ns after the work and then
 * end by themselves. `marked`: the kernels do not wait for what follows the mark of
 * hb_takeover_mark_work(), which are copies only. The work is not delayed. Takes
 * about 10 us. False: the work is done already, or the kernels cannot be queued now.
 */
bool hb_takeover_keep(CUstream stream, CUevent event, bool marked, int64_t keep_ns);
/* Marks the end of the work on this stream. False: not possible now. */
bool hb_takeover_mark_work(CUstream stream);
/* The wait is over. True if the GPU is still kept. */
bool hb_takeover_keep_begins(void);

/* ---- the takeover thread (takeover_thread.c) ---- */

/* Prepares the thread itself; called once, before any other function of this section. */
void hb_takeover_enter_thread(void);
/* Prepares new contexts. False: a context cannot be prepared now, so call again later. */
bool hb_takeover_prepare(void);
/* Takes over all GPUs in use. False: no context is ready, or a wide call runs. */
bool hb_takeover_fire(void);
/* The process launched a moment ago, so the takeover kernels still linger. */
bool hb_takeover_is_lingering(int64_t now_ns);
/* A call has been in doubt for too long during a takeover. */
bool hb_takeover_is_doubtful(int64_t now_ns);
/* Releases takeovers that are on the GPU, but not those that wait for the end of work. */
void hb_takeover_release_now(void);
/* Whether a takeover is on the GPU. */
bool hb_takeover_is_held(void);

/* ---- the end ---- */

/* The process exits: no takeover from now on. */
void hb_takeover_stop(void);
/* Forgets the parent's state in a forked child. */
void hb_takeover_leave_in_child(void);

#endif
