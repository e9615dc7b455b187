/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's promises (gate/gate.h), alone and with threads that race. Run under TSan by the sanitizer build. */
#include "gate/gate.h"
#include "unit.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 3

static void zeroed_memory_is_an_open_gate_without_an_owner(void **state)
{
	struct hb_gate gate;
	memset(&gate, 0, sizeof gate);
	assert_int_equal(hb_gate_state(&gate), HB_GATE_OPEN);
	assert_int_equal(hb_gate_depth(&gate), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(hb_gate_try(&gate), HB_GATE_GO);
	assert_int_equal(hb_gate_in_flight(&gate), 1000);
}

static void closed_refuses_and_counts_nothing(void **state)
{
	struct hb_gate gate;
	hb_gate_init(&gate);
	hb_gate_set(&gate, HB_GATE_CLOSED, 5);
	assert_int_equal(hb_gate_try(&gate), HB_GATE_WAIT);
	assert_int_equal(hb_gate_in_flight(&gate), 0);
	assert_true(hb_gate_drained(&gate));
}

static void depth_bounds_what_is_in_flight(void **state)
{
	struct hb_gate gate;
	hb_gate_init(&gate);
	hb_gate_set(&gate, HB_GATE_OPEN, 2);
	assert_int_equal(hb_gate_depth(&gate), 2);
	assert_int_equal(hb_gate_try(&gate), HB_GATE_GO);
	assert_int_equal(hb_gate_try(&gate), HB_GATE_GO);
	assert_int_equal(hb_gate_try(&gate), HB_GATE_WAIT);
	hb_gate_completed(&gate, 1);
	assert_int_equal(hb_gate_try(&gate), HB_GATE_GO);
	hb_gate_completed(&gate, 1);
	assert_int_equal(hb_gate_try(&gate), HB_GATE_GO);
	assert_int_equal(hb_gate_in_flight(&gate), 2);
}

static void drained_means_closed_and_nothing_in_flight(void **state)
{
	struct hb_gate gate;
	hb_gate_init(&gate);
	assert_false(hb_gate_drained(&gate));
	assert_int_equal(hb_gate_try(&gate), HB_GATE_GO);
	hb_gate_bypass(&gate, 2);
	hb_gate_set(&gate, HB_GATE_CLOSED, 0);
	assert_false(hb_gate_drained(&gate));
	hb_gate_completed(&gate, 2);
	assert_false(hb_gate_drained(&gate));
	hb_gate_completed(&gate, 1);
	assert_true(hb_gate_drained(&gate));
}

static void every_change_rings_and_says_whether_somebody_waits(void **state)
{
	struct hb_gate gate;
	hb_gate_init(&gate);
	uint32_t seen = gate.wake_word;
	assert_false(hb_gate_set(&gate, HB_GATE_CLOSED, 0));
	assert_true(gate.wake_word != seen);
	seen = hb_gate_wait_begin(&gate);
	assert_true(hb_gate_set(&gate, HB_GATE_OPEN, 1));
	assert_true(gate.wake_word != seen);
	assert_true(hb_gate_completed(&gate, 0));
	hb_gate_wait_end(&gate);
	assert_false(hb_gate_completed(&gate, 0));
}

/* --- races --- */

struct race {
	struct hb_gate gate;
	_Atomic int inside; /* launches between GO and completion */
	_Atomic int most;   /* the highest `inside` ever seen */
	_Atomic bool stop;
	int launches; /* each thread's */
};

static void wake(struct hb_gate *gate)
{
	hb_gate_change_wake_word(gate);
	syscall(SYS_futex, &gate->wake_word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Waits as a caller does. If a wake-up is lost, the thread sleeps forever, and the test does not end. */
static void enter(struct race *race)
{
	if (hb_gate_try(&race->gate) == HB_GATE_GO)
		return;
	uint32_t seen = hb_gate_wait_begin(&race->gate);
	while (hb_gate_try(&race->gate) != HB_GATE_GO) {
		syscall(SYS_futex, &race->gate.wake_word, FUTEX_WAIT, seen, NULL, NULL, 0);
		seen = race->gate.wake_word;
	}
	hb_gate_wait_end(&race->gate);
}

static void launch_once(struct race *race)
{
	enter(race);
	int inside = ++race->inside;
	int most = race->most;
	while (inside > most && !atomic_compare_exchange_weak(&race->most, &most, inside))
		;
	sched_yield();
	race->inside--;
	if (hb_gate_completed(&race->gate, 1))
		wake(&race->gate);
}

static void *launch_some(void *argument)
{
	struct race *race = argument;
	for (int i = 0; i < race->launches; i++)
		launch_once(race);
	return NULL;
}

static void *launch_until_stopped(void *argument)
{
	struct race *race = argument;
	while (!race->stop)
		launch_once(race);
	return NULL;
}

static void start(pthread_t threads[THREADS], void *(*body)(void *), struct race *race)
{
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, body, race), 0);
}

static void join(pthread_t threads[THREADS])
{
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void threads_never_pass_the_depth_and_no_wake_up_is_lost(void **state)
{
	for (uint32_t depth = 1; depth < THREADS; depth++) {
		struct race race = {.launches = 2000};
		pthread_t threads[THREADS];
		hb_gate_init(&race.gate);
		hb_gate_set(&race.gate, HB_GATE_OPEN, depth);
		start(threads, launch_some, &race);
		join(threads);
		assert_true(race.most <= (int)depth);
		assert_int_equal(hb_gate_in_flight(&race.gate), 0);
		assert_true(race.gate.completed == (uint64_t)THREADS * 2000);
	}
}

static void once_drained_nothing_runs_until_the_gate_opens(void **state)
{
	struct race race = {0};
	pthread_t threads[THREADS];
	hb_gate_init(&race.gate);
	start(threads, launch_until_stopped, &race);
	for (int round = 0; round < 300; round++) {
		hb_gate_set(&race.gate, HB_GATE_CLOSED, 0);
		while (!hb_gate_drained(&race.gate))
			sched_yield();
		for (int i = 0; i < 20; i++) {
			assert_int_equal(race.inside, 0);
			sched_yield();
		}
		if (hb_gate_set(&race.gate, HB_GATE_OPEN, round % 3))
			wake(&race.gate);
	}
	race.stop = true;
	join(threads);
	assert_int_equal(hb_gate_in_flight(&race.gate), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zeroed_memory_is_an_open_gate_without_an_owner),
		cmocka_unit_test(closed_refuses_and_counts_nothing),
		cmocka_unit_test(depth_bounds_what_is_in_flight),
		cmocka_unit_test(drained_means_closed_and_nothing_in_flight),
		cmocka_unit_test(every_change_rings_and_says_whether_somebody_waits),
		cmocka_unit_test(threads_never_pass_the_depth_and_no_wake_up_is_lost),
		cmocka_unit_test(once_drained_nothing_runs_until_the_gate_opens),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
