/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The project's rules on top of jansson, so that every --json answer, report
 * and state file looks the same: keys in insertion order, numbers to 12
 * significant digits, NaN and infinities refused, duplicate keys refused on
 * reading. Trees are ordinary json_t: build and walk them with jansson.
 */
#ifndef HB_BASE_JSON_H
#define HB_BASE_JSON_H

#include "base/error.h"

#include <jansson.h>
#include <stdio.h>

/*
 * Calls json_pack(). Returns NULL with *error for a NULL string or object, a
 * number that is not finite, or a lack of memory.
 */
json_t *hb_json_pack(struct hb_error *error, const char *format, ...);

/* Calls json_unpack() for input from `origin` (a file name). Returns 0, or -EINVAL naming the missing or mistyped key. */
int hb_json_unpack(json_t *root, const char *origin, struct hb_error *error, const char *format, ...);

/* Writes indented text and a newline. Returns 0, -EIO, -EINVAL (root NULL: an earlier pack failed; error untouched). */
int hb_json_write(const json_t *root, FILE *out, struct hb_error *error);

/*
 * Reads a file. Returns 0, the negative errno of opening, or -EINVAL ("FILE:LINE: what"). *root (a new reference)
 * written only on success.
 */
int hb_json_load(const char *path, json_t **root, struct hb_error *error);
/* Parses a text in memory, as hb_json_load() does; `origin` stands for the file name. */
int hb_json_parse(const char *text, size_t length, const char *origin, json_t **root, struct hb_error *error);

#endif
