/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Daemon, core, shim and simulator start with the settings of defaults.def. Each
 * test reads what one of them really starts with; test_no_second_copy reads the
 * sources for numbers that repeat a row.
 */
#include "core/core.h"
#include "daemon/daemon_config.h"
#include "decide/defaults.h"
#include "decide/foresight.h"
#include "decide/spatial_low.h"
#include "sim/sharing_modes.h"
#include "unit.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int64_t value;
	const char *unit, *origin, *larger;
} rows[] = {
#define HB_DEFAULT(NAME, value, unit, origin, larger) {#NAME, value, unit, origin, larger},
#include "decide/defaults.def"
#undef HB_DEFAULT
};

static void every_row_says_where_its_value_comes_from(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_true(strncmp(rows[i].origin, "H200", 4) == 0 || strncmp(rows[i].origin, "H100", 4) == 0 ||
			    strncmp(rows[i].origin, "chosen: ", 8) == 0);
		assert_true(strlen(rows[i].larger) > 10);
		assert_true(strlen(rows[i].unit) > 0);
	}
}

static void the_daemon_starts_with_the_table(void **state)
{
	(void)state;
	struct hb_daemon_config config;
	hb_daemon_config_init(&config);
	assert_int_equal(config.window_ns, HB_DEFAULT_WINDOW_NS);
	assert_int_equal(config.quantum_ns, HB_DEFAULT_QUANTUM_NS);
	assert_int_equal(config.masks, HB_DEFAULT_MASKS_GPCS ? HB_CONFIG_MASKS_GPCS : HB_CONFIG_MASKS_SPREAD);
	/* 0: the core's own, which the next test checks. */
	assert_int_equal(config.low_slice_ns, 0);
	assert_int_equal(config.high_slice_ns, 0);
}

static void the_core_starts_with_the_table(void **state)
{
	(void)state;
	struct hb_core_config config;
	hb_core_config_init(&config);
	assert_int_equal(config.low_slice_ns, HB_DEFAULT_LOW_SLICE_NS);
	assert_int_equal(config.high_slice_ns, HB_DEFAULT_HIGH_SLICE_NS);
	assert_int_equal(config.quantum_ns, HB_DEFAULT_QUANTUM_NS);
	assert_int_equal(config.turn_grace_ns, HB_DEFAULT_TURN_GRACE_NS);
	assert_int_equal(config.stall_limit_ns, HB_DEFAULT_STALL_LIMIT_NS);
	assert_int_equal(config.memory_room_ns, HB_DEFAULT_MEMORY_ROOM_NS);
	assert_int_equal(config.switch_ns, HB_DEFAULT_SWITCH_NS);
}

/* The shim begins with these limits and costs and changes only what the daemon's configuration says. */
static void the_shim_starts_with_the_table(void **state)
{
	(void)state;
	struct hb_spatial_limits limits, of_window;
	hb_spatial_limits_init(&limits, HB_DEFAULT_SMS);
	of_window = limits;
	hb_spatial_limits_set_window(&of_window, HB_DEFAULT_WINDOW_NS);
	assert_memory_equal(&limits, &of_window, sizeof limits);
	assert_int_equal(limits.window_ns, HB_DEFAULT_WINDOW_NS);
	assert_int_equal(limits.split_ns, HB_DEFAULT_SPLIT_NS);
	struct hb_foresight_costs costs;
	hb_foresight_costs_init(&costs);
	assert_int_equal(costs.ready_ns, HB_DEFAULT_TAKEOVER_READY_NS + HB_DEFAULT_TAKEOVER_WAKE_NS);
	assert_int_equal(costs.idle_seen_ns, HB_DEFAULT_IDLE_SEEN_NS);
	assert_int_equal(costs.soon_ns, HB_DEFAULT_TAKEOVER_SOON_NS);
	assert_int_equal(costs.kept_weight_ppm, HB_DEFAULT_TAKEOVER_KEPT_WEIGHT_PPM);
	assert_int_equal(costs.budget_ppm, HB_DEFAULT_TAKEOVER_BUDGET_PPM);
}

static void the_simulator_starts_with_the_table(void **state)
{
	(void)state;
	struct hb_error error;
	struct hb_mode mode;
	assert_int_equal(hb_mode_parse("spatial", &mode, &error), 0);
	assert_int_equal(mode.window_ns, HB_DEFAULT_WINDOW_NS);
	assert_int_equal(mode.masks_gpcs, HB_DEFAULT_MASKS_GPCS);
	assert_false(mode.without_masks || mode.without_slices || mode.without_beside);
	assert_int_equal(hb_mode_parse("ts1", &mode, &error), 0);
	assert_int_equal(mode.low_slice_ns, HB_DEFAULT_LOW_SLICE_NS);
	assert_int_equal(mode.high_slice_ns, HB_DEFAULT_HIGH_SLICE_NS);
}

/* ---- the sources ---- */

static const char *const folders[] = {"core", "daemon", "decide", "shim", "sim"};

/* Converts the name of a row to the name of a field. */
static void make_lower_name(const char *name, char *lower, size_t size)
{
	size_t i = 0;
	for (; name[i] && i + 1 < size; i++)
		lower[i] = (char)tolower((unsigned char)name[i]);
	lower[i] = '\0';
}

/* `text` begins with a number that is not 0: an own value. */
static bool begins_with_own_number(const char *text)
{
	text += strspn(text, " \t(");
	if (strncmp(text, "INT64_C(", 8) == 0)
		text += 8;
	return *text >= '1' && *text <= '9';
}

/* "name = 5", "NAME 5" or "#define NAME (5 * HB_NS_PER_US)". */
static bool is_second_copy(const char *line, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = line; (at = strstr(at, name)); at += length) {
		bool bounded = at > line && !isalnum((unsigned char)at[-1]) && at[-1] != '_';
		const char *behind = at + length;
		bool defines = strncmp(line, "#define ", 8) == 0 && at == line + 8 && *behind == ' ';
		bool assigns = strncmp(behind, " = ", 3) == 0 && behind[3] != '=';
		if (bounded && (defines || assigns) && begins_with_own_number(behind + (assigns ? 3 : 1)))
			return true;
	}
	return false;
}

static int count_copies(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[1024], lower[64];
	int copies = 0;
	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			make_lower_name(rows[i].name, lower, sizeof lower);
			if (!is_second_copy(line, rows[i].name) && !is_second_copy(line, lower))
				continue;
			print_error("%s repeats HB_DEFAULT_%s: %s", path, rows[i].name, line);
			copies++;
		}
	fclose(file);
	return copies;
}

static void no_source_has_a_second_copy(void **state)
{
	(void)state;
	int copies = 0, files = 0;
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		char path[512];
		snprintf(path, sizeof path, "%s/%s", SOURCES, folders[i]);
		DIR *folder = opendir(path);
		assert_non_null(folder);
		for (struct dirent *entry; (entry = readdir(folder));) {
			const char *dot = strrchr(entry->d_name, '.');
			if (!dot || (strcmp(dot, ".c") != 0 && strcmp(dot, ".h") != 0))
				continue;
			snprintf(path, sizeof path, "%s/%s/%s", SOURCES, folders[i], entry->d_name);
			copies += count_copies(path);
			files++;
		}
		closedir(folder);
	}
	assert_true(files > 60);
	assert_int_equal(copies, 0);
}

static void a_second_copy_would_be_found(void **state)
{
	(void)state;
	assert_true(is_second_copy("	config->window_ns = 3 * HB_NS_PER_MS;", "window_ns"));
	assert_true(is_second_copy("		.quantum_ns = INT64_C(50000000),", "quantum_ns"));
	assert_true(is_second_copy("#define IDLE_SEEN_NS (10 * HB_NS_PER_US)", "IDLE_SEEN_NS"));
	assert_true(is_second_copy("#define RESERVE_PPM 240000", "RESERVE_PPM"));
	assert_false(is_second_copy("	mode->window_ns = HB_DEFAULT_WINDOW_NS;", "window_ns"));
	assert_false(is_second_copy("	budget_window_ns = 5;", "window_ns"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_says_where_its_value_comes_from),
		cmocka_unit_test(the_daemon_starts_with_the_table),
		cmocka_unit_test(the_core_starts_with_the_table),
		cmocka_unit_test(the_shim_starts_with_the_table),
		cmocka_unit_test(the_simulator_starts_with_the_table),
		cmocka_unit_test(no_source_has_a_second_copy),
		cmocka_unit_test(a_second_copy_would_be_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
