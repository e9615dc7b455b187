/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: images of machine code. Any bytes are read as a fatbin, as a cubin
 * and as the compiled range check. Parsing, judging and splicing them must not read
 * outside the input, and the splicer's output must pass the same checks.
 */
#include "cubin/fatbin.h"
#include "cubin/sass.h"
#include "cubin/splice.h"
#include "cubin/split_rule.h"

#include <stdlib.h>
#include <string.h>

#define UNPACKED_MAX (1 << 20) /* bytes of a decompressed input; keeps runs short */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition)
		abort();
}

static const struct hb_prologue prologue = {
	.arch = 90,
	.parameter_base = 0x210,
	.n_registers = 6,
	.exit_place = 0xa0,
	.n_bytes = 256,
	.n_patches = 1,
	.patches = {{10, 38}},
};

static void splice_kernels(const struct hb_cubin *cubin)
{
	struct hb_splice result;
	struct hb_cubin again;
	struct hb_code_facts facts;
	if (hb_splice(cubin, &prologue, &result))
		return;
	require((result.bytes != NULL) == (result.n_split != 0));
	if (result.bytes) {
		require(result.size > cubin->size && hb_cubin_open(&again, result.bytes, result.size) == 0);
		for (uint32_t i = 0; i < again.n_kernels; i++)
			if (result.kernels[i].reason == HB_SPLIT_none)
				require(hb_split_rule(&again, &again.kernels[i], &facts) == HB_SPLIT_none);
		hb_cubin_close(&again);
	}
	hb_splice_free(&result);
}

/* `bytes` must be an allocation of exactly `size` bytes, so that a sanitizer finds a read behind it. */
static void read_cubin(const uint8_t *bytes, size_t size)
{
	struct hb_cubin cubin;
	struct hb_prologue taken;
	const char *why;
	if (hb_cubin_open(&cubin, bytes, size) == 0) {
		require(hb_cubin_find_section(&cubin, "") < cubin.n_sections);
		splice_kernels(&cubin);
		hb_cubin_close(&cubin);
	}
	require(hb_prologue_take(&taken, bytes, size, &why) == 0 || *why);
}

static void read_fatbin(const uint8_t *bytes, size_t size)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	uint8_t *unpacked;
	size_t n;
	if (hb_fatbin_open(&fatbin, bytes, size))
		return;
	while (hb_fatbin_next(&fatbin, &entry) == 1) {
		require(entry.bytes >= bytes && entry.bytes + entry.n_bytes <= bytes + size);
		if (entry.n_unpacked > UNPACKED_MAX || hb_fatbin_unpack(&entry, &unpacked, &n))
			continue;
		read_cubin(unpacked, n);
		free(unpacked);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	require(copy != NULL);
	if (size)
		memcpy(copy, data, size);
	read_fatbin(copy, size);
	read_cubin(copy, size);
	free(copy);
	return 0;
}
