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

/* Takes the count back; waiting threads may then have room. */
static enum hb_gate_answer refuse(struct hb_gate *gate, enum hb_gate_answer answer)
{
	atomic_fetch_sub(&gate->submitted, 1);
	return answer;
}

/*
 * `submitted` before is the number of launches ahead of this one, so of
 * several threads that come at once only as many pass as the depth has room
 * for. A count about to be taken back may turn away a thread that had room;
 * it waits for the next bell, which the completion of those in flight rings.
 */
static enum hb_gate_answer claim(struct hb_gate *gate, bool admitted)
{
	uint64_t ahead = atomic_fetch_add(&gate->submitted, 1);
	uint64_t word = atomic_load(&gate->word);
	enum hb_gate_state state = word_state(word);

	if (state == HB_GATE_CLOSED)
		return refuse(gate, HB_GATE_WAIT);
	if (state == HB_GATE_PER_LAUNCH && !admitted)
		return refuse(gate, HB_GATE_ASK);
	uint32_t depth = word_depth(word);
	/* Signed: launches that came and finished since may make it negative. */
	int64_t in_flight = (int64_t)(ahead - atomic_load(&gate->completed));
	return depth && in_flight >= (int64_t)depth ? refuse(gate, HB_GATE_WAIT) : HB_GATE_GO;
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

bool hb_gate_cancel(struct hb_gate *gate)
{
	return hb_gate_completed(gate, 1);
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

bool hb_gate_stale(const struct hb_gate *gate, int64_t now_ns, int64_t limit_ns)
{
	int64_t beat_ns = atomic_load_explicit(&gate->heartbeat_ns, memory_order_relaxed);
	return !beat_ns || now_ns - beat_ns > limit_ns;
}

void hb_gate_init(struct hb_gate *gate)
{
	atomic_store(&gate->word, pack(HB_GATE_OPEN, 0, 0));
	atomic_store(&gate->submitted, 0);
	atomic_store(&gate->completed, 0);
	atomic_store(&gate->asked, 0);
	atomic_store(&gate->admitted, 0);
	atomic_store(&gate->heartbeat_ns, 0);
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

void hb_gate_beat(struct hb_gate *gate, int64_t now_ns)
{
	atomic_store_explicit(&gate->heartbeat_ns, now_ns, memory_order_relaxed);
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
