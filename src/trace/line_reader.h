/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the lines of a text file, plain or gzip, in bounded memory. Used by the
 * readers of traces and arrivals, which know what a line means. It knows the name
 * of the file and the number of the line, so that its callers can write
 * "FILE:LINE: ..." with hb_line_error().
 */
#ifndef HB_SIM_LINE_READER_H
#define HB_SIM_LINE_READER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define HB_LINE_BYTES_MAX (64u * 1024u)

struct hb_line_reader;

/* Opens the file. Returns 0, a negative errno of open(), or -ENOMEM. */
int hb_line_reader_open(const char *path, struct hb_line_reader **out, struct hb_error *error);
void hb_line_reader_close(struct hb_line_reader *reader);

/*
 * Returns 1 with the next line in *line, without its end (CR LF or LF), valid and
 * writable until the next call; 0 at the end of the file; -E2BIG, -EINVAL (a NUL byte,
 * damaged or truncated gzip) or -EIO.
 */
int hb_line_next(struct hb_line_reader *reader, char **line, struct hb_error *error);
/* Reads like hb_line_next(), but appends to the line before: *line is the line before, a newline, and the next line. */
int hb_line_append(struct hb_line_reader *reader, char **line, struct hb_error *error);

/* Puts "FILE:LINE: " before the text and returns `code`. The line is the one where *line began. */
int hb_line_error(const struct hb_line_reader *reader, struct hb_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
