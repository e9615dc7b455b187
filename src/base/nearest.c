/* SPDX-License-Identifier: Apache-2.0 */
/* See nearest.h. */
#include "base/nearest.h"

#include <string.h>

enum { LETTERS = 64 };

static size_t choose_smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Counts the letters to insert, delete, replace or swap to turn `a` into `b`. Returns LETTERS for texts of that length or more. */
static size_t count_slips(const char *a, const char *b)
{
	size_t rows[3][LETTERS];
	size_t rows_n = strlen(a), columns_n = strlen(b);
	if (rows_n >= LETTERS || columns_n >= LETTERS)
		return LETTERS;
	for (size_t j = 0; j <= columns_n; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= rows_n; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
		row[0] = i;
		for (size_t j = 1; j <= columns_n; j++) {
			row[j] = choose_smaller(choose_smaller(above[j], row[j - 1]) + 1,
						above[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = choose_smaller(row[j], above2[j - 2] + 1);
		}
	}
	return rows[rows_n % 3][columns_n];
}

const char *hb_nearest(const char *text, const char *const *words, size_t n)
{
	size_t length = strlen(text);
	/* Accepts one slip for each three letters and one more, but at most half of a short word. */
	size_t best = choose_smaller(length / 3 + 1, length / 2) + 1;
	const char *nearest = NULL;
	for (size_t i = 0; i < n; i++) {
		size_t slips = count_slips(text, words[i]);
		if (length >= 3 && strncmp(text, words[i], length) == 0)
			slips = 1;
		if (slips < best) {
			best = slips;
			nearest = words[i];
		}
	}
	return nearest;
}
