/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that double: room for one more. For readers that do not know how much is to come. */
#ifndef HB_SIM_GROW_H
#define HB_SIM_GROW_H

#include <stddef.h>
#include <stdlib.h>

/* The array, moved if need be, with *room > used; NULL without memory, then the old one is still good. */
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
