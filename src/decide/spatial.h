/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slack: what HP tells LP in the spatial engine, so that LP can decide launch by
 * launch without asking anybody. One beacon a HP process, one cache line each,
 * on a page that all tenants of a GPU map (the board). Three users, one code:
 *
 *	HP's side   spatial_high.h   raises and lowers its beacon, learns the time that is left
 *	LP's side   spatial_low.h    reads the board at each launch, decides: go, wait, mask or split
 *	the policy  policy_spatial.c sets the terms: how much delay LP may cause at all
 *
 * Used by the shim, the simulator and tests; no clock, no allocation, no CUDA.
 * A board of zeros has no HP: LP runs freely (fail open). What stands in a
 * beacon is untrusted: wrong values change what LP may do, never more.
 *
 * Why a present beacon is seen in time: HP stores `word` before its first
 * launch; LP reads it before each of its own. A LP launch that read the word a
 * moment earlier is one of those in flight that the window bounds.
 */
#ifndef HB_CORE_SLACK_H
#define HB_CORE_SLACK_H

#include "decide/defaults.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HB_SPATIAL_BEACONS 16
#define HB_SPATIAL_PPM 1000000
/*
 * In `reserve`, above the SMs: how far LP may go between requests where one that begins then may meet more than it allows.
 * 0 = masked as beside them; else on all SMs, with twice as much in flight from one to the next (spatial_low.h: open_ns).
 */
#define HB_SPATIAL_GAPS_SHIFT 28
#define HB_SPATIAL_GAPS_MOST 3
#define HB_SPATIAL_RESERVE_MASK ((UINT32_C(1) << HB_SPATIAL_GAPS_SHIFT) - 1)

/*
 * Writers: `owner` by compare-and-swap from 0 (the process that claims it) and
 * by the daemon, which frees the beacons of the dead; `terms_ppm` the daemon
 * (what policy_slack asks for); all else the process that owns it. Everything is
 * stored relaxed but `word`, which is released after the fields that belong to
 * the request.
 */
struct hb_spatial_beacon {
	_Atomic uint32_t owner;     /* pid; 0 = free */
	_Atomic uint32_t word;      /* requests begun and ended so far: odd = one is being served */
	_Atomic int64_t seen_ns;    /* the owner's last sign of life within the request */
	_Atomic int64_t end_ns;     /* when the request would end alone from here on; 0 = not known */
	_Atomic int64_t latest_ns;  /* its deadline; INT64_MAX = none */
	_Atomic int64_t expect_ns;  /* a request is expected to begin before this; 0 = not known to be */
	_Atomic uint32_t allow_ns;  /* delay LP may cause within this request, then the next; 0 = none: LP waits */
	_Atomic uint32_t reserve;   /* SMs that LP leaves free while a request is there or expected, and gaps (above) */
	_Atomic uint32_t gap_ns;    /* mean time from a request's end to the next one's begin; 0 = not known */
	_Atomic uint32_t outcome;   /* requests whose excess is known; changes with excess_ns */
	_Atomic int32_t excess_ns;  /* of the last such: spatial_high.h */
	_Atomic uint32_t terms_ppm; /* delay LP may cause, of the time alone; 0 = plain gating */
};
_Static_assert(sizeof(struct hb_spatial_beacon) == 64, "a beacon is one cache line");

struct hb_spatial_board {
	struct hb_spatial_beacon beacons[HB_SPATIAL_BEACONS];
};
_Static_assert(sizeof(struct hb_spatial_board) == 1024, "fits the GPU page");

/* What LP sees, all HP processes together. */
struct hb_spatial_view {
	uint32_t tenants;   /* HP processes */
	bool present;       /* a request is being served */
	bool expected;      /* none is, but one will be soon */
	uint32_t reserve;   /* SMs to leave free, the most any asks for; also while absent */
	uint32_t gaps;      /* HB_SPATIAL_GAPS_SHIFT, the least that any grants */
	uint32_t gap_ns;    /* the shortest; 0 = not known */
	uint32_t epoch;     /* changes when a request of any of them begins or ends */
	uint32_t outcome;   /* sum over them: changes when another excess is known */
	int32_t excess_ns;  /* of the last */
	int64_t allow_ns;   /* the least, and no more than a part of the slack that is left */
	uint32_t entry_ns;  /* the least that the next request allows; 0 = nothing; UINT32_MAX = no HP process */
	bool granted;       /* LP may run beside: all terms are above zero and no window is closed; also while absent */
	int64_t look_at_ns; /* while LP waits: look again by then, also without a change */
};

/* A free beacon, now `owner`'s, absent and with plain gating; NULL = all are taken (HP goes unseen: say so). */
struct hb_spatial_beacon *hb_spatial_claim(struct hb_spatial_board *board, uint32_t owner);
/* The owner leaves, or has died: the beacon is free and absent. */
void hb_spatial_leave(struct hb_spatial_beacon *beacon);
/* About 1 ns a beacon in use; free ones at the end are not read beyond their `owner`. */
void hb_spatial_look(const struct hb_spatial_board *board, int64_t now_ns, struct hb_spatial_view *view);
/* The cheap part of it, for a loop that waits: whether a request is being served by a process that lives. */
bool hb_spatial_present(const struct hb_spatial_board *board, int64_t now_ns);

#endif
