/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: what is written looks the same everywhere, what is not JSON is refused with its line. */
#include "base/json.h"
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *written(json_t *root)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	assert_int_equal(hb_json_write(root, out, NULL), 0);
	fclose(out);
	json_decref(root);
	return text;
}

static void keys_keep_their_order_and_numbers_are_short(void **state)
{
	char *text = written(hb_json_pack(NULL, "{s:s, s:f, s:f, s:i, s:b}", "gpu", "h200", "p50_us", 2425.317, "share",
					  0.1, "requests", 1200, "ok", 1));
	assert_string_equal(text, "{\n  \"gpu\": \"h200\",\n  \"p50_us\": 2425.317,\n  \"share\": 0.1,\n"
				  "  \"requests\": 1200,\n  \"ok\": true\n}\n");
	free(text);
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
	const double bad[] = {NAN, INFINITY, -INFINITY};
	for (int i = 0; i < 3; i++) {
		struct hb_error error = {""};
		assert_null(hb_json_pack(&error, "{s:{s:f}}", "a", "b", bad[i]));
		assert_non_null(strstr(error.text, "not finite"));
		assert_int_equal(hb_json_write(NULL, stdout, &error), -EINVAL);
	}
}

static void text_that_is_not_utf8_is_refused(void **state)
{
	struct hb_error error = {""};
	assert_null(hb_json_pack(&error, "{s:s}", "name", "\xff\xfe"));
	assert_non_null(strstr(error.text, "UTF-8"));
}

static void bad_input_names_file_and_line(void **state)
{
	static const struct {
		const char *text, *place;
	} cases[] = {
		{"{\"a\": 1,\n \"b\": nan}", "in.json:2: "},
		{"{\"a\": 1,\n\n \"a\": 2}", "in.json:3: "},
		{"{\"a\": 1", "in.json:1: "},
		{"", "in.json:1: "},
		{"{} x", "in.json:1: "},
		{"[1e999]", "in.json:1: "},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct hb_error error = {""};
		json_t *root = NULL;
		assert_int_equal(hb_json_parse(cases[i].text, strlen(cases[i].text), "in.json", &root, &error),
				 -EINVAL);
		assert_null(root);
		assert_ptr_equal(strstr(error.text, cases[i].place), error.text);
	}
}

static void unpacking_names_the_key(void **state)
{
	struct hb_error error = {""};
	json_t *root = NULL;
	const char text[] = "{\"rate\": \"fast\"}";
	double rate;
	int port;
	assert_int_equal(hb_json_parse(text, sizeof text - 1, "x", &root, NULL), 0);
	assert_int_equal(hb_json_unpack(root, "x.json", &error, "{s:F}", "rate", &rate), -EINVAL);
	assert_ptr_equal(strstr(error.text, "x.json: "), error.text);
	assert_int_equal(hb_json_unpack(root, "x.json", &error, "{s:i}", "port", &port), -EINVAL);
	assert_non_null(strstr(error.text, "port"));
	json_decref(root);
}

static void what_was_written_loads_again(void **state)
{
	char path[] = "/tmp/hb-json-XXXXXX";
	struct hb_error error = {""};
	json_t *root = hb_json_pack(NULL, "[i, f]", 7, 0.25), *again = NULL;
	FILE *file = fdopen(mkstemp(path), "w");
	assert_non_null(file);
	assert_int_equal(hb_json_write(root, file, NULL), 0);
	fclose(file);
	assert_int_equal(hb_json_load(path, &again, NULL), 0);
	assert_true(json_equal(root, again));
	json_decref(again);
	unlink(path);
	assert_int_equal(hb_json_load(path, &again, &error), -ENOENT);
	assert_non_null(strstr(error.text, path));
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_keep_their_order_and_numbers_are_short),
		cmocka_unit_test(numbers_that_are_not_finite_are_refused),
		cmocka_unit_test(text_that_is_not_utf8_is_refused),
		cmocka_unit_test(bad_input_names_file_and_line),
		cmocka_unit_test(unpacking_names_the_key),
		cmocka_unit_test(what_was_written_loads_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
