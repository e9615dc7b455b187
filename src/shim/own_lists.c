/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of the program's handles and of their mappings (own_handles.h, docs/decisions/0045-own-handles.md), and look-ups in
 * them. It makes no driver call.
 */
#include "shim/own_handles_priv.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * The lists change only while the lock of calls is held (own_handles_priv.h); this one protects look-ups that do not hold it. It is
 * never held during a driver call.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own_handle **handles;   /* by number */
static struct own_mapping **mappings; /* by address */
static size_t n_handles, handle_room, n_mappings, mapping_room;
static atomic_bool any; /* there has been a number */

bool hb_own_has_any(void)
{
	return atomic_load_explicit(&any, memory_order_relaxed);
}

/* Returns the list with room for one more pointer; NULL: out of memory, and the list is as it was. */
static void *make_room(void *list, size_t n, size_t *room)
{
	if (n < *room)
		return list;
	size_t more = *room ? 2 * *room : 64;
	void *bigger = realloc(list, more * sizeof(void *));
	if (bigger)
		*room = more;
	return bigger;
}

/* Returns the index of the first handle with this number or a larger one. */
static size_t find_number(CUmemGenericAllocationHandle number)
{
	size_t low = 0, high = n_handles;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (handles[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* NULL: the program has no such handle (any more). */
struct own_handle *hb_own_find_handle(CUmemGenericAllocationHandle number)
{
	size_t i = find_number(number);
	return i < n_handles && handles[i]->number == number && handles[i]->references ? handles[i] : NULL;
}

/* Usually appends. Another thread may have drawn a larger number and added it first, so the place is searched. */
bool hb_own_add_handle(struct own_handle *own)
{
	pthread_mutex_lock(&lock);
	struct own_handle **list = make_room(handles, n_handles, &handle_room);
	if (list) {
		handles = list;
		size_t i = find_number(own->number);
		memmove(&list[i + 1], &list[i], (n_handles - i) * sizeof(struct own_handle *));
		list[i] = own;
		n_handles++;
		atomic_store(&any, true);
	}
	pthread_mutex_unlock(&lock);
	return list != NULL;
}

/* Returns the index of the first mapping that ends above the address. */
size_t hb_own_find_first(CUdeviceptr address)
{
	size_t low = 0, high = n_mappings;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (mappings[middle]->base + (mappings[middle]->bytes - 1) < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* NULL: there is none around the address. */
struct own_mapping *hb_own_find_mapping(CUdeviceptr address)
{
	size_t i = hb_own_find_first(address);
	return i < n_mappings && mappings[i]->base <= address ? mappings[i] : NULL;
}

/* Returns mapping number i if it is in the range, of which it may be a part only; NULL: this one and those above are not. */
struct own_mapping *hb_own_mapping_in(size_t i, CUdeviceptr address, size_t bytes)
{
	return i < n_mappings && (mappings[i]->base < address || mappings[i]->base - address < bytes) ? mappings[i]
												      : NULL;
}

bool hb_own_add_mapping(struct own_handle *own, CUdeviceptr address, size_t bytes)
{
	static uint64_t ids;
	struct own_mapping *mapping = calloc(1, sizeof(*mapping));
	pthread_mutex_lock(&lock);
	struct own_mapping **list = mapping ? make_room(mappings, n_mappings, &mapping_room) : NULL;
	if (list) {
		mappings = list;
		size_t i = hb_own_find_first(address);
		memmove(&list[i + 1], &list[i], (n_mappings - i) * sizeof(struct own_mapping *));
		*mapping = (struct own_mapping){.base = address, .bytes = bytes, .id = ++ids, .handle = own};
		list[i] = mapping;
		n_mappings++;
		own->base = address;
		own->n_mappings++;
	}
	pthread_mutex_unlock(&lock);
	if (!list)
		free(mapping);
	return list != NULL;
}

void hb_own_remove_handle(const struct own_handle *own)
{
	pthread_mutex_lock(&lock);
	size_t i = find_number(own->number);
	memmove(&handles[i], &handles[i + 1], (n_handles - i - 1) * sizeof(struct own_handle *));
	n_handles--;
	pthread_mutex_unlock(&lock);
}

void hb_own_remove_mapping(size_t i)
{
	struct own_mapping *mapping = mappings[i];
	pthread_mutex_lock(&lock);
	memmove(&mappings[i], &mappings[i + 1], (n_mappings - i - 1) * sizeof(struct own_mapping *));
	n_mappings--;
	mapping->handle->n_mappings--;
	pthread_mutex_unlock(&lock);
	free(mapping);
}

void hb_own_set_piece(struct own_handle *own, const struct hb_granules_piece *piece)
{
	pthread_mutex_lock(&lock);
	own->piece = *piece;
	pthread_mutex_unlock(&lock);
}

void hb_own_set_moves(struct own_mapping *mapping, bool moves)
{
	pthread_mutex_lock(&lock);
	mapping->moves = moves;
	pthread_mutex_unlock(&lock);
}

void hb_own_set_stays(struct own_handle *own, bool stays)
{
	pthread_mutex_lock(&lock);
	own->stays = stays;
	pthread_mutex_unlock(&lock);
}

bool hb_own_is_home(const struct own_handle *own)
{
	return own->piece.place.type == CU_MEM_LOCATION_TYPE_DEVICE && own->piece.place.id == own->device;
}

/* ---- look-ups ---- */

bool hb_own_find(CUdeviceptr pointer, struct hb_own_found *found)
{
	if (!hb_own_has_any())
		return false;
	pthread_mutex_lock(&lock);
	const struct own_mapping *mapping = hb_own_find_mapping(pointer);
	bool can = mapping && !mapping->handle->stays;
	if (can)
		*found = (struct hb_own_found){.base = mapping->base,
					       .bytes = mapping->bytes,
					       .device = mapping->handle->device,
					       .id = mapping->id,
					       .moves = mapping->moves,
					       .handle_types = mapping->handle->properties.requestedHandleTypes};
	pthread_mutex_unlock(&lock);
	return can;
}

size_t hb_own_unmapped_away_bytes(int device)
{
	size_t bytes = 0;
	if (!hb_own_has_any())
		return bytes;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_handles; i++)
		if (handles[i]->device == device && !handles[i]->n_mappings && !hb_own_is_home(handles[i]))
			bytes += handles[i]->piece.bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}

void hb_own_lists_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	/* Not freed: the parent's threads may have held the allocator's lock at the fork. */
	handles = NULL;
	mappings = NULL;
	n_handles = handle_room = n_mappings = mapping_room = 0;
	atomic_store(&any, false);
}
