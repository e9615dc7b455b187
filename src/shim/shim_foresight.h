/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The foresight of this process: gathers the signs that it is about to use the
 * GPU, asks decide/foresight.h what to do, and gets it done by the thread of
 * takeover_thread.c. Only where the process is an HP tenant; elsewhere each of
 * these calls is one relaxed load.
 *
 * The lock is only ever tried, never waited for, on the application's threads:
 * signs may come out of signal handlers.
 */
#ifndef HB_SHIM_FORESEE_H
#define HB_SHIM_FORESEE_H

#include "decide/foresight.h"
#include "nvidia/cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether signs are of any use in this process now. */
extern atomic_bool hb_shim_foresight_wanted;

/* Identities of signs: the application's own calls, memory of any form, driver calls by number; bytes are hashes, far above. */
enum { HB_SOURCE_BEGIN = 1, HB_SOURCE_HINT = 2, HB_SOURCE_ALLOCATION = 3, HB_SOURCE_CALLS = 1000 };

/* A sign; as in hb_foresight_sign(). */
void hb_shim_foresight_sign(enum hb_sign kind, uint64_t source, uint32_t who, int64_t expected_ns);
/* A call into the driver that is a sign where it is the first after idle. */
void hb_shim_foresight_first_call(uint64_t source);
/* The first launch after idle (HB_ALERT_FIRST), before it goes to the driver. */
void hb_shim_foresight_launch(void);
/* The calling thread is about to wait for a stream or, where it is not NULL, for an event: may arrange that the GPU stays. */
void hb_shim_foresight_wait(CUstream stream, CUevent event);
/* A synchronize has returned and nothing was launched during it. */
void hb_shim_foresight_idle(void);
/* ... or it has failed, or something was. */
void hb_shim_foresight_wait_ends(void);

/* The application tells its requests; one at a time a thread. deadline_ns is absolute, 0 = the tenant's objective. */
void hb_shim_foresight_request_begin(int64_t deadline_ns);
void hb_shim_foresight_request_end(void);

/* In calls that are slow anyway: whether this process needs foresight now, and the thread if it does. */
void hb_shim_foresight_tend(void);
void hb_shim_foresight_leave_in_child(void);

/* ---- the thread ---- */

struct hb_shim_foresight_plan {
	int64_t hold_since_ns; /* tells one hold from the next */
	int64_t hold_until_ns; /* 0 = nothing is to be held */
	int64_t next_ns;       /* come back then */
};
struct hb_shim_foresight_plan hb_shim_foresight_step(int64_t now_ns);

/* takeover_thread.c */
bool hb_takeover_thread_start(void);
/* A hold of the plan is due now: launches it on the calling thread, if that can be done. */
void hb_takeover_thread_save_waking(const struct hb_shim_foresight_plan *plan);
/* The hold of the plan has begun by itself: the GPU was kept. */
void hb_takeover_thread_note_kept(const struct hb_shim_foresight_plan *plan);
/* The plan has changed and wants the thread at `at_ns` at the latest. Safe in signal handlers. */
void hb_takeover_thread_call(int64_t at_ns);
void hb_takeover_thread_leave_in_child(void);

#endif
