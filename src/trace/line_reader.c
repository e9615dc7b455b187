/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines of bounded length from plain or gzip files; see line_reader.h. */
#include "trace/line_reader.h"

#include "trace/text_input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct hb_line_reader {
	struct hb_input input; /* its line number is that of the line where the current row began */
	uint64_t lines;        /* lines read */
	size_t length;         /* length of the current line */
	size_t at, filled;     /* position in input.chunk, and number of bytes there */
	char line[HB_LINE_BYTES_MAX + 1];
};

int hb_line_reader_open(const char *path, struct hb_line_reader **out, struct hb_error *error)
{
	struct hb_line_reader *reader = malloc(sizeof *reader);
	if (!reader)
		return hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	reader->lines = 0;
	reader->length = reader->at = reader->filled = 0;
	int code = hb_input_open(&reader->input, path, error);
	if (code) {
		free(reader);
		return code;
	}
	*out = reader;
	return 0;
}

void hb_line_reader_close(struct hb_line_reader *reader)
{
	if (!reader)
		return;
	hb_input_close(&reader->input);
	free(reader);
}

int hb_line_error(const struct hb_line_reader *reader, struct hb_error *error, int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	hb_input_error(&reader->input, error, code, format, arguments);
	va_end(arguments);
	return code;
}

static int append_bytes(struct hb_line_reader *reader, const char *bytes, size_t length, struct hb_error *error)
{
	if (reader->length + length > HB_LINE_BYTES_MAX)
		return hb_line_error(reader, error, -E2BIG, "the line is longer than %u bytes", HB_LINE_BYTES_MAX);
	if (memchr(bytes, 0, length))
		return hb_line_error(reader, error, -EINVAL, "the line holds a NUL byte: this is not a text file");
	memcpy(reader->line + reader->length, bytes, length);
	reader->length += length;
	return 0;
}

/* Adds the bytes up to the next line feed to the current line. */
static int read_line(struct hb_line_reader *reader, char **line, struct hb_error *error)
{
	bool any = false;
	const char *end = NULL;
	while (!end) {
		if (reader->at == reader->filled) {
			int got = hb_input_read(&reader->input, error);
			if (got < 0)
				return got;
			if (!got)
				break;
			reader->at = 0;
			reader->filled = (size_t)got;
		}
		any = true;
		const char *from = (const char *)reader->input.chunk + reader->at;
		size_t left = reader->filled - reader->at;
		end = memchr(from, '\n', left);
		size_t taken = end ? (size_t)(end - from) : left;
		int code = append_bytes(reader, from, taken, error);
		if (code)
			return code;
		reader->at += taken + (end ? 1 : 0);
	}
	if (!any)
		return 0;
	if (reader->length && reader->line[reader->length - 1] == '\r')
		reader->length--;
	reader->line[reader->length] = '\0';
	*line = reader->line;
	return 1;
}

int hb_line_next(struct hb_line_reader *reader, char **line, struct hb_error *error)
{
	reader->input.line = ++reader->lines;
	reader->length = 0;
	return read_line(reader, line, error);
}

int hb_line_append(struct hb_line_reader *reader, char **line, struct hb_error *error)
{
	int code = append_bytes(reader, "\n", 1, error);
	if (code)
		return code;
	reader->lines++;
	return read_line(reader, line, error);
}
