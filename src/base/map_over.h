/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces a mapping that other threads read meanwhile. */
#ifndef HB_BASE_MAP_OVER_H
#define HB_BASE_MAP_OVER_H

#include <stddef.h>

/*
 * Maps `bytes` of the file `fd` (-1 = zeros, with MAP_ANONYMOUS in `flags`) over the mapping at `at`; NULL = anywhere.
 * Linux swaps each page in one step: a thread that reads it sees the old page or the new one. Adds MAP_FIXED to `flags`;
 * the offset is 0. Returns the address, or MAP_FAILED with errno set; the old mapping may then be gone. Exists because the
 * thread sanitizer would report mmap() as a write.
 */
void *hb_map_over(void *at, size_t bytes, int protection, int flags, int fd);

#endif
