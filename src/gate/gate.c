/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate's word and counters; gate.h has the rules. The shim and the simulator link
 * the same code: no lock, no allocation, no system call, no log.
 *
 * Atomics are sequentially consistent where the proof in gate.h needs that. On x86-64
 * and arm64 an addition costs the same as with a weaker order.
 */
#include "gate/gate.h"

#include <string.h>

#define STATE_SHIFT 62
#define DEPTH_SHIFT 32

static uint64_t pack_word(enum hb_gate_state state, uint32_t depth, uint32_t epoch)
{
	return (uint64_t)state << STATE_SHIFT | (uint64_t)depth << DEPTH_SHIFT | epoch;
}

static enum hb_gate_state word_state(uint64_t word)
{
	return (enum hb_gate_state)(word >> STATE_SHIFT);
}

static uint32_t word_depth(uint64_t word)
{
	return (uint32_t)(word >> DEPTH_SHIFT) & HB_GATE_DEPTH_MAX;
}

/*
 * Counts one more launch unless `depth` launches are in flight. A thread that finds
 * no room counts nothing: a count for a moment could turn away another thread, and
 * both would wait for a completion with nothing in flight. So after a refusal there
 * is always a completion to come. The depth is exact: `completed` only grows, so at the
 * exchange there were at most as many launches in flight as were found.
 */
static bool count_launch(struct hb_gate *gate, uint32_t depth)
{
	if (!depth) {
		atomic_fetch_add(&gate->submitted, 1);
		return true;
	}
	uint64_t submitted = atomic_load(&gate->submitted);
	do {
		/* Signed, because launches that were counted and finished since may make it negative. */
		if ((int64_t)(submitted - atomic_load(&gate->completed)) >= (int64_t)depth)
			return false;
	} while (!atomic_compare_exchange_weak(&gate->submitted, &submitted, submitted + 1));
	return true;
}

/*
 * Reads the word before counting, so that a refusal mostly counts nothing, and again
 * after it, which the proof in gate.h needs. If the word has changed in between, the
 * count is taken back. That count may have turned away a thread that sleeps now. This
 * thread asks again, and its own completion wakes the other one; or it is turned away
 * by a third thread whose completion will.
 */
enum hb_gate_answer hb_gate_try(struct hb_gate *gate)
{
	uint64_t word = atomic_load(&gate->word);
	for (;;) {
		if (word_state(word) == HB_GATE_CLOSED || !count_launch(gate, word_depth(word)))
			return HB_GATE_WAIT;
		uint64_t after = atomic_load(&gate->word);
		if (__builtin_expect(after == word, 1))
			return HB_GATE_GO;
		atomic_fetch_sub(&gate->submitted, 1);
		word = after;
	}
}

void hb_gate_bypass(struct hb_gate *gate, uint64_t launches)
{
	atomic_fetch_add(&gate->submitted, launches);
}

bool hb_gate_completed(struct hb_gate *gate, uint64_t launches)
{
	atomic_fetch_add(&gate->completed, launches);
	return atomic_load(&gate->waiters) != 0;
}

uint32_t hb_gate_wait_begin(struct hb_gate *gate)
{
	atomic_fetch_add(&gate->waiters, 1);
	return atomic_load(&gate->wake_word);
}

void hb_gate_wait_end(struct hb_gate *gate)
{
	atomic_fetch_sub(&gate->waiters, 1);
}

void hb_gate_change_wake_word(struct hb_gate *gate)
{
	atomic_fetch_add(&gate->wake_word, 1);
}

void hb_gate_init(struct hb_gate *gate)
{
	atomic_store(&gate->word, pack_word(HB_GATE_OPEN, 0, 0));
	atomic_store(&gate->submitted, 0);
	atomic_store(&gate->completed, 0);
	memset(gate->reserved, 0, sizeof gate->reserved);
	atomic_store(&gate->waiters, 0);
	atomic_store(&gate->wake_word, 0);
}

bool hb_gate_set(struct hb_gate *gate, enum hb_gate_state state, uint32_t depth)
{
	uint64_t old = atomic_load_explicit(&gate->word, memory_order_relaxed);

	if (depth > HB_GATE_DEPTH_MAX)
		depth = 0;
	atomic_store(&gate->word, pack_word(state, depth, (uint32_t)old + 1));
	hb_gate_change_wake_word(gate);
	return atomic_load(&gate->waiters) != 0;
}

uint64_t hb_gate_in_flight(const struct hb_gate *gate)
{
	/* `completed` is read first: in the other order a launch could count as finished and not yet as begun. */
	uint64_t completed = atomic_load(&gate->completed);
	return atomic_load(&gate->submitted) - completed;
}

bool hb_gate_drained(const struct hb_gate *gate)
{
	return hb_gate_state(gate) == HB_GATE_CLOSED && hb_gate_in_flight(gate) == 0;
}

enum hb_gate_state hb_gate_state(const struct hb_gate *gate)
{
	return word_state(atomic_load(&gate->word));
}

uint32_t hb_gate_depth(const struct hb_gate *gate)
{
	return word_depth(atomic_load(&gate->word));
}
