/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For fuzz targets whose reader takes a path: writes the input into a file. Each
 * process has one file, which is overwritten for each input and removed at exit.
 * Included by the fuzz_*.c of this folder, each of which is a program.
 */
#ifndef HB_TESTS_FUZZ_FUZZ_FILE_H
#define HB_TESTS_FUZZ_FUZZ_FILE_H

#include "fuzz.h"
#include "trace/trace.h"

#include <unistd.h>

static char fuzz_path[64], fuzz_alone_path[80];

static void fuzz_remove(void)
{
	unlink(fuzz_path);
	unlink(fuzz_alone_path);
}

static inline void fuzz_write_to(const char *path, const void *data, size_t size)
{
	FILE *file = fopen(path, "wb");
	FUZZ_REQUIRE(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

/* Chooses the paths of a trace and its companion file. */
static inline void fuzz_paths(void)
{
	if (*fuzz_path)
		return;
	snprintf(fuzz_path, sizeof fuzz_path, "/tmp/hb-fuzz-%d.csv", (int)getpid());
	snprintf(fuzz_alone_path, sizeof fuzz_alone_path, "/tmp/hb-fuzz-%d.alone.csv", (int)getpid());
	atexit(fuzz_remove);
}

static inline const char *fuzz_write(const void *data, size_t size)
{
	fuzz_paths();
	fuzz_write_to(fuzz_path, data, size);
	return fuzz_path;
}

static inline char *fuzz_written(const struct hb_trace_set *set, size_t *length)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, length);
	FUZZ_REQUIRE(out && hb_trace_write_csv(out, set) == 0 && fclose(out) == 0);
	return text;
}

/* Checks that traces that were read can be written and read again with the same result. */
static inline void fuzz_round_trip(const struct hb_trace_set *set)
{
	struct hb_trace_set again = {0};
	struct hb_error error = {0};
	size_t length = 0, length_again = 0;
	char *text = fuzz_written(set, &length);
	int code = hb_trace_read_csv(fuzz_write(text, length), &again, &error);
	if (code)
		fprintf(stderr, "%s\n", error.text);
	FUZZ_REQUIRE(code == 0);
	char *text_again = fuzz_written(&again, &length_again);
	FUZZ_REQUIRE(length == length_again && memcmp(text, text_again, length) == 0);
	free(text);
	free(text_again);
	hb_trace_set_fini(&again);
}

/* Checks that an error names the file. */
static inline void fuzz_check_error(int code, const struct hb_error *error, const char *path)
{
	FUZZ_REQUIRE(code < 0 && strncmp(error->text, path, strlen(path)) == 0);
}

#endif
