/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the bytes of a file, plain or gzip, chunk by chunk, and formats errors that
 * name the file and the line. Used by line_reader.c and json_events.c, which count lines.
 */
#ifndef HB_SIM_TEXT_INPUT_H
#define HB_SIM_TEXT_INPUT_H

#include "base/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#define HB_INPUT_CHUNK_BYTES (32u * 1024u)

struct hb_input {
	gzFile file;
	char *path;
	uint64_t line; /* line that errors name; the user of this struct counts it */
	unsigned char chunk[HB_INPUT_CHUNK_BYTES];
};

/* Opens the file. Returns 0, a negative errno of open(), or -ENOMEM. */
int hb_input_open(struct hb_input *input, const char *path, struct hb_error *error);
void hb_input_close(struct hb_input *input);
/*
 * Fills input->chunk. Returns the number of bytes, 0 at the end of the file, -EINVAL (damaged or truncated gzip) or
 * -EIO.
 */
int hb_input_read(struct hb_input *input, struct hb_error *error);
/* Puts "FILE:LINE: " before the text and returns `code`. */
int hb_input_error(const struct hb_input *input, struct hb_error *error, int code, const char *format,
		   va_list arguments) __attribute__((format(printf, 4, 0)));

#endif
