/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON without building a tree, for input that is large, frequent or
 * untrusted, such as inference requests. The caller walks the text from left to
 * right, names what it expects next, and skips what it does not know. It can
 * copy the struct to return to a place later. The scanner checks everything that
 * it passes, skipped values included. It refuses what json.h refuses, except
 * duplicate keys (the caller checks them) and integers beyond 64 bits (it reads
 * them as reals).
 *
 *	hb_json_scan_enter(&scan, '{');
 *	while (hb_json_scan_more(&scan, '}')) {
 *		hb_json_scan_key(&scan, key, sizeof(key));
 *		...one value...
 *	}
 *
 * The first error stays in scan.wrong and every later call returns false, so the
 * caller may check once at the end. No allocation, no recursion.
 */
#ifndef HB_BASE_JSON_SCAN_H
#define HB_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_JSON_SCAN_DEPTH 64    /* nesting of values that can be skipped */
#define HB_JSON_NUMBER_MOST 1000 /* characters of a number */

struct hb_json_scan {
	const char *begin, *at, *end;
	bool first;        /* an object or array was just entered */
	bool nul;          /* set by the caller: texts may contain U+0000; keys and C strings cannot */
	const char *wrong; /* NULL = no error yet; otherwise `at` is its place */
};

enum hb_json_kind {
	HB_JSON_NONE, /* no value begins here; reading it sets scan.wrong */
	HB_JSON_OBJECT,
	HB_JSON_ARRAY,
	HB_JSON_TEXT,
	HB_JSON_NUMBER,
	HB_JSON_TRUE,
	HB_JSON_FALSE,
	HB_JSON_NULL,
};

struct hb_json_number {
	bool integer, negative; /* integer: has no point and no exponent, and fits into magnitude */
	uint64_t magnitude;
	double real; /* the value of any number */
};

/* Begins to scan a text, which needs no NUL at its end and must outlive the scan. */
void hb_json_scan_init(struct hb_json_scan *scan, const char *text, size_t bytes);
enum hb_json_kind hb_json_scan_kind(struct hb_json_scan *scan);
/* Begins an object ('{') or array ('['). */
bool hb_json_scan_enter(struct hb_json_scan *scan, char open);
/* Returns true if a member or element follows; false after the closing '}' or ']' or an error. */
bool hb_json_scan_more(struct hb_json_scan *scan, char close);
/* Reads a member's key and the colon. A key that does not fit is skipped and returned as "". */
bool hb_json_scan_key(struct hb_json_scan *scan, char *out, size_t size);
/* Reads a text as UTF-8 into at most `room` bytes without a NUL; *length is its complete length. out NULL: skips it. */
bool hb_json_scan_text(struct hb_json_scan *scan, char *out, size_t room, size_t *length);
bool hb_json_scan_number(struct hb_json_scan *scan, struct hb_json_number *out);
/* Skips any value. true, false and null are read with it, too. */
bool hb_json_scan_skip(struct hb_json_scan *scan);
/* Returns true if only white space remains. */
bool hb_json_scan_end(struct hb_json_scan *scan);
/* Returns the line of `at`, counted from 1. */
int hb_json_scan_line(const struct hb_json_scan *scan);
/* Ends the scan with an error of the caller. Returns false. */
bool hb_json_scan_fail(struct hb_json_scan *scan, const char *wrong);

/* Returns the length of the UTF-8 character at `at` (1 to 4), or 0 if it is not valid. */
size_t hb_utf8_length(const char *at, const char *end);

#endif
