/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate with many orders of its steps. The test compiles gate.c with atomics that pass a
 * baton: one thread runs at a time, and after each step a random number chooses the next
 * thread. So an order that a real machine shows once in a million runs occurs at once, and
 * a state in which all threads sleep is noticed without a time-out. The same seed gives the
 * same orders.
 */
#include <stdatomic.h>

static void step(void);

#undef atomic_load
#undef atomic_store
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_compare_exchange_weak
#define atomic_load(object) (step(), atomic_load_explicit(object, memory_order_seq_cst))
#define atomic_store(object, value) (step(), atomic_store_explicit(object, value, memory_order_seq_cst))
#define atomic_fetch_add(object, n) (step(), atomic_fetch_add_explicit(object, n, memory_order_seq_cst))
#define atomic_fetch_sub(object, n) (step(), atomic_fetch_sub_explicit(object, n, memory_order_seq_cst))
#define atomic_compare_exchange_weak(object, expected, desired) \
	(step(), \
	 atomic_compare_exchange_weak_explicit(object, expected, desired, memory_order_seq_cst, memory_order_seq_cst))
#include "../../src/gate/gate.c"

#include "base/rng.h"
#include "unit.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#define TENANTS 3
#define PLAYERS (TENANTS + 1) /* and the owner */
#define LAUNCHES 6

struct player {
	pthread_t thread;
	sem_t baton;
	bool asleep, ended;
};

static struct player players[PLAYERS];
static __thread int self = -1;
static struct hb_rng rng;
static struct hb_gate gate;
static uint32_t depth;
static int inside, most;
static bool stuck;

static int runnable(int list[PLAYERS])
{
	int n = 0;
	for (int i = 0; i < PLAYERS; i++)
		if (!players[i].ended && !players[i].asleep)
			list[n++] = i;
	return n;
}

/* Passes the baton and returns when it is back. If all threads sleep, all are ended, and the test fails. */
static void pass_baton(void)
{
	int list[PLAYERS], n = runnable(list), me = self;
	if (n == 0) {
		for (int i = 0; i < PLAYERS; i++) {
			stuck |= !players[i].ended;
			players[i].asleep = false;
		}
		n = runnable(list);
	}
	int next = n ? list[hb_rng_below(&rng, (uint64_t)n)] : me;
	if (next == me)
		return;
	sem_post(&players[next].baton);
	if (!players[me].ended)
		sem_wait(&players[me].baton);
}

static void step(void)
{
	if (self >= 0 && hb_rng_below(&rng, 3) == 0)
		pass_baton();
}

static void wake_all(void)
{
	for (int i = 0; i < PLAYERS; i++)
		players[i].asleep = false;
}

/* Like a futex: compares and sleeps in one step. */
static void sleep_until_bell(uint32_t seen)
{
	if (gate.wake_word != seen)
		return;
	players[self].asleep = true;
	pass_baton();
}

/* gate.h: waiting without lost wake-ups. */
static void enter(void)
{
	if (hb_gate_try(&gate) == HB_GATE_GO)
		return;
	uint32_t seen = hb_gate_wait_begin(&gate);
	while (!stuck && hb_gate_try(&gate) != HB_GATE_GO) {
		sleep_until_bell(seen);
		seen = gate.wake_word;
	}
	hb_gate_wait_end(&gate);
}

static void launch(void)
{
	enter();
	if (++inside > most)
		most = inside;
	pass_baton();
	inside--;
	if (hb_gate_completed(&gate, 1)) {
		hb_gate_change_wake_word(&gate);
		wake_all();
	}
}

/* Closes and opens the gate, and leaves it open. */
static void own(void)
{
	for (int i = 0; i < LAUNCHES; i++) {
		hb_gate_set(&gate, HB_GATE_CLOSED, 0);
		for (int look = 0; look < 4; look++)
			if (hb_gate_drained(&gate))
				assert_int_equal(inside, 0);
		if (hb_gate_set(&gate, HB_GATE_OPEN, depth))
			wake_all();
	}
}

static void *play(void *argument)
{
	self = (int)(intptr_t)argument;
	sem_wait(&players[self].baton);
	if (self == TENANTS)
		own();
	for (int i = 0; self < TENANTS && i < LAUNCHES && !stuck; i++)
		launch();
	players[self].ended = true;
	pass_baton();
	return NULL;
}

static void play_round(uint64_t seed, bool with_owner)
{
	memset(players, 0, sizeof players);
	hb_rng_init(&rng, seed, 0);
	hb_gate_init(&gate);
	hb_gate_set(&gate, HB_GATE_OPEN, depth);
	inside = most = 0;
	for (int i = 0; i < PLAYERS; i++) {
		players[i].ended = i == TENANTS && !with_owner;
		sem_init(&players[i].baton, 0, 0);
	}
	for (int i = 0; i < PLAYERS; i++)
		if (!players[i].ended)
			assert_int_equal(pthread_create(&players[i].thread, NULL, play, (void *)(intptr_t)i), 0);
	sem_post(&players[0].baton);
	for (int i = 0; i < TENANTS + with_owner; i++)
		pthread_join(players[i].thread, NULL);
}

static void check_orders(bool with_owner)
{
	for (uint64_t seed = 1; seed <= 400; seed++) {
		depth = 1 + (uint32_t)(seed % 2);
		play_round(seed, with_owner);
		if (stuck)
			fail_msg("seed %llu: everybody sleeps, %llu in flight", (unsigned long long)seed,
				 (unsigned long long)hb_gate_in_flight(&gate));
		assert_true(most <= (int)depth);
		assert_int_equal(hb_gate_in_flight(&gate), 0);
	}
}

static void no_wake_up_is_lost_in_any_order(void **state)
{
	check_orders(false);
}

static void nor_while_the_gate_closes_and_opens(void **state)
{
	check_orders(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_wake_up_is_lost_in_any_order),
		cmocka_unit_test(nor_while_the_gate_closes_and_opens),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
