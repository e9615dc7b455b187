/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the program's calls back while its memory moves (docs/decisions/0025-elastic-memory.md).
 *
 * Each thread has a flag "inside a driver call". A call sets its flag and reads one
 * word; if the word is set, the thread clears the flag and sleeps. The moving thread
 * sets the word, executes membarrier, and waits until all flags are clear. So a call
 * needs no atomic read-modify-write, and processes without HB_ALERT_ELASTIC do
 * nothing of this.
 *
 * Held are calls that give work to a GPU or destroy a context, and the begin of a
 * capture. Calls that only wait are not held, nor is captured work, because nothing
 * moves while a stream captures.
 */
#ifndef HB_SHIM_HOLD_H
#define HB_SHIM_HOLD_H

#include "shim/duties.h"

#include <stdbool.h>
#include <stdint.h>

/* Prepares the process: false if the kernel lacks membarrier; then nothing may be held. Sets HB_ALERT_ELASTIC. `wake`: see HB_HOLD_PARK. */
bool hb_hold_prepare(void (*wake)(void));

/* ---- any thread, around a held call ---- */

/* The answer of hb_hold_enter(). */
enum hb_hold_entry {
	HB_HOLD_PASSED, /* the thread has no flag; hb_hold_exit() must not be called */
	HB_HOLD_INSIDE,
	HB_HOLD_BROKEN, /* memory was lost in a move: the call must fail with CUDA_ERROR_ILLEGAL_STATE. No exit */
};

/* Out of line: with HB_ALERT_ELASTIC. Sleeps while calls are held back. */
enum hb_hold_entry hb_hold_enter_elastic(void);
void hb_hold_exit(void);

static inline enum hb_hold_entry hb_hold_enter(void)
{
	return __builtin_expect(hb_alert_read() & HB_ALERT_ELASTIC, 0) ? hb_hold_enter_elastic() : HB_HOLD_PASSED;
}

/* For hooks written by hand: makes a held call that uses no memory, and so does not fail when memory was lost. */
#define HB_HELD(call) \
	({ \
		enum hb_hold_entry entry_ = hb_hold_enter(); \
		CUresult held_ = (call); \
		if (entry_ == HB_HOLD_INSIDE) \
			hb_hold_exit(); \
		held_; \
	})

/* ---- the moving thread ---- */

/* Holds calls back and waits until no thread is inside one. False: at until_ns some thread still was; nothing is held. */
bool hb_hold_begin(int64_t until_ns);
/* What becomes of the calls after the move. */
enum hb_hold_after {
	HB_HOLD_CONTINUE,
	HB_HOLD_FAIL, /* they fail from now on */
	HB_HOLD_PARK, /* they wait, and the first one calls `wake` of hb_hold_prepare(), until hb_hold_end() is called again */
};
void hb_hold_end(enum hb_hold_after after);

/* In a forked child, which has no other threads. */
void hb_hold_leave_in_child(void);

#endif
