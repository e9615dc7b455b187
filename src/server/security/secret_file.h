/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file with a secret, if no one else can read it. Used for token files and private keys. */
#ifndef HB_SERVER_SECRET_FILE_H
#define HB_SERVER_SECRET_FILE_H

#include "base/error.h"

#include <stddef.h>
#include <sys/types.h>

#define HB_SECRET_BYTES_MAX (1 << 20)

/*
 * Reads all of a file into *text, zero-terminated, from malloc. The file must belong to the server's user or root and
 * have none of the mode bits in `forbidden`. Returns 0, or negative errno with *error.
 */
int hb_secret_file_read(const char *path, mode_t forbidden, char **text, size_t *bytes, struct hb_error *error);
/* Overwrites and frees the text. NULL is allowed. */
void hb_secret_free(char *text, size_t bytes);

#endif
