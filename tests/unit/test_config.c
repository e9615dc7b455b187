/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration reader: every type reaches its field, and every error names file, line and key. */
#include "base/config.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tenant {
	char name[16];
	int64_t slo_ns;
	int weight;
};

struct settings {
	char socket[32];
	bool verbose;
	int64_t port;
	double share;
	int64_t period_ns;
	uint64_t memory;
	int engine;
	struct tenant default_tenant;
	struct tenant tenants[3];
	uint32_t n_tenants;
	int64_t depths[4];
	uint32_t n_depths;
};

static const char *const engines[] = {"temporal", "spatial", NULL};
static const char *const weights[] = {"light", "heavy", NULL};

static const struct hb_config_key tenant_keys[] = {
	HB_CONFIG_TEXT(struct tenant, name, "name", .required = true),
	HB_CONFIG_DURATION(struct tenant, slo_ns, "slo", .min = 1000, .max = 1000000000),
	HB_CONFIG_CHOICE(struct tenant, weight, "weight", .choices = weights),
	HB_CONFIG_END,
};

static const struct hb_config_key depth_key[] = {
	{.name = "", .type = HB_CONFIG_TYPE_INT, .size = sizeof(int64_t), .min = 1, .max = 1024},
	HB_CONFIG_END,
};

static const struct hb_config_key settings_keys[] = {
	HB_CONFIG_TEXT(struct settings, socket, "socket"),
	HB_CONFIG_BOOL(struct settings, verbose, "verbose"),
	HB_CONFIG_INT(struct settings, port, "port", .min = 1, .max = 65535),
	HB_CONFIG_REAL(struct settings, share, "share", .real_min = 0, .real_max = 1),
	HB_CONFIG_DURATION(struct settings, period_ns, "period"),
	HB_CONFIG_BYTES(struct settings, memory, "memory", .min = 1 << 20, .max = INT64_C(1) << 40),
	HB_CONFIG_CHOICE(struct settings, engine, "engine", .choices = engines),
	HB_CONFIG_MAP(struct settings, default_tenant, "default", .keys = tenant_keys),
	HB_CONFIG_LIST(struct settings, tenants, n_tenants, "tenants", .keys = tenant_keys),
	HB_CONFIG_LIST(struct settings, depths, n_depths, "depths", .keys = depth_key),
	HB_CONFIG_END,
};

static int parse(const char *text, struct settings *settings, struct hb_error *error)
{
	return hb_config_parse(text, strlen(text), "hb.yaml", settings_keys, settings, sizeof *settings, error);
}

static void every_type_lands_in_its_field(void **state)
{
	struct settings s = {.port = 1};
	struct hb_error error = {""};
	int rc = parse("# a comment\n"
		       "socket: /run/hb.sock\n"
		       "verbose: true\n"
		       "port: 9100\n"
		       "share: 0.25\n"
		       "period: 1.5s\n"
		       "memory: 8GiB\n"
		       "engine: spatial\n"
		       "default: {name: all, slo: 10ms}\n"
		       "tenants:\n"
		       "  - name: serve\n"
		       "    slo: 250us\n"
		       "  - {name: 'train', weight: heavy}\n"
		       "depths: [2, 16]\n",
		       &s, &error);
	assert_string_equal(error.text, "");
	assert_int_equal(rc, 0);
	assert_string_equal(s.socket, "/run/hb.sock");
	assert_true(s.verbose);
	assert_int_equal(s.port, 9100);
	assert_true(s.share == 0.25);
	assert_int_equal(s.period_ns, 1500000000);
	assert_int_equal(s.memory, UINT64_C(8) << 30);
	assert_int_equal(s.engine, 1);
	assert_string_equal(s.default_tenant.name, "all");
	assert_int_equal(s.default_tenant.slo_ns, 10000000);
	assert_int_equal(s.n_tenants, 2);
	assert_string_equal(s.tenants[0].name, "serve");
	assert_int_equal(s.tenants[0].slo_ns, 250000);
	assert_string_equal(s.tenants[1].name, "train");
	assert_int_equal(s.tenants[1].weight, 1);
	assert_int_equal(s.n_depths, 2);
	assert_int_equal(s.depths[0], 2);
	assert_int_equal(s.depths[1], 16);
}

static void keys_left_out_keep_their_defaults(void **state)
{
	struct settings s = {.port = 9100, .share = 0.5, .socket = "/x"};
	assert_int_equal(parse("", &s, NULL), 0);
	assert_int_equal(parse("# nothing\n", &s, NULL), 0);
	assert_int_equal(parse("share: 0.75", &s, NULL), 0);
	assert_int_equal(s.port, 9100);
	assert_true(s.share == 0.75);
	assert_string_equal(s.socket, "/x");
}

static const struct mistake {
	const char *text, *message;
} mistakes[] = {
	{"port: 1\nprot: 9100\n", "hb.yaml:2: prot: unknown key; did you mean 'port'?"},
	{"tenants:\n  - name: a\n    sol: 1ms\n", "hb.yaml:3: tenants[0].sol: unknown key; did you mean 'slo'?"},
	{"\nquantum: 3", "hb.yaml:2: quantum: unknown key"},
	{"port: 1\nshare: 1\nport: 2\n", "hb.yaml:3: port: given twice"},
	{"default: {name: a, name: b}", "hb.yaml:1: default.name: given twice"},
	{"port: many", "hb.yaml:1: port: 'many' is not a whole number"},
	{"port: 1.5", "hb.yaml:1: port: '1.5' is not a whole number"},
	{"port: '80'", "hb.yaml:1: port: \"80\" is text; write it without quotes"},
	{"port: 0", "hb.yaml:1: port: 0 is out of range: 1 to 65535"},
	{"port: -1", "hb.yaml:1: port: -1 is out of range: 1 to 65535"},
	{"port: 99999999999999999999", "hb.yaml:1: port: 99999999999999999999 is too large"},
	{"port:", "hb.yaml:1: port: has no value"},
	{"port: [1]", "hb.yaml:1: port: must be a single value"},
	{"verbose: yes", "hb.yaml:1: verbose: 'yes' is neither true nor false"},
	{"share: .nan", "hb.yaml:1: share: '.nan' is not a finite number"},
	{"share: 0x1p3", "hb.yaml:1: share: '0x1p3' is not a finite number"},
	{"share: 1.01", "hb.yaml:1: share: 1.01 is out of range: 0 to 1"},
	{"period: 10",
	 "hb.yaml:1: period: '10' is not a duration: write a number and one of ns, us, ms, s, min, h (10ms, 1.5s)"},
	{"default:\n  name: a\n  slo: 1ns", "hb.yaml:3: default.slo: 1ns is out of range: 1us to 1s"},
	{"memory: 1KiB", "hb.yaml:1: memory: 1KiB is out of range: 1MiB to 1TiB"},
	{"engine: magic", "hb.yaml:1: engine: 'magic' is not one of temporal, spatial"},
	{"socket: /a/path/that/is/much/too/long/for/it", "hb.yaml:1: socket: text is 36 bytes long, at most 31 fit"},
	{"default: 3", "hb.yaml:1: default: must be a map of keys (key: value)"},
	{"tenants: serve", "hb.yaml:1: tenants: 'serve' is a single value where a list is expected"},
	{"tenants: {name: a}", "hb.yaml:1: tenants: must be a list"},
	{"tenants:\n- slo: 1ms\n", "hb.yaml:2: tenants[0].name: is required"},
	{"depths: [1, 2, 3, 4, 5]", "hb.yaml:1: depths: has 5 entries, at most 4 fit"},
	{"depths: [1, 0]", "hb.yaml:1: depths[1]: 0 is out of range: 1 to 1024"},
	{"- a\n- b\n", "hb.yaml:1: must be a map of keys (key: value)"},
	{"? [a, b]\n: 1\n", "hb.yaml:1: a key must be a single word"},
	{"default: &x {name: a}\n", "hb.yaml:1: anchors and aliases are not supported; write the value out"},
	{"port: 1\n---\nport: 2\n", "hb.yaml:2: a second document begins here; keep one"},
};

static void every_mistake_is_told_with_its_place(void **state)
{
	for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
		struct settings s = {.port = 4711}, before = s;
		struct hb_error error = {""};
		assert_int_equal(parse(mistakes[i].text, &s, &error), -EINVAL);
		assert_string_equal(error.text, mistakes[i].message);
		assert_memory_equal(&s, &before, sizeof s);
	}
}

static void broken_yaml_names_the_line(void **state)
{
	struct settings s = {0};
	struct hb_error error = {""};
	assert_int_equal(parse("port: 1\nshare: [1, 2\n", &s, &error), -EINVAL);
	assert_ptr_equal(strstr(error.text, "hb.yaml:3: not valid YAML: "), error.text);
	assert_int_equal(parse("a: \x01", &s, &error), -EINVAL);
	assert_int_equal(parse("\xff\xfe\xfd", &s, &error), -EINVAL);
	assert_int_equal(parse("port: *gone", &s, &error), -EINVAL);
}

/* Any prefix and any one-byte change of a good file is either read or refused, never a crash. */
static void damaged_files_are_survived(void **state)
{
	const char good[] = "socket: \"/x\"\ndefault: {name: a, slo: 1ms}\ntenants: [{name: b}]\ndepths: [1]\n";
	char text[sizeof good];
	for (size_t at = 0; at < sizeof good - 1; at++) {
		struct settings s = {0};
		int rc = hb_config_parse(good, at, "p", settings_keys, &s, sizeof s, NULL);
		assert_true(rc == 0 || rc == -EINVAL);
		for (int byte = 0; byte < 256; byte += 5) {
			memcpy(text, good, sizeof good);
			text[at] = (char)byte;
			rc = hb_config_parse(text, sizeof good - 1, "p", settings_keys, &s, sizeof s, NULL);
			assert_true(rc == 0 || rc == -EINVAL);
		}
	}
}

static void files_are_read_and_missing_ones_named(void **state)
{
	char path[] = "/tmp/hb-config-XXXXXX";
	struct settings s = {0};
	struct hb_error error = {""};
	int file = mkstemp(path);
	assert_true(file >= 0);
	assert_int_equal(write(file, "port: 7\n", 8), 8);
	assert_int_equal(hb_config_load(path, settings_keys, &s, sizeof s, NULL), 0);
	assert_int_equal(s.port, 7);
	assert_int_equal(ftruncate(file, (1 << 20) + 1), 0);
	assert_int_equal(hb_config_load(path, settings_keys, &s, sizeof s, &error), -EINVAL);
	assert_non_null(strstr(error.text, "longer than 1 MiB"));
	close(file);
	unlink(path);
	assert_int_equal(hb_config_load(path, settings_keys, &s, sizeof s, &error), -ENOENT);
	assert_ptr_equal(strstr(error.text, path), error.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_lands_in_its_field),
		cmocka_unit_test(keys_left_out_keep_their_defaults),
		cmocka_unit_test(every_mistake_is_told_with_its_place),
		cmocka_unit_test(broken_yaml_names_the_line),
		cmocka_unit_test(damaged_files_are_survived),
		cmocka_unit_test(files_are_read_and_missing_ones_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
