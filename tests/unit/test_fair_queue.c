/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of requests: users are served in turn, whatever number of connections each has. The clock is the test's own. */
#include "base/rng.h"
#include "daemon/fair_queue.h"
#include "unit.h"

#include <stdlib.h>

#define BUSY 200 /* connections of the user that asks all the time */
#define COST_NS INT64_C(400000)

enum { VICTIM = 3, ATTACKER = 9 };

static struct hb_fair_queue *make_queue(void)
{
	struct hb_fair_queue *queue = calloc(1, sizeof *queue);
	assert_non_null(queue);
	return queue;
}

/* Serves requests until `wanted` is served; each user asks again at once. Returns the time that passed. */
static int64_t serve_until(struct hb_fair_queue *queue, const struct hb_fair_entry *wanted, int64_t cost_ns)
{
	int64_t now_ns = 0;
	for (int i = 0; i < 100000; i++) {
		struct hb_fair_entry *entry = hb_fair_queue_next(queue);
		assert_non_null(entry);
		if (entry == wanted)
			return now_ns;
		now_ns += cost_ns;
		hb_fair_queue_charge(queue, entry->user, cost_ns);
		hb_fair_queue_add(queue, entry, entry->user);
	}
	fail_msg("the request was never served");
	return now_ns;
}

static int64_t measure_wait(uint32_t victim, int64_t cost_ns)
{
	static struct hb_fair_entry busy[BUSY], request;
	struct hb_fair_queue *queue = make_queue();
	int64_t worst_ns = 0;
	request = (struct hb_fair_entry){NULL};
	for (size_t i = 0; i < BUSY; i++) {
		busy[i] = (struct hb_fair_entry){NULL};
		hb_fair_queue_add(queue, &busy[i], ATTACKER);
	}
	for (int round = 0; round < 50; round++) {
		hb_fair_queue_add(queue, &request, victim);
		int64_t wait_ns = serve_until(queue, &request, cost_ns);
		hb_fair_queue_charge(queue, victim, COST_NS);
		worst_ns = wait_ns > worst_ns ? wait_ns : worst_ns;
	}
	free(queue);
	return worst_ns;
}

static void a_busy_user_delays_another_by_one_turn(void **state)
{
	assert_true(measure_wait(VICTIM, COST_NS) <= HB_FAIR_QUANTUM_NS + COST_NS);
	assert_true(measure_wait(VICTIM, 20 * COST_NS) <= HB_FAIR_QUANTUM_NS + 20 * COST_NS);
	/* The control: a request in the same user's queue waits for all of them. */
	assert_true(measure_wait(ATTACKER, COST_NS) >= (BUSY - 1) * COST_NS);
}

static void what_a_request_took_too_much_is_paid_back(void **state)
{
	struct hb_fair_queue *queue = make_queue();
	struct hb_fair_entry heavy = {NULL}, light = {NULL};
	int64_t taken_ns[HB_USERS_MAX] = {0};
	hb_fair_queue_add(queue, &heavy, ATTACKER);
	hb_fair_queue_add(queue, &light, VICTIM);
	for (int i = 0; i < 100000; i++) {
		struct hb_fair_entry *entry = hb_fair_queue_next(queue);
		int64_t cost_ns = entry == &heavy ? 50 * HB_FAIR_QUANTUM_NS : HB_FAIR_QUANTUM_NS / 10;
		taken_ns[entry->user] += cost_ns;
		hb_fair_queue_charge(queue, entry->user, cost_ns);
		hb_fair_queue_add(queue, entry, entry->user);
	}
	/* Both got the same time, up to one request. */
	assert_true(labs(taken_ns[ATTACKER] - taken_ns[VICTIM]) <= 52 * HB_FAIR_QUANTUM_NS);
	free(queue);
}

static void one_user_alone_is_served_without_delay(void **state)
{
	struct hb_fair_queue *queue = make_queue();
	struct hb_fair_entry one = {NULL}, two = {NULL};
	for (int i = 0; i < 1000; i++) {
		hb_fair_queue_add(queue, &one, ATTACKER);
		hb_fair_queue_add(queue, &two, ATTACKER);
		assert_ptr_equal(hb_fair_queue_next(queue), &one); /* first come, first served */
		hb_fair_queue_charge(queue, ATTACKER, 1000 * HB_FAIR_QUANTUM_NS);
		assert_ptr_equal(hb_fair_queue_next(queue), &two);
		hb_fair_queue_charge(queue, ATTACKER, 1000 * HB_FAIR_QUANTUM_NS);
		assert_null(hb_fair_queue_next(queue));
	}
	free(queue);
}

/* Connections that close while their request waits. */
static void requests_are_removed_at_any_place(void **state)
{
	enum { N = 40, USERS = 5 };
	struct hb_fair_entry entries[N] = {{NULL}};
	struct hb_fair_queue *queue = make_queue();
	struct hb_rng rng;
	hb_rng_init(&rng, 3, 0);
	uint32_t waiting = 0;
	for (int i = 0; i < 100000; i++) {
		struct hb_fair_entry *entry = &entries[hb_rng_below(&rng, N)];
		bool was_waiting = entry->is_waiting;
		switch (hb_rng_below(&rng, 3)) {
		case 0:
			hb_fair_queue_add(queue, entry, (uint32_t)((entry - entries) % USERS));
			waiting += !was_waiting;
			break;
		case 1:
			hb_fair_queue_remove(queue, entry);
			waiting -= was_waiting;
			break;
		default:
			entry = hb_fair_queue_next(queue);
			assert_int_equal(entry != NULL, waiting > 0);
			if (entry) {
				assert_false(entry->is_waiting);
				hb_fair_queue_charge(queue, entry->user, (int64_t)hb_rng_below(&rng, 3000000));
				waiting--;
			}
		}
		assert_int_equal(queue->n, waiting);
	}
	free(queue);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_busy_user_delays_another_by_one_turn),
		cmocka_unit_test(what_a_request_took_too_much_is_paid_back),
		cmocka_unit_test(one_user_alone_is_served_without_delay),
		cmocka_unit_test(requests_are_removed_at_any_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
