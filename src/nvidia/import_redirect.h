/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces one function that a loaded library imports, for that library only:
 * finds the symbol's relocations and rewrites the slots they filled. Called by
 * the resource-manager watch on the real libcuda. It must not touch another
 * object, and leaves read-only memory read-only.
 */
#ifndef HB_GPU_IMPORT_REDIRECT_H
#define HB_GPU_IMPORT_REDIRECT_H

/*
 * `handle` from dlopen. 0; -ENOENT: the library does not import that symbol;
 * -EINVAL: not a library we can read; -errno of mprotect. Either all slots are
 * replaced or none. To reach the original, the replacement calls the symbol by
 * its name: its own import is left alone.
 */
int hb_import_redirect(void *handle, const char *symbol, void *replacement);

#endif
