/* SPDX-License-Identifier: Apache-2.0 */
/* Counts allocations; see counted_malloc.h. One thread at a time. */
#include "counted_malloc.h"

#include <stddef.h>

unsigned long hb_test_allocations;
long hb_test_blocks;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *block);

void *__wrap_malloc(size_t bytes)
{
	hb_test_allocations++;
	hb_test_blocks++;
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	hb_test_allocations++;
	hb_test_blocks++;
	return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	hb_test_allocations++;
	hb_test_blocks += old == NULL;
	return __real_realloc(old, bytes);
}

void __wrap_free(void *block)
{
	hb_test_blocks -= block != NULL;
	__real_free(block);
}
