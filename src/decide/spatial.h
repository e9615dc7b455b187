/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine: HP and LP run on the GPU at the same time. HP's process publishes
 * what LP may do, and LP's process decides about each launch without asking any other
 * process. They share the board, a page that all tenants of a GPU map, with one record
 * (beacon) of one cache line for each HP process. Three parts use it:
 *
 *	HP's side   spatial_high.h   writes its beacon; learns the time left of a request
 *	LP's side   spatial_low.h    reads the board at each launch; decides whether to
 *	                             launch, wait, mask or split
 *	the policy  policy_spatial.c sets the allowance: how much delay LP may cause
 *
 * Used by the shim, the simulator and tests; no clock, no allocation, no CUDA. A board of
 * zeros has no HP, so LP runs freely (fail open). The content of a beacon is not trusted:
 * a wrong value changes what LP may do, and has no other effect.
 *
 * Why LP sees a request in time: HP stores `word` before its first launch, and LP reads
 * it before each of its own. An LP launch that read the word a moment earlier belongs to
 * the work in flight, which the window bounds.
 */
#ifndef HB_DECIDE_SPATIAL_H
#define HB_DECIDE_SPATIAL_H

#include "decide/defaults.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_SPATIAL_BEACONS 16
#define HB_SPATIAL_PPM 1000000
/*
 * `reserve` has the number of SMs in its lower bits, and `gaps` above: how far LP may go
 * between requests if a request that begins then may be delayed by more than it allows.
 * 0 = masked as beside requests; else on all SMs, with twice as much in flight from each
 * step to the next (spatial_low.h: open_ns).
 *
 * Between them is what the next launches of the present request need, if that is less than
 * the reserve: a number of SMs (0 = not less), and for how long since `seen_ns`, in units of 16 us.
 */
#define HB_SPATIAL_GAPS_SHIFT 28
#define HB_SPATIAL_GAPS_MOST 3
#define HB_SPATIAL_RESERVE_MASK UINT32_C(0xfff)
#define HB_SPATIAL_NEXT_SHIFT 12
#define HB_SPATIAL_NEXT_MOST 0xff
#define HB_SPATIAL_NEXT_FOR_SHIFT 20
#define HB_SPATIAL_NEXT_UNIT_NS 16384
/* Value of `allow_ns`: LP may delay the tokens of this process without a limit, because their credit is open (token_credit.h). */
#define HB_SPATIAL_ALLOW_ALL UINT32_MAX

/*
 * Writers: `owner` is set by compare-and-swap from 0 by the process that claims the
 * beacon, and cleared by the daemon after that process has died. `allowance_ppm` is the
 * allowance of the policy, written by the daemon. All other fields belong to the owner.
 * Stores are relaxed, except that `word` is released after the fields of the request.
 */
struct hb_spatial_beacon {
	_Atomic uint32_t owner;    /* pid; 0 = free */
	_Atomic uint32_t word;     /* number of begins and ends so far: odd = a request is served */
	_Atomic int64_t seen_ns;   /* last activity of the owner within the request; after its end: the end */
	_Atomic int64_t end_ns;    /* predicted end of the request without LP from now on; 0 = not known */
	_Atomic int64_t latest_ns; /* deadline of the request; INT64_MAX = none */
	_Atomic int64_t expect_ns; /* a request is expected to begin before this time; 0 = none is expected */
	/* delay that LP may cause this request, or else the next one; 0 = LP waits; HB_SPATIAL_ALLOW_ALL */
	_Atomic uint32_t allow_ns;
	_Atomic uint32_t
		reserve; /* SMs that LP leaves free while a request is served or expected; gaps, next launches (above) */
	_Atomic uint32_t
		gap_ns; /* mean time between the end of a request and the begin of the next, without pauses; 0 = not known */
	_Atomic uint32_t outcome;       /* number of requests whose excess is known; changes with excess_ns */
	_Atomic int32_t excess_ns;      /* excess of the last of them (spatial_high.h) */
	_Atomic uint32_t expect_for_us; /* the expected request begins at most this long before expect_ns */
};
_Static_assert(sizeof(struct hb_spatial_beacon) == 64, "a beacon is one cache line");

struct hb_spatial_board {
	struct hb_spatial_beacon beacons[HB_SPATIAL_BEACONS];
};

/* The board as LP reads it, for all HP processes together. */
struct hb_spatial_view {
	uint32_t tenants; /* HP processes */
	bool present;     /* a request is served */
	bool expected;    /* no request is served, but one is expected now */
	bool idle;        /* no HP process has served a request for HB_DEFAULT_SILENT_NS */
	bool free;        /* there are HP processes that are not idle, and all of them allow LP any delay */
	uint32_t reserve; /* largest number of SMs to leave free; also without a request */
	uint32_t next;    /* SMs to leave free by launches that end before next_until_ns; never more than `reserve` */
	int64_t next_until_ns; /* 0 = there is no such time */
	uint32_t
		gaps; /* lowest step of all HP processes: how much LP may do between requests, 0 (masked, as beside a request) .. HB_SPATIAL_GAPS_MOST */
	uint32_t gap_ns;    /* shortest gap, or the time since the last request if HP pauses; 0 = not known */
	uint32_t epoch;     /* changes when a request begins or ends */
	uint32_t outcome;   /* changes when another excess is known */
	int32_t excess_ns;  /* excess of the last request */
	int64_t allow_ns;   /* least allowance, and at most a part of the slack left */
	int64_t expect_ns;  /* earliest time at which a request is expected to begin; INT64_MAX = none is */
	uint32_t entry_ns;  /* least allowance of a next request; UINT32_MAX = none is to come soon */
	bool granted;       /* all allowances are above 0, so LP may run beside HP; also without a request */
	int64_t look_at_ns; /* while LP waits: read the board again by then */
};

/* Claims a free beacon, without a request and with an allowance of 0. NULL = all are taken, and LP cannot see this process. */
struct hb_spatial_beacon *hb_spatial_claim(struct hb_spatial_board *board, uint32_t owner);
/* Reads the board: about 1 ns for each beacon in use. */
void hb_spatial_look(const struct hb_spatial_board *board, int64_t now_ns, struct hb_spatial_view *view);
/* The same for n beacons that are `stride` bytes apart. */
void hb_spatial_look_at(const void *beacons, size_t stride, uint32_t n, int64_t now_ns, struct hb_spatial_view *view);
/*
 * The view also covers an HP process whose beacon cannot be read yet: it counts as serving a request. LP launches behind the
 * default reserve, and what cannot be masked waits.
 */
void hb_spatial_view_add_unknown(struct hb_spatial_view *view, uint32_t sms);
/*
 * Whether LP must assume an HP process that it cannot see: the list of boards has changed (epoch `listed`) since LP mapped
 * those of epoch `known`, at most 2 s ago. `since` (0 at first, and after each mapping) holds when a thread first saw
 * this. Read `known` before `listed`. Many threads may call this at the same time.
 */
bool hb_spatial_assumes_unknown(_Atomic int64_t *since, uint32_t known, uint32_t listed, int64_t now_ns);
/* Whether there is an HP process, idle or not. */
bool hb_spatial_has_high(const void *beacons, size_t stride, uint32_t n);
/* Whether a request is served by a process that is active. Cheaper than hb_spatial_look(), for loops that wait. */
bool hb_spatial_present(const void *beacons, size_t stride, uint32_t n, int64_t now_ns);

#endif
