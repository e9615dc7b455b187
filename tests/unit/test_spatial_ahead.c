/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of the spatial engine about what LP does ahead of HP's requests: after pauses, while HP is idle, and before expected ones. */
#include "spatial_low_rig.h"

/* HP serves requests 0.3 ms apart, pauses for 7 s, and continues: LP must be masked from the first request on. */
static void test_a_pause_does_not_hide_close_requests(void **state)
{
	struct low_rig *rig = *state;
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 1640 * US);
	for (int i = 0; i < 64; i++)
		serve(&rig->hp, 16, 300 * US);
	rig->hp.beacon->reserve = 31 | 3U << HB_SPATIAL_GAPS_SHIFT;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 100);
	rig->hp.now_ns += 7000 * MS; /* LP has the GPU */
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
	serve(&rig->hp, 16, 300 * US);
	rig->hp.beacon->reserve = 31 | 3U << HB_SPATIAL_GAPS_SHIFT;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 100);
}

/* A request is expected in 2 ms. A launch that ends before is not masked, one that would still run then is. */
static void test_masked_as_early_as_the_launch_is_long(void **state)
{
	struct low_rig *rig = *state;
	static const struct hb_spatial_shape longer = {
		.key = 21, .blocks = 132, .per_sm = 1, .flags = HB_SPATIAL_MASKABLE};
	let_beside(&rig->hp);
	set_short_windows(&rig->low->limits);
	rig->low->limits.window_ns = rig->low->limits.standing_ns = 100 * MS;
	learn_duration(rig->low, &persistent, 1400 * US);
	learn_duration(rig->low, &longer, 2400 * US);
	rig->hp.beacon->gap_ns = 1000 * MS;
	rig->hp.beacon->allow_ns = 1000 * MS;
	hb_spatial_high_expect(&rig->hp.high, rig->hp.now_ns + 2 * MS, rig->hp.now_ns + 3 * MS);
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
	ask(rig, &longer);
	assert_int_equal(rig->answer.sms, 100);
	/* Work in flight delays the launch. */
	ask(rig, &persistent);
	hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	rig->low->limits.beside_ns = rig->low->limits.window_ns = rig->low->limits.open_ns = 100 * MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.verdict, HB_SPATIAL_GO);
	assert_int_equal(rig->answer.sms, 100);
	/* The expected request did not come. */
	hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	rig->hp.now_ns += 3 * MS;
	ask(rig, &longer);
	assert_int_equal(rig->answer.sms, 0);
}

/* HP has been idle for long. LP leaves a small reserve where it would keep its SMs for longer than the window, and runs far ahead. */
static void test_idle_high_costs_low_little(void **state)
{
	struct low_rig *rig = *state;
	static const struct hb_spatial_shape endless = {
		.key = 23, .blocks = 132, .per_sm = 1, .flags = HB_SPATIAL_MASKABLE};
	hb_spatial_limits_init(&rig->low->limits, SMS);
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 1400 * US);
	learn_duration(rig->low, &plain, 900 * US);
	learn_duration(rig->low, &endless, 80 * MS);
	rig->hp.beacon->allow_ns = 0; /* the next request would allow nothing */
	rig->hp.now_ns += 10000 * MS;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
	ask(rig, &endless);
	assert_int_equal(rig->answer.sms, 124);
	assert_in_range(rig->answer.ns, 84 * MS, 86 * MS);
	int launches = 0;
	for (; ask(rig, &plain) == HB_SPATIAL_GO && launches < 1000; launches++)
		hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
	assert_in_range(launches, 12, 16); /* four windows */
}

/* Nothing is known of a kernel's blocks at first; a long one is known before it runs without a mask. */
static void test_the_first_launches_of_a_kernel_are_masked(void **state)
{
	struct low_rig *rig = *state;
	hb_spatial_limits_init(&rig->low->limits, SMS);
	let_beside(&rig->hp);
	rig->hp.beacon->allow_ns = 2 * MS;
	rig->hp.beacon->gap_ns = 1000 * MS;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(ask(rig, &persistent), HB_SPATIAL_GO);
		assert_int_equal(rig->answer.sms, 100);
		hb_spatial_went(rig->low, &rig->stream, rig->hp.now_ns, &rig->answer);
		hb_spatial_idle(&rig->stream, rig->hp.now_ns);
	}
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 0);
	/* The same, but the GPU's counter shows that it takes 40 ms behind the mask. */
	assert_int_equal(ask(rig, &plain), HB_SPATIAL_GO);
	int64_t began_ns = rig->hp.now_ns;
	uint32_t mark = hb_spatial_went(rig->low, &rig->stream, began_ns, &rig->answer);
	assert_int_not_equal(mark, 0);
	hb_spatial_done(rig->low, &rig->stream, mark, began_ns + 39 * MS, began_ns + 40 * MS);
	assert_in_range(hb_spatial_find(rig->low, plain.key)->duration_ns, 28 * MS, 36 * MS);
}

/* The launches that come need 10 SMs for the next 2 ms: LP leaves only these free with a launch that ends before. */
static void test_the_reserve_follows_the_next_launches(void **state)
{
	struct low_rig *rig = *state;
	hb_spatial_limits_init(&rig->low->limits, SMS);
	let_beside(&rig->hp);
	learn_duration(rig->low, &persistent, 600 * US);
	hb_spatial_high_begin(&rig->hp.high, rig->hp.now_ns, 0);
	rig->hp.beacon->seen_ns = rig->hp.now_ns;
	rig->hp.beacon->reserve = 32 | 10U << HB_SPATIAL_NEXT_SHIFT |
				  (2 * MS / HB_SPATIAL_NEXT_UNIT_NS) << HB_SPATIAL_NEXT_FOR_SHIFT;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 122);
	rig->hp.now_ns += 1500 * US;
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 100);
	/* A second process that serves a request: nothing is known of its launches. */
	rig->hp.now_ns -= 1500 * US;
	struct hb_spatial_high other;
	hb_spatial_high_init(&other, hb_spatial_claim(&rig->hp.board, 78), SMS);
	other.allowance_ppm = 50000;
	for (int i = 0; i <= HB_SPATIAL_FIRST_CLOSED; i++) {
		hb_spatial_high_begin(&other, rig->hp.now_ns - 20 * MS, 0);
		hb_spatial_high_end(&other, rig->hp.now_ns - 10 * MS);
	}
	hb_spatial_high_begin(&other, rig->hp.now_ns, 0);
	ask(rig, &persistent);
	assert_int_equal(rig->answer.sms, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_a_pause_does_not_hide_close_requests),
		TEST(test_masked_as_early_as_the_launch_is_long),
		TEST(test_idle_high_costs_low_little),
		TEST(test_the_first_launches_of_a_kernel_are_masked),
		TEST(test_the_reserve_follows_the_next_launches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
