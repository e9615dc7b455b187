/* SPDX-License-Identifier: Apache-2.0 */
/* A source of user names that does not answer delays the names of its users only, and not the end of the daemon. */
#include "daemon/user_names.h"
#include "unit.h"

#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#define SILENT_UID 7000
#define NAMED_UID 7001
#define NAMELESS_UID 7002

/* The linker sends the calls of user_names.c here (tests/unit/meson.build). */
static pthread_mutex_t silence = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int lookups;
int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found);

int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found)
{
	lookups++;
	if (uid == SILENT_UID) {
		pthread_mutex_lock(&silence);
		pthread_mutex_unlock(&silence);
	}
	*found = NULL;
	if (uid == NAMELESS_UID)
		return 0;
	snprintf(buffer, size, "user-%u", (unsigned)uid);
	entry->pw_name = buffer;
	*found = entry;
	return 0;
}

static uv_loop_t loop;
static struct hb_user_names *names;
static uid_t last_found;
static int n_found;

static void remember_found(void *argument, uid_t uid)
{
	last_found = uid;
	n_found++;
}

static int set_up(void **state)
{
	n_found = 0;
	lookups = 0;
	return uv_loop_init(&loop) == 0 && hb_user_names_new(&loop, remember_found, NULL, &names) == 0 ? 0 : -1;
}

/* The loop ends without waiting for threads. */
static int tear_down(void **state)
{
	hb_user_names_free(names);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop);
}

static void wait_for_names(int n)
{
	while (n_found < n)
		uv_run(&loop, UV_RUN_ONCE);
}

static void a_name_is_looked_up_once(void **state)
{
	char name[HB_USER_NAME_SIZE];
	assert_false(hb_user_names_find(names, NAMED_UID, name));
	assert_string_equal(name, "7001");
	wait_for_names(1);
	assert_int_equal(last_found, NAMED_UID);
	assert_true(hb_user_names_find(names, NAMED_UID, name));
	assert_string_equal(name, "user-7001");
	assert_int_equal(lookups, 1);
}

static void a_user_without_a_name_has_a_number(void **state)
{
	char name[HB_USER_NAME_SIZE];
	assert_false(hb_user_names_find(names, NAMELESS_UID, name));
	wait_for_names(1);
	assert_true(hb_user_names_find(names, NAMELESS_UID, name));
	assert_string_equal(name, "7002");
}

static void a_silent_source_delays_nobody_else(void **state)
{
	char name[HB_USER_NAME_SIZE];
	pthread_mutex_lock(&silence);
	for (int i = 0; i < 3; i++)
		assert_false(hb_user_names_find(names, SILENT_UID, name));
	assert_string_equal(name, "7000");
	assert_false(hb_user_names_find(names, NAMED_UID, name));
	wait_for_names(1);
	assert_int_equal(last_found, NAMED_UID);
	pthread_mutex_unlock(&silence);
	wait_for_names(2);
	assert_true(hb_user_names_find(names, SILENT_UID, name));
	assert_string_equal(name, "user-7000");
	assert_int_equal(lookups, 2);
}

/* Without a free thread, users stay numbers; when threads are free again, they get their names. */
static void silent_sources_use_few_threads(void **state)
{
	char name[HB_USER_NAME_SIZE];
	pthread_mutex_lock(&silence);
	hb_user_names_find(names, SILENT_UID, name);
	for (uid_t uid = 8000; uid < 8100; uid++)
		assert_false(hb_user_names_find(names, uid, name));
	pthread_mutex_unlock(&silence);
	wait_for_names(1);
	while (!hb_user_names_find(names, 8099, name))
		uv_run(&loop, UV_RUN_NOWAIT);
	assert_string_equal(name, "user-8099");
}

static void the_end_does_not_wait_for_a_lookup(void **state)
{
	char name[HB_USER_NAME_SIZE];
	pthread_mutex_lock(&silence);
	assert_false(hb_user_names_find(names, SILENT_UID, name));
	hb_user_names_free(names);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(n_found, 0);
	pthread_mutex_unlock(&silence);
	assert_int_equal(hb_user_names_new(&loop, remember_found, NULL, &names), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_name_is_looked_up_once),           TEST(a_user_without_a_name_has_a_number),
		TEST(a_silent_source_delays_nobody_else), TEST(silent_sources_use_few_threads),
		TEST(the_end_does_not_wait_for_a_lookup),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
