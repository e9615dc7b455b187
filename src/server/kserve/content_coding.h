/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed bodies, as HTTP's Content-Encoding and gRPC's grpc-encoding name
 * them: gzip and deflate (zlib's format). What a body becomes is bounded and
 * charged while it grows, so a small one that becomes huge is refused early.
 * Called by both front ends; any thread.
 */
#ifndef HB_SERVER_CONTENT_CODING_H
#define HB_SERVER_CONTENT_CODING_H

#include "server/kserve/memory_budget.h"

#include <stddef.h>

enum hb_coding { HB_CODING_IDENTITY, HB_CODING_GZIP, HB_CODING_DEFLATE, HB_CODING_UNKNOWN };

/* Of Content-Encoding or grpc-encoding, `length` bytes; none is identity. */
enum hb_coding hb_coding_parse(const char *text, size_t length);
/* The one to answer with, by Accept-Encoding; NULL allowed. */
enum hb_coding hb_coding_choose(const char *accept);
const char *hb_coding_name(enum hb_coding coding);

/*
 * *out from malloc, charged. 0; -EINVAL: it is not so compressed, or cut short;
 * -E2BIG: more than `most`; -ENOBUFS: the charge was refused; -ENOMEM.
 */
int hb_coding_expand(enum hb_coding coding, const void *data, size_t bytes, size_t most,
		     struct hb_memory_charge *charge, void **out, size_t *out_bytes);
/* *out from malloc. False: no memory, or it would not become smaller. */
bool hb_coding_shrink(enum hb_coding coding, const void *data, size_t bytes, void **out, size_t *out_bytes);

#endif
