/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bearer tokens of `hb serve --token-file`. A line of the file is "TOKEN [high|low] [control] [shared-memory]"; "#"
 * begins a comment. Used by access.c.
 */
#ifndef HB_SERVER_TOKENS_H
#define HB_SERVER_TOKENS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_TOKEN_MIN 16 /* characters of the shortest token */
#define HB_TOKEN_MAX 128
#define HB_TOKENS_MAX 256

struct hb_token {
	char text[HB_TOKEN_MAX + 1]; /* padded with zeros */
	bool low_only;               /* its requests run with low priority */
	bool control, shared_memory; /* rights besides inference */
	uint32_t id;                 /* a hash: stays the same when the file is read again */
};

struct hb_tokens {
	uint32_t n;
	struct hb_token all[HB_TOKENS_MAX];
};

/*
 * Reads the file into *tokens. Returns 0, or negative errno with *error, which names file and line: the file is
 * malformed, has no token, or others than its owner may read it.
 */
int hb_tokens_read(const char *path, struct hb_tokens *tokens, struct hb_error *error);
/* The same for the content of a file, zero-terminated, which is changed. `path` is for *error. */
int hb_tokens_parse(const char *path, char *text, size_t bytes, struct hb_tokens *tokens, struct hb_error *error);
/* Finds a token. The time that this takes does not depend on how many characters are right. NULL: there is no such token. */
const struct hb_token *hb_tokens_find(const struct hb_tokens *tokens, const char *text, size_t n);

#endif
