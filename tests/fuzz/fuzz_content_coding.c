/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: compressed bodies and the header that names their coding. The first
 * byte chooses the coding. What a body becomes is bounded, its memory is charged,
 * and compressing it again and expanding that gives the same bytes.
 */
#include "fuzz.h"
#include "server/kserve/content_coding.h"

#define MOST ((size_t)64 << 10)

static void read_names(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	enum hb_coding chosen = hb_coding_choose(text);
	FUZZ_REQUIRE(chosen == HB_CODING_IDENTITY || chosen == HB_CODING_GZIP || chosen == HB_CODING_DEFLATE);
	FUZZ_REQUIRE(hb_coding_name(chosen)[0] != '\0');
	free(text);
	uint8_t *copy = fuzz_copy(data, size);
	FUZZ_REQUIRE(hb_coding_parse((const char *)copy, size) <= HB_CODING_UNKNOWN);
	free(copy);
}

static void expand_again(enum hb_coding coding, const void *plain, size_t bytes)
{
	void *shrunk = NULL, *again = NULL;
	size_t shrunk_bytes = 0, again_bytes = 0;
	struct hb_memory_charge free_of_charge = {.budget = NULL};
	if (!bytes || !hb_coding_shrink(coding, plain, bytes, &shrunk, &shrunk_bytes))
		return;
	FUZZ_REQUIRE(shrunk_bytes <= bytes);
	FUZZ_REQUIRE(hb_coding_expand(coding, shrunk, shrunk_bytes, MOST, &free_of_charge, &again, &again_bytes) == 0);
	FUZZ_REQUIRE(again_bytes == bytes && memcmp(again, plain, bytes) == 0);
	free(shrunk);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_memory_budget budget = {.limit_bytes = 2 * MOST};
	struct hb_memory_charge charge = {.budget = &budget};
	void *out = NULL;
	size_t bytes = 0;
	if (size == 0)
		return 0;
	if (data[0] == 'n') {
		read_names(data + 1, size - 1);
		return 0;
	}
	enum hb_coding coding = data[0] == 'd' ? HB_CODING_DEFLATE : HB_CODING_GZIP;
	uint8_t *body = fuzz_copy(data + 1, size - 1);
	int result = hb_coding_expand(coding, body, size - 1, MOST, &charge, &out, &bytes);
	FUZZ_REQUIRE(result == 0 ? bytes <= MOST : out == NULL);
	FUZZ_REQUIRE(charge.bytes >= bytes && charge.bytes <= MOST + 1 && budget.used_bytes == charge.bytes);
	if (result == 0)
		expand_again(coding, out, bytes);
	free(out);
	free(body);
	return 0;
}
