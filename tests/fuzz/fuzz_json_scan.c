/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: reads any bytes as JSON with hb_json_scan and with jansson. Both
 * must accept the input with the same values, or both refuse it. They may differ
 * where json_scan.h says so: integers beyond 64 bits, deep nesting, numbers with
 * very many digits.
 */
#include "base/json_scan.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A macro, so that the static analyzer knows that the condition is true afterwards. */
#define require(truth) ((truth) ? (void)0 : abort())

static void compare(struct hb_json_scan *scan, const json_t *value);

static void compare_text(struct hb_json_scan *scan, const json_t *value)
{
	size_t length = 0;
	char *text = malloc((size_t)(scan->end - scan->at) + 1);
	require(text && json_is_string(value));
	require(hb_json_scan_text(scan, text, (size_t)(scan->end - scan->at), &length));
	require(length == json_string_length(value) && memcmp(text, json_string_value(value), length) == 0);
	free(text);
}

static void compare_number(struct hb_json_scan *scan, const json_t *value)
{
	struct hb_json_number number;
	require(hb_json_scan_number(scan, &number) && json_is_number(value));
	require(number.integer == json_is_integer(value) && number.real == json_number_value(value));
	if (number.integer)
		require(number.magnitude ==
			(number.negative ? -(uint64_t)json_integer_value(value) : (uint64_t)json_integer_value(value)));
}

static void compare_array(struct hb_json_scan *scan, const json_t *value)
{
	size_t n = 0;
	require(json_is_array(value) && hb_json_scan_enter(scan, '['));
	while (hb_json_scan_more(scan, ']'))
		compare(scan, json_array_get(value, n++));
	require(!scan->wrong && n == json_array_size(value));
}

/* If a key occurs twice, jansson keeps the last value. */
static void compare_object(struct hb_json_scan *scan, const json_t *value)
{
	size_t n = 0;
	char *key = malloc((size_t)(scan->end - scan->at) + 1);
	require(key && json_is_object(value) && hb_json_scan_enter(scan, '{'));
	for (; hb_json_scan_more(scan, '}'); n++) {
		require(hb_json_scan_key(scan, key, (size_t)(scan->end - scan->at) + 1));
		require(json_object_get(value, key) != NULL);
		hb_json_scan_skip(scan);
	}
	require(!scan->wrong && n >= json_object_size(value));
	free(key);
}

static void compare(struct hb_json_scan *scan, const json_t *value)
{
	switch (hb_json_scan_kind(scan)) {
	case HB_JSON_OBJECT:
		compare_object(scan, value);
		break;
	case HB_JSON_ARRAY:
		compare_array(scan, value);
		break;
	case HB_JSON_TEXT:
		compare_text(scan, value);
		break;
	case HB_JSON_NUMBER:
		compare_number(scan, value);
		break;
	default:
		require(hb_json_scan_skip(scan) && (json_is_boolean(value) || json_is_null(value)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_json_scan scan;
	json_error_t error;
	if (memchr(data, 0, size)) /* jansson ignores a NUL at the end */
		return 0;
	json_t *root = json_loadb((const char *)data, size, JSON_DECODE_ANY, &error);
	hb_json_scan_init(&scan, (const char *)data, size);
	bool fine = hb_json_scan_skip(&scan) && hb_json_scan_end(&scan);
	require(fine != (scan.wrong != NULL));
	if (fine && root) {
		hb_json_scan_init(&scan, (const char *)data, size);
		compare(&scan, root);
	} else if (fine) {
		require(json_error_code(&error) == json_error_numeric_overflow);
	} else if (root) {
		require(strstr(scan.wrong, "deeply") || strstr(scan.wrong, "digits"));
	}
	json_decref(root);
	return 0;
}
