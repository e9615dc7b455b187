/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises about kinds of requests and objectives in the spatial engine: what is learned of
 * one kind does not limit LP beside another, a kind that returns has forgotten its
 * back-off, and an objective with slack lets LP delay HP as long as HP meets it.
 */
#include "spatial_unit_rig.h"
#include "unit.h"

#include <stdlib.h>

#define MANY 160 /* launches of an eager request */
#define FEW 1    /* of a graph */

static int set_up(void **state)
{
	struct service *service = calloc(1, sizeof *service);
	start_service(service);
	let_beside(service);
	*state = service;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

/* Requests that take alone_ns while LP waits, else took_ns. Returns the number during which LP waited. */
static uint32_t serve_kind(struct service *service, int requests, uint32_t launches, int64_t alone_ns, int64_t took_ns)
{
	uint32_t closed = 0;
	for (int i = 0; i < requests; i++) {
		closed += service->high.closed;
		serve(service, launches, service->high.closed ? alone_ns : took_ns);
	}
	return closed;
}

static void a_kind_that_suffers_does_not_limit_another(void **state)
{
	struct service *service = *state;
	serve_kind(service, 64, MANY, 2 * MS, 2 * MS);
	uint32_t reserve = reserve_of(service);
	serve_kind(service, 2000, FEW, MS, 2 * MS);
	assert_true(service->high.kinds.last->guard.gated > 0);
	/* One request shows the change; then LP runs beside HP as before. */
	assert_in_range(serve_kind(service, 100, MANY, 2 * MS, 2 * MS), 1, 1 + HB_SPATIAL_CLOSED_RUN);
	assert_true(reserve_of(service) <= reserve);
	serve_kind(service, 2, FEW, MS, MS);
	assert_true(service->high.kinds.last->guard.gated > 0); /* it was away for a moment only */
}

static void a_new_kind_is_measured_alone_first(void **state)
{
	struct service *service = *state;
	serve_kind(service, 100, MANY, 2 * MS, 2 * MS);
	serve(service, FEW, MS);
	for (uint32_t i = 1; i < HB_SPATIAL_FIRST_CLOSED; i++) {
		assert_int_equal(service->beacon->allow_ns, 0);
		serve(service, FEW, MS);
	}
	assert_in_range(service->beacon->allow_ns, 49 * US, 51 * US); /* a twentieth of a ms */
}

static void a_kind_that_returns_has_forgotten_its_pauses(void **state)
{
	struct service *service = *state;
	serve_kind(service, 4000, FEW, MS, 2 * MS);
	struct hb_spatial_kind *suffers = service->high.kinds.last;
	assert_true(suffers->guard.pause > 2 * HB_SPATIAL_PAUSE);
	serve_kind(service, 500, MANY, 2 * MS, 2 * MS);
	serve(service, FEW, MS);
	assert_ptr_equal(service->high.kinds.last, suffers);
	assert_int_equal(suffers->guard.gated, 0);
	assert_int_equal(suffers->guard.pause, HB_SPATIAL_PAUSE);
	assert_int_equal(suffers->guard.reserve, SMS / 2); /* what was learned stays */
}

/* Kinds without end must not stop LP: only one request in NEW_EVERY may be closed because it is new. */
static void endless_kinds_close_few_requests(void **state)
{
	struct service *service = *state;
	uint32_t closed = 0, launches = 1;
	for (int i = 0; i < 4000; i++) {
		closed += service->high.closed;
		serve(service, launches, MS);
		launches = launches < 2000 ? launches + launches / 4 + 1 : 1;
	}
	assert_in_range(closed, 64, 64 + 4000 / 16 + 2 * 4000 * HB_SPATIAL_CLOSED_RUN / HB_SPATIAL_CLOSED_EVERY);
}

/* The only kind of a service is judged as it was before there were kinds: goldens of the simulator rely on it. */
static void lengths_within_an_eighth_are_one_kind(void **state)
{
	struct service *service = *state;
	struct hb_spatial_kind *kind = service->high.kinds.last;
	for (uint32_t launches = MANY - 15; launches <= MANY + 15; launches++)
		serve(service, launches, 2 * MS);
	assert_ptr_equal(service->high.kinds.last, kind);
}

/* --- objectives --- */

static void an_objective_with_slack_is_a_budget(void **state)
{
	struct service *service = *state;
	serve_kind(service, 2000, MANY, 2 * MS, 2200 * US);
	assert_true(reserve_of(service) == SMS / 2 || service->high.kinds.last->guard.gated);
	hb_spatial_high_set_slo(&service->high, 3 * MS);
	serve_kind(service, 6000, MANY, 2 * MS, 2200 * US);
	assert_int_equal(reserve_of(service), 2);
	assert_int_equal(service->high.kinds.last->guard.gaps, HB_SPATIAL_GAPS_MOST);
}

static void requests_that_nearly_miss_tighten_the_limits(void **state)
{
	struct service *service = *state;
	hb_spatial_high_set_slo(&service->high, 3 * MS);
	serve_kind(service, 6000, MANY, 2 * MS, 2200 * US);
	uint32_t gaps = service->high.kinds.last->guard.gaps;
	serve_kind(service, 16, MANY, 2 * MS, 2950 * US);
	assert_true(service->high.kinds.last->guard.gaps < gaps);
	serve_kind(service, 256, MANY, 2 * MS, 2950 * US);
	assert_true(reserve_of(service) == SMS / 2 || service->high.kinds.last->guard.gated);
}

/* While a service is present for a small share of the time, waiting costs LP less than a reserve. */
static void low_waits_for_a_service_that_is_rarely_present(void **state)
{
	struct service *service = *state;
	for (int i = 0; i < 64 || !service->high.kinds.last->guard.gated; i++) {
		serve(service, FEW, service->high.closed ? MS : 2 * MS);
		service->now_ns += 18 * MS;
		assert_true(i < 500);
		assert_true(reserve_of(service) <= 31); /* the first reserve: 24 % */
	}
}

/* A miss for which LP is not to blame. */
static void a_slow_host_does_not_use_up_the_budget(void **state)
{
	struct service *service = *state;
	hb_spatial_high_set_slo(&service->high, 3 * MS);
	serve_kind(service, 6000, MANY, 2 * MS, 2200 * US);
	for (int i = 0; i < 256; i++) {
		struct hb_spatial_high *high = &service->high;
		hb_spatial_high_begin(high, service->now_ns, 0);
		for (int launch = 0; launch < MANY; launch++)
			hb_spatial_high_launch(high, service->now_ns += 25 * US);
		hb_spatial_high_wait(high, service->now_ns);
		hb_spatial_high_end(high, service->now_ns += 10 * US);
		service->now_ns += 2 * MS;
	}
	assert_int_equal(reserve_of(service), 2);
}

/* Without slack worth a budget nothing changes. */
static void a_tight_objective_changes_nothing(void **state)
{
	struct service *service = *state, *same = calloc(1, sizeof *same);
	start_service(same);
	let_beside(same);
	hb_spatial_high_set_slo(&service->high, 2200 * US);
	for (int i = 0; i < 3000; i++) {
		int64_t took_ns = (2000 + i % 7 * 50) * US;
		serve(service, MANY, service->high.closed ? 2 * MS : took_ns);
		serve(same, MANY, same->high.closed ? 2 * MS : took_ns);
		assert_int_equal(service->beacon->allow_ns, same->beacon->allow_ns);
		assert_int_equal(service->beacon->reserve, same->beacon->reserve);
	}
	free(same);
}

static void zones(void **state)
{
	assert_int_equal(hb_slo_budget_zone(0, MS, 9 * MS, MS), HB_SLO_NONE);
	assert_int_equal(hb_slo_budget_zone(1100 * US, MS, 9 * MS, MS), HB_SLO_NONE);
	assert_int_equal(hb_slo_budget_zone(2 * MS, MS, 1400 * US, 400 * US), HB_SLO_CALM);
	assert_int_equal(hb_slo_budget_zone(2 * MS, MS, 1600 * US, 600 * US), HB_SLO_MIDDLE);
	assert_int_equal(hb_slo_budget_zone(2 * MS, MS, 1900 * US, 900 * US), HB_SLO_NEAR);
	assert_int_equal(hb_slo_budget_zone(2 * MS, MS, 2100 * US, 1100 * US), HB_SLO_MISSED);
	assert_int_equal(hb_slo_budget_zone(2 * MS, MS, 4 * MS, 10 * US), HB_SLO_CALM); /* late also without LP */
}

/* Requests that queue are judged with their wait, unless nearly all follow each other, as tokens do. */
static bool is_limited_after_chains(int length)
{
	struct service *service = calloc(1, sizeof *service);
	start_service(service);
	let_beside(service);
	hb_spatial_high_set_slo(&service->high, 3400 * US);
	for (int i = 0; i < 6000; i++) {
		service->now_ns = service->high.last_end_ns + (i % length ? 30 * US : 10 * MS);
		serve(service, MANY, service->high.closed ? 2 * MS : 2300 * US);
	}
	bool limited = service->beacon->allow_ns != HB_SPATIAL_ALLOW_ALL && reserve_of(service) > 2;
	free(service);
	return limited;
}

static void a_queue_uses_up_slack_and_a_chain_of_tokens_does_not(void **state)
{
	assert_false(is_limited_after_chains(32));
	assert_true(is_limited_after_chains(2));
}

/* Serves 512 tokens of 2 ms with an objective of 4 ms, of which the last takes last_ns. Returns the time that the next one, gap_ns later, may take. */
static int64_t next_token_may_take(int64_t last_ns, int64_t gap_ns)
{
	struct service *service = calloc(1, sizeof *service);
	start_service(service);
	let_beside(service);
	hb_spatial_high_set_slo(&service->high, 4 * MS);
	for (int i = 0; i < 512; i++) {
		service->now_ns = service->high.last_end_ns;
		serve(service, MANY, i < 511 ? 2 * MS : last_ns);
	}
	service->now_ns = service->high.last_end_ns + gap_ns;
	hb_spatial_high_begin(&service->high, service->now_ns, 0);
	int64_t may_take_ns = service->beacon->latest_ns - service->now_ns;
	hb_spatial_high_end(&service->high, service->now_ns + 2 * MS);
	hb_spatial_high_begin(&service->high, service->now_ns + 2 * MS, service->now_ns + 5 * MS);
	assert_int_equal(service->beacon->latest_ns, service->now_ns + 5 * MS); /* the application's own deadline */
	free(service);
	return may_take_ns;
}

static void a_token_may_take_what_those_before_it_saved(void **state)
{
	assert_int_equal(next_token_may_take(2 * MS, 0), 15750 * US);
	assert_int_equal(next_token_may_take(2 * MS, MS), 14750 * US);
	assert_int_equal(next_token_may_take(6 * MS, 0), 13500 * US);
	assert_int_equal(next_token_may_take(30 * MS, 0), 1);
}

/* Serves one token directly after the one before. Returns what it allowed LP. */
static uint32_t serve_token(struct service *service, int64_t took_ns)
{
	uint32_t allowed_ns = service->beacon->allow_ns;
	service->now_ns = service->high.last_end_ns;
	serve(service, MANY, service->high.closed ? 2 * MS : took_ns);
	return allowed_ns;
}

/* An objective of 4 ms; tokens take 2 ms alone. Serves tokens until the next ones do not measure the time alone. */
static void serve_tokens_with_credit(struct service *service)
{
	hb_spatial_high_set_slo(&service->high, 4 * MS);
	for (int i = 0; i < 520; i++)
		serve_token(service, 2 * MS);
}

static void tokens_with_credit_allow_any_delay(void **state)
{
	struct service *service = *state;
	uint32_t n_all = 0, n_none = 0;
	serve_tokens_with_credit(service);
	for (int i = 0; i < 256; i++) {
		uint32_t allowed_ns = serve_token(service, 2 * MS);
		n_all += allowed_ns == HB_SPATIAL_ALLOW_ALL;
		n_none += allowed_ns == 0;
	}
	assert_int_equal(n_none, HB_SPATIAL_CLOSED_RUN); /* these measure the time alone */
	assert_int_equal(n_all, 256 - HB_SPATIAL_CLOSED_RUN);
}

static bool is_limited(uint32_t allowed_ns)
{
	return allowed_ns > 0 && allowed_ns < HB_SPATIAL_ALLOW_ALL;
}

/* The credit is 12 ms. Each token of 5 ms uses 1.25 ms of it, and each of 2 ms adds 1.75 ms. */
static void tokens_that_use_their_credit_up_limit_low(void **state)
{
	struct service *service = *state;
	serve_tokens_with_credit(service);
	for (int i = 0; i < 8; i++)
		assert_int_equal(serve_token(service, 5 * MS), HB_SPATIAL_ALLOW_ALL);
	for (int i = 0; i < 9; i++)
		assert_true(is_limited(serve_token(service, 5 * MS))); /* from 2 ms, half of the SLO */
	assert_int_equal(serve_token(service, 2 * MS), 0);             /* at -9.25 ms LP waits, two SLOs below 0 */
	for (int i = 0; i < 7; i++)
		assert_true(is_limited(serve_token(service, 2 * MS)));
	assert_int_equal(serve_token(service, 2 * MS), HB_SPATIAL_ALLOW_ALL); /* at 4.75 ms */
}

/* Serves tokens of 6 ms where LP is not limited, else of 2 ms. Returns the number of tokens until LP is not limited. */
static uint32_t count_until_free(struct service *service)
{
	uint32_t n = 0;
	while (!service->high.free && n < 20000)
		n += serve_token(service, 2 * MS) != HB_SPATIAL_ALLOW_ALL;
	return n;
}

static void tokens_that_take_too_long_beside_low_limit_it_for_long(void **state)
{
	struct service *service = *state;
	serve_tokens_with_credit(service);
	uint32_t n = 0, tries = 0;
	for (; n < 16 && tries < 40; tries++) {
		serve_token(service, 6 * MS);
		n = count_until_free(service);
	}
	assert_in_range(tries, 20, 26); /* the mean of 16 tokens rises from 2 to 5 ms */
	assert_in_range(n, 4000, 4200);
	for (int i = 0; i < 7; i++) {
		serve_token(service, 6 * MS);
		assert_true(count_until_free(service) < 16);
	}
	serve_token(service, 6 * MS);
	assert_in_range(count_until_free(service), 8000, 8400); /* twice as long */
}

/* A step that reads a prompt is long. Right after a new objective it is one of few tokens whose mean is judged. */
static void one_long_token_does_not_limit_low_for_long(void **state)
{
	struct service *service = *state;
	serve_tokens_with_credit(service);
	hb_spatial_high_set_slo(&service->high, 4 * MS + US);
	serve_token(service, 2 * MS);
	count_until_free(service);
	assert_int_equal(serve_token(service, 2 * MS), HB_SPATIAL_ALLOW_ALL);
	assert_int_equal(serve_token(service, 15 * MS), HB_SPATIAL_ALLOW_ALL);
	assert_in_range(count_until_free(service), 4, 32);
}

/* Tokens that are too long also while LP waits: LP is not the cause, and does not wait for ever. */
static void tokens_that_are_always_too_long_do_not_stop_low(void **state)
{
	struct service *service = *state;
	uint32_t n_waits = 0;
	serve_tokens_with_credit(service);
	for (int i = 0; i < 600; i++) {
		n_waits += service->beacon->allow_ns == 0;
		service->now_ns = service->high.last_end_ns;
		serve(service, MANY, 3900 * US); /* 0.15 ms above the share of a token, also while LP waits */
	}
	assert_in_range(n_waits, 200, 256 + 16);
	assert_true(service->high.pace.credit.credit_ns < -8 * MS);
	assert_true(is_limited(service->beacon->allow_ns));
}

/* What LP costs while it is not limited does not decide how much it is limited otherwise. */
static void tokens_with_credit_teach_the_guard_nothing(void **state)
{
	struct service *service = *state;
	serve_tokens_with_credit(service);
	uint32_t reserve = service->high.kinds.last->guard.reserve, n_late = 0;
	for (int i = 0; i < 2000; i++)
		n_late += serve_token(service, i % 3 ? 2 * MS : 5 * MS) == HB_SPATIAL_ALLOW_ALL && i % 3 == 0;
	assert_true(n_late > 500);
	assert_int_equal(service->high.kinds.last->guard.reserve, reserve);
	assert_int_equal(service->high.kinds.last->guard.gated, 0);
}

/* The pause of the policy is also one of tokens with credit. */
static void without_an_allowance_credit_counts_for_nothing(void **state)
{
	struct service *service = *state;
	serve_tokens_with_credit(service);
	service->high.allowance_ppm = 0;
	serve_token(service, 2 * MS);
	for (int i = 0; i < 16; i++)
		assert_int_equal(serve_token(service, 2 * MS), 0);
	service->high.allowance_ppm = 50000;
	serve_token(service, 2 * MS);
	assert_int_equal(serve_token(service, 2 * MS), HB_SPATIAL_ALLOW_ALL);
}

static uint32_t next_of(const struct service *service)
{
	return service->beacon->reserve >> HB_SPATIAL_NEXT_SHIFT & HB_SPATIAL_NEXT_MOST;
}

/* 160 launches; `small` of them first need 10 SMs, the others 100. Returns the least SMs that LP had to leave free, at 3/4 of `small`. */
static uint32_t serve_shaped(struct service *service, uint32_t small, uint32_t *at_the_large_ones)
{
	uint32_t seen = 0;
	hb_spatial_high_begin(&service->high, service->now_ns, 0);
	for (uint32_t i = 0; i < 160; i++) {
		service->now_ns += 50 * US;
		hb_spatial_high_need(&service->high, i < small ? 10 : 100);
		hb_spatial_high_launch(&service->high, service->now_ns);
		if (i == 20)
			seen = next_of(service);
		if (i == 120)
			*at_the_large_ones = next_of(service);
	}
	hb_spatial_high_end(&service->high, service->now_ns);
	service->now_ns += 2 * MS;
	return seen;
}

static void the_reserve_follows_the_launches_of_a_kind(void **state)
{
	struct service *service = *state;
	uint32_t later = 0, seen = 0;
	service->high.allowance_ppm = 50000;
	for (int i = 0; i < 12; i++)
		seen = serve_shaped(service, 100, &later);
	assert_int_equal(seen, 10); /* what they need */
	assert_int_equal(later, 0); /* the whole reserve */
	/* The small launches become large: from the next request on nothing small is announced. */
	serve_shaped(service, 0, &later);
	assert_int_equal(serve_shaped(service, 0, &later), 0);
	/* A reserve that did not help does not follow. */
	for (int i = 0; i < 40; i++)
		serve_shaped(service, 100, &later);
	service->high.kinds.last->guard.follows = false;
	assert_int_equal(serve_shaped(service, 100, &later), 0);
}

static void launches_of_unknown_shape_need_the_reserve(void **state)
{
	struct service *service = *state;
	service->high.allowance_ppm = 50000;
	for (int i = 0; i < 12; i++) {
		hb_spatial_high_begin(&service->high, service->now_ns, 0);
		for (uint32_t k = 0; k < 160; k++) {
			hb_spatial_high_need(&service->high, k % 16 == 7 ? 0 : 10);
			service->now_ns += 50 * US;
			hb_spatial_high_launch(&service->high, service->now_ns);
			assert_int_equal(next_of(service), 0);
		}
		hb_spatial_high_end(&service->high, service->now_ns);
		service->now_ns += 2 * MS;
	}
}

/* 0.3 ms between requests, then 7 s, then 0.3 ms again; and the same where the pause comes first. */
static void a_pause_hardly_changes_the_mean_gap(void **state)
{
	struct service *service = *state;
	for (int i = 0; i < 40; i++)
		serve(service, 16, 300 * US);
	service->now_ns += 7000 * MS;
	serve(service, 16, 300 * US);
	serve(service, 16, 300 * US);
	assert_in_range(service->beacon->gap_ns, 250 * US, 600 * US);
	start_service(service);
	serve(service, 16, 300 * US);
	service->now_ns += 7000 * MS;
	for (int i = 0; i < 4; i++)
		serve(service, 16, 300 * US);
	assert_in_range(service->beacon->gap_ns, 250 * US, 600 * US);
}

/* A service that becomes slower by a factor of fifty is followed within 100 requests. */
static void longer_gaps_are_followed(void **state)
{
	struct service *service = *state;
	for (int i = 0; i < 40; i++)
		serve(service, 16, 300 * US);
	for (int i = 0; i < 100; i++) {
		service->now_ns += 15 * MS;
		serve(service, 16, 300 * US);
	}
	assert_in_range(service->beacon->gap_ns, 8 * MS, 16 * MS);
}

/* LP may do more between requests four times as soon if they are foreseen. */
static void foreseen_requests_let_low_do_more_between_them(void **state)
{
	struct service *service = *state;
	uint32_t needed[2] = {0, 0};
	for (int foreseen = 0; foreseen < 2; foreseen++) {
		start_service(service);
		service->high.allowance_ppm = 30000;
		while (!(service->beacon->reserve >> HB_SPATIAL_GAPS_SHIFT) && needed[foreseen] < 1024) {
			if (foreseen)
				hb_spatial_high_expect(&service->high, service->now_ns - MS, service->now_ns + MS);
			serve(service, 160, 3 * MS);
			needed[foreseen]++;
		}
	}
	assert_in_range(needed[0], 256, 400);
	assert_in_range(needed[1], 64, 140);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_kind_that_suffers_does_not_limit_another),
		TEST(a_new_kind_is_measured_alone_first),
		TEST(a_kind_that_returns_has_forgotten_its_pauses),
		TEST(endless_kinds_close_few_requests),
		TEST(lengths_within_an_eighth_are_one_kind),
		TEST(an_objective_with_slack_is_a_budget),
		TEST(requests_that_nearly_miss_tighten_the_limits),
		TEST(low_waits_for_a_service_that_is_rarely_present),
		TEST(a_slow_host_does_not_use_up_the_budget),
		TEST(a_tight_objective_changes_nothing),
		TEST(zones),
		TEST(a_queue_uses_up_slack_and_a_chain_of_tokens_does_not),
		TEST(a_token_may_take_what_those_before_it_saved),
		TEST(tokens_with_credit_allow_any_delay),
		TEST(tokens_that_use_their_credit_up_limit_low),
		TEST(tokens_that_take_too_long_beside_low_limit_it_for_long),
		TEST(one_long_token_does_not_limit_low_for_long),
		TEST(tokens_that_are_always_too_long_do_not_stop_low),
		TEST(tokens_with_credit_teach_the_guard_nothing),
		TEST(without_an_allowance_credit_counts_for_nothing),
		TEST(the_reserve_follows_the_launches_of_a_kind),
		TEST(launches_of_unknown_shape_need_the_reserve),
		TEST(a_pause_hardly_changes_the_mean_gap),
		TEST(longer_gaps_are_followed),
		TEST(foreseen_requests_let_low_do_more_between_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
