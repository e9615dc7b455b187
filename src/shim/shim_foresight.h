/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foresight in an HP process: collects the signs that the process will use the
 * GPU soon, asks decide/process_foresight.h when to take the GPU over, and passes
 * the plan on to the takeover thread (takeover_thread.c). In any other process
 * each of these calls is one relaxed load.
 *
 * The application's threads only try to take the lock and never wait for it,
 * because a sign may be reported from a signal handler.
 */
#ifndef HB_SHIM_FORESIGHT_H
#define HB_SHIM_FORESIGHT_H

#include "decide/takeover_steps.h"
#include "nvidia/cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* True in HP processes whose GPU has an engine with takeovers. */
extern atomic_bool hb_shim_foresight_wanted;
/* True in HP processes of the spatial engine, which takes nothing over: foresight announces the next request to LP there. */
extern atomic_bool hb_shim_foresight_announces;

/*
 * Sources of signs: calls of the client API, allocations, and driver calls by
 * their number. The sources of bytes are hashes, which are far above these.
 */
enum { HB_SOURCE_BEGIN = 1, HB_SOURCE_HINT = 2, HB_SOURCE_ALLOCATION = 3, HB_SOURCE_CALLS = 1000 };

/* Reports a sign; arguments as in hb_foresight_sign(). */
void hb_shim_foresight_sign(enum hb_sign kind, uint64_t source, uint32_t who, int64_t expected_ns);
/* Reports a driver call, which is a sign if the process has been idle until now. */
void hb_shim_foresight_first_call(uint64_t source);
/* Reports the first launch after idle (HB_ALERT_FIRST), before it goes to the driver. */
void hb_shim_foresight_launch(void);
/*
 * The calling thread is about to wait for `event`, or for `stream` if event is NULL. Arranges to keep the GPU if that pays.
 * `reads`: it copies results to the host, which waits if the memory is not pinned. A synchronize follows, and finds the
 * GPU kept already.
 */
void hb_shim_foresight_wait(CUstream stream, CUevent event, bool reads);
/* The copy has returned. */
void hb_shim_foresight_read_ends(void);
/* A synchronize has returned, and nothing was launched during it. */
void hb_shim_foresight_idle(void);
/* A synchronize has failed, or something was launched during it. */
void hb_shim_foresight_wait_ends(void);

/* The application reports its own requests, one at a time per thread. deadline_ns is absolute; 0 = the tenant's SLO. */
void hb_shim_foresight_request_begin(int64_t deadline_ns);
void hb_shim_foresight_request_end(void);

/* Starts or stops foresight as the tenant's pages require. Takes long: called from calls that are slow anyway. */
void hb_shim_foresight_refresh(void);
/* Forgets the parent's state in a forked child. */
void hb_shim_foresight_leave_in_child(void);

/* Lets time pass and returns the plan; called by the takeover thread only. */
struct hb_takeover_plan hb_shim_foresight_step(int64_t now_ns);

/* ---- takeover_thread.c ---- */

bool hb_takeover_thread_start(void);
/* Carries out a takeover that is due now on the calling thread, if possible. The takeover thread would need 40 us to wake. */
void hb_takeover_thread_save_waking(const struct hb_takeover_plan *plan);
/* The plan's takeover began without a launch, because the GPU was kept after the work before. */
void hb_takeover_thread_note_kept(const struct hb_takeover_plan *plan);
/* Makes the takeover thread run at `at_ns` or earlier. Safe in signal handlers. */
void hb_takeover_thread_call(int64_t at_ns);
void hb_takeover_thread_leave_in_child(void);

#endif
