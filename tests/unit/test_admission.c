/* SPDX-License-Identifier: Apache-2.0 */
/* Rules by user, unit and cgroup: which priority and limits a tenant gets, and that a user cannot raise the priority in system mode. */
#include "daemon/admission.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

static const char rules[] = "others: low\n"
			    "reserve: 4GiB\n"
			    "rules:\n"
			    "  - {name: servers, unit: serving.service, priority: high}\n"
			    "  - {name: batch, cgroup: /batch.slice, priority: low, memory: 8GiB}\n"
			    "  - {user: ann, priority: high, slo: 10ms}\n";

static struct hb_daemon_config config;
static char reason[160];

static int set_up(void **state)
{
	struct hb_error error = {""};
	hb_daemon_config_init(&config);
	int result = hb_daemon_config_parse(rules, "rules.yaml", &config, &error);
	if (result < 0)
		print_message("%s\n", error.text);
	return result;
}

static struct hb_rights ask(const char *user, const char *cgroup, bool system_mode, struct hb_rights asked)
{
	struct hb_peer peer = {.pid = 1};
	strcpy(peer.user, user);
	strcpy(peer.cgroup, cgroup);
	hb_peer_unit(peer.cgroup, peer.unit, sizeof peer.unit);
	return hb_admit(&config, system_mode, &peer, &asked, reason);
}

static const struct hb_rights high = {.priority = HB_PAGE_HIGH};

static void users_without_a_rule_stay_low_in_system_mode(void **state)
{
	assert_int_equal(ask("eve", "/user.slice", true, high).priority, HB_PAGE_LOW);
	assert_non_null(strstr(reason, "no rule"));
	assert_int_equal(ask("eve", "/user.slice", false, high).priority, HB_PAGE_HIGH);
	assert_string_equal(reason, "");
}

static bool may_join(const char *first_cgroup, const char *cgroup, struct hb_rights rights)
{
	struct hb_peer first = {.pid = 1}, peer = {.pid = 2};
	strcpy(first.user, "eve");
	strcpy(peer.user, "eve");
	strcpy(first.cgroup, first_cgroup);
	strcpy(peer.cgroup, cgroup);
	hb_peer_unit(first.cgroup, first.unit, sizeof first.unit);
	hb_peer_unit(peer.cgroup, peer.unit, sizeof peer.unit);
	return hb_admit_join(&config, true, &first, &rights, &peer, reason);
}

static void the_rules_bind_processes_that_join(void **state)
{
	const struct hb_rights low = {.priority = HB_PAGE_LOW};
	assert_true(may_join("/system.slice/serving.service", "/system.slice/serving.service/worker", high));
	assert_false(may_join("/system.slice/serving.service", "/user.slice", high));
	assert_non_null(strstr(reason, "priority high not granted: no rule"));
	assert_true(may_join("/user.slice", "/user.slice/other", low));
	/* A limit of memory cannot be left behind by joining a tenant without one. */
	assert_false(may_join("/user.slice", "/batch.slice", low));
	assert_non_null(strstr(reason, "memory limited by rule 'batch'"));
	/* Root has raised the tenant beyond its rule: others under the same rule may still join. */
	assert_true(may_join("/user.slice", "/user.slice/other", high));
}

static void rules_apply_to_root(void **state)
{
	assert_int_equal(ask("root", "/", true, high).priority, HB_PAGE_LOW);
}

static void rules_fit_by_unit_cgroup_and_user(void **state)
{
	assert_int_equal(ask("eve", "/system.slice/serving.service", true, high).priority, HB_PAGE_HIGH);
	assert_int_equal(ask("eve", "/system.slice/serving.service/worker", true, high).priority, HB_PAGE_HIGH);
	assert_int_equal(ask("eve", "/system.slice/notserving.service", true, high).priority, HB_PAGE_LOW);
	assert_int_equal(ask("ann", "/user.slice", true, high).priority, HB_PAGE_HIGH);
	assert_int_equal(ask("anna", "/user.slice", true, high).priority, HB_PAGE_LOW);
}

static void the_first_rule_that_fits_decides_also_in_user_mode(void **state)
{
	assert_int_equal(ask("ann", "/batch.slice/job1", false, high).priority, HB_PAGE_LOW);
	assert_non_null(strstr(reason, "rule 'batch'"));
	assert_int_equal(ask("ann", "/batch.slice.other", false, high).priority, HB_PAGE_HIGH);
}

static void memory_is_capped_never_raised(void **state)
{
	struct hb_rights more = {.memory_bytes = UINT64_C(16) << 30}, less = {.memory_bytes = UINT64_C(1) << 30},
			 none = {0};
	assert_int_equal(ask("eve", "/batch.slice", true, more).memory_bytes, UINT64_C(8) << 30);
	assert_int_equal(ask("eve", "/batch.slice", true, less).memory_bytes, UINT64_C(1) << 30);
	assert_int_equal(ask("eve", "/batch.slice", true, none).memory_bytes, UINT64_C(8) << 30);
}

static void a_requested_slo_overrides_the_rule(void **state)
{
	struct hb_rights own = {.slo_ns = 5}, none = {0};
	assert_int_equal(ask("ann", "/", true, own).slo_ns, 5);
	assert_int_equal(ask("ann", "/", true, none).slo_ns, 10000000);
}

static void priority_low_is_never_raised(void **state)
{
	struct hb_rights low = {.priority = HB_PAGE_LOW};
	assert_int_equal(ask("ann", "/", true, low).priority, HB_PAGE_LOW);
}

static void units_are_found_in_cgroup_paths(void **state)
{
	char unit[32];
	hb_peer_unit("/user.slice/user-1000.slice/session-3.scope", unit, sizeof unit);
	assert_string_equal(unit, "session-3.scope");
	hb_peer_unit("/system.slice/docker-abc.scope/init", unit, sizeof unit);
	assert_string_equal(unit, "docker-abc.scope");
	hb_peer_unit("/batch.slice/batch-night.slice", unit, sizeof unit);
	assert_string_equal(unit, "batch-night.slice");
	hb_peer_unit("/", unit, sizeof unit);
	assert_string_equal(unit, "");
	hb_peer_unit("", unit, sizeof unit);
	assert_string_equal(unit, "");
	hb_peer_unit("/.service", unit, sizeof unit);
	assert_string_equal(unit, "");
	hb_peer_unit("/a-name-that-is-too-long-for-the-field.service", unit, sizeof unit);
	assert_string_equal(unit, "");
}

/* A unit of the same name under a user's own systemd, or a cgroup of that name, is not the system's service. */
static void a_users_own_unit_is_not_the_systems(void **state)
{
	char unit[32];
	hb_peer_unit("/user.slice/user-1000.slice/user@1000.service/app.slice/serving.service", unit, sizeof unit);
	assert_string_equal(unit, "user@1000.service");
	hb_peer_unit("/system.slice/a-name-that-is-too-long-for-the-field.service/serving.service", unit, sizeof unit);
	assert_string_equal(unit, "");
}

static void bad_configurations_are_named_by_line(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"engine: magic\n", "f.yaml:1"},
		{"mps: true\nquantum: 0ms\n", "f.yaml:2"},
		{"rules:\n  - {user: ann}\n", "priority"},
		{"reserve: -4GiB\n", "reserve"},
		{"speed: 3\n", "speed"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct hb_error error = {""};
		struct hb_daemon_config read, before;
		hb_daemon_config_init(&read);
		before = read;
		assert_int_equal(hb_daemon_config_parse(cases[i].text, "f.yaml", &read, &error), -EINVAL);
		assert_non_null(strstr(error.text, cases[i].says));
		assert_memory_equal(&read, &before, sizeof read);
	}
}

/* The benchmarks change settings of the spatial engine while one daemon runs. */
static void a_reload_changes_only_keys_that_can_change(void **state)
{
	struct hb_daemon_config now, read;
	struct hb_error error;
	char later[200];
	hb_daemon_config_init(&now);
	hb_daemon_config_init(&read);
	assert_int_equal(hb_daemon_config_parse("engine: spatial\nwindow: 1ms\nmasks: gpcs\n"
						"reserve: 1GiB\nquantum: 20ms\n",
						"f.yaml", &read, &error),
			 0);
	hb_daemon_config_reload(&now, &read, later, sizeof later);
	assert_string_equal(later, "engine, quantum");
	assert_int_equal(now.engine, HB_CONFIG_ENGINE_TEMPORAL);
	assert_int_equal(now.window_ns, 1000000);
	assert_int_equal(now.masks, HB_CONFIG_MASKS_GPCS);
	assert_int_equal(now.reserve_bytes, UINT64_C(1) << 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reload_changes_only_keys_that_can_change),
		cmocka_unit_test(users_without_a_rule_stay_low_in_system_mode),
		cmocka_unit_test(rules_apply_to_root),
		cmocka_unit_test(the_rules_bind_processes_that_join),
		cmocka_unit_test(rules_fit_by_unit_cgroup_and_user),
		cmocka_unit_test(the_first_rule_that_fits_decides_also_in_user_mode),
		cmocka_unit_test(memory_is_capped_never_raised),
		cmocka_unit_test(a_requested_slo_overrides_the_rule),
		cmocka_unit_test(priority_low_is_never_raised),
		cmocka_unit_test(units_are_found_in_cgroup_paths),
		cmocka_unit_test(a_users_own_unit_is_not_the_systems),
		cmocka_unit_test(bad_configurations_are_named_by_line),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
