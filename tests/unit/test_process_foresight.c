/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The foresight of one HP process (decide/process_foresight.h) and the rule of its
 * takeover thread (decide/takeover_steps.h), without threads and without a GPU.
 */
#include "decide/defaults.h"
#include "decide/takeover_steps.h"
#include "unit.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)

static struct hb_process_foresight process;

static void note_gpu(int64_t now_ns, bool low_present, uint32_t high_at_work)
{
	const struct hb_gpu_facts facts = {.low_present = low_present, .high_at_work = high_at_work};
	hb_process_foresight_note_gpus(&process, now_ns, &facts, 1);
}

static int64_t learn_request(int64_t now_ns, uint64_t source, int64_t launch_us)
{
	note_gpu(now_ns, true, 1);
	hb_process_foresight_sign(&process, now_ns, HB_SIGN_SOCKET, source, 1, 0);
	hb_process_foresight_launch(&process, now_ns + launch_us * US);
	hb_process_foresight_idle(&process, now_ns + launch_us * US + MS, 0);
	return now_ns + launch_us * US + 3500 * US;
}

/* Requests whose bytes arrive 500 us before the launch, 2.5 ms after the last one. Returns the time of the next request's bytes. */
static int64_t learn_bytes(int64_t now_ns, int requests)
{
	for (int i = 0; i < requests; i++)
		now_ns = learn_request(now_ns, 7, 500);
	return now_ns;
}

static bool plans_takeover(int64_t now_ns)
{
	hb_process_foresight_sign(&process, now_ns, HB_SIGN_SOCKET, 7, 1, 0);
	struct hb_takeover_plan plan = hb_process_foresight_plan(&process);
	return plan.next_ns < now_ns + 500 * US || plan.until_ns > 0;
}

static void bytes_lead_to_a_takeover_once_they_are_learned(void **state)
{
	hb_process_foresight_init(&process);
	note_gpu(0, true, 0);
	assert_false(plans_takeover(0));
	hb_process_foresight_init(&process);
	assert_true(plans_takeover(learn_bytes(MS, 40)));
}

static void bytes_are_learned_separately_for_longer_idleness(void **state)
{
	hb_process_foresight_init(&process);
	int64_t now_ns = learn_bytes(MS, 40);
	assert_true(plans_takeover(now_ns));
	hb_process_foresight_init(&process);
	now_ns = learn_bytes(MS, 40) + 100 * MS;
	note_gpu(now_ns, true, 1);
	assert_false(plans_takeover(now_ns));
}

static void a_takeover_needs_low_priority(void **state)
{
	hb_process_foresight_init(&process);
	int64_t now_ns = learn_bytes(MS, 40);
	note_gpu(now_ns, false, 1);
	assert_false(process.foresight.allowed);
	note_gpu(now_ns, true, 1);
	assert_true(process.foresight.allowed);
}

/* The services that work divide the budget. One that has not worked for over a second has no part of it. */
static void beside_other_services_a_takeover_needs_work_of_its_own(void **state)
{
	hb_process_foresight_init(&process);
	int64_t now_ns = learn_bytes(MS, 40);
	note_gpu(now_ns, true, 3);
	assert_true(process.foresight.allowed);
	assert_false(process.foresight.may_keep);
	assert_int_equal(process.foresight.costs.budget_ppm, HB_DEFAULT_TAKEOVER_BUDGET_PPM / 3);
	hb_process_foresight_sign(&process, now_ns, HB_SIGN_SOCKET, 7, 1, 0);
	hb_process_foresight_step(&process, now_ns + 300 * US);
	assert_true(hb_process_foresight_plan(&process).until_ns > now_ns);
	hb_process_foresight_launch(&process, now_ns + 500 * US);
	hb_process_foresight_idle(&process, now_ns + 1500 * US, 0);
	process.budget.tokens_ns = 0;
	now_ns += 1300 * MS;
	note_gpu(now_ns, true, 2);
	assert_false(process.foresight.allowed);
	hb_process_foresight_launch(&process, now_ns); /* the time without work adds nothing to the budget */
	assert_int_equal(process.budget.tokens_ns, 0);
	hb_process_foresight_idle(&process, now_ns + MS, 0);
	now_ns += 1300 * MS;
	note_gpu(now_ns, true, 0);
	assert_true(process.foresight.allowed && process.foresight.may_keep);
	assert_int_equal(process.foresight.costs.budget_ppm, HB_DEFAULT_TAKEOVER_BUDGET_PPM);
}

/* A GPU kept after a request is given up when another service begins to work. One taken over ahead of a request is not. */
static void a_kept_gpu_is_given_up_for_another_service(void **state)
{
	for (int kept = 0; kept <= 1; kept++) {
		hb_process_foresight_init(&process);
		int64_t now_ns = learn_bytes(MS, 40);
		if (kept) {
			hb_process_foresight_launch(&process, now_ns);
			hb_process_foresight_idle(&process, now_ns + MS, 300 * US);
		} else {
			hb_process_foresight_sign(&process, now_ns, HB_SIGN_SOCKET, 7, 1, 0);
			hb_process_foresight_step(&process, now_ns + 300 * US);
		}
		now_ns += kept ? MS : 300 * US;
		assert_true(hb_process_foresight_plan(&process).until_ns > now_ns);
		note_gpu(now_ns, true, 2);
		assert_int_equal(hb_process_foresight_plan(&process).until_ns > 0, !kept);
	}
}

/* Each sign alone has a short takeover. Together they would keep the GPU from other services for longer than one may last. */
static void several_signs_do_not_prolong_a_takeover_beside_other_services(void **state)
{
	for (uint32_t services = 1; services <= 2; services++) {
		int64_t now_ns = MS;
		hb_process_foresight_init(&process);
		for (uint64_t source = 1; source <= 6; source++)
			for (int i = 0; i < 40; i++)
				now_ns = learn_request(now_ns, source, 500);
		note_gpu(now_ns, true, services);
		for (uint64_t source = 1; source <= 6; source++, now_ns += 340 * US) {
			hb_process_foresight_sign(&process, now_ns, HB_SIGN_SOCKET, source, 1, 0);
			hb_process_foresight_step(&process, now_ns + 205 * US);
		}
		struct hb_takeover_plan plan = hb_process_foresight_plan(&process);
		assert_int_equal(plan.until_ns - plan.since_ns > HB_DEFAULT_TAKEOVER_BESIDE_NS, services == 1);
	}
}

static void a_long_takeover_is_shortened_for_another_service(void **state)
{
	int64_t now_ns = MS;
	hb_process_foresight_init(&process);
	for (int i = 0; i < 128; i++)
		now_ns = learn_request(now_ns, 7, 300 + i * 37 % 20 * 100);
	hb_process_foresight_sign(&process, now_ns, HB_SIGN_SOCKET, 7, 1, 0);
	now_ns += 300 * US;
	hb_process_foresight_step(&process, now_ns);
	int64_t until_ns = hb_process_foresight_plan(&process).until_ns, tokens_ns = process.budget.tokens_ns;
	assert_true(until_ns > now_ns + HB_DEFAULT_TAKEOVER_BESIDE_NS);
	note_gpu(now_ns, true, 2);
	assert_int_equal(hb_process_foresight_plan(&process).until_ns, now_ns + HB_DEFAULT_TAKEOVER_BESIDE_NS);
	assert_int_equal(process.budget.tokens_ns - tokens_ns, until_ns - now_ns - HB_DEFAULT_TAKEOVER_BESIDE_NS);
}

static void facts_are_wanted_every_10_ms(void **state)
{
	hb_process_foresight_init(&process);
	assert_true(hb_process_foresight_wants_facts(&process, 0));
	note_gpu(0, true, 0);
	assert_false(hb_process_foresight_wants_facts(&process, 10 * MS - 1));
	assert_true(hb_process_foresight_wants_facts(&process, 10 * MS));
}

static void keeping_the_gpu_is_arranged_only_for_long_waits(void **state)
{
	struct hb_process_wait wait;
	hb_process_foresight_init(&process);
	hb_process_foresight_wait(&process, 0, 1, 0, false, &wait);
	hb_process_foresight_learn_wait(&process, 10 * US, 1, 0, &wait);
	assert_true(process.shortest_wait_ns[wait.kind] < HB_DEFAULT_KEEP_LEAST_NS);
	for (int64_t now_ns = MS; now_ns < 100 * MS; now_ns += MS) {
		process.kernels_before = 0;
		assert_int_equal(hb_process_foresight_wait(&process, now_ns, 1, 0, false, &wait),
				 0); /* nothing is learned */
		hb_process_foresight_learn_wait(&process, now_ns + 500 * US, 1, 0, &wait);
	}
	assert_true(process.shortest_wait_ns[wait.kind] > HB_DEFAULT_KEEP_LEAST_NS);
}

/* A copy waits for work only if its memory is not pinned. Its waits are learned apart; a second copy finds the work done. */
static void copies_that_wait_are_learned_apart(void **state)
{
	struct hb_process_wait copy, wait;
	hb_process_foresight_init(&process);
	for (uint64_t n = 1; n <= 4; n++) {
		int64_t now_ns = (int64_t)n * 10 * MS;
		hb_process_foresight_wait(&process, now_ns, 0, n, true, &copy);
		hb_process_foresight_learn_read(&process, now_ns + MS, &copy);
		int64_t waited_ns = process.shortest_wait_ns[copy.kind];
		hb_process_foresight_wait(&process, now_ns + MS, 0, n, true, &copy);
		hb_process_foresight_learn_read(&process, now_ns + MS + US, &copy);
		assert_int_equal(process.shortest_wait_ns[copy.kind], waited_ns);
		hb_process_foresight_wait(&process, now_ns + MS, 0, n, false, &wait);
		hb_process_foresight_learn_wait(&process, now_ns + MS + US, 0, n, &wait);
	}
	assert_true(process.shortest_wait_ns[copy.kind] > HB_DEFAULT_KEEP_LEAST_NS);
	assert_true(process.shortest_wait_ns[wait.kind] < HB_DEFAULT_KEEP_LEAST_NS);
}

/* --- the takeover thread --- */

static void the_thread_takes_the_gpu_once_for_each_plan(void **state)
{
	const struct hb_takeover_plan plan = {.since_ns = 100, .until_ns = 1000, .next_ns = 1000};
	assert_int_equal(hb_takeover_next_step(&plan, 200, false, false, false), HB_TAKEOVER_TAKE);
	assert_int_equal(hb_takeover_next_step(&plan, 200, true, false, false), HB_TAKEOVER_LEAVE);
	assert_int_equal(hb_takeover_next_step(&plan, 1000, true, false, false), HB_TAKEOVER_LET_GO);
}

static void a_launch_ends_the_plan_but_the_takeover_lingers(void **state)
{
	const struct hb_takeover_plan over = {.since_ns = 100, .until_ns = 0, .next_ns = INT64_MAX};
	assert_int_equal(hb_takeover_next_step(&over, 200, true, true, false), HB_TAKEOVER_LEAVE);
	assert_int_equal(hb_takeover_next_step(&over, 200, true, false, false), HB_TAKEOVER_LET_GO);
	assert_int_equal(hb_takeover_next_step(&over, 200, true, true, true), HB_TAKEOVER_LET_GO);
}

static void launches_renew_a_takeover_for_a_limited_time(void **state)
{
	struct hb_takeover_linger linger = {0};
	int64_t last_ns = MS + HB_DEFAULT_TAKEOVER_LINGER_MOST_NS;
	assert_false(hb_takeover_linger_runs(&linger, MS));
	assert_int_equal(hb_takeover_linger_note(&linger, MS), HB_TAKEOVER_FIRST_RENEWED);
	assert_int_equal(hb_takeover_linger_note(&linger, last_ns), HB_TAKEOVER_RENEWED);
	assert_int_equal(hb_takeover_linger_note(&linger, last_ns + 1), HB_TAKEOVER_NOT_RENEWED);
	assert_true(hb_takeover_linger_runs(&linger, last_ns + HB_DEFAULT_TAKEOVER_LINGER_NS - 1));
	assert_false(hb_takeover_linger_runs(&linger, last_ns + HB_DEFAULT_TAKEOVER_LINGER_NS));
	hb_takeover_linger_reset(&linger);
	assert_false(hb_takeover_linger_runs(&linger, last_ns));
}

static void takeover_kernels_avoid_the_streams_of_the_process(void **state)
{
	struct hb_takeover_apart apart = {0};
	int64_t steady_ns = 2 * MS + HB_DEFAULT_TAKEOVER_STEADY_NS;
	assert_int_equal(hb_takeover_choose_where(&apart, MS), HB_TAKEOVER_NOWHERE);
	hb_takeover_note_begin(&apart, true, MS);
	assert_int_equal(hb_takeover_choose_where(&apart, MS), HB_TAKEOVER_ON_LEGACY);
	hb_takeover_note_begin(&apart, false, 2 * MS);
	hb_takeover_note_begin(&apart, false, 3 * MS);
	assert_int_equal(hb_takeover_choose_where(&apart, steady_ns - 1), HB_TAKEOVER_NOWHERE);
	assert_int_equal(hb_takeover_choose_where(&apart, steady_ns), HB_TAKEOVER_ON_OWN);
	hb_takeover_note_begin(&apart, true, steady_ns);
	assert_int_equal(hb_takeover_choose_where(&apart, steady_ns), HB_TAKEOVER_ON_LEGACY);
}

static void the_thread_is_called_for_what_comes_first(void **state)
{
	const struct hb_takeover_plan none = {.next_ns = INT64_MAX};
	const struct hb_takeover_plan planned = {.next_ns = 500};
	const struct hb_takeover_plan begun = {.since_ns = 500, .until_ns = 900, .next_ns = 900};
	assert_int_equal(hb_takeover_compare(&none, &planned).call_for_ns, 500);
	assert_true(hb_takeover_compare(&none, &planned).release);
	assert_int_equal(hb_takeover_compare(&planned, &begun).call_for_ns, 500);
	assert_false(hb_takeover_compare(&planned, &begun).release);
	assert_int_equal(hb_takeover_compare(&begun, &begun).call_for_ns, 900);
	assert_true(hb_takeover_wakes_exactly(&planned, 500));
	assert_false(hb_takeover_wakes_exactly(&begun, 900));
}

static void the_thread_checks_more_often_while_the_gpu_is_held(void **state)
{
	const struct hb_takeover_plan none = {.next_ns = INT64_MAX};
	assert_int_equal(hb_takeover_wake_ns(&none, MS, false, true), INT64_MAX);
	assert_int_equal(hb_takeover_wake_ns(&none, MS, true, true), MS + 100 * US);
	assert_int_equal(hb_takeover_wake_ns(&none, MS, false, false), 101 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_lead_to_a_takeover_once_they_are_learned),
		cmocka_unit_test(bytes_are_learned_separately_for_longer_idleness),
		cmocka_unit_test(a_takeover_needs_low_priority),
		cmocka_unit_test(beside_other_services_a_takeover_needs_work_of_its_own),
		cmocka_unit_test(a_kept_gpu_is_given_up_for_another_service),
		cmocka_unit_test(several_signs_do_not_prolong_a_takeover_beside_other_services),
		cmocka_unit_test(a_long_takeover_is_shortened_for_another_service),
		cmocka_unit_test(facts_are_wanted_every_10_ms),
		cmocka_unit_test(keeping_the_gpu_is_arranged_only_for_long_waits),
		cmocka_unit_test(copies_that_wait_are_learned_apart),
		cmocka_unit_test(the_thread_takes_the_gpu_once_for_each_plan),
		cmocka_unit_test(a_launch_ends_the_plan_but_the_takeover_lingers),
		cmocka_unit_test(launches_renew_a_takeover_for_a_limited_time),
		cmocka_unit_test(takeover_kernels_avoid_the_streams_of_the_process),
		cmocka_unit_test(the_thread_is_called_for_what_comes_first),
		cmocka_unit_test(the_thread_checks_more_often_while_the_gpu_is_held),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
