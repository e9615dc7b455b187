/* SPDX-License-Identifier: Apache-2.0 */
/* A stdio stream that compresses what is written to it, for the writers of traces. */
#ifndef HB_SIM_GZIP_STREAM_H
#define HB_SIM_GZIP_STREAM_H

#include <stdio.h>

/*
 * Writes gzip to a duplicate of the descriptor. Returns NULL on failure. fclose() ends
 * the gzip data and fails if that or an earlier write failed. The
 * same input gives the same bytes: the header holds no name and no time.
 */
FILE *hb_gzip_stream_new(int fd);

#endif
