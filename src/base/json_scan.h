/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading JSON without building a tree: for bodies that are large, frequent or
 * a stranger's, such as inference requests. The caller walks the text from left to
 * right, says what it expects next and skips what it does not know; a place can
 * be kept (the struct is copied) and read later. Everything that is passed,
 * skipped values included, is checked; what json.h refuses is refused here, but
 * for duplicate keys (the caller's business) and integers past 64 bits, which
 * are read as reals.
 *
 *	hb_json_scan_enter(&scan, '{');
 *	while (hb_json_scan_more(&scan, '}')) {
 *		hb_json_scan_key(&scan, key, sizeof(key));
 *		...one value...
 *	}
 *
 * The first error stays (scan.wrong) and every later call returns false, so a
 * walk may look at it once, at its end. No allocation, no recursion.
 */
#ifndef HB_BASE_JSON_SCAN_H
#define HB_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_JSON_SCAN_DEPTH 64    /* of what can be skipped */
#define HB_JSON_NUMBER_MOST 1000 /* characters of a number */

struct hb_json_scan {
	const char *begin, *at, *end;
	bool first;        /* an object or array was just entered */
	bool nul;          /* set by the caller: texts may have U+0000, which no key and no C string can */
	const char *wrong; /* NULL = nothing yet; `at` is its place then */
};

enum hb_json_kind {
	HB_JSON_NONE, /* no value begins here: scan.wrong says so when it is read */
	HB_JSON_OBJECT,
	HB_JSON_ARRAY,
	HB_JSON_TEXT,
	HB_JSON_NUMBER,
	HB_JSON_TRUE,
	HB_JSON_FALSE,
	HB_JSON_NULL,
};

struct hb_json_number {
	bool integer, negative; /* integer: written without point and exponent, and magnitude holds it */
	uint64_t magnitude;
	double real; /* of any */
};

/* The text need not be terminated; it must outlive the scan. */
void hb_json_scan_init(struct hb_json_scan *scan, const char *text, size_t bytes);
enum hb_json_kind hb_json_scan_kind(struct hb_json_scan *scan);
/* Begins an object ('{') or array ('['). */
bool hb_json_scan_enter(struct hb_json_scan *scan, char open);
/* Whether a member or element follows; else the closing '}' or ']' was passed, or something is wrong. */
bool hb_json_scan_more(struct hb_json_scan *scan, char close);
/* A member's key, and the colon. A longer one than fits is passed and given as "". */
bool hb_json_scan_key(struct hb_json_scan *scan, char *out, size_t size);
/* A text as UTF-8: at most `room` bytes are written, no NUL at their end; *length is all of it. out NULL: passed only. */
bool hb_json_scan_text(struct hb_json_scan *scan, char *out, size_t room, size_t *length);
bool hb_json_scan_number(struct hb_json_scan *scan, struct hb_json_number *out);
/* Any value; true, false and null are read by it, too. */
bool hb_json_scan_skip(struct hb_json_scan *scan);
/* Nothing but white space is left. */
bool hb_json_scan_end(struct hb_json_scan *scan);
/* The line of `at`, from 1. */
int hb_json_scan_line(const struct hb_json_scan *scan);
/* Ends the walk with an error of the caller's: false. */
bool hb_json_scan_fail(struct hb_json_scan *scan, const char *wrong);

/* Bytes of the UTF-8 character at `at`, 1 to 4; 0 where there is none. */
size_t hb_utf8_length(const char *at, const char *end);

#endif
