/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files for tests of readers: written into a folder of the test's own, which is
 * removed at exit. Include it before anything else, once a test program.
 */
#ifndef HB_TESTS_UNIT_TEST_FILES_H
#define HB_TESTS_UNIT_TEST_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>
#include <cmocka.h>

static char test_folder[64];

static inline void test_remove_folder(void)
{
	char command[96];
	snprintf(command, sizeof command, "rm -rf '%s'", test_folder);
	if (system(command) != 0)
		fprintf(stderr, "cannot remove %s\n", test_folder);
}

/* A path in the test's folder; free() it. */
static inline char *test_path(const char *name)
{
	if (!*test_folder) {
		strcpy(test_folder, "/tmp/hb-test-XXXXXX");
		assert_non_null(mkdtemp(test_folder));
		atexit(test_remove_folder);
	}
	char *path = NULL;
	assert_true(asprintf(&path, "%s/%s", test_folder, name) > 0);
	return path;
}

static inline char *test_file(const char *name, const void *bytes, size_t length)
{
	char *path = test_path(name);
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
	return path;
}

static inline char *test_text(const char *name, const char *text)
{
	return test_file(name, text, strlen(text));
}

/* The text as a gzip file of `keep` bytes at most. */
static inline char *test_gzip(const char *name, const char *text, size_t keep)
{
	char *path = test_path(name);
	gzFile file = gzopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(gzwrite(file, text, (unsigned)strlen(text)), strlen(text));
	assert_int_equal(gzclose(file), Z_OK);
	FILE *written = fopen(path, "rb");
	assert_non_null(written);
	fseek(written, 0, SEEK_END);
	if ((size_t)ftell(written) > keep)
		assert_int_equal(truncate(path, (off_t)keep), 0);
	fclose(written);
	return path;
}

/* A whole file, gzip or not, without its carriage returns; free() it. */
static inline char *test_read(const char *path)
{
	size_t room = 1 << 16, length = 0;
	char *text = malloc(room);
	gzFile file = gzopen(path, "rb");
	assert_non_null(file);
	for (int byte; (byte = gzgetc(file)) >= 0;) {
		if (length + 1 == room)
			text = realloc(text, room *= 2);
		assert_non_null(text);
		if (byte != '\r')
			text[length++] = (char)byte;
	}
	gzclose(file);
	text[length] = '\0';
	return text;
}

#endif
