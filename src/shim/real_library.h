/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the dynamic loader's cache (/etc/ld.so.cache), because asking the loader
 * itself for libcuda.so.1 gives back the shim. Used by real_library.c and its
 * test. Allocates nothing that it keeps.
 */
#ifndef HB_SHIM_REAL_LIBRARY_H
#define HB_SHIM_REAL_LIBRARY_H

#define HB_LOADER_CACHE "/etc/ld.so.cache"

/*
 * Calls visit with each path that the cache file lists for this library name,
 * for 64-bit programs of this architecture, until one returns non-NULL; returns
 * that, or NULL. A file that is missing, cut short or of another format lists nothing.
 */
void *hb_loader_cache_each(const char *cache_path, const char *library, void *(*visit)(const char *path, void *context),
			   void *context);

#endif
