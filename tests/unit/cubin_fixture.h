/* SPDX-License-Identifier: Apache-2.0 */
/* The files of tests/cubin in memory, for the tests of src/cubin. Memory is exactly as large as the file. */
#ifndef HB_TESTS_CUBIN_FIXTURE_H
#define HB_TESTS_CUBIN_FIXTURE_H

#include "cubin/fatbin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static inline uint8_t *fixture(const char *name, size_t *size)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", FIXTURES, name);
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	*size = (size_t)ftell(file);
	rewind(file);
	uint8_t *bytes = malloc(*size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, *size, file), *size);
	fclose(file);
	return bytes;
}

/* The cubin for this architecture in a fatbin. */
static inline uint8_t *fixture_for(const char *name, unsigned arch, size_t *size)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	size_t file_size;
	uint8_t *bytes, *file = fixture(name, &file_size);
	assert_int_equal(hb_fatbin_open(&fatbin, file, file_size), 0);
	do
		assert_int_equal(hb_fatbin_next(&fatbin, &entry), 1);
	while (entry.arch != arch);
	assert_int_equal(hb_fatbin_unpack(&entry, &bytes, size), 0);
	free(file);
	return bytes;
}

/* The cubin in kernels.fatbin. */
static inline uint8_t *fixture_cubin(size_t *size)
{
	return fixture_for("kernels.fatbin", 90, size);
}

#endif
