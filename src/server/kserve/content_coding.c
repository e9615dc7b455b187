/* SPDX-License-Identifier: Apache-2.0 */
/* See content_coding.h. */
#include "server/kserve/content_coding.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define FIRST_BYTES 4096
#define GZIP_WINDOW (MAX_WBITS + 16)      /* makes zlib use gzip's header and checksum */
#define CHUNK_BYTES_MAX ((size_t)1 << 30) /* zlib's counters have 32 bits */

static const char *const names[] = {"identity", "gzip", "deflate"};

const char *hb_coding_name(enum hb_coding coding)
{
	return names[coding];
}

enum hb_coding hb_coding_parse(const char *text, size_t length)
{
	for (int i = 0; i < HB_CODING_UNKNOWN; i++)
		if (strlen(names[i]) == length && strncasecmp(names[i], text, length) == 0)
			return (enum hb_coding)i;
	return length ? HB_CODING_UNKNOWN : HB_CODING_IDENTITY;
}

/* Returns the first known coding of a list like "gzip;q=0.5, deflate" that is not forbidden with q=0. */
enum hb_coding hb_coding_choose(const char *accept)
{
	while (accept && *accept) {
		accept += strspn(accept, " \t,");
		size_t all = strcspn(accept, ","), length = strcspn(accept, " \t;,");
		enum hb_coding coding = hb_coding_parse(accept, length);
		const char *quality = memmem(accept, all, "q=", 2);
		if ((coding == HB_CODING_GZIP || coding == HB_CODING_DEFLATE) &&
		    (!quality || strtod(quality + 2, NULL) > 0))
			return coding;
		accept += all;
	}
	return HB_CODING_IDENTITY;
}

/* The result of decompression: `room` bytes, `most` at the most. */
struct growing_buffer {
	struct hb_memory_charge *charge;
	size_t most, room;
	unsigned char *data;
};

static int grow_buffer(struct growing_buffer *out)
{
	size_t room = out->room ? 2 * out->room : FIRST_BYTES;
	if (room > out->most)
		room = out->most;
	if (room == out->room)
		return -E2BIG;
	if (!hb_memory_charge_add(out->charge, room - out->room))
		return -ENOBUFS;
	unsigned char *data = realloc(out->data, room);
	if (!data)
		return -ENOMEM;
	out->data = data;
	out->room = room;
	return 0;
}

static void give_input(z_stream *stream, const unsigned char *end)
{
	size_t left = (size_t)(end - stream->next_in);
	stream->avail_in = (unsigned int)(left < CHUNK_BYTES_MAX ? left : CHUNK_BYTES_MAX);
}

static int inflate_all(z_stream *stream, const unsigned char *end, struct growing_buffer *out)
{
	size_t done = 0;
	int status;
	do {
		int result = done == out->room ? grow_buffer(out) : 0;
		if (result < 0)
			return result;
		size_t room = out->room - done < CHUNK_BYTES_MAX ? out->room - done : CHUNK_BYTES_MAX;
		give_input(stream, end);
		stream->next_out = out->data + done;
		stream->avail_out = (unsigned int)room;
		status = inflate(stream, Z_NO_FLUSH);
		done += room - stream->avail_out;
		if (status != Z_OK && status != Z_STREAM_END)
			return status == Z_MEM_ERROR ? -ENOMEM : -EINVAL; /* Z_BUF_ERROR: incomplete */
	} while (status != Z_STREAM_END);
	out->room = done;
	return stream->next_in == end ? 0 : -EINVAL;
}

int hb_coding_expand(enum hb_coding coding, const void *data, size_t bytes, size_t most,
		     struct hb_memory_charge *charge, void **out, size_t *out_bytes)
{
	z_stream stream = {.next_in = (unsigned char *)(uintptr_t)data};
	/* Allow one byte more than `most`, to notice a result that is too large. */
	struct growing_buffer grown = {.charge = charge, .most = most + 1};
	if (bytes == 0)
		return -EINVAL;
	if (inflateInit2(&stream, coding == HB_CODING_GZIP ? GZIP_WINDOW : MAX_WBITS) != Z_OK)
		return -ENOMEM;
	int result = inflate_all(&stream, (const unsigned char *)data + bytes, &grown);
	inflateEnd(&stream);
	if (result == 0 && grown.room > most)
		result = -E2BIG;
	if (result < 0) {
		free(grown.data);
		return result;
	}
	*out = grown.data;
	*out_bytes = grown.room;
	return 0;
}

void hb_coding_expand_job(struct hb_expand_job *job)
{
	job->result = hb_coding_expand(job->coding, job->data, job->bytes, job->most, job->charge, &job->out,
				       &job->out_bytes);
}

size_t hb_coding_expand_begin(enum hb_coding coding, const void *data, size_t bytes, void *begin, size_t size)
{
	z_stream stream = {.next_in = (unsigned char *)(uintptr_t)data, .next_out = begin};
	stream.avail_out = (unsigned)size;
	if (inflateInit2(&stream, coding == HB_CODING_GZIP ? GZIP_WINDOW : MAX_WBITS) != Z_OK)
		return 0;
	stream.avail_in = (unsigned)(bytes < FIRST_BYTES ? bytes : FIRST_BYTES);
	inflate(&stream, Z_SYNC_FLUSH);
	inflateEnd(&stream);
	return size - stream.avail_out;
}

bool hb_coding_shrink(enum hb_coding coding, const void *data, size_t bytes, void **out, size_t *out_bytes)
{
	z_stream stream = {.next_in = (unsigned char *)(uintptr_t)data, .avail_in = (unsigned int)bytes};
	if (bytes > CHUNK_BYTES_MAX ||
	    deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, coding == HB_CODING_GZIP ? GZIP_WINDOW : MAX_WBITS,
			 MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
		return false;
	unsigned char *shrunk = malloc(bytes);
	stream.next_out = shrunk;
	stream.avail_out = (unsigned int)bytes;
	bool done = shrunk && deflate(&stream, Z_FINISH) == Z_STREAM_END;
	*out_bytes = bytes - stream.avail_out;
	deflateEnd(&stream);
	if (!done) {
		free(shrunk);
		return false;
	}
	*out = shrunk;
	return true;
}
