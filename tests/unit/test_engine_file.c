/* SPDX-License-Identifier: Apache-2.0 */
/* The file of `engine: auto`: what is saved is read again, a bad file is named and kept, and a newer one is left alone. */
#include "daemon/engine_file.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[512];

static int set_up(void **state)
{
	*state = calloc(2, sizeof(struct hb_engine_history));
	strcpy(folder, "/tmp/hb-engine-XXXXXX");
	assert_non_null(mkdtemp(folder));
	unsetenv("STATE_DIRECTORY");
	setenv("XDG_STATE_HOME", folder, 1);
	hb_engine_file_begin(false, path, sizeof path, *state);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
	free(*state);
	return 0;
}

static void write_text(const char *text)
{
	char made[128];
	snprintf(made, sizeof made, "%s/hummingbird", folder);
	mkdir(made, 0700);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void note_runs(struct hb_engine_history *history, int n)
{
	for (int i = 0; i < n; i++) {
		char name[32];
		struct hb_engine_program high;
		struct hb_engine_run run = {
			.judged = 1000, .met = 985, .low_launches = 500, .beside_ns = HB_ENGINE_RUN_NS};
		snprintf(name, sizeof name, "serve \"%d\"", i);
		hb_engine_program(&high, 1000, name);
		hb_engine_program(&run.low, 1000, "train");
		assert_non_null(hb_engine_history_note(
			history, &high, &run, i % 2 ? HB_ENGINE_AUTO_SPATIAL : HB_ENGINE_AUTO_TEMPORAL, 990000));
	}
}

static void what_is_saved_is_read_again(void **state)
{
	struct hb_engine_history *history = *state, *read = history + 1;
	struct hb_error error;
	note_runs(history, HB_ENGINE_PAIRS + 3);
	hb_engine_file_save(path, history);
	hb_engine_file_finish();
	assert_int_equal(hb_engine_file_load(path, read, &error), 0);
	assert_int_equal(read->clock, history->clock);
	for (uint32_t i = 0; i < HB_ENGINE_PAIRS; i++) {
		const struct hb_engine_pair *here = &history->pairs[i], *there = &read->pairs[i];
		assert_true(here->high.key == there->high.key && here->low.key == there->low.key);
		assert_string_equal(here->high.text, there->high.text);
		assert_string_equal(here->low.text, there->low.text);
		assert_true(here->reference_mhz == there->reference_mhz && here->used == there->used);
		assert_memory_equal(&here->choose, &there->choose, sizeof here->choose);
	}
}

static void no_file_means_that_nothing_is_known(void **state)
{
	struct hb_engine_history *history = *state, none = {0};
	struct hb_error error;
	assert_int_equal(hb_engine_file_load(path, history, &error), 0);
	assert_memory_equal(history, &none, sizeof none);
}

static void a_bad_file_is_named_and_changes_nothing(void **state)
{
	static const struct {
		const char *text, *complaint;
	} bad[] = {
		{"{", "engines.json:1"},
		{"{}", "version"},
		{"{\"version\": 1}", "pairs"},
		{"{\"version\": 1, \"pairs\": [{}]}", "high"},
		{"{\"version\": 1, \"pairs\": [{\"high\": {\"key\": \"0\", \"command\": \"a\"}, \"low\": {\"key\": \"1\", "
		 "\"command\": \"b\"}, \"reference_mhz\": 1, \"used\": 1, \"current\": \"temporal\", \"temporal\": {}, "
		 "\"spatial\": {}}]}",
		 "key: '0'"},
		{"{\"version\": 1, \"pairs\": [{\"high\": {\"key\": \"2\", \"command\": \"a\"}, \"low\": {\"key\": \"1\", "
		 "\"command\": \"b\"}, \"reference_mhz\": -1, \"used\": 1, \"current\": \"temporal\", \"temporal\": {}, "
		 "\"spatial\": {}}]}",
		 "reference_mhz: -1"},
	};
	struct hb_engine_history *history = *state, none = {0};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct hb_error error = {""};
		write_text(bad[i].text);
		assert_int_equal(hb_engine_file_load(path, history, &error), -EINVAL);
		assert_non_null(strstr(error.text, path));
		if (!strstr(error.text, bad[i].complaint))
			fail_msg("'%s' does not mention '%s'", error.text, bad[i].complaint);
		assert_memory_equal(history, &none, sizeof none);
	}
}

static void a_damaged_file_is_kept_under_another_name(void **state)
{
	char damaged[600];
	write_text("{\"version\": 1, \"pairs\": 7");
	hb_engine_file_begin(false, path, sizeof path, *state);
	snprintf(damaged, sizeof damaged, "%s.damaged", path);
	assert_int_equal(access(damaged, R_OK), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_string_not_equal(path, "");
}

static void a_file_of_a_newer_version_is_left_alone(void **state)
{
	char before[sizeof path];
	write_text("{\"version\": 2, \"more\": true}");
	strcpy(before, path);
	hb_engine_file_begin(false, path, sizeof path, *state);
	assert_string_equal(path, "");
	hb_engine_file_save(path, *state);
	hb_engine_file_finish();
	assert_int_equal(access(before, F_OK), 0);
}

static void a_folder_that_cannot_be_written_does_no_harm(void **state)
{
	char blocked[600];
	snprintf(blocked, sizeof blocked, "%s/file/engines.json", folder);
	snprintf(path, sizeof path, "%s/file", folder);
	FILE *file = fopen(path, "w"); /* a file where the folder should be */
	assert_non_null(file);
	fclose(file);
	hb_engine_file_save(blocked, *state);
	hb_engine_file_finish();
	assert_int_equal(access(path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_saved_is_read_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_file_means_that_nothing_is_known, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_bad_file_is_named_and_changes_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_damaged_file_is_kept_under_another_name, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_of_a_newer_version_is_left_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_written_does_no_harm, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
