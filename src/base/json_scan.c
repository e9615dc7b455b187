/* SPDX-License-Identifier: Apache-2.0 */
/* See json_scan.h. */
#include "base/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hb_json_scan_init(struct hb_json_scan *scan, const char *text, size_t bytes)
{
	const char *from = text ? text : "";
	*scan = (struct hb_json_scan){.begin = from, .at = from, .end = from + bytes};
}

bool hb_json_scan_fail(struct hb_json_scan *scan, const char *wrong)
{
	if (!scan->wrong)
		scan->wrong = wrong;
	return false;
}

int hb_json_scan_line(const struct hb_json_scan *scan)
{
	int line = 1;
	for (const char *at = scan->begin; at < scan->at; at++)
		line += *at == '\n';
	return line;
}

/* Returns the next character that is not white space, or '\0' at the end. */
static char peek_character(struct hb_json_scan *scan)
{
	while (scan->at < scan->end &&
	       (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t'))
		scan->at++;
	return scan->at < scan->end ? *scan->at : '\0';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* ---- structure ---- */

enum hb_json_kind hb_json_scan_kind(struct hb_json_scan *scan)
{
	char c = scan->wrong ? '\0' : peek_character(scan);
	switch (c) {
	case '{':
		return HB_JSON_OBJECT;
	case '[':
		return HB_JSON_ARRAY;
	case '"':
		return HB_JSON_TEXT;
	case 't':
		return HB_JSON_TRUE;
	case 'f':
		return HB_JSON_FALSE;
	case 'n':
		return HB_JSON_NULL;
	default:
		return c == '-' || is_digit(c) ? HB_JSON_NUMBER : HB_JSON_NONE;
	}
}

bool hb_json_scan_enter(struct hb_json_scan *scan, char open)
{
	if (scan->wrong)
		return false;
	if (peek_character(scan) != open)
		return hb_json_scan_fail(scan, open == '{' ? "an object is needed here" : "a list is needed here");
	scan->at++;
	scan->first = true;
	return true;
}

bool hb_json_scan_more(struct hb_json_scan *scan, char close)
{
	bool first = scan->first;
	scan->first = false;
	if (scan->wrong)
		return false;
	char c = peek_character(scan);
	if (c == close) {
		scan->at++;
		return false;
	}
	if (first)
		return true;
	if (c != ',')
		return hb_json_scan_fail(scan, close == '}' ? "a comma or } is missing" : "a comma or ] is missing");
	scan->at++;
	/* A closing bracket after a comma is not a value; reading it will report the error. */
	return true;
}

bool hb_json_scan_key(struct hb_json_scan *scan, char *out, size_t size)
{
	size_t length = 0;
	if (!hb_json_scan_text(scan, out, size - 1, &length))
		return false;
	out[length < size ? length : 0] = '\0';
	if (peek_character(scan) != ':')
		return hb_json_scan_fail(scan, "a colon is missing");
	scan->at++;
	return true;
}

bool hb_json_scan_end(struct hb_json_scan *scan)
{
	if (scan->wrong)
		return false;
	peek_character(scan);
	return scan->at == scan->end || hb_json_scan_fail(scan, "something follows after the end");
}

/* ---- text ---- */

size_t hb_utf8_length(const char *at, const char *end)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char first = (unsigned char)*at;
	size_t n = first < 0x80 ? 1 : first >= 0xc0 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : 4;
	if (n == 1)
		return 1;
	if (first < 0xc0 || first > 0xf7 || (size_t)(end - at) < n)
		return 0;
	uint32_t code = first & (0xffU >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if (((unsigned char)at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | ((unsigned char)at[i] & 0x3f);
	}
	return code >= least[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

static size_t encode_utf8(uint32_t code, char out[4])
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--, code >>= 6)
		out[i] = (char)(0x80 | (code & 0x3f));
	out[0] = (char)((0xf00U >> n & 0xf0) | code);
	return n;
}

/* Returns the value of the four digits after \u, or UINT32_MAX if they are not hexadecimal. */
static uint32_t read_hex4(const char *at, const char *end)
{
	uint32_t code = 0;
	if (end - at < 4)
		return UINT32_MAX;
	for (int i = 0; i < 4; i++) {
		char c = at[i];
		uint32_t digit = is_digit(c)            ? (uint32_t)(c - '0')
				 : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
				 : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
							: UINT32_MAX;
		if (digit == UINT32_MAX)
			return UINT32_MAX;
		code = code << 4 | digit;
	}
	return code;
}

/* Reads the escape after a backslash into `out`. Returns its number of bytes, 0 on error. */
static size_t read_escape(struct hb_json_scan *scan, char out[4])
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char c = scan->at < scan->end ? *scan->at++ : '\0';
	const char *found = c ? strchr(from, c) : NULL;
	if (found) {
		out[0] = to[found - from];
		return 1;
	}
	uint32_t code = c == 'u' ? read_hex4(scan->at, scan->end) : UINT32_MAX;
	if (code == UINT32_MAX || (code == 0 && !scan->nul) || (code >= 0xdc00 && code <= 0xdfff))
		return 0;
	scan->at += 4;
	if (code < 0xd800 || code > 0xdbff)
		return encode_utf8(code, out);
	uint32_t low = scan->end - scan->at >= 6 && scan->at[0] == '\\' && scan->at[1] == 'u'
			       ? read_hex4(scan->at + 2, scan->end)
			       : UINT32_MAX;
	if (low < 0xdc00 || low > 0xdfff)
		return 0;
	scan->at += 6;
	return encode_utf8(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), out);
}

struct text_out {
	char *out;
	size_t room, length;
};

static void put_bytes(struct text_out *text, const char *from, size_t bytes)
{
	if (text->out && text->length < text->room) {
		size_t left = text->room - text->length;
		memcpy(text->out + text->length, from, bytes < left ? bytes : left);
	}
	text->length += bytes;
}

/* Copies characters that need no escape. */
static bool put_plain(struct hb_json_scan *scan, struct text_out *text)
{
	const char *from = scan->at;
	while (scan->at < scan->end && *scan->at != '"' && *scan->at != '\\') {
		size_t n = (unsigned char)*scan->at < 0x20 ? 0 : hb_utf8_length(scan->at, scan->end);
		if (n == 0)
			return hb_json_scan_fail(scan, "a text with a control character, or not UTF-8");
		scan->at += n;
	}
	put_bytes(text, from, (size_t)(scan->at - from));
	return true;
}

bool hb_json_scan_text(struct hb_json_scan *scan, char *out, size_t room, size_t *length)
{
	struct text_out text = {.out = out, .room = room};
	char one[4];
	if (scan->wrong)
		return false;
	if (peek_character(scan) != '"')
		return hb_json_scan_fail(scan, "a text is needed here");
	scan->at++;
	for (;;) {
		if (!put_plain(scan, &text))
			return false;
		if (scan->at == scan->end)
			return hb_json_scan_fail(scan, "a text without its end");
		if (*scan->at++ == '"')
			break;
		size_t n = read_escape(scan, one);
		if (n == 0)
			return hb_json_scan_fail(scan, "an escape that stands for no character");
		put_bytes(&text, one, n);
	}
	if (length)
		*length = text.length;
	return true;
}

/* ---- numbers ---- */

struct scanned_digits {
	uint64_t value;
	int64_t exponent; /* power of ten */
	bool whole;       /* `value` contains every digit */
	bool real;        /* has a point or an exponent */
};

static const char *take_digits(const char *at, const char *end, struct scanned_digits *digits, int64_t step)
{
	for (; at < end && is_digit(*at); at++) {
		uint64_t digit = (uint64_t)(*at - '0'), value;
		if (!digits->whole || __builtin_mul_overflow(digits->value, 10, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			digits->whole = false;
		else
			digits->value = value;
		digits->exponent += step;
	}
	return at;
}

static const char *take_exponent(const char *at, const char *end, struct scanned_digits *digits)
{
	int64_t exponent = 0;
	bool negative = at < end && *at == '-';
	if (at < end && (*at == '-' || *at == '+'))
		at++;
	if (at == end || !is_digit(*at))
		return NULL;
	for (; at < end && is_digit(*at); at++)
		if (exponent < 100000)
			exponent = exponent * 10 + (*at - '0');
	digits->exponent += negative ? -exponent : exponent;
	digits->real = true;
	return at;
}

/* Returns the end of the number that begins at `at`, or NULL if JSON's grammar allows none there. */
static const char *take_number(const char *at, const char *end, struct scanned_digits *digits)
{
	if (at < end && *at == '-')
		at++;
	const char *from = at;
	at = take_digits(at, end, digits, 0);
	if (at == from || (*from == '0' && at - from > 1))
		return NULL;
	if (at < end && *at == '.') {
		from = ++at;
		at = take_digits(at, end, digits, -1);
		digits->real = true;
		if (at == from)
			return NULL;
	}
	return at < end && (*at == 'e' || *at == 'E') ? take_exponent(at + 1, end, digits) : at;
}

static double parse_with_libc(const char *from, size_t length)
{
	char text[HB_JSON_NUMBER_MOST + 1];
	memcpy(text, from, length);
	text[length] = '\0';
	return strtod(text, NULL);
}

/*
 * Converts a number. If digits and power of ten are exact, one division or multiplication rounds once; otherwise libc
 * converts.
 */
static double convert_to_real(const struct scanned_digits *digits, const char *from, size_t length)
{
	static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
					1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
	double value = (double)digits->value;
	if (!digits->whole || digits->value > UINT64_C(1) << 53 || digits->exponent < -22 || digits->exponent > 22)
		return parse_with_libc(from, length);
	value = digits->exponent < 0 ? value / powers[-digits->exponent] : value * powers[digits->exponent];
	return *from == '-' ? -value : value;
}

bool hb_json_scan_number(struct hb_json_scan *scan, struct hb_json_number *out)
{
	struct scanned_digits digits = {.whole = true};
	if (scan->wrong)
		return false;
	peek_character(scan);
	const char *end = take_number(scan->at, scan->end, &digits);
	if (!end)
		return hb_json_scan_fail(scan, "a number is needed here");
	if (end - scan->at > HB_JSON_NUMBER_MOST)
		return hb_json_scan_fail(scan, "a number with too many digits");
	out->negative = *scan->at == '-';
	out->integer = !digits.real && digits.whole;
	out->magnitude = digits.value;
	out->real = convert_to_real(&digits, scan->at, (size_t)(end - scan->at));
	if (!isfinite(out->real))
		return hb_json_scan_fail(scan, "a number that is too large");
	scan->at = end;
	return true;
}

/* ---- skipping ---- */

static bool skip_word(struct hb_json_scan *scan, const char *word)
{
	size_t length = strlen(word);
	if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0)
		return hb_json_scan_fail(scan, "a value is needed here");
	scan->at += length;
	return true;
}

/* Skips a value that is neither an object nor an array. */
static bool skip_plain(struct hb_json_scan *scan)
{
	struct hb_json_number number;
	switch (hb_json_scan_kind(scan)) {
	case HB_JSON_TEXT:
		return hb_json_scan_text(scan, NULL, 0, NULL);
	case HB_JSON_NUMBER:
		return hb_json_scan_number(scan, &number);
	case HB_JSON_TRUE:
		return skip_word(scan, "true");
	case HB_JSON_FALSE:
		return skip_word(scan, "false");
	case HB_JSON_NULL:
		return skip_word(scan, "null");
	default:
		return hb_json_scan_fail(scan, "a value is needed here");
	}
}

bool hb_json_scan_skip(struct hb_json_scan *scan)
{
	char closers[HB_JSON_SCAN_DEPTH];
	size_t depth = 0;
	do {
		/* The scan is behind a value, or inside the object or array that was just entered. */
		while (depth && !hb_json_scan_more(scan, closers[depth - 1]) && !scan->wrong)
			if (--depth == 0)
				return true;
		if (depth && closers[depth - 1] == '}') {
			char key[2];
			hb_json_scan_key(scan, key, sizeof(key));
		}
		enum hb_json_kind kind = hb_json_scan_kind(scan);
		if (kind != HB_JSON_OBJECT && kind != HB_JSON_ARRAY) {
			skip_plain(scan);
			continue;
		}
		if (depth == HB_JSON_SCAN_DEPTH)
			return hb_json_scan_fail(scan, "nested too deeply");
		closers[depth++] = kind == HB_JSON_OBJECT ? '}' : ']';
		hb_json_scan_enter(scan, kind == HB_JSON_OBJECT ? '{' : '[');
	} while (depth && !scan->wrong);
	return !scan->wrong;
}
