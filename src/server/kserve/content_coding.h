/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed bodies: gzip and deflate (zlib's format), as HTTP's Content-Encoding
 * and gRPC's grpc-encoding name them. The result of decompression is bounded and
 * charged while it grows, so a small body that would become huge is refused
 * early. Used by HTTP and gRPC; any thread.
 */
#ifndef HB_SERVER_CONTENT_CODING_H
#define HB_SERVER_CONTENT_CODING_H

#include "server/kserve/job_thread.h"
#include "server/kserve/memory_budget.h"

#include <stddef.h>

/* Bodies up to this size grow to at most 1 MiB: their receiver may decompress them itself. */
#define HB_EXPAND_SMALL_BYTES 1024

enum hb_coding { HB_CODING_IDENTITY, HB_CODING_GZIP, HB_CODING_DEFLATE, HB_CODING_UNKNOWN };

/* Returns the coding that Content-Encoding or grpc-encoding (`length` bytes) names; IDENTITY if it is empty. */
enum hb_coding hb_coding_parse(const char *text, size_t length);
/* Chooses the coding of an answer from the client's Accept-Encoding. NULL is allowed. */
enum hb_coding hb_coding_choose(const char *accept);
const char *hb_coding_name(enum hb_coding coding);

/*
 * Decompresses into *out, from malloc and charged. Returns 0; -EINVAL: the data are not in this coding or incomplete;
 * -E2BIG: the result is larger than `most`; -ENOBUFS: the charge was refused; -ENOMEM.
 */
int hb_coding_expand(enum hb_coding coding, const void *data, size_t bytes, size_t most,
		     struct hb_memory_charge *charge, void **out, size_t *out_bytes);
/* A body to decompress: the arguments and results of hb_coding_expand(). */
struct hb_expand_job {
	struct hb_job job;
	enum hb_coding coding;
	const void *data;
	size_t bytes, most;
	struct hb_memory_charge *charge;
	int result;
	void *out;
	size_t out_bytes;
};

void hb_coding_expand_job(struct hb_expand_job *job);

/* Decompresses the beginning, at most `size` bytes, in short time. Returns the number of bytes; 0 also without memory. */
size_t hb_coding_expand_begin(enum hb_coding coding, const void *data, size_t bytes, void *begin, size_t size);
/* Compresses into *out, from malloc. False: no memory, or the result would not be smaller. */
bool hb_coding_shrink(enum hb_coding coding, const void *data, size_t bytes, void **out, size_t *out_bytes);

#endif
