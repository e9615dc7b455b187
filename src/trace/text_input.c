/* SPDX-License-Identifier: Apache-2.0 */
/* Reads plain or gzip files in chunks; see text_input.h. */
#include "trace/text_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens the file. Refuses a directory here, where the reason is still known: it could be opened but not read. */
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

int hb_input_open(struct hb_input *input, const char *path, struct hb_error *error)
{
	int code = open_file(path, &input->file);
	if (code)
		return hb_error_set(error, code, "%s: cannot open: %s", path, strerror(-code));
	input->line = 1;
	input->path = strdup(path);
	if (!input->path) {
		gzclose(input->file);
		return hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	}
	return 0;
}

void hb_input_close(struct hb_input *input)
{
	gzclose(input->file);
	free(input->path);
}

int hb_input_error(const struct hb_input *input, struct hb_error *error, int code, const char *format,
		   va_list arguments)
{
	char text[sizeof((struct hb_error *)0)->text];
	vsnprintf(text, sizeof text, format, arguments);
	return hb_error_set(error, code, "%s:%llu: %s", input->path, (unsigned long long)input->line, text);
}

__attribute__((format(printf, 4, 5))) static int fail(const struct hb_input *input, struct hb_error *error, int code,
						      const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	hb_input_error(input, error, code, format, arguments);
	va_end(arguments);
	return code;
}

int hb_input_read(struct hb_input *input, struct hb_error *error)
{
	int got = gzread(input->file, input->chunk, HB_INPUT_CHUNK_BYTES);
	if (got > 0)
		return got;
	int reason = Z_OK;
	const char *text = gzerror(input->file, &reason);
	switch (reason) {
	case Z_OK:
	case Z_STREAM_END:
		return 0;
	case Z_BUF_ERROR:
		return fail(input, error, -EINVAL, "the gzip data ends early: the file is truncated, copy it again");
	case Z_ERRNO:
		return fail(input, error, -EIO, "cannot read: %s", strerror(errno));
	case Z_MEM_ERROR:
		return fail(input, error, -ENOMEM, "out of memory");
	default:
		return fail(input, error, -EINVAL, "the gzip data is damaged (%s): copy the file again", text);
	}
}
