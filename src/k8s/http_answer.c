/* SPDX-License-Identifier: Apache-2.0 */
/* See http_answer.h. */
#include "k8s/http_answer.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* What the headers say about the body. */
struct body_framing {
	bool is_chunked, has_length;
	size_t length;
};

/* Returns the line's length without its end, and moves *at behind that; SIZE_MAX = it has no end. */
static size_t take_line(const char **at, const char *end)
{
	const char *line = *at, *newline = memchr(line, '\n', (size_t)(end - line));
	if (!newline)
		return SIZE_MAX;
	*at = newline + 1;
	size_t n = (size_t)(newline - line);
	return n && line[n - 1] == '\r' ? n - 1 : n;
}

/* Reads a number to the end of the text or to a character that is no digit. -1: there is none, or it is too large. */
static int read_number(const char *text, size_t n, unsigned base, size_t *number)
{
	size_t value = 0, i = 0;
	for (; i < n && (base == 16 ? isxdigit((unsigned char)text[i]) : isdigit((unsigned char)text[i])); i++) {
		unsigned digit = isdigit((unsigned char)text[i]) ? (unsigned)(text[i] - '0')
								 : (unsigned)(tolower(text[i]) - 'a' + 10);
		if (value > (SIZE_MAX >> 8))
			return -1;
		value = value * base + digit;
	}
	*number = value;
	return i ? 0 : -1;
}

/* The value of a header line if it has this name, without spaces around it; else NULL. */
static const char *header_value(const char *line, size_t n, const char *name, size_t *length)
{
	size_t skip = strlen(name);
	if (n <= skip || line[skip] != ':' || strncasecmp(line, name, skip) != 0)
		return NULL;
	for (skip++; skip < n && (line[skip] == ' ' || line[skip] == '\t'); skip++)
		;
	while (n > skip && (line[n - 1] == ' ' || line[n - 1] == '\t'))
		n--;
	*length = n - skip;
	return line + skip;
}

static int read_header_line(const char *line, size_t n, struct body_framing *framing)
{
	size_t length;
	const char *value = header_value(line, n, "Content-Length", &length);
	if (value) {
		framing->has_length = true;
		return read_number(value, length, 10, &framing->length);
	}
	value = header_value(line, n, "Transfer-Encoding", &length);
	if (value) {
		framing->is_chunked = true;
		return length == 7 && strncasecmp(value, "chunked", 7) == 0 ? 0 : -1;
	}
	return 0;
}

/* Moves the chunks together at `to`. -1: they are not complete. */
static int join_chunks(char *to, const char *end, size_t *bytes)
{
	const char *at = to;
	size_t sum = 0, length, size;
	for (;;) {
		const char *line = at;
		if ((length = take_line(&at, end)) == SIZE_MAX || read_number(line, length, 16, &size) < 0 ||
		    size > (size_t)(end - at))
			return -1;
		if (size == 0)
			break;
		memmove(to + sum, at, size);
		sum += size;
		at += size;
		if (take_line(&at, end) != 0)
			return -1;
	}
	*bytes = sum;
	return 0;
}

int hb_http_answer_parse(char *buffer, size_t bytes, struct hb_api_reply *answer)
{
	const char *at = buffer, *end = buffer + bytes;
	struct body_framing framing = {.length = 0};
	size_t status, body_bytes, n = take_line(&at, end);
	if (n == SIZE_MAX || n < sizeof("HTTP/1.1 200") - 1 || memcmp(buffer, "HTTP/1.", 7) != 0 || buffer[8] != ' ' ||
	    read_number(buffer + 9, 3, 10, &status) < 0 || status < 100)
		return -EBADMSG;
	for (;;) {
		const char *line = at;
		if ((n = take_line(&at, end)) == SIZE_MAX)
			return -EBADMSG;
		if (n == 0)
			break;
		if (read_header_line(line, n, &framing) < 0)
			return -EBADMSG;
	}
	char *body = buffer + (at - buffer);
	body_bytes = (size_t)(end - body);
	if (framing.is_chunked) {
		if (join_chunks(body, end, &body_bytes) < 0)
			return -EBADMSG;
	} else if (framing.has_length) {
		if (framing.length > body_bytes)
			return -EBADMSG;
		body_bytes = framing.length;
	}
	*answer = (struct hb_api_reply){(int)status, body, body_bytes};
	return 0;
}
