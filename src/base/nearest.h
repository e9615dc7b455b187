/* SPDX-License-Identifier: Apache-2.0 */
/* What a word that is not known was meant to be: for "did you mean" in messages. */
#ifndef HB_BASE_NEAREST_H
#define HB_BASE_NEAREST_H

#include <stddef.h>

/*
 * The one of `n` words that takes the fewest slips to write as `text` (a letter left out, put in, replaced, two swapped; a
 * word of three letters or more that is only begun is one slip); NULL where none is near. Words over 63 letters are not.
 */
const char *hb_nearest(const char *text, const char *const *words, size_t n);

#endif
