/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a tenant in the history of a GPU. */
#include "daemon/usage_history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

static struct hb_tenant_usage usage;
static struct hb_hist latency;

static int empty_all(void **state)
{
	memset(&usage, 0, sizeof usage);
	hb_hist_init(&latency);
	return 0;
}

static void add_step(uint64_t exact_ns, uint64_t active_ns, const struct hb_hist *hist)
{
	struct hb_usage_counts counts = {.exact_ns = exact_ns, .active_ns = active_ns, .latency = hist};
	hb_tenant_usage_add(&usage, &counts, 1000 * MS);
}

static const struct hb_usage_step *last_step(void)
{
	return hb_tenant_usage_step(&usage, 0);
}

static void test_shares(void **state)
{
	assert_null(last_step());
	add_step(0, 250 * MS, NULL);
	assert_int_equal(last_step()->share_ppm, 250000);
	assert_false(last_step()->is_exact);
	add_step(500 * MS, 1250 * MS, NULL); /* turns count as soon as there are some */
	assert_int_equal(last_step()->share_ppm, 500000);
	assert_true(last_step()->is_exact);
	add_step(2500 * MS, 1250 * MS, NULL); /* never more than all the time */
	assert_int_equal(last_step()->share_ppm, 1000000);
	add_step(2500 * MS, 1250 * MS, NULL);
	assert_int_equal(last_step()->share_ppm, 0);
	add_step(100 * MS, 1250 * MS, NULL); /* a new core begins at 0 */
	assert_int_equal(last_step()->share_ppm, 100000);
}

/* Each step has the percentiles of its own requests, not of those before. */
static void test_latency(void **state)
{
	for (int i = 0; i < 100; i++)
		hb_hist_record(&latency, i < 90 ? 2 * MS : 20 * MS);
	add_step(1, 0, &latency);
	assert_int_equal(last_step()->requests, 100);
	assert_in_range(last_step()->p50_ns, 2 * MS, 2 * MS * 105 / 100);
	assert_in_range(last_step()->p99_ns, 20 * MS * 99 / 100, 20 * MS * 105 / 100);
	for (int i = 0; i < 10; i++)
		hb_hist_record(&latency, MS);
	add_step(1, 0, &latency);
	assert_int_equal(last_step()->requests, 10);
	assert_in_range(last_step()->p99_ns, MS, MS * 105 / 100);
	add_step(1, 0, &latency);
	assert_int_equal(last_step()->requests, 0);
	assert_int_equal(last_step()->p50_ns, 0);
	hb_hist_init(&latency); /* a new core */
	hb_hist_record(&latency, 5 * MS);
	add_step(1, 0, &latency);
	assert_int_equal(last_step()->requests, 1);
	assert_in_range(last_step()->p50_ns, 5 * MS * 99 / 100, 5 * MS);
}

static void test_latency_outside_the_bounds(void **state)
{
	hb_hist_record(&latency, 1);
	add_step(1, 0, &latency);
	assert_int_equal(last_step()->p99_ns, 1);
	hb_hist_record(&latency, (int64_t)1 << 41);
	add_step(1, 0, &latency);
	assert_int_equal(last_step()->requests, 1);
	assert_true(last_step()->p99_ns >= (int64_t)1 << 40);
}

static void add_share(struct hb_usage_shares *shares, bool is_low, uint32_t share_ppm, bool is_exact)
{
	struct hb_usage_step step = {.share_ppm = share_ppm, .is_exact = is_exact};
	hb_usage_shares_add(shares, is_low, &step);
}

/* Turns add up. Where there are none, LP had the GPU while one launched, less the time of HP's requests. */
static void test_shares_of_a_gpu(void **state)
{
	struct hb_usage_shares turns = {0}, estimated = {0}, crowded = {0};
	add_share(&turns, true, 300000, true);
	add_share(&turns, true, 200000, true);
	assert_int_equal(hb_usage_shares_low(&turns), 500000);
	assert_false(turns.is_estimated);
	add_share(&estimated, false, 250000, true);
	add_share(&estimated, false, 900000, false); /* HP without requests */
	assert_false(estimated.has_low);
	add_share(&estimated, true, 800000, false);
	add_share(&estimated, true, 400000, false);
	assert_true(estimated.has_low && estimated.is_estimated);
	assert_int_equal(hb_usage_shares_high(&estimated), 250000);
	assert_int_equal(hb_usage_shares_low(&estimated), 600000);
	add_share(&crowded, false, 700000, true);
	add_share(&crowded, false, 700000, true);
	add_share(&crowded, true, 1000000, false);
	assert_int_equal(hb_usage_shares_high(&crowded), 1000000);
	assert_int_equal(hb_usage_shares_low(&crowded), 0);
}

/* Counters are shown as what happened during the step, memory as it is at its end. */
static void test_counters(void **state)
{
	struct hb_usage_counts counts = {.counters = {[HB_USAGE_TAKEOVERS] = 3, [HB_USAGE_MISSED] = 7},
					 .memory_bytes = 9,
					 .peer_bytes = 5,
					 .host_bytes = 6};
	hb_tenant_usage_add(&usage, &counts, 1000 * MS);
	counts.counters[HB_USAGE_TAKEOVERS] = 5;
	counts.memory_bytes = 4;
	hb_tenant_usage_add(&usage, &counts, 1000 * MS);
	assert_int_equal(last_step()->counters[HB_USAGE_TAKEOVERS], 2);
	assert_int_equal(last_step()->counters[HB_USAGE_MISSED], 0);
	assert_int_equal(last_step()->memory_bytes, 4);
	assert_int_equal(last_step()->peer_bytes, 5);
	assert_int_equal(last_step()->host_bytes, 6);
	counts.counters[HB_USAGE_MISSED] = 2; /* a new core */
	counts.counters[HB_USAGE_TAKEOVERS] = UINT64_MAX;
	hb_tenant_usage_add(&usage, &counts, 1000 * MS);
	assert_int_equal(last_step()->counters[HB_USAGE_MISSED], 2);
	assert_int_equal(last_step()->counters[HB_USAGE_TAKEOVERS], UINT32_MAX);
}

/* The newest steps replace the oldest. */
static void test_bounded(void **state)
{
	for (uint64_t i = 0; i < HB_USAGE_STEPS + 5; i++) {
		assert_null(hb_tenant_usage_step(&usage, (uint32_t)i));
		add_step(0, i * (i + 1) / 2 * MS, NULL); /* the share of step i is i thousandths */
		assert_int_equal(last_step()->share_ppm, i * 1000);
		if (i + 1 >= HB_USAGE_STEPS)
			break;
	}
	for (uint64_t i = HB_USAGE_STEPS; i < HB_USAGE_STEPS + 5; i++)
		add_step(0, i * (i + 1) / 2 * MS, NULL);
	for (uint32_t back = 0; back < HB_USAGE_STEPS; back++)
		assert_int_equal(hb_tenant_usage_step(&usage, back)->share_ppm, (HB_USAGE_STEPS + 4 - back) * 1000);
	assert_null(hb_tenant_usage_step(&usage, HB_USAGE_STEPS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_shares, empty_all),
		cmocka_unit_test_setup(test_latency, empty_all),
		cmocka_unit_test_setup(test_latency_outside_the_bounds, empty_all),
		cmocka_unit_test(test_shares_of_a_gpu),
		cmocka_unit_test_setup(test_counters, empty_all),
		cmocka_unit_test_setup(test_bounded, empty_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
