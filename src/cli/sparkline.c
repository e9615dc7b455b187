/* SPDX-License-Identifier: Apache-2.0 */
/* Draws numbers as a row of small bars; see sparkline.h. */
#include "cli/sparkline.h"

#include <string.h>

#define BARS_MAX 60
#define LEVELS 8

static const char *const blocks[LEVELS] = {"\u2581", "\u2582", "\u2583", "\u2584",
					   "\u2585", "\u2586", "\u2587", "\u2588"};
static const char *const letters[LEVELS] = {"_", ".", "-", "~", "=", "+", "*", "#"};
static const char *const *bars = letters;

void hb_sparkline_use_blocks(bool use)
{
	bars = use ? blocks : letters;
}

static const char *choose_bar(const json_t *number, double most)
{
	double value = json_number_value(number);
	if (!json_is_number(number))
		return " ";
	int level = most > 0 ? (int)(value / most * LEVELS) : 0;
	return bars[level < 0 ? 0 : level < LEVELS ? level : LEVELS - 1];
}

const char *hb_sparkline(const json_t *numbers, double most, size_t width, char text[HB_SPARKLINE_MAX])
{
	size_t n = json_array_size(numbers), used = 0;
	width = width < BARS_MAX ? width : BARS_MAX;
	for (size_t i = n > width ? n - width : 0; i < n; i++) {
		const char *bar = choose_bar(json_array_get(numbers, i), most);
		memcpy(text + used, bar, strlen(bar));
		used += strlen(bar);
	}
	text[used] = '\0';
	return text;
}
