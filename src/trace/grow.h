/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that double when they are full. For readers that do not know how many elements will follow. */
#ifndef HB_SIM_GROW_H
#define HB_SIM_GROW_H

#include <stddef.h>
#include <stdlib.h>

/*
 * Returns the array, moved if needed, with *room > used. Returns NULL without memory; the old array is then still
 * valid.
 */
static inline void *hb_grow(void *array, size_t used, size_t *room, size_t entry_bytes)
{
	if (used < *room)
		return array;
	size_t more = *room ? *room * 2 : 64;
	void *grown = reallocarray(array, more, entry_bytes);
	if (grown)
		*room = more;
	return grown;
}

#endif
