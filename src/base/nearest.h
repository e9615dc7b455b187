/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the known word that an unknown word was meant to be, for "did you mean" in messages. */
#ifndef HB_BASE_NEAREST_H
#define HB_BASE_NEAREST_H

#include <stddef.h>

/*
 * Returns the one of `n` words with the fewest slips to `text` (a letter omitted, inserted or replaced, two swapped; the
 * beginning of a word, three letters or more, is one slip). Returns NULL if no word is near, or `text` has over 63 letters.
 */
const char *hb_nearest(const char *text, const char *const *words, size_t n);

#endif
