/* SPDX-License-Identifier: Apache-2.0 */
/* Draws numbers as a row of small bars for `hb top`. Pure. */
#ifndef HB_CLI_SPARKLINE_H
#define HB_CLI_SPARKLINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define HB_SPARKLINE_MAX 256 /* bytes of a line of 60 bars, with its NUL */

/* Whether lines consist of block elements, or of ASCII characters (the default), because the terminal has only these. */
void hb_sparkline_use_blocks(bool blocks);

/*
 * Draws the last `width` numbers of a list, at most 60; `most` is the full height. A number above 0 has at least the lowest
 * bar; null (not known, or nothing happened) is a space. Returns `text`.
 */
const char *hb_sparkline(const json_t *numbers, double most, size_t width, char text[HB_SPARKLINE_MAX]);

#endif
