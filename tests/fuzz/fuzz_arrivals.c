/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: descriptions of arrivals and files of arrival times. The first line
 * of the input is the description; if it is "file:", the other lines are the file.
 */
#include "fuzz_file.h"
#include "sim/arrivals.h"

#include <math.h>

static void draw_arrivals(struct hb_arrivals *arrivals)
{
	int64_t before = 0;
	for (int i = 0; i < 200; i++) {
		int64_t at = hb_arrivals_next(arrivals);
		FUZZ_REQUIRE(at >= before);
		before = at;
	}
	FUZZ_REQUIRE(isfinite(hb_arrivals_rate_per_s(arrivals)) && hb_arrivals_rate_per_s(arrivals) >= 0);
}

/* Copies the first line into text. Returns its length with the line break. */
static size_t copy_first_line(const uint8_t *data, size_t size, char text[static 256])
{
	size_t length = 0;
	for (; length < size && length < 255 && data[length] && data[length] != '\n'; length++)
		text[length] = (char)data[length];
	text[length] = '\0';
	return length < size ? length + 1 : size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_arrivals *arrivals = NULL;
	struct hb_error error = {0};
	char spec[256];
	size_t skip = copy_first_line(data, size, spec);
	if (strncmp(spec, "file:", 5) == 0)
		snprintf(spec, sizeof spec, "file:%s", fuzz_write(data + skip, size - skip));
	int code = hb_arrivals_new(spec, 1, &arrivals, &error);
	FUZZ_REQUIRE(code == 0 || (*error.text && !arrivals));
	if (!code)
		draw_arrivals(arrivals);
	hb_arrivals_free(arrivals);
	return 0;
}
