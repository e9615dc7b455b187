/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement as an agent of a cluster asks for it (message PLACE), with small clients instead of CUDA programs and three
 * simulated GPUs: a placement counts for the next one until it ends.
 */
#include "base/clock.h"
#include "daemon_harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct daemon daemon_ = {.simulated = true};

static int set_up(void **state)
{
	setenv("HB_SIM_GPUS", "3", 1);
	setenv("HB_SIM_GPU", "/nonexistent", 1); /* no broker runs, so no memory is known */
	daemon_start(&daemon_, HBD, NULL);
	return 0;
}

static int tear_down(void **state)
{
	daemon_clean(&daemon_);
	return 0;
}

static struct hb_place_options place_of(unsigned seed, uint32_t n)
{
	struct hb_place_options wish = {.n_gpus = n, .priority = HB_PAGE_LOW};
	struct hb_tenant_options tenant = wish_of(seed, HB_PAGE_LOW);
	memcpy(wish.token, tenant.token, sizeof wish.token);
	return wish;
}

static int place(const struct hb_place_options *wish, struct hb_placed *placed)
{
	struct hb_error error = {""};
	int fd = daemon_connect(&daemon_);
	int result = hb_client_place(fd, wish, placed, &error);
	if (result < 0)
		print_message("%s\n", error.text);
	close(fd);
	return result;
}

/* Places a program on one GPU and returns the last byte of its UUID. */
static unsigned char place_one(unsigned seed, uint32_t seconds)
{
	struct hb_place_options wish = place_of(seed, 1);
	struct hb_placed placed;
	wish.seconds = seconds;
	assert_int_equal(place(&wish, &placed), 0);
	assert_int_equal(placed.n_gpus, 1);
	assert_non_null(strstr(placed.text, "order: GPU "));
	return placed.uuids[0][15];
}

static long long count_listed(void)
{
	json_t *status = daemon_status(&daemon_);
	long long n = (long long)json_array_size(json_object_get(status, "placements"));
	const json_t *places = json_object_get(json_object_get(status, "places"), "placements");
	assert_int_equal(json_integer_value(json_object_get(places, "taken")), n);
	json_decref(status);
	return n;
}

static void a_placement_counts_until_it_is_given_up(void **state)
{
	struct hb_place_options none = place_of(1, 0);
	struct hb_placed placed;
	assert_int_equal(place_one(1, 0), 0);
	assert_int_equal(place_one(2, 0), 1);
	assert_int_equal(place_one(3, 0), 2);
	assert_int_equal(count_listed(), 3);
	assert_int_equal(place(&none, &placed), 0);
	assert_int_equal(placed.n_gpus, 0);
	assert_int_equal(count_listed(), 2);
	assert_int_equal(place_one(4, 0), 0);
}

static void a_placement_with_the_same_token_replaces_the_first(void **state)
{
	assert_int_equal(place_one(1, 0), 0);
	assert_int_equal(place_one(1, 0), 0);
	assert_int_equal(count_listed(), 1);
}

static void a_program_that_never_comes_counts_for_a_while_only(void **state)
{
	int64_t limit_ns = hb_clock_now_ns() + 60 * HB_NS_PER_S;
	assert_int_equal(place_one(1, 1), 0);
	while (count_listed() && hb_clock_now_ns() < limit_ns)
		usleep(10000);
	assert_int_equal(count_listed(), 0);
	assert_int_equal(place_one(2, 0), 0);
}

static void a_placement_becomes_that_of_the_tenant_and_ends_with_it(void **state)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	assert_int_equal(place_one(1, 0), 0);
	wish.flags |= HB_REGISTER_SIMULATED;
	memcpy(wish.uuids[0], "HBSIMGPU\x40\x00\x80\x00\x00\x00\x00", HB_UUID_BYTES);
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	json_t *status = daemon_status(&daemon_), *tenant = json_array_get(json_object_get(status, "tenants"), 0);
	assert_int_equal(json_array_size(json_object_get(status, "placements")), 0);
	assert_true(json_is_object(json_object_get(tenant, "placement")));
	json_decref(status);
	assert_int_equal(place_one(2, 0), 1);
	hb_membership_fini(&member);
}

static void bad_requests_are_refused(void **state)
{
	struct hb_place_options wish = place_of(1, 4);
	struct hb_placed placed = {.n_gpus = 77};
	assert_int_equal(place(&wish, &placed), -ENODEV);
	wish.n_gpus = 2;
	wish.n_allowed = 1;
	memcpy(wish.allowed[0], "HBSIMGPU\x40\x00\x80\x00\x00\x00\x00\x01", HB_UUID_BYTES);
	assert_int_equal(place(&wish, &placed), -ENOSPC);
	assert_int_equal(placed.n_gpus, 77);
	wish.n_gpus = 1;
	assert_int_equal(place(&wish, &placed), 0);
	assert_int_equal(placed.uuids[0][15], 1);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_placement_counts_until_it_is_given_up),
		TEST(a_placement_with_the_same_token_replaces_the_first),
		TEST(a_program_that_never_comes_counts_for_a_while_only),
		TEST(a_placement_becomes_that_of_the_tenant_and_ends_with_it),
		TEST(bad_requests_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
