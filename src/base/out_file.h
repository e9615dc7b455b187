/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that a program writes. Opening fails before the command's work begins when the file cannot be written. When the
 * command ends, the file is complete or does not exist, also after a power failure. A file that is replaced passes its
 * mode on, and its owner and group if the user may set them.
 */
#ifndef HB_BASE_OUT_FILE_H
#define HB_BASE_OUT_FILE_H

#include "base/error.h"

#include <stdio.h>

struct hb_out_file {
	FILE *stream; /* NULL = not open */
	const char *path;
	char *temporary;
};

/* Opens the file. Returns 0 or a negative errno. With path NULL the file stays closed, which is no error. */
int hb_out_file_open(struct hb_out_file *file, const char *path, struct hb_error *error);
/*
 * Passes on the `result` of a function that wrote the file. When the function failed because the file could not be written
 * (a full disk), *error names the file instead.
 */
int hb_out_file_wrote(const struct hb_out_file *file, int result, struct hb_error *error);
/*
 * Writes the file to disk and renames it to its path. Returns 0, or a negative errno after removing the temporary file.
 * Does nothing to a closed file.
 */
int hb_out_file_commit(struct hb_out_file *file, struct hb_error *error);
/* Closes the file and removes it if it was not committed. */
void hb_out_file_fini(struct hb_out_file *file);

#endif
