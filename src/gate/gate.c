/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate's word and counters; see gate.h for the rules. Linked into the shim
 * and the simulator unchanged: no lock, no allocation, no system call, no log.
 *
 * Default (sequentially consistent) atomics are used where the argument in
 * gate.h needs them; on x86-64 and arm64 they cost nothing over weaker ones for
 * an addition.
 */
#include "gate/gate.h"

#define STATE_SHIFT 62
#define DEPTH_SHIFT 32

static uint64_t pack(enum hb_gate_state state, uint32_t depth, uint32_t epoch)
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

static enum hb_gate_answer answer_of(uint64_t word, bool admitted)
{
	enum hb_gate_state state = word_state(word);
	if (state == HB_GATE_CLOSED)
		return HB_GATE_WAIT;
	return state == HB_GATE_PER_LAUNCH && !admitted ? HB_GATE_ASK : HB_GATE_GO;
}

/*
 * Counts one more launch unless `depth` are in flight. A thread that finds no
 * room leaves no trace: were it counted for a moment, it could turn away another
 * one, and both would wait for a completion with nothing in flight. So there
 * is one to come whenever this says no. Exact: `completed` only grows, so at the
 * exchange there were at most as many in flight as were found.
 */
static bool count_in(struct hb_gate *gate, uint32_t depth)
{
	if (!depth) {
		atomic_fetch_add(&gate->submitted, 1);
		return true;
	}
	uint64_t submitted = atomic_load(&gate->submitted);
	do {
		/* Signed: launches that came and finished since may make it negative. */
		if ((int64_t)(submitted - atomic_load(&gate->completed)) >= (int64_t)depth)
			return false;
	} while (!atomic_compare_exchange_weak(&gate->submitted, &submitted, submitted + 1));
	return true;
}

/*
 * The word is read before, so that a refusal mostly counts nothing, and again
 * after, which closing relies on. Where it has changed in between the count is
 * taken back. That may have turned away a thread that sleeps now; this one asks
 * again, and wakes the other when it is done, or is itself turned away by
 * somebody who will. (Not so in one case, which callers' time-outs cover: depth
 * and per_launch together, and this one has no ticket.)
 */
static enum hb_gate_answer claim(struct hb_gate *gate, bool admitted)
{
	uint64_t word = atomic_load(&gate->word);
	for (;;) {
		enum hb_gate_answer answer = answer_of(word, admitted);
		if (answer != HB_GATE_GO)
			return answer;
		if (!count_in(gate, word_depth(word)))
			return HB_GATE_WAIT;
		uint64_t after = atomic_load(&gate->word);
		if (__builtin_expect(after == word, 1))
			return HB_GATE_GO;
		atomic_fetch_sub(&gate->submitted, 1);
		word = after;
	}
}

enum hb_gate_answer hb_gate_try(struct hb_gate *gate)
{
	return claim(gate, false);
}

uint64_t hb_gate_ask(struct hb_gate *gate)
{
	return atomic_fetch_add(&gate->asked, 1);
}

enum hb_gate_answer hb_gate_try_ticket(struct hb_gate *gate, uint64_t ticket)
{
	enum hb_gate_answer answer = claim(gate, ticket < atomic_load(&gate->admitted));
	return answer == HB_GATE_ASK ? HB_GATE_WAIT : answer;
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
	return atomic_load(&gate->bell);
}

void hb_gate_wait_end(struct hb_gate *gate)
{
	atomic_fetch_sub(&gate->waiters, 1);
}

void hb_gate_ring(struct hb_gate *gate)
{
	atomic_fetch_add(&gate->bell, 1);
}

void hb_gate_init(struct hb_gate *gate)
{
	atomic_store(&gate->word, pack(HB_GATE_OPEN, 0, 0));
	atomic_store(&gate->submitted, 0);
	atomic_store(&gate->completed, 0);
	atomic_store(&gate->asked, 0);
	atomic_store(&gate->admitted, 0);
	gate->reserved = 0;
	atomic_store(&gate->waiters, 0);
	atomic_store(&gate->bell, 0);
}

bool hb_gate_set(struct hb_gate *gate, enum hb_gate_state state, uint32_t depth)
{
	uint64_t old = atomic_load_explicit(&gate->word, memory_order_relaxed);

	if (depth > HB_GATE_DEPTH_MAX)
		depth = 0;
	atomic_store(&gate->word, pack(state, depth, (uint32_t)old + 1));
	hb_gate_ring(gate);
	return atomic_load(&gate->waiters) != 0;
}

bool hb_gate_admit(struct hb_gate *gate, uint64_t ticket)
{
	if (ticket + 1 > atomic_load_explicit(&gate->admitted, memory_order_relaxed))
		atomic_store(&gate->admitted, ticket + 1);
	hb_gate_ring(gate);
	return atomic_load(&gate->waiters) != 0;
}

uint64_t hb_gate_in_flight(const struct hb_gate *gate)
{
	/* Completed first: the other order could count a launch as finished that was not yet counted as begun. */
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
