/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of HP's side of the spatial engine: measuring the time alone, the reserve that follows the excess, and pauses of LP. */
#include "spatial_unit_rig.h"
#include "unit.h"

#include <stdlib.h>

static int set_up(void **state)
{
	struct service *service = calloc(1, sizeof *service);
	start_service(service);
	*state = service;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static uint32_t gaps_of(const struct service *service)
{
	return service->beacon->reserve >> HB_SPATIAL_GAPS_SHIFT;
}

/* The first requests and later a few in a row allow nothing; the time left is known by then. */
static void test_closed_windows(void **state)
{
	struct service *service = *state;
	service->high.allowance_ppm = 50000;
	uint32_t closed = 0;
	for (int i = 0; i < 300; i++) {
		hb_spatial_high_begin(&service->high, service->now_ns, 0);
		closed += service->beacon->allow_ns == 0;
		if (i == 63)
			assert_in_range(hb_spatial_high_left_ns(&service->high), 1900 * US, 2100 * US);
		for (int launch = 0; launch < 160; launch++)
			hb_spatial_high_launch(&service->high, service->now_ns += 12500);
		hb_spatial_high_end(&service->high, service->now_ns);
		service->now_ns += 2 * MS;
	}
	/* From 0, 16, 32, 64, 128 and 256. */
	assert_int_equal(closed, HB_SPATIAL_FIRST_CLOSED + 5 * HB_SPATIAL_CLOSED_RUN);
	service->high.allowance_ppm = 0;
	hb_spatial_high_begin(&service->high, service->now_ns, 0);
	assert_int_equal(service->beacon->allow_ns, 0);
}

/* The first request of a row that allows nothing still meets LP's work in flight, so it is not measured. */
static void test_first_of_a_row_teaches_nothing(void **state)
{
	struct service *service = *state;
	let_beside(service);
	int64_t alone_ns = service->high.alone_ns;
	for (int i = 0; i < 1024; i++) {
		bool first = service->high.closed && !service->high.was_closed;
		serve(service, 160, first ? 8 * MS : 2 * MS);
	}
	assert_in_range(service->high.alone_ns, alone_ns - 20 * US, alone_ns + 20 * US);
}

/* Requests that take longer than alone unless LP waits. */
static uint32_t serve_slowed(struct service *service, int requests, int64_t took_ns)
{
	uint32_t closed = 0;
	for (int i = 0; i < requests; i++) {
		bool kept_out = service->high.closed;
		closed += kept_out;
		serve(service, 160, kept_out ? 2 * MS : took_ns);
	}
	return closed;
}

static void test_reserve_follows_the_excess(void **state)
{
	struct service *service = *state;
	let_beside(service);
	assert_int_equal(reserve_of(service), 31);
	serve_slowed(service, 120, 2120 * US);
	uint32_t grown = reserve_of(service);
	assert_true(grown > 31);
	serve_slowed(service, 1000, 2120 * US);
	assert_int_equal(reserve_of(service), SMS / 2);
	serve_slowed(service, 4000, 2 * MS);
	assert_int_equal(reserve_of(service), SMS * 6 / 100);
}

/* If no reserve helps, LP waits for some requests; if one helps, only during those that measure the time alone. */
static void test_gated_where_no_reserve_helps(void **state)
{
	struct service *service = *state;
	let_beside(service);
	assert_in_range(serve_slowed(service, 1024, 2120 * US), 32, 36);
	assert_true(serve_slowed(service, 1024, 3 * MS) > 500);
	serve_slowed(service, 2048, 2 * MS);
	assert_in_range(serve_slowed(service, 1024, 2 * MS), 16, 20);
}

/* A request that takes half as long again needs the largest reserve at once; a little more, one step. */
static void test_reserve_jumps(void **state)
{
	struct service *service = *state;
	let_beside(service);
	serve_slowed(service, 16, 2200 * US);
	assert_int_equal(reserve_of(service), 31);
	serve_slowed(service, 16, 2200 * US);
	assert_int_equal(reserve_of(service), 31 + SMS / 16);
	serve_slowed(service, 16, 4 * MS);
	assert_int_equal(reserve_of(service), SMS / 2);
}

/* LP always delays HP: each pause is twice as long as the one before, and the reserve is small meanwhile. */
static void test_gated_longer_each_time(void **state)
{
	struct service *service = *state;
	uint32_t runs[4] = {0}, n = 0;
	let_beside(service);
	for (int i = 0; i < 4000 && n < 4; i++) {
		bool gated = service->high.kinds.last->guard.gated > 0;
		if (gated)
			assert_int_equal(reserve_of(service), 31);
		serve(service, 160, service->high.closed ? 2 * MS : 3 * MS);
		runs[n] += gated;
		n += gated && !service->high.kinds.last->guard.gated;
	}
	assert_int_equal(n, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(runs[i], HB_SPATIAL_PAUSE << i);
}

/* A smaller reserve delays HP: it is tried again after twice as many calm requests each time. */
static void test_smaller_reserve_is_tried_more_rarely(void **state)
{
	struct service *service = *state;
	uint32_t tries = 0, before = 0;
	let_beside(service);
	for (int i = 0; i < 8192; i++) {
		uint32_t reserve = service->high.kinds.last->guard.reserve;
		serve(service, 160, service->high.closed || reserve > 31 ? 2 * MS : 2300 * US);
		tries += service->high.kinds.last->guard.reserve < reserve;
		before = i == 2047 ? tries : before;
	}
	assert_in_range(before, 2, 6);
	assert_in_range(tries - before, 1, 5);
}

/* A request of 160 launches, begun at once and launched in host_ns; then it waits wait_ns for the GPU. */
static void serve_at_pace(struct service *service, int64_t host_ns, int64_t wait_ns)
{
	hb_spatial_high_begin(&service->high, service->now_ns, 0);
	for (int i = 0; i < 160; i++)
		hb_spatial_high_launch(&service->high, service->now_ns += host_ns / 160);
	hb_spatial_high_wait(&service->high, service->now_ns);
	hb_spatial_high_wait(&service->high,
			     service->now_ns + wait_ns / 2); /* the second report does not move the begin of the wait */
	hb_spatial_high_end(&service->high, service->now_ns += wait_ns);
	service->now_ns += 20 * MS;
}

/* A slow CPU is not blamed on LP; a late GPU is, however small its part of the time. */
static void test_a_slow_cpu_is_not_blamed_on_low(void **state)
{
	struct service *service = *state;
	service->high.allowance_ppm = 30000;
	for (int i = 0; i < 2000; i++) {
		uint32_t before = reserve_of(service);
		serve_at_pace(service, i / 50 % 2 ? 5 * MS : 3 * MS, 40 * US);
		assert_true(reserve_of(service) <= before);
	}
	for (int i = 0; i < 400; i++)
		serve_at_pace(service, 3 * MS, service->high.closed ? 40 * US : 140 * US);
	assert_true(service->high.kinds.last->guard.gated > 0);
}

/* The GPU sets the pace: a process that launches faster than before waits longer, which is no delay. */
static void test_a_faster_cpu_is_not_blamed_on_low(void **state)
{
	struct service *service = *state;
	service->high.allowance_ppm = 30000;
	for (int i = 0; i < 1000; i++)
		serve_at_pace(service, 2 * MS, 2 * MS);
	uint32_t before = reserve_of(service);
	for (int i = 0; i < 200; i++)
		serve_at_pace(service, 1 * MS, 3 * MS);
	assert_true(reserve_of(service) <= before);
	for (int i = 0; i < 400; i++)
		serve_at_pace(service, 2 * MS, service->high.closed ? 2 * MS : 2200 * US);
	assert_true(service->high.kinds.last->guard.gated > 0);
}

/* A wait that was not reported (another thread had the lock) does not make an entire request count as delayed. */
static void test_an_untold_wait_is_no_harm(void **state)
{
	struct service *service = *state;
	service->high.allowance_ppm = 30000;
	for (int i = 0; i < 1000; i++) {
		if (i % 8)
			serve_at_pace(service, 3 * MS, 40 * US);
		else
			serve(service, 160, 3 * MS + 40 * US);
		assert_true(reserve_of(service) <= 31);
	}
}

/* The first requests take hundreds of times as long as later ones; their times are forgotten within a hundred requests. */
static void test_warming_up_is_forgotten(void **state)
{
	struct service *service = *state;
	service->high.allowance_ppm = 30000;
	for (int i = 0; i < 5; i++)
		serve_at_pace(service, 1700 * MS, 40 * US);
	for (int i = 0; i < 100; i++)
		serve_at_pace(service, 3 * MS, 40 * US);
	hb_spatial_high_begin(&service->high, service->now_ns, 0);
	assert_in_range(service->beacon->allow_ns, 80 * US, 140 * US);
}

/* LP gets all SMs between requests after a long time without delay, loses them at once, and gets them more rarely then. */
static void test_gaps(void **state)
{
	struct service *service = *state;
	int opened[2] = {0};
	service->high.allowance_ppm = 30000;
	for (int i = 0; i < 8192; i++) {
		uint32_t gaps = gaps_of(service);
		assert_in_range(gaps, 0, 2);
		serve_at_pace(service, 3 * MS, gaps == 2 && !service->high.closed ? 400 * US : 90 * US);
		opened[i >= 4096] += gaps_of(service) > gaps;
		assert_true(reserve_of(service) <= 31);
	}
	assert_in_range(opened[0], 2, 8);
	assert_in_range(opened[1], 1, 4);
	for (int i = 0; i < 8192; i++)
		serve_at_pace(service, 3 * MS, 40 * US);
	assert_int_equal(gaps_of(service), HB_SPATIAL_GAPS_MOST);
	/* Much delay: one step back as soon as it is certain, the others with the next eight requests. */
	for (int i = 0; i < 64 && gaps_of(service) == HB_SPATIAL_GAPS_MOST; i++)
		serve_at_pace(service, 3 * MS, service->high.closed ? 40 * US : 3 * MS);
	assert_int_equal(gaps_of(service), HB_SPATIAL_GAPS_MOST - 1);
	for (int i = 0; i < 8 + HB_SPATIAL_CLOSED_RUN; i++)
		serve_at_pace(service, 3 * MS, service->high.closed ? 40 * US : 3 * MS);
	assert_int_equal(gaps_of(service), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_closed_windows),
		TEST(test_first_of_a_row_teaches_nothing),
		TEST(test_reserve_follows_the_excess),
		TEST(test_gated_where_no_reserve_helps),
		TEST(test_reserve_jumps),
		TEST(test_a_slow_cpu_is_not_blamed_on_low),
		TEST(test_a_faster_cpu_is_not_blamed_on_low),
		TEST(test_an_untold_wait_is_no_harm),
		TEST(test_warming_up_is_forgotten),
		TEST(test_gaps),
		TEST(test_gated_longer_each_time),
		TEST(test_smaller_reserve_is_tried_more_rarely),
	};
	return cmocka_run_group_tests(tests, 0, 0);
}
