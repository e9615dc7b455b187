/* SPDX-License-Identifier: Apache-2.0 */
/* See json_text.h. */
#include "base/json_text.h"

#include "base/json_scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MOST 32 /* characters of any number */
#define PLACES_MOST 15 /* digits after the point, where a number is printed without an exponent */

void hb_json_text_init(struct hb_json_text *text, size_t room)
{
	*text = (struct hb_json_text){.data = malloc(room + 1), .room = room};
	text->no_memory = !text->data;
}

/* Returns a place for `bytes` more bytes, or NULL without memory. */
static char *make_room(struct hb_json_text *text, size_t bytes)
{
	if (text->no_memory)
		return NULL;
	if (bytes > text->room - text->bytes) {
		size_t room = 2 * text->room + bytes;
		char *data = realloc(text->data, room + 1);
		if (!data) {
			text->no_memory = true;
			return NULL;
		}
		text->data = data;
		text->room = room;
	}
	return text->data + text->bytes;
}

void hb_json_text_add(struct hb_json_text *text, const char *from, size_t bytes)
{
	char *at = make_room(text, bytes);
	if (!at)
		return;
	if (bytes)
		memcpy(at, from, bytes);
	text->bytes += bytes;
}

/* ---- text ---- */

static size_t escape_character(char c, char out[6])
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *found = c ? strchr(from, c) : NULL;
	if (found) {
		out[0] = '\\';
		out[1] = to[found - from];
		return 2;
	}
	static const char digits[] = "0123456789abcdef";
	memcpy(out, "\\u00", 4);
	out[4] = digits[(unsigned char)c >> 4];
	out[5] = digits[c & 15];
	return 6;
}

static bool is_plain(char c)
{
	return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

bool hb_json_text_add_text(struct hb_json_text *text, const char *from, size_t bytes)
{
	const char *end = from + bytes;
	size_t before = text->bytes;
	char escaped[6];
	HB_JSON_TEXT_ADD(text, "\"");
	while (from < end) {
		const char *begin = from;
		size_t n = 1;
		while (from < end && is_plain(*from) && (n = hb_utf8_length(from, end)) > 0)
			from += n;
		hb_json_text_add(text, begin, (size_t)(from - begin));
		if (n == 0) {
			text->bytes = before;
			return false;
		}
		if (from < end)
			hb_json_text_add(text, escaped, escape_character(*from++, escaped));
	}
	HB_JSON_TEXT_ADD(text, "\"");
	return true;
}

/* ---- numbers ---- */

static char *print_unsigned(char *at, uint64_t value)
{
	char digits[20];
	int n = 0;
	do
		digits[n++] = (char)('0' + value % 10);
	while (value /= 10);
	while (n)
		*at++ = digits[--n];
	return at;
}

void hb_json_text_add_unsigned(struct hb_json_text *text, uint64_t value)
{
	char *at = make_room(text, NUMBER_MOST);
	if (at)
		text->bytes += (size_t)(print_unsigned(at, value) - at);
}

void hb_json_text_add_integer(struct hb_json_text *text, int64_t value)
{
	char *at = make_room(text, NUMBER_MOST), *end = at;
	if (!at)
		return;
	if (value < 0)
		*end++ = '-';
	end = print_unsigned(end, value < 0 ? -(uint64_t)value : (uint64_t)value);
	text->bytes += (size_t)(end - at);
}

/* Powers of ten, which are exact as doubles, too. */
static const uint64_t tens[PLACES_MOST + 1] = {1,
					       10,
					       100,
					       1000,
					       10000,
					       100000,
					       1000000,
					       10000000,
					       100000000,
					       1000000000,
					       10000000000,
					       100000000000,
					       1000000000000,
					       10000000000000,
					       100000000000000,
					       1000000000000000};

/* Prints digits / 10^places, always with a point. */
static char *print_decimal(char *at, bool negative, uint64_t digits, int places)
{
	if (negative)
		*at++ = '-';
	at = print_unsigned(at, digits / tens[places]);
	*at++ = '.';
	uint64_t rest = digits % tens[places];
	for (int i = places - 1; i > 0 && rest < tens[i]; i--)
		*at++ = '0';
	return print_unsigned(at, rest);
}

/* Prints very large or very small values and values of many digits, with a point or an exponent, so that they stay reals. */
static char *print_long(char *at, double value, bool single)
{
	char *end = at + snprintf(at, NUMBER_MOST, single ? "%.9g" : "%.17g", value);
	if (strcspn(at, ".e") == (size_t)(end - at))
		end = stpcpy(end, ".0");
	return end;
}

/*
 * Returns the fewest places after the point with which `size` is read back
 * exactly, and the digits; -1 if more are needed or `size` is out of range. Both digits (below 2^53)
 * and power of ten are exact, so the quotient is what a reader of doubles gets.
 * A reader of floats may round the decimal itself: then its neighbours must
 * round to the same float.
 */
static int find_places(double size, bool single, uint64_t *digits)
{
	for (int places = 0; places <= PLACES_MOST; places++) {
		double scaled = size * (double)tens[places];
		if (scaled >= 0x1p53)
			return -1;
		*digits = (uint64_t)(scaled + 0.5);
		double back = (double)*digits / (double)tens[places];
		if (!single ? back == size
			    : (float)(back * (1 - 0x1p-52)) == (float)size &&
				      (float)(back * (1 + 0x1p-52)) == (float)size)
			return places;
	}
	return -1;
}

static bool add_real(struct hb_json_text *text, double value, bool single)
{
	uint64_t digits = 0;
	if (!isfinite(value))
		return false;
	char *at = make_room(text, NUMBER_MOST);
	if (!at)
		return true;
	int places = find_places(fabs(value), single, &digits);
	char *end = places >= 0 ? print_decimal(at, signbit(value), digits, places) : print_long(at, value, single);
	text->bytes += (size_t)(end - at);
	return true;
}

bool hb_json_text_add_float(struct hb_json_text *text, float value)
{
	return add_real(text, (double)value, true);
}

bool hb_json_text_add_double(struct hb_json_text *text, double value)
{
	return add_real(text, value, false);
}
