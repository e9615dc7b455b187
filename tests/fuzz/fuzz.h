/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the fuzz targets share. Included by the fuzz_*.c of this folder, each of which is a program. */
#ifndef HB_TESTS_FUZZ_FUZZ_H
#define HB_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_REQUIRE(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/* Copies the input to an allocation of exactly its size, so that a sanitizer finds a read behind it. From malloc. */
static inline uint8_t *fuzz_copy(const void *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	FUZZ_REQUIRE(copy != NULL);
	if (size)
		memcpy(copy, data, size);
	return copy;
}

/* The same with a final NUL. */
static inline char *fuzz_text(const void *data, size_t size)
{
	char *text = malloc(size + 1);
	FUZZ_REQUIRE(text != NULL);
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	return text;
}

#endif
