/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of users: whatever others do, a user gets the places that are kept for it, and log lines of one user are bounded. */
#include "base/rng.h"
#include "daemon/user_budget.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL 256
#define KEPT_USERS 16
#define SECOND INT64_C(1000000000)

static struct hb_user_table *make_table(uint32_t total, uint32_t most, uint32_t users)
{
	struct hb_place_limit limits[HB_N_PLACES];
	struct hb_user_table *table = malloc(sizeof *table);
	assert_non_null(table);
	for (size_t i = 0; i < HB_N_PLACES; i++)
		limits[i] = (struct hb_place_limit){.total = total, .most = most};
	hb_user_table_init(table, limits, users);
	return table;
}

static struct hb_user *find(struct hb_user_table *table, uid_t uid)
{
	char name[16];
	snprintf(name, sizeof name, "u%u", (unsigned)uid);
	return hb_user_find(table, uid, name, 1);
}

static uint32_t take_all(struct hb_user_table *table, uid_t uid)
{
	uint32_t n = 0;
	while (hb_user_take(table, find(table, uid), HB_PLACE_TENANT))
		n++;
	return n;
}

static void one_user_alone_takes_all_but_what_is_kept(void **state)
{
	struct hb_user_table *table = make_table(TOTAL, 0, KEPT_USERS);
	uint32_t kept = table->kept[HB_PLACE_TENANT];
	assert_int_equal(kept, TOTAL / 4 / (KEPT_USERS + 1));
	assert_int_equal(take_all(table, 1001), TOTAL - KEPT_USERS * kept); /* 15 other users and root */
	assert_int_equal(find(table, 1001)->refused[HB_PLACE_TENANT], 1);
	free(table);
}

static void every_later_user_gets_what_is_kept(void **state)
{
	struct hb_user_table *table = make_table(TOTAL, 0, KEPT_USERS);
	uint32_t kept = table->kept[HB_PLACE_TENANT];
	take_all(table, 1001);
	for (uid_t uid = 1002; uid < 1001 + KEPT_USERS; uid++)
		assert_int_equal(take_all(table, uid), kept);
	assert_int_equal(take_all(table, 0), kept); /* root's places are still there */
	assert_int_equal(table->taken[HB_PLACE_TENANT], TOTAL);
	assert_int_equal(take_all(table, 2000), 0); /* one user too many */
	free(table);
}

static void without_kept_places_the_first_user_takes_all(void **state)
{
	struct hb_user_table *table = make_table(TOTAL, 0, 0);
	assert_int_equal(take_all(table, 1001), TOTAL);
	free(table);
}

static void a_user_has_no_more_than_the_configured_most(void **state)
{
	char text[512];
	struct hb_user_table *table = make_table(TOTAL, 10, KEPT_USERS);
	assert_int_equal(take_all(table, 1001), 10);
	hb_user_explain(table, find(table, 1001), HB_PLACE_TENANT, text, sizeof text);
	assert_non_null(strstr(text, "user u1001 has 10 tenants"));
	assert_non_null(strstr(text, "user_tenants"));
	free(table);
}

static void the_message_names_who_has_the_places(void **state)
{
	char text[512];
	struct hb_user_table *table = make_table(TOTAL, 0, KEPT_USERS);
	take_all(table, 1001);
	take_all(table, 1002);
	hb_user_explain(table, find(table, 1002), HB_PLACE_TENANT, text, sizeof text);
	assert_non_null(strstr(text, "user u1002 has 3 tenants"));
	assert_non_null(strstr(text, "u1001 has the most"));
	free(table);
}

/* The promise itself, with random users that take and leave: a user with a seat that holds less than k is never refused. */
static void nobody_can_take_what_is_kept_for_others(void **state)
{
	struct hb_rng rng;
	hb_rng_init(&rng, 5, 0);
	struct hb_user_table *table = make_table(TOTAL, 0, KEPT_USERS);
	uint32_t kept = table->kept[HB_PLACE_TENANT], refused = 0;
	for (int step = 0; step < 300000; step++) {
		/* A few greedy users, and many others; sometimes more than there are seats. */
		uid_t uid = (uid_t)(hb_rng_below(&rng, 3) ? hb_rng_below(&rng, 3) : hb_rng_below(&rng, 20));
		struct hb_user *user = find(table, uid);
		assert_non_null(user);
		uint32_t held = user->held[HB_PLACE_TENANT];
		bool has_seat = user->has_seat || table->seats_claimed < table->seats;
		if (held && hb_rng_below(&rng, 60) == 0) {
			hb_user_give(table, user, HB_PLACE_TENANT, 1 + (uint32_t)hb_rng_below(&rng, held));
			continue;
		}
		bool taken = hb_user_take(table, user, HB_PLACE_TENANT);
		refused += !taken;
		if (has_seat && held < kept)
			assert_true(taken);
		assert_true(table->taken[HB_PLACE_TENANT] <= TOTAL);
	}
	assert_true(refused > 1000); /* the table was full most of the time */
	free(table);
}

static void a_record_is_used_again_when_its_user_holds_nothing(void **state)
{
	struct hb_user_table *table = make_table(10 * HB_USERS_MAX, 0, KEPT_USERS);
	for (uid_t uid = 1; uid < HB_USERS_MAX; uid++)
		assert_true(hb_user_take(table, find(table, uid), HB_PLACE_TENANT));
	assert_null(find(table, 5000));
	struct hb_user *user = find(table, 7);
	hb_user_give(table, user, HB_PLACE_TENANT, 1);
	assert_ptr_equal(find(table, 5000), user);
	assert_string_equal(user->name, "u5000");
	assert_true(hb_user_take(table, user, HB_PLACE_TENANT));
	assert_null(find(table, 7)); /* no record is left for the former user, which asks again */
	free(table);
}

static void lines_of_one_user_are_bounded_and_counted(void **state)
{
	struct hb_user_table *table = make_table(TOTAL, 0, KEPT_USERS);
	struct hb_user *user = find(table, 1001), *other = find(table, 1002);
	uint64_t waiting;
	int64_t now_ns = 1000 * SECOND;
	uint32_t written = 0;
	for (int i = 0; i < 10000; i++)
		written += hb_user_may_log(user, now_ns, &waiting);
	assert_int_equal(written, HB_USER_LOG_LINES);
	assert_true(hb_user_may_log(other, now_ns, &waiting));
	assert_false(hb_user_may_log(user, now_ns + SECOND / 2, &waiting));
	assert_true(hb_user_may_log(user, now_ns + SECOND, &waiting));
	assert_int_equal(waiting, 10000 - HB_USER_LOG_LINES + 1);
	assert_int_equal(user->log_suppressed, waiting);
	assert_false(hb_user_may_log(user, now_ns + SECOND, &waiting));
	free(table);
}

static void shares_of_the_event_loop_are_counted(void **state)
{
	struct hb_user_table *table = make_table(TOTAL, 0, KEPT_USERS);
	hb_user_table_tick(table, 100 * SECOND);
	hb_user_charge(find(table, 1001), 5 * SECOND);
	hb_user_table_tick(table, 105 * SECOND);
	assert_int_equal(find(table, 1001)->share_ppm, 0); /* the window has not ended */
	hb_user_table_tick(table, 110 * SECOND);
	assert_int_equal(find(table, 1001)->share_ppm, 500000);
	hb_user_table_tick(table, 120 * SECOND);
	assert_int_equal(find(table, 1001)->share_ppm, 0);
	assert_int_equal(find(table, 1001)->loop_ns, 5 * SECOND);
	free(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_user_alone_takes_all_but_what_is_kept),
		cmocka_unit_test(every_later_user_gets_what_is_kept),
		cmocka_unit_test(without_kept_places_the_first_user_takes_all),
		cmocka_unit_test(a_user_has_no_more_than_the_configured_most),
		cmocka_unit_test(the_message_names_who_has_the_places),
		cmocka_unit_test(nobody_can_take_what_is_kept_for_others),
		cmocka_unit_test(a_record_is_used_again_when_its_user_holds_nothing),
		cmocka_unit_test(lines_of_one_user_are_bounded_and_counted),
		cmocka_unit_test(shares_of_the_event_loop_are_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
