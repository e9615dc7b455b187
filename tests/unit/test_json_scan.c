/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON without a tree, and writing it into one buffer: values survive, what is wrong is refused at its line. */
#include "base/json_scan.h"
#include "base/json_text.h"
#include "base/rng.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hb_json_scan scan_of(const char *text)
{
	struct hb_json_scan scan;
	hb_json_scan_init(&scan, text, strlen(text));
	return scan;
}

static void members_and_elements_are_walked(void **state)
{
	struct hb_json_scan scan = scan_of(
		" { \"a\" : [ 1 , -2.5e1, [] ], \"\\u0062\":{\"x\":null}, \"c\":\"\\u20ac\\ud83d\\ude00\\n\" } ");
	char key[4], text[16];
	struct hb_json_number number;
	size_t length;
	assert_true(hb_json_scan_enter(&scan, '{'));
	assert_true(hb_json_scan_more(&scan, '}') && hb_json_scan_key(&scan, key, sizeof(key)));
	assert_string_equal(key, "a");
	assert_true(hb_json_scan_enter(&scan, '['));
	assert_true(hb_json_scan_more(&scan, ']') && hb_json_scan_number(&scan, &number));
	assert_true(number.integer && !number.negative && number.magnitude == 1);
	assert_true(hb_json_scan_more(&scan, ']') && hb_json_scan_number(&scan, &number));
	assert_true(!number.integer && number.real == -25);
	assert_true(hb_json_scan_more(&scan, ']') && hb_json_scan_skip(&scan));
	assert_false(hb_json_scan_more(&scan, ']'));
	assert_true(hb_json_scan_more(&scan, '}') && hb_json_scan_key(&scan, key, sizeof(key)));
	assert_string_equal(key, "b");
	assert_true(hb_json_scan_skip(&scan));
	assert_true(hb_json_scan_more(&scan, '}') && hb_json_scan_key(&scan, key, sizeof(key)));
	assert_true(hb_json_scan_text(&scan, text, sizeof(text), &length));
	assert_int_equal(length, 8);
	assert_memory_equal(text, "\xe2\x82\xac\xf0\x9f\x98\x80\n", 8);
	assert_false(hb_json_scan_more(&scan, '}'));
	assert_true(hb_json_scan_end(&scan));
}

static void a_nul_is_a_character_where_the_caller_says_so(void **state)
{
	struct hb_json_scan scan = scan_of("[\"a\\u0000b\", \"\\u0000\"]");
	char text[8];
	size_t length;
	scan.nul = true;
	assert_true(hb_json_scan_enter(&scan, '[') && hb_json_scan_more(&scan, ']'));
	assert_true(hb_json_scan_text(&scan, text, sizeof(text), &length));
	assert_int_equal(length, 3);
	assert_memory_equal(text, "a\0b", 3);
	scan.nul = false;
	assert_true(hb_json_scan_more(&scan, ']'));
	assert_false(hb_json_scan_text(&scan, text, sizeof(text), &length));
}

static void what_does_not_fit_is_passed_and_told(void **state)
{
	struct hb_json_scan scan = scan_of("{\"longer\":\"12345\"}");
	char key[4] = "?", text[3];
	size_t length;
	assert_true(hb_json_scan_enter(&scan, '{') && hb_json_scan_more(&scan, '}'));
	assert_true(hb_json_scan_key(&scan, key, sizeof(key)));
	assert_string_equal(key, "");
	assert_true(hb_json_scan_text(&scan, text, sizeof(text), &length));
	assert_int_equal(length, 5);
	assert_memory_equal(text, "123", 3);
	assert_false(hb_json_scan_more(&scan, '}'));
	assert_true(hb_json_scan_end(&scan));
}

static void what_is_wrong_is_refused_at_its_line(void **state)
{
	static const char *const bad[] = {"",
					  "[1,]",
					  "[1 2]",
					  "{\"a\"}",
					  "{\"a\":}",
					  "{a:1}",
					  "[01]",
					  "[-]",
					  "[1.]",
					  "[.5]",
					  "[1e]",
					  "[1e999]",
					  "[tru]",
					  "[nul]",
					  "[\"",
					  "[\"\\x\"]",
					  "[\"\\u12\"]",
					  "[\"\\ud800\"]",
					  "[\"\\udc00\"]",
					  "[\"\\u0000\"]",
					  "[\"\xff\"]",
					  "[\"\xc0\x80\"]",
					  "[\"\xed\xa0\x80\"]",
					  "[\"\n\"]",
					  "[1]]",
					  "[",
					  "{",
					  "[NaN]",
					  "[+1]"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct hb_json_scan scan = scan_of(bad[i]);
		bool fine = hb_json_scan_skip(&scan) && hb_json_scan_end(&scan);
		if (fine || !scan.wrong)
			fail_msg("'%s' was not refused", bad[i]);
		assert_false(hb_json_scan_skip(&scan)); /* the error stays */
	}
	struct hb_json_scan scan = scan_of("[1,\n2,\n;]");
	assert_false(hb_json_scan_skip(&scan));
	assert_int_equal(hb_json_scan_line(&scan), 3);
}

static void depth_is_bounded(void **state)
{
	char text[2 * HB_JSON_SCAN_DEPTH + 3] = "";
	for (int depth = HB_JSON_SCAN_DEPTH; depth <= HB_JSON_SCAN_DEPTH + 1; depth++) {
		memset(text, '[', (size_t)depth);
		memset(text + depth, ']', (size_t)depth);
		text[2 * depth] = '\0';
		struct hb_json_scan scan = scan_of(text);
		assert_int_equal(hb_json_scan_skip(&scan) && hb_json_scan_end(&scan), depth == HB_JSON_SCAN_DEPTH);
	}
}

/* Each number alone, as a reader of JSON would find it. */
static void expect_number(const struct hb_json_text *text, double value)
{
	struct hb_json_scan scan;
	struct hb_json_number number;
	hb_json_scan_init(&scan, text->data, text->bytes);
	if (!hb_json_scan_number(&scan, &number) || !hb_json_scan_end(&scan) || number.real != value || number.integer)
		fail_msg("%a was written as %.*s", value, (int)text->bytes, text->data);
}

static void reals_read_back_the_same(void **state)
{
	struct hb_rng rng;
	struct hb_json_text text;
	hb_rng_init(&rng, 1, 0);
	hb_json_text_init(&text, 64);
	for (int i = 0; i < 200000; i++) {
		union {
			uint32_t bits;
			float value;
		} single = {.bits = (uint32_t)hb_rng_u64(&rng)};
		union {
			uint64_t bits;
			double value;
		} real = {.bits = hb_rng_u64(&rng)};
		if (i % 2) { /* of usual sizes */
			single.value = (float)(hb_rng_double(&rng) * 100 - 50);
			real.value = hb_rng_double(&rng) * 100 - 50;
		}
		text.bytes = 0;
		assert_int_equal(hb_json_text_add_float(&text, single.value), isfinite(single.value));
		if (isfinite(single.value)) {
			text.data[text.bytes] = '\0';
			assert_true(strtof(text.data, NULL) == single.value &&
				    (float)strtod(text.data, NULL) == single.value);
		}
		text.bytes = 0;
		assert_int_equal(hb_json_text_add_double(&text, real.value), isfinite(real.value));
		if (isfinite(real.value))
			expect_number(&text, real.value);
	}
	free(text.data);
}

static void expect_text(const struct hb_json_text *text, const char *wanted)
{
	assert_int_equal(text->bytes, strlen(wanted));
	assert_memory_equal(text->data, wanted, text->bytes);
}

static void numbers_and_texts_are_written_short(void **state)
{
	struct hb_json_text text;
	hb_json_text_init(&text, 1); /* it grows */
	hb_json_text_add_float(&text, 0.1F);
	HB_JSON_TEXT_ADD(&text, ",");
	hb_json_text_add_double(&text, -3);
	HB_JSON_TEXT_ADD(&text, ",");
	hb_json_text_add_double(&text, 0x1p60);
	HB_JSON_TEXT_ADD(&text, ",");
	hb_json_text_add_float(&text, 0.000025F);
	HB_JSON_TEXT_ADD(&text, ",");
	hb_json_text_add_integer(&text, INT64_MIN);
	HB_JSON_TEXT_ADD(&text, ",");
	hb_json_text_add_unsigned(&text, UINT64_MAX);
	expect_text(&text, "0.1,-3.0,1.152921504606847e+18,0.000025,-9223372036854775808,18446744073709551615");
	text.bytes = 0;
	assert_true(hb_json_text_add_text(&text, "a\"\\\n\x01\xe2\x82\xac", 8));
	expect_text(&text, "\"a\\\"\\\\\\n\\u0001\xe2\x82\xac\"");
	assert_false(hb_json_text_add_text(&text, "a\xff", 2));
	expect_text(&text, "\"a\\\"\\\\\\n\\u0001\xe2\x82\xac\""); /* as it was */
	free(text.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_and_elements_are_walked),
		cmocka_unit_test(a_nul_is_a_character_where_the_caller_says_so),
		cmocka_unit_test(what_does_not_fit_is_passed_and_told),
		cmocka_unit_test(what_is_wrong_is_refused_at_its_line),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(reals_read_back_the_same),
		cmocka_unit_test(numbers_and_texts_are_written_short),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
