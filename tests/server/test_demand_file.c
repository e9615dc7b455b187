/* SPDX-License-Identifier: Apache-2.0 */
/* The file of measured demands: what is stored is found again, it stays bounded, and a file that cannot be used is replaced. */
#include "server/models/demand_file.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];
static const struct hb_demand demand = {{0.25, 1}, {0, 0.5}, 4096, 3e9};

static int set_up(void **state)
{
	strcpy(folder, "/tmp/hb-demand-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/state/demands.json", folder);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
	return 0;
}

static void write_text(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int store(uint64_t digest)
{
	struct hb_error error = {.text = ""};
	return hb_demand_file_store(path, &(struct hb_demand_record){digest, "m", demand}, &error);
}

static int find(uint64_t digest)
{
	struct hb_error error = {.text = ""};
	struct hb_demand found;
	int result = hb_demand_file_find(path, digest, &found, &error);
	if (result == 0)
		assert_memory_equal(&found, &demand, sizeof(found));
	else if (result != -ENOENT && !strstr(error.text, path))
		fail_msg("the error \"%s\" does not name the file", error.text);
	return result;
}

static void what_was_stored_is_found(void **state)
{
	assert_int_equal(find(1), -ENOENT);
	assert_int_equal(store(1), 0);
	assert_int_equal(store(UINT64_MAX), 0);
	assert_int_equal(find(1), 0);
	assert_int_equal(find(UINT64_MAX), 0);
	assert_int_equal(find(2), -ENOENT);
}

static void a_rounded_demand_is_found_unchanged(void **state)
{
	struct hb_demand rounded = {{1.0 / 3, 0.1}, {0.2 / 3, 2.0 / 3}, 1234.5, 0.75}, found;
	struct hb_error error;
	hb_demand_round(&rounded);
	assert_true(rounded.sm[0] > 0.333332 && rounded.sm[0] < 0.333334);
	assert_int_equal(hb_demand_file_store(path, &(struct hb_demand_record){1, "m", rounded}, &error), 0);
	assert_int_equal(hb_demand_file_find(path, 1, &found, &error), 0);
	assert_memory_equal(&found, &rounded, sizeof(found));
}

static void a_stored_record_replaces_the_one_before(void **state)
{
	struct hb_demand other = demand, found;
	struct hb_error error;
	other.sm[0] = 0.125;
	store(1);
	assert_int_equal(hb_demand_file_store(path, &(struct hb_demand_record){1, "m", other}, &error), 0);
	assert_int_equal(hb_demand_file_find(path, 1, &found, &error), 0);
	assert_true(found.sm[0] == 0.125);
}

/* Writes a file with as many records as it may have, digests 1 to HB_DEMAND_RECORDS. */
static void fill_file(void)
{
	store(1); /* makes the folder */
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "{\"version\": %d, \"models\": [", HB_DEMAND_FILE_VERSION);
	for (int i = 1; i <= HB_DEMAND_RECORDS; i++)
		fprintf(file,
			"%s{\"digest\": \"%x\", \"name\": \"m\", \"sm_ppm\": [250000, 1000000], \"memory_ppm\": [0, 500000], "
			"\"copied_bytes\": [4096, 3000000000]}",
			i > 1 ? ", " : "", i);
	fputs("]}", file);
	assert_int_equal(fclose(file), 0);
}

static void the_file_forgets_the_oldest_records(void **state)
{
	fill_file();
	for (uint64_t digest = 1; digest <= 3; digest++)
		assert_int_equal(store(HB_DEMAND_RECORDS + digest), 0);
	for (uint64_t digest = 1; digest <= HB_DEMAND_RECORDS + 3; digest++)
		assert_int_equal(find(digest), digest <= 3 ? -ENOENT : 0);
}

#define RECORD(digest, sm, copied) \
	"{\"version\": 1, \"models\": [{\"digest\": " digest ", \"name\": \"m\", \"sm_ppm\": " sm ", " \
	"\"memory_ppm\": [0, 1], \"copied_bytes\": " copied "}]}"

static void a_file_that_cannot_be_used_is_refused_and_replaced(void **state)
{
	static const char *const texts[] = {"",
					    "{",
					    "[]",
					    "{\"version\": 2, \"models\": []}",
					    "{\"version\": 1}",
					    "{\"version\": 1, \"models\": {}}",
					    "{\"version\": 1, \"models\": [{}]}",
					    RECORD("\"g\"", "[0, 1]", "[0, 0]"),
					    RECORD("7", "[0, 1]", "[0, 0]"),
					    RECORD("\"1\"", "[0, 1000001]", "[0, 0]"),
					    RECORD("\"1\"", "[-1, 1]", "[0, 0]"),
					    RECORD("\"1\"", "[0, 1, 2]", "[0, 0]"),
					    RECORD("\"1\"", "[0]", "[0, 0]"),
					    RECORD("\"1\"", "[0.5, 1]", "[0, 0]"),
					    RECORD("\"1\"", "[0, 1]", "[0, 9000000000000000]"),
					    RECORD("\"1\"", "[0, 1]", "[-1, 0]")};
	store(1); /* makes the folder */
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		write_text(path, texts[i]);
		int result = find(1);
		if (result >= 0 || result == -ENOENT)
			fail_msg("accepted: %s", texts[i]);
		assert_int_equal(store(1), 0);
		assert_int_equal(find(1), 0);
	}
	write_text(path, RECORD("\"1\"", "[250000, 1000000]", "[4096, 3]"));
	struct hb_demand found;
	struct hb_error error;
	assert_int_equal(hb_demand_file_find(path, 1, &found, &error), 0);
}

static void a_large_file_and_a_folder_are_refused(void **state)
{
	store(1);
	assert_int_equal(truncate(path, 2 << 20), 0);
	assert_int_equal(find(1), -EFBIG);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(find(1), -EFBIG);
	assert_true(store(1) < 0);
}

static void records_are_saved_in_the_background(void **state)
{
	hb_demand_file_save(path, &(struct hb_demand_record){5, "m", demand});
	hb_demand_file_save(path, &(struct hb_demand_record){6, "m", demand});
	hb_demand_file_save("", &(struct hb_demand_record){7, "m", demand});
	hb_demand_file_finish(INT64_C(60000000000));
	assert_int_equal(find(5), 0);
	assert_int_equal(find(6), 0);
}

static void the_digest_changes_with_what_decides_the_demand(void **state)
{
	struct hb_model_config model = {
		.name = "m", .max_batch = 4, .n_inputs = 1, .inputs = {{.n_dims = 1, .dims = {8}}}};
	char program[128];
	snprintf(model.folder, sizeof(model.folder), "%s", folder);
	snprintf(model.command, sizeof(model.command), "A=1 python3 'model.py'");
	snprintf(program, sizeof(program), "%s/model.py", folder);
	write_text(program, "one");
	uint64_t digest = hb_demand_digest(&model, "GPU");
	assert_true(hb_demand_digest(&model, "other GPU") != digest);
	write_text(program, "two");
	assert_true(hb_demand_digest(&model, "GPU") != digest);
	write_text(program, "one");
	assert_true(hb_demand_digest(&model, "GPU") == digest);
	model.max_batch = 8;
	assert_true(hb_demand_digest(&model, "GPU") != digest);
	model.max_batch = 4;
	model.inputs[0].dims[0] = 9;
	assert_true(hb_demand_digest(&model, "GPU") != digest);
	model.inputs[0].dims[0] = 8;
	/* A file that the command does not name, the name and the deadline of the model do not count. */
	snprintf(program, sizeof(program), "%s/log", folder);
	write_text(program, "three");
	snprintf(model.name, sizeof(model.name), "other");
	model.deadline_ns = 7;
	assert_true(hb_demand_digest(&model, "GPU") == digest);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(what_was_stored_is_found),
		TEST(a_rounded_demand_is_found_unchanged),
		TEST(a_stored_record_replaces_the_one_before),
		TEST(the_file_forgets_the_oldest_records),
		TEST(a_file_that_cannot_be_used_is_refused_and_replaced),
		TEST(a_large_file_and_a_folder_are_refused),
		TEST(records_are_saved_in_the_background),
		TEST(the_digest_changes_with_what_decides_the_demand),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
