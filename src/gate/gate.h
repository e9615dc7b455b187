/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate of one process: one cache line in memory that the tenant (shim or
 * simulator) shares with the owner of the core. The tenant asks before each launch.
 * If the answer is GO, there was no lock, no allocation and no system call: one
 * atomic addition and two loads. How to wait after WAIT (futex on the doorbell, a
 * simulated thread) is up to the caller.
 *
 * Writers
 *	word                  the owner only (one thread)
 *	submitted, completed  the tenant's threads, by atomic addition
 *	waiters               the tenant's threads, by atomic addition
 *	wake_word             both, by atomic addition; its value has no meaning
 *
 * Why closing is exact: a launch is counted in `submitted` before the word is read
 * (for the second time), and the word is written before `submitted` is read, both
 * sequentially consistent. So either the tenant sees the closed gate and takes its
 * count back, or the owner sees the launch in flight. hb_gate_drained() is therefore
 * never true while a launch with the answer GO is on its way. It may be false for a
 * moment because of a count that is about to be taken back, which happens only around
 * a change of the word.
 *
 * Memory of zeros is an open gate without an owner (fail open).
 */
#ifndef HB_GATE_GATE_H
#define HB_GATE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum hb_gate_state { HB_GATE_OPEN, HB_GATE_CLOSED };

/* Largest depth; a larger one counts as unbounded (0). */
#define HB_GATE_DEPTH_MAX ((1u << 30) - 1)

struct hb_gate {
	/* Bits 0..31 epoch (counts changes), 32..61 depth, 62..63 state. */
	_Alignas(64) _Atomic uint64_t word;
	_Atomic uint64_t submitted; /* launches that got GO, or did not ask */
	_Atomic uint64_t completed; /* launches of those that finished or were not submitted after all */
	uint64_t reserved[3];       /* 0 */
	_Atomic uint32_t waiters;   /* threads between wait_begin and wait_end */
	_Atomic uint32_t wake_word; /* futex word: changes when a wait may be over */
};
_Static_assert(sizeof(struct hb_gate) == 64, "a gate is one cache line");

enum hb_gate_answer {
	HB_GATE_GO,   /* submit, then hb_gate_completed() later */
	HB_GATE_WAIT, /* closed, or as many in flight as the depth allows */
};

/* --- tenant side --- */

/* May one more launch go? GO counts the launch in flight. Concurrent callers never exceed the depth. */
enum hb_gate_answer hb_gate_try(struct hb_gate *gate);
/* Counts work that is submitted without asking (calls that must not wait). */
void hb_gate_bypass(struct hb_gate *gate, uint64_t launches);
/* `launches` finished, or were not submitted after all. True: a thread waits, so ring and wake it. */
bool hb_gate_completed(struct hb_gate *gate, uint64_t launches);
/*
 * Waiting without lost wake-ups:
 *	seen = hb_gate_wait_begin(gate);
 *	while ((answer = hb_gate_try(gate)) == HB_GATE_WAIT && the gate has an owner)
 *		sleep until gate->wake_word != seen (with a time-out), seen = wake_word;
 *	hb_gate_wait_end(gate);
 */
uint32_t hb_gate_wait_begin(struct hb_gate *gate);
void hb_gate_wait_end(struct hb_gate *gate);
/* Changes the wake word. The caller wakes the sleeping threads. */
void hb_gate_change_wake_word(struct hb_gate *gate);

/* --- owner side --- */

/* Makes the gate open and unbounded, with nothing in flight. Only while no tenant uses the gate. */
void hb_gate_init(struct hb_gate *gate);
/* Carries out a `gate` action and rings. True: threads wait, so wake them. */
bool hb_gate_set(struct hb_gate *gate, enum hb_gate_state state, uint32_t depth);
/* --- either side --- */

uint64_t hb_gate_in_flight(const struct hb_gate *gate);
/* The gate is closed and nothing is in flight. */
bool hb_gate_drained(const struct hb_gate *gate);
enum hb_gate_state hb_gate_state(const struct hb_gate *gate);
uint32_t hb_gate_depth(const struct hb_gate *gate);

#endif
