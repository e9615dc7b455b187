/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the allocations of a test program linked with malloc, calloc, realloc
 * and free wrapped (counted_malloc_args in meson.build), so that a test can say
 * that something allocates nothing, or frees all that it allocated.
 */
#ifndef HB_TESTS_COUNTED_MALLOC_H
#define HB_TESTS_COUNTED_MALLOC_H

extern unsigned long hb_test_allocations;
extern long hb_test_blocks; /* allocated and not freed yet */

#endif
