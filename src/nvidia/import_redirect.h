/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces a function that a loaded library imports, for that library only: finds
 * the symbol's relocations and rewrites the slots that they filled. Called by the
 * watch on the resource manager for the real libcuda. It does not touch other
 * objects and leaves read-only memory read-only.
 */
#ifndef HB_GPU_IMPORT_REDIRECT_H
#define HB_GPU_IMPORT_REDIRECT_H

/*
 * `handle` is from dlopen. Returns 0; -ENOENT: the library does not import the
 * symbol; -EINVAL: the library cannot be parsed; or -errno of mprotect. Replaces all
 * slots or none. The replacement calls the original by its name, because its own
 * import is not changed.
 */
int hb_import_redirect(void *handle, const char *symbol, void *replacement);

#endif
