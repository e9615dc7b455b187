/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded lines out of plain or gzip files; see line_reader.h. */
#include "sim/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define CHUNK_BYTES (32u * 1024u)

struct hb_line_reader {
	gzFile file;
	char *path;
	uint64_t first_line; /* where the current line began */
	uint64_t lines;      /* lines read */
	size_t length;       /* of the current line */
	size_t at, filled;   /* in chunk */
	char chunk[CHUNK_BYTES];
	char line[HB_LINE_BYTES_MAX + 1];
};

/* A directory opens but does not read: say so here, where the reason is still known. */
static int open_file(const char *path, gzFile *file)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	struct stat status;
	int code = fstat(fd, &status) < 0 ? -errno : S_ISDIR(status.st_mode) ? -EISDIR : 0;
	if (!code) {
		*file = gzdopen(fd, "rb");
		code = *file ? 0 : -ENOMEM;
	}
	if (code)
		close(fd);
	return code;
}

int hb_line_reader_open(const char *path, struct hb_line_reader **out, struct hb_error *error)
{
	struct hb_line_reader *reader = calloc(1, sizeof *reader);
	char *copy = strdup(path);
	if (!reader || !copy) {
		free(reader);
		free(copy);
		return hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	}
	int code = open_file(path, &reader->file);
	if (code) {
		free(copy);
		free(reader);
		return hb_error_set(error, code, "%s: cannot open: %s", path, strerror(-code));
	}
	reader->path = copy;
	*out = reader;
	return 0;
}

void hb_line_reader_close(struct hb_line_reader *reader)
{
	if (!reader)
		return;
	gzclose(reader->file);
	free(reader->path);
	free(reader);
}

int hb_line_error(const struct hb_line_reader *reader, struct hb_error *error, int code, const char *format, ...)
{
	char text[sizeof((struct hb_error *)0)->text];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	return hb_error_set(error, code, "%s:%llu: %s", reader->path, (unsigned long long)reader->first_line, text);
}

/* 1 = bytes in the chunk, 0 = end, or an error. */
static int fill(struct hb_line_reader *reader, struct hb_error *error)
{
	int got = gzread(reader->file, reader->chunk, CHUNK_BYTES);
	int reason = Z_OK;
	const char *text = gzerror(reader->file, &reason);
	reader->at = 0;
	reader->filled = got > 0 ? (size_t)got : 0;
	if (reader->filled)
		return 1;
	if (reason == Z_OK || reason == Z_STREAM_END)
		return 0;
	if (reason == Z_BUF_ERROR)
		return hb_line_error(reader, error, -EINVAL, "the gzip data ends early: the file is truncated, copy it again");
	if (reason == Z_ERRNO)
		return hb_line_error(reader, error, -EIO, "cannot read: %s", strerror(errno));
	return hb_line_error(reader, error, -EINVAL, "the gzip data is damaged (%s): copy the file again", text);
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
			int got = fill(reader, error);
			if (got < 0)
				return got;
			if (!got)
				break;
		}
		any = true;
		const char *from = reader->chunk + reader->at;
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
	reader->first_line = ++reader->lines;
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
