/* SPDX-License-Identifier: Apache-2.0 */
/* The slack of an objective as time slices: what is learned, and what protects requests that queue. */
#include "core/slo_slices.h"
#include "unit.h"

#define MS INT64_C(1000000)
#define SWITCH_NS INT64_C(190000)
#define SLO_NS (20 * MS)

struct service {
	int64_t slo_ns; /* 0 = SLO_NS */
	bool paced, credit_open;
	struct hb_slo_slices slices;
	int64_t now_ns;
};

/* Serves requests, each after a pause; returns how often the slices changed. */
static unsigned serve(struct service *service, unsigned count, int64_t pause_ns, int64_t took_ns)
{
	unsigned changes = 0;
	for (unsigned i = 0; i < count; i++) {
		struct hb_request request = {.begin_ns = service->now_ns + pause_ns,
					     .took_ns = took_ns,
					     .paced = service->paced,
					     .credit_open = service->credit_open};
		request.end_ns = service->now_ns = request.begin_ns + took_ns;
		changes += hb_slo_slices_note(&service->slices, service->slo_ns ? service->slo_ns : SLO_NS, &request);
	}
	return changes;
}

/* LP's slice in ns; 0 = the smallest one. */
static int64_t low_slice(const struct service *service)
{
	int64_t low_ns, high_ns;
	return hb_slo_slices_get(&service->slices, SLO_NS, SWITCH_NS, &low_ns, &high_ns) ? low_ns : 0;
}

static void the_slack_is_known_after_64_requests(void **state)
{
	struct service service = {.now_ns = MS};
	int64_t low_ns, high_ns;
	assert_int_equal(serve(&service, 62, 10 * MS, 3 * MS), 0);
	serve(&service, 1, 10 * MS, 9 * MS); /* one outlier does not count */
	assert_int_equal(low_slice(&service), 0);
	assert_int_equal(serve(&service, 1, 10 * MS, 32 * MS / 10), 1);
	assert_true(hb_slo_slices_get(&service.slices, SLO_NS, SWITCH_NS, &low_ns, &high_ns));
	assert_int_equal(high_ns, 32 * MS / 10);
	assert_int_equal(low_ns, 168 * MS / 10 / 8 * 7 / 16 - 2 * SWITCH_NS);
	assert_false(hb_slo_slices_get(&service.slices, 35 * MS / 10, SWITCH_NS, &low_ns, &high_ns));
	assert_false(hb_slo_slices_get(&service.slices, 0, SWITCH_NS, &low_ns, &high_ns));
}

/* The core refuses longer slices than HB_SLICE_MAX_NS, and ejects a policy that sets one. */
static void slices_have_a_limit(void **state)
{
	struct service service = {.now_ns = MS, .slo_ns = 3600 * 1000 * MS}, slow = service;
	int64_t low_ns, high_ns;
	serve(&service, 64, 10 * MS, 3 * MS);
	assert_true(hb_slo_slices_get(&service.slices, service.slo_ns, SWITCH_NS, &low_ns, &high_ns));
	assert_int_equal(low_ns, 1000 * MS);
	serve(&slow, 64, 10 * MS, 12000 * MS);
	assert_false(hb_slo_slices_get(&slow.slices, slow.slo_ns, SWITCH_NS, &low_ns, &high_ns));
}

static void the_share_follows_what_requests_show(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 64, 10 * MS, 4 * MS);
	int64_t first_ns = low_slice(&service);
	assert_int_equal(serve(&service, 128, 20 * MS, 9 * MS), 2);
	int64_t more_ns = low_slice(&service);
	assert_true(more_ns > first_ns);
	assert_int_equal(serve(&service, 1, 40 * MS, 19 * MS), 0);
	assert_int_equal(serve(&service, 1, 40 * MS, 19 * MS), 1);
	assert_true(low_slice(&service) < more_ns);
	int64_t less_ns = low_slice(&service);
	assert_int_equal(serve(&service, 64, 20 * MS, 9 * MS), 0); /* it waits longer than before */
	assert_int_equal(serve(&service, 64, 20 * MS, 9 * MS), 1);
	assert_true(low_slice(&service) > less_ns);
	for (int i = 0; i < 20; i++)
		serve(&service, 2, 40 * MS, 21 * MS);
	assert_int_equal(low_slice(&service), 0);
}

static void all_of_the_slack_is_used_at_most(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 64 + 64 * 30, 20 * MS, 4 * MS);
	assert_int_equal(low_slice(&service), 14 * MS - 2 * SWITCH_NS);
}

static void tokens_do_not_wait_for_each_other(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 64 + 64 * 30, MS / 100, 4 * MS);
	assert_int_equal(low_slice(&service), 14 * MS - 2 * SWITCH_NS);
}

/* Bursts of eight requests without pauses, three quarters of the time. */
static void the_slack_is_left_to_requests_that_queue(void **state)
{
	struct service service = {.now_ns = MS};
	for (int i = 0; i < 40; i++) {
		serve(&service, 1, 10 * MS, 4 * MS);
		serve(&service, 7, MS / 100, 4 * MS);
	}
	assert_true(service.slices.learned);
	assert_int_equal(low_slice(&service), 0);
}

static void times_of_tokens_are_not_compared_with_those_of_requests(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 64, MS / 100, 19 * MS); /* single requests leave no slack */
	assert_int_equal(low_slice(&service), 0);
	service.paced = true;
	assert_int_equal(serve(&service, 64, MS / 100, 3 * MS), 1);
	assert_int_equal(low_slice(&service), 0);
	service.credit_open = true;
	assert_int_equal(serve(&service, 2, MS / 100, 3 * MS), 1);
	assert_int_equal(low_slice(&service), 17 * MS / 8 * 7 - 2 * SWITCH_NS);
	service.credit_open = false;
	assert_int_equal(serve(&service, 2, MS / 100, 3 * MS), 1);
	assert_int_equal(low_slice(&service), 0);
}

/* The credit of tokens is followed also while their time alone is learned. */
static void a_credit_that_opens_meanwhile_counts_at_once(void **state)
{
	struct service service = {.now_ns = MS, .paced = true, .credit_open = true};
	serve(&service, 64, MS / 100, 4 * MS);
	assert_int_equal(low_slice(&service), 14 * MS - 2 * SWITCH_NS);
	serve(&service, 4096, MS / 100, 4 * MS);
	service.credit_open = false;
	assert_int_equal(serve(&service, 64, MS / 100, 4 * MS), 1);
	assert_int_equal(low_slice(&service), 0);
}

/* A mean of tokens among which many prompts were read says nothing about the others. */
static void the_shortest_mean_of_tokens_decides(void **state)
{
	struct service service = {.now_ns = MS, .paced = true};
	serve(&service, 8, MS / 100, 18 * MS);
	serve(&service, 56, MS / 100, 4 * MS);
	assert_true(service.slices.learned);
	assert_int_equal(service.slices.alone_ns, 4 * MS);
}

static void tokens_without_slack_are_learned_again_at_once(void **state)
{
	struct service service = {.now_ns = MS, .paced = true, .credit_open = true};
	serve(&service, 64, MS / 100, 19 * MS);
	assert_int_equal(low_slice(&service), 0);
	serve(&service, 64, MS / 100, 4 * MS);
	assert_int_equal(low_slice(&service), 14 * MS - 2 * SWITCH_NS);
}

/* With another objective the share may grow after one calm batch again. */
static void another_objective_forgets_failures(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 64, 10 * MS, 4 * MS);
	for (int i = 0; i < 20; i++)
		serve(&service, 2, 40 * MS, 21 * MS);
	assert_int_equal(serve(&service, 64, 20 * MS, 9 * MS), 0);
	service.slo_ns = 2 * SLO_NS;
	assert_int_equal(serve(&service, 64, 20 * MS, 9 * MS), 1);
}

/* In a burst of eight the last one waited for the others: 7 x 3 ms / 2, more than its own time shows. */
static void the_wait_in_a_burst_counts(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 64, 100 * MS, 3 * MS);
	int64_t first_ns = low_slice(&service);
	for (int i = 0; i < 4; i++) {
		serve(&service, 1, 400 * MS, 6 * MS);
		serve(&service, 7, MS / 100, 6 * MS);
	}
	assert_true(low_slice(&service) < first_ns);
}

static void the_time_alone_is_learned_again(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 64 + 4096, 20 * MS, 4 * MS);
	assert_int_equal(low_slice(&service), 0);
	serve(&service, 64, 20 * MS, 12 * MS);
	assert_int_equal(low_slice(&service), 7 * MS - 2 * SWITCH_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_slack_is_known_after_64_requests),
		cmocka_unit_test(slices_have_a_limit),
		cmocka_unit_test(the_share_follows_what_requests_show),
		cmocka_unit_test(all_of_the_slack_is_used_at_most),
		cmocka_unit_test(tokens_do_not_wait_for_each_other),
		cmocka_unit_test(times_of_tokens_are_not_compared_with_those_of_requests),
		cmocka_unit_test(a_credit_that_opens_meanwhile_counts_at_once),
		cmocka_unit_test(the_shortest_mean_of_tokens_decides),
		cmocka_unit_test(tokens_without_slack_are_learned_again_at_once),
		cmocka_unit_test(another_objective_forgets_failures),
		cmocka_unit_test(the_slack_is_left_to_requests_that_queue),
		cmocka_unit_test(the_wait_in_a_burst_counts),
		cmocka_unit_test(the_time_alone_is_learned_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
