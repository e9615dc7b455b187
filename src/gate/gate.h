/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side of a decision: one gate a process, in memory shared by the
 * tenant (shim or simulator) and whoever owns the core. The tenant asks before
 * each launch; on GO there is no lock, no allocation and no system call: one
 * atomic addition and two loads. How to wait after WAIT (futex on the bell, a
 * simulated thread) is the caller's business.
 *
 * Who writes what
 *	word, admitted                 the owner only (one thread)
 *	submitted, completed, asked    the tenant's threads, by atomic addition
 *	waiters                        the tenant's threads, by atomic addition
 *	bell                           both, by atomic addition; its value has no meaning
 *
 * Why closing is exact: a launch is counted in `submitted` before the word is
 * read (for the second time), and the word is written before `submitted` is
 * read, both sequentially consistent. So either the tenant sees the gate closed
 * and takes its count back, or the owner sees the launch in flight.
 * hb_gate_drained() therefore never says yes while a launch that was told GO is
 * on its way. It may say no for a moment because of a count that is about to be
 * taken back, which happens only around a change of the word.
 *
 * All-zero memory is an open gate without an owner: fail open.
 */
#ifndef HB_GATE_GATE_H
#define HB_GATE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hb_gate_state { HB_GATE_OPEN, HB_GATE_CLOSED, HB_GATE_PER_LAUNCH };

/* Launches in flight that a depth can bound; more is the same as unbounded (0). */
#define HB_GATE_DEPTH_MAX ((1u << 30) - 1)

struct hb_gate {
	/* Bits 0..31 epoch (counts changes), 32..61 depth, 62..63 state. */
	_Alignas(64) _Atomic uint64_t word;
	_Atomic uint64_t submitted; /* launches told GO, or not gated at all */
	_Atomic uint64_t completed; /* of those: finished or given up */
	_Atomic uint64_t asked;     /* tickets given out while per_launch */
	_Atomic uint64_t admitted;  /* tickets below this may go */
	uint64_t reserved;          /* 0 */
	_Atomic uint32_t waiters;   /* threads inside a wait */
	_Atomic uint32_t bell;      /* futex word: changes when waiting may be over */
};
_Static_assert(sizeof(struct hb_gate) == 64, "a gate is one cache line");

enum hb_gate_answer {
	HB_GATE_GO,   /* submit, then hb_gate_completed() later */
	HB_GATE_WAIT, /* closed, or as many in flight as the depth allows */
	HB_GATE_ASK,  /* per launch: take a ticket, report it, wait for it */
};

/* --- tenant side --- */

/* May one more launch go? GO counts it in flight. The depth is exact: concurrent callers never pass it. */
enum hb_gate_answer hb_gate_try(struct hb_gate *gate);
/* After ASK: a ticket, the launch's id in its `launch` event. Ascending from 0. */
uint64_t hb_gate_ask(struct hb_gate *gate);
/* Like hb_gate_try() for a ticket: GO also once it was admitted. WAIT where try would say ASK. */
enum hb_gate_answer hb_gate_try_ticket(struct hb_gate *gate, uint64_t ticket);
/* Counts work that is submitted without asking (calls that must not wait). */
void hb_gate_bypass(struct hb_gate *gate, uint64_t launches);
/* `launches` finished, or were not submitted after all. True: somebody waits, ring and wake. */
bool hb_gate_completed(struct hb_gate *gate, uint64_t launches);
/*
 * Waiting without lost wake-ups:
 *	seen = hb_gate_wait_begin(gate);
 *	while ((answer = hb_gate_try(gate)) == HB_GATE_WAIT && somebody is there to open it)
 *		sleep until gate->bell != seen (with a time-out), seen = bell;
 *	hb_gate_wait_end(gate);
 */
uint32_t hb_gate_wait_begin(struct hb_gate *gate);
void hb_gate_wait_end(struct hb_gate *gate);
/* Changes the bell. Waking sleepers is the caller's. */
void hb_gate_ring(struct hb_gate *gate);

/* --- owner side --- */

/* Open, unbounded, nothing in flight. Only while no tenant uses it. */
void hb_gate_init(struct hb_gate *gate);
/* Carries out a `gate` action and rings. True: somebody waits, wake them. */
bool hb_gate_set(struct hb_gate *gate, enum hb_gate_state state, uint32_t depth);
/* Carries out an `admit` action: tickets up to and including this one may go. Result as above. */
bool hb_gate_admit(struct hb_gate *gate, uint64_t ticket);

/* --- either side --- */

uint64_t hb_gate_in_flight(const struct hb_gate *gate);
/* Closed, and nothing in flight. */
bool hb_gate_drained(const struct hb_gate *gate);
enum hb_gate_state hb_gate_state(const struct hb_gate *gate);
uint32_t hb_gate_depth(const struct hb_gate *gate);

#endif
