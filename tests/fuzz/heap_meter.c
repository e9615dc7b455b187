/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library for LD_PRELOAD that counts the bytes that a program has allocated and not
 * yet freed. live_target.py reads the count: it needs a number that a leak raises, but
 * not the caches of an allocator, freed memory that a sanitizer keeps, or pages that
 * are touched late. The count is the first word of the file HB_HEAP_METER.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static _Atomic int64_t before_the_file;
static _Atomic int64_t *allocated = &before_the_file;

#ifndef __has_feature /* gcc 12, which defines __SANITIZE_ADDRESS__; clang 14 does not */
#define __has_feature(name) 0
#endif

#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer)

/* From sanitizer/allocator_interface.h, which gcc does not install. */
size_t __sanitizer_get_allocated_size(const volatile void *block);
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t),
					      void (*freed)(const volatile void *));

static void count_allocated(const volatile void *block, size_t size)
{
	(void)size;
	*allocated += (int64_t)__sanitizer_get_allocated_size(block);
}

static void count_freed(const volatile void *block)
{
	if (block)
		*allocated -= (int64_t)__sanitizer_get_allocated_size(block);
}

static void begin_to_count(void)
{
	__sanitizer_install_malloc_and_free_hooks(count_allocated, count_freed);
}

#else

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static void *count_allocated(void *block)
{
	*allocated += (int64_t)malloc_usable_size(block);
	return block;
}

EXPORT void *malloc(size_t size)
{
	return count_allocated(__libc_malloc(size));
}

EXPORT void *calloc(size_t n, size_t size)
{
	return count_allocated(__libc_calloc(n, size));
}

EXPORT void *realloc(void *old, size_t size)
{
	int64_t before = (int64_t)malloc_usable_size(old);
	void *block = __libc_realloc(old, size);
	if (block || size == 0)
		*allocated -= before;
	return count_allocated(block);
}

EXPORT void *memalign(size_t alignment, size_t size)
{
	return count_allocated(__libc_memalign(alignment, size));
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

EXPORT int posix_memalign(void **block, size_t alignment, size_t size)
{
	void *made = memalign(alignment, size);
	if (!made)
		return ENOMEM;
	*block = made;
	return 0;
}

EXPORT void free(void *block)
{
	*allocated -= (int64_t)malloc_usable_size(block);
	__libc_free(block);
}

static void begin_to_count(void)
{
}

#endif

/* Children that execute another program must not count there. */
__attribute__((constructor)) static void open_meter(void)
{
	const char *path = getenv("HB_HEAP_METER");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *mapped = mmap(NULL, sizeof *allocated, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	unsetenv("LD_PRELOAD");
	unsetenv("HB_HEAP_METER");
	if (mapped == MAP_FAILED)
		return;
	begin_to_count();
	allocated = mapped;
	*allocated += before_the_file;
}
