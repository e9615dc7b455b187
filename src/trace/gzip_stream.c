/* SPDX-License-Identifier: Apache-2.0 */
/* A stdio stream over zlib; see gzip_stream.h. */
#include "trace/gzip_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>
#include <zlib.h>

static ssize_t write_to_stream(void *cookie, const char *bytes, size_t length)
{
	unsigned part = length > INT_MAX ? INT_MAX : (unsigned)length;
	int written = gzwrite(cookie, bytes, part);
	/* The contract of fopencookie(): 0 is an error, negative values are not allowed. */
	return written > 0 ? written : 0;
}

static int close_stream(void *cookie)
{
	if (gzclose(cookie) == Z_OK)
		return 0;
	errno = EIO;
	return EOF;
}

FILE *hb_gzip_stream_new(int fd)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	gzFile file = own < 0 ? NULL : gzdopen(own, "wb9");
	if (!file) {
		if (own >= 0)
			close(own);
		return NULL;
	}
	FILE *stream = fopencookie(file, "w", (cookie_io_functions_t){.write = write_to_stream, .close = close_stream});
	if (!stream)
		gzclose(file);
	return stream;
}
