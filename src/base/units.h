/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of durations ("10ms", "250us", "1.5s") and sizes ("512MiB"), both ways.
 * Used by the command line, the config reader and everything that prints for
 * people. Arithmetic is in integers, so nothing is rounded: a text that is not
 * a whole number of ns or bytes is an error.
 */
#ifndef HB_BASE_UNITS_H
#define HB_BASE_UNITS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Size of a buffer for any text that the format functions write. */
#define HB_UNITS_TEXT_MAX 40

/*
 * Parses NUMBER UNIT, where UNIT is ns, us, ms, s, min or h; "0" needs no unit. Returns 0, -EINVAL,
 * -ERANGE (over 292 years); the error repeats the text. *ns written only on success.
 */
int hb_duration_parse(const char *text, int64_t *ns, struct hb_error *error);
/*
 * Writes a duration exactly, in the largest of ns, us, ms, s that gives a number >= 1: 1500000 -> "1.5ms". Returns
 * `text`.
 */
char *hb_duration_format(int64_t ns, char text[static HB_UNITS_TEXT_MAX]);

/*
 * Parses NUMBER [UNIT], where UNIT is B, KiB, MiB, GiB, TiB, kB, MB, GB or TB; without a unit the number is bytes. The
 * result is at most INT64_MAX.
 */
int hb_bytes_parse(const char *text, uint64_t *bytes, struct hb_error *error);
/*
 * As hb_bytes_parse(), for sizes of memory that a user writes: 0 or at least 1 MiB. A smaller size is -EINVAL, because its
 * unit is probably missing.
 */
int hb_memory_parse(const char *text, uint64_t *bytes, struct hb_error *error);
/* Writes a size for people, to one decimal in binary units: 1610612736 -> "1.5GiB". Returns `text`. */
char *hb_bytes_format(uint64_t bytes, char text[static HB_UNITS_TEXT_MAX]);

/* The smaller of two sizes. */
static inline uint64_t hb_bytes_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

#endif
