/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the allocations of a test program linked with malloc, calloc and
 * realloc wrapped (counted_malloc_args in meson.build), so that a test can say
 * that something allocates nothing.
 */
#ifndef HB_TESTS_COUNTED_MALLOC_H
#define HB_TESTS_COUNTED_MALLOC_H

extern unsigned long hb_test_allocations;

#endif
