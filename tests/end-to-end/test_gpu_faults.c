/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of GPUs in the daemon, with a fake libnvidia-ml.so.1: the daemon shows them. A lost GPU gets no new tenants,
 * and its gates are open. A driver that hangs delays neither the daemon's work nor its end.
 */
#include "daemon_harness.h"
#include "fake_nvml_files.h"
#include "gate/gate.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 100 /* after this a condition counts as never true */

static struct daemon daemon_;

static int set_up(void **state)
{
	make_nvml_files();
	daemon_start(&daemon_, HBD, "mps: false\n");
	return 0;
}

static int tear_down(void **state)
{
	daemon_clean(&daemon_);
	remove_nvml_files();
	return 0;
}

static struct hb_membership start_tenant(unsigned seed)
{
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_tenant_options wish = wish_of(seed, HB_PAGE_LOW);
	wish.engine = HB_ENGINE_TURNS;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	return member;
}

/* The health of the GPU, once it has this member with this value; the caller frees *status. */
static const json_t *wait_for(const char *key, int64_t value, json_t **status)
{
	for (int i = 0; i < LIMIT_S * 100; i++) {
		*status = daemon_status(&daemon_);
		const json_t *gpu = json_array_get(json_object_get(*status, "gpus"), 0);
		const json_t *health = json_object_get(gpu, "health"), *found = json_object_get(health, key);
		if (json_is_integer(found) ? json_integer_value(found) == value : json_is_true(found) == value)
			return health;
		json_decref(*status);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	fail_msg("the status never had %s %lld", key, (long long)value);
	return NULL;
}

static void an_xid_is_shown(void **state)
{
	json_t *status;
	struct hb_membership member = start_tenant(1);
	write_file(events_path, "a", "xid 31\n");
	const json_t *health = wait_for("faults", 1, &status);
	assert_false(json_is_true(json_object_get(health, "lost")));
	assert_string_equal(json_string_value(json_object_get(json_object_get(health, "last"), "what")),
			    "Xid 31 (a program accessed memory that it may not access)");
	assert_string_equal(json_string_value(json_object_get(health, "why")), "");
	json_decref(status);
	hb_membership_fini(&member);
}

static bool is_open(const struct hb_membership *member)
{
	return hb_gate_state(gate_of(member, 0)) == HB_GATE_OPEN;
}

static void a_lost_gpu_gets_no_new_tenants_and_holds_nobody(void **state)
{
	json_t *status;
	struct hb_membership first = start_tenant(1), second = start_tenant(2), third = HB_MEMBERSHIP_NONE;
	while (is_open(&first) && is_open(&second))
		json_decref(daemon_status(&daemon_));                /* until they take turns */
	hb_gate_try(gate_of(is_open(&first) ? &first : &second, 0)); /* the holder stays busy and keeps its turn */
	write_file(state_path, "w", "lost\n");
	wait_for("lost", true, &status);
	json_decref(status);
	for (int i = 0; i < LIMIT_S * 100 && !(is_open(&first) && is_open(&second)); i++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	assert_true(is_open(&first) && is_open(&second));
	struct hb_tenant_options wish = wish_of(3, HB_PAGE_LOW);
	wish.engine = HB_ENGINE_TURNS;
	assert_int_equal(create(&daemon_, wish), 0); /* which GPUs it will use is not known yet */
	assert_int_equal(join(&daemon_, &wish, &third), -ENODEV);
	write_file(state_path, "w", "\n");
	wait_for("lost", false, &status);
	json_decref(status);
	assert_int_equal(join(&daemon_, &wish, &third), 0);
	hb_membership_fini(&first);
	hb_membership_fini(&second);
	hb_membership_fini(&third);
}

static void a_driver_that_hangs_keeps_nobody(void **state)
{
	write_file(state_path, "w", "hang\n");
	struct hb_membership member = start_tenant(1);
	json_decref(daemon_status(&daemon_)); /* asks the driver, which does not answer */
	assert_int_equal(daemon_tenants(&daemon_), 1);
	assert_int_equal(daemon_end(&daemon_, SIGTERM), 0);
	hb_membership_fini(&member);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_xid_is_shown, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_lost_gpu_gets_no_new_tenants_and_holds_nobody, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_driver_that_hangs_keeps_nobody, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
