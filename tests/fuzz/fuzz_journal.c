/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: journals of `hb serve`. A refused line is named; sums of errors stay within bounds. */
#include "fuzz.h"
#include "journal_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_error error = {""};
	struct journal_reader reader = {.name = "journal", .error = &error};
	char *text = fuzz_text(data, size);
	FILE *in = size ? fmemopen(text, size, "r") : NULL;
	if (in) {
		int result = journal_reader_read(&reader, in);
		FUZZ_REQUIRE(result == 0 ? reader.n >= 1 : strncmp(error.text, "journal:", 8) == 0);
		for (size_t i = 0; i < reader.n; i++)
			FUZZ_REQUIRE(strnlen(reader.intervals[i].policy, 64) < 64);
		fclose(in);
	}
	free(reader.intervals);
	free(text);
	return 0;
}
