/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file a command writes: refused before the work begins when it cannot be
 * written, and there whole or not at all when it ends.
 */
#ifndef HB_CLI_OUT_FILE_H
#define HB_CLI_OUT_FILE_H

#include "base/error.h"

#include <stdio.h>

struct hb_out_file {
	FILE *stream; /* NULL = not open */
	const char *path;
	char *temporary;
};

/* 0 or -errno; path NULL leaves it closed and is no error. */
int hb_out_file_open(struct hb_out_file *file, const char *path, struct hb_error *error);
/*
 * What a function that wrote the file returned, with *error set where it failed because the file cannot take more: a disk that
 * is full is told by the file's name, not as part of what was written.
 */
int hb_out_file_wrote(const struct hb_out_file *file, int result, struct hb_error *error);
/* Puts the file in its place; 0 or -errno, and then nothing is left behind. Does nothing when closed. */
int hb_out_file_commit(struct hb_out_file *file, struct hb_error *error);
/* Forgets what was not committed. */
void hb_out_file_fini(struct hb_out_file *file);

#endif
