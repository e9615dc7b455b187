/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the pace of tokens (decide/token_pace.h). */
#include "decide/token_pace.h"

#include "unit.h"

#define MS INT64_C(1000000)

struct service {
	struct hb_token_pace pace;
	int64_t now_ns;
	struct hb_token_times last;
	enum hb_pace pace_of_last;
	int64_t slo_ns;
};

/* Serves n requests of took_ns, each after a pause; returns whether it makes tokens. */
static bool serve(struct service *service, int n, int64_t pause_ns, int64_t took_ns, int64_t excess_ns)
{
	enum hb_pace tokens = HB_PACE_NONE;
	for (int i = 0; i < n; i++) {
		int64_t begin_ns = service->now_ns + pause_ns;
		service->now_ns = begin_ns + took_ns;
		service->last = (struct hb_token_times){took_ns, took_ns - excess_ns, excess_ns};
		tokens = hb_token_pace_note(&service->pace, service->slo_ns, begin_ns, service->now_ns, &service->last);
	}
	service->pace_of_last = tokens;
	return tokens != HB_PACE_NONE;
}

static void the_pace_is_the_mean_of_16_tokens_and_their_pauses(void **state)
{
	struct service service = {.now_ns = MS};
	assert_true(serve(&service, 64, MS / 2, 2 * MS, MS));
	assert_int_equal(service.last.took_ns, 5 * MS / 2);
	assert_int_equal(service.last.alone_ns, 3 * MS / 2);
	assert_int_equal(service.last.excess_ns, MS);
	assert_true(serve(&service, 1, MS / 2, 18 * MS, 0));
	assert_int_equal(service.last.took_ns, 7 * MS / 2);
	assert_int_equal(service.last.alone_ns, (15 * 3 + 37) * MS / 32);
	assert_true(serve(&service, 16, MS / 2, 2 * MS, MS));
	assert_int_equal(service.last.took_ns, 5 * MS / 2);
}

static void the_pause_between_two_texts_does_not_count(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 128, MS / 2, 2 * MS, 0);
	assert_true(serve(&service, 1, 500 * MS, 2 * MS, 0));
	assert_int_equal(service.last.took_ns, (15 * 5 + 4) * MS / 32);
}

static void one_of_16_tokens_ends_a_window(void **state)
{
	struct service service = {.now_ns = MS};
	int windows = 0;
	serve(&service, 200, MS / 2, 2 * MS, 0);
	for (int i = 0; i < 160; i++) {
		assert_true(serve(&service, 1, MS / 2, 2 * MS, 0));
		windows += service.pace_of_last == HB_PACE_WINDOW;
	}
	assert_int_equal(windows, 10);
}

static void requests_with_pauses_are_no_tokens(void **state)
{
	struct service service = {.now_ns = MS};
	assert_false(serve(&service, 500, HB_PACE_GAP_NS, 2 * MS, MS));
	assert_int_equal(service.last.took_ns, 2 * MS);
	for (int i = 0; i < 50; i++) {
		assert_false(serve(&service, 1, 20 * MS, 2 * MS, MS));
		assert_false(serve(&service, 4, MS / 10, 2 * MS, MS));
	}
}

/* A service with requests at fixed intervals. Its objective is for single requests. */
static void an_objective_below_the_best_pace_is_for_single_requests(void **state)
{
	struct service service = {.now_ns = MS, .slo_ns = 3 * MS};
	assert_false(serve(&service, 500, 2 * MS, 2 * MS, 0));
	assert_int_equal(service.last.took_ns, 2 * MS);
	service.slo_ns = 5 * MS;
	assert_true(serve(&service, 1, 2 * MS, 2 * MS, 0));
}

/* A service that is slower than its objective, with LP or for a while, still makes tokens. */
static void a_slow_phase_does_not_end_the_pace(void **state)
{
	struct service service = {.now_ns = MS, .slo_ns = 4 * MS};
	assert_true(serve(&service, 500, MS, 2 * MS, 0));
	assert_true(serve(&service, 500, MS, 6 * MS, 4 * MS));
	assert_true(serve(&service, 160, MS, 5 * MS, 0));
}

static void a_service_may_begin_to_make_tokens_and_end(void **state)
{
	struct service service = {.now_ns = MS};
	serve(&service, 500, 20 * MS, 2 * MS, 0);
	assert_true(serve(&service, 300, MS / 10, 2 * MS, 0));
	assert_true(serve(&service, 20, 20 * MS, 2 * MS, 0));
	assert_false(serve(&service, 60, 20 * MS, 2 * MS, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_pace_is_the_mean_of_16_tokens_and_their_pauses),
		cmocka_unit_test(the_pause_between_two_texts_does_not_count),
		cmocka_unit_test(one_of_16_tokens_ends_a_window),
		cmocka_unit_test(requests_with_pauses_are_no_tokens),
		cmocka_unit_test(an_objective_below_the_best_pace_is_for_single_requests),
		cmocka_unit_test(a_slow_phase_does_not_end_the_pace),
		cmocka_unit_test(a_service_may_begin_to_make_tokens_and_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
