/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the dynamic loader's cache (/etc/ld.so.cache). The loader itself cannot be
 * asked for libcuda.so.1, because it would return the shim. Used by real_library.c
 * and its test.
 */
#ifndef HB_SHIM_REAL_LIBRARY_H
#define HB_SHIM_REAL_LIBRARY_H

#include <stddef.h>

#define HB_LOADER_CACHE "/etc/ld.so.cache"

/*
 * Calls visit with each path that the cache lists for this library name, for 64-bit
 * programs of this architecture, until visit returns a non-NULL pointer. Returns
 * that pointer, or NULL. A missing, truncated or unknown file lists nothing.
 */
void *hb_loader_cache_each(const char *cache_path, const char *library, void *(*visit)(const char *path, void *context),
			   void *context);
/* Does the same with the bytes of a cache. */
void *hb_loader_cache_read(const char *file, size_t size, const char *library,
			   void *(*visit)(const char *path, void *context), void *context);

#endif
