/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See memory_table.h. Open addressing with linear probing; a removed slot is
 * filled by moving later ones of its run forward, so there are no tombstones.
 */
#include "shim/memory_table.h"

#include <pthread.h>
#include <stdlib.h>

#define FIRST_SLOTS 256 /* a power of two, as every size after it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hb_memory_entry *slots; /* kind HB_MEMORY_NONE: free */
static size_t n_slots, n_used;

static size_t home_of(unsigned kind, uint64_t handle)
{
	return (size_t)(((handle >> 8) ^ handle ^ kind) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (n_slots - 1);
}

/* The slot of this entry, or the free slot that ends its run; n_slots > n_used always holds. */
static struct hb_memory_entry *find(unsigned kind, uint64_t handle)
{
	size_t i = home_of(kind, handle);
	while (slots[i].kind != HB_MEMORY_NONE && (slots[i].kind != kind || slots[i].handle != handle))
		i = (i + 1) & (n_slots - 1);
	return &slots[i];
}

static bool grow(void)
{
	size_t n_old = n_slots;
	struct hb_memory_entry *old = slots;
	struct hb_memory_entry *fresh = calloc(n_old ? 2 * n_old : FIRST_SLOTS, sizeof(*fresh));
	if (!fresh)
		return false;
	slots = fresh;
	n_slots = n_old ? 2 * n_old : FIRST_SLOTS;
	for (size_t i = 0; i < n_old; i++)
		if (old[i].kind != HB_MEMORY_NONE)
			*find(old[i].kind, old[i].handle) = old[i];
	free(old);
	return true;
}

static void erase(struct hb_memory_entry *entry)
{
	size_t hole = (size_t)(entry - slots), i = hole;
	for (;;) {
		i = (i + 1) & (n_slots - 1);
		if (slots[i].kind == HB_MEMORY_NONE)
			break;
		/* Movable when the hole lies between its home and where it is, going round. */
		size_t home = home_of(slots[i].kind, slots[i].handle);
		if (((i - home) & (n_slots - 1)) >= ((i - hole) & (n_slots - 1))) {
			slots[hole] = slots[i];
			hole = i;
		}
	}
	slots[hole].kind = HB_MEMORY_NONE;
	n_used--;
}

bool hb_memory_table_put(const struct hb_memory_entry *entry, struct hb_memory_entry *replaced_out)
{
	replaced_out->kind = HB_MEMORY_NONE;
	pthread_mutex_lock(&lock);
	bool room = 4 * (n_used + 1) <= 3 * n_slots || grow();
	if (room) {
		struct hb_memory_entry *slot = find(entry->kind, entry->handle);
		*replaced_out = *slot;
		n_used += slot->kind == HB_MEMORY_NONE;
		*slot = *entry;
	}
	pthread_mutex_unlock(&lock);
	return room;
}

/* With the lock held: the entry, or NULL. */
static struct hb_memory_entry *look(unsigned kind, uint64_t handle)
{
	struct hb_memory_entry *entry = n_slots ? find(kind, handle) : NULL;
	return entry && entry->kind != HB_MEMORY_NONE ? entry : NULL;
}

/* With the lock held: hands the entry out, and perhaps removes it. */
static bool hand_out(struct hb_memory_entry *entry, bool remove, struct hb_memory_entry *entry_out)
{
	if (!entry)
		return false;
	*entry_out = *entry;
	if (remove)
		erase(entry);
	return true;
}

bool hb_memory_table_take(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out)
{
	pthread_mutex_lock(&lock);
	bool found = hand_out(look(kind, handle), true, entry_out);
	pthread_mutex_unlock(&lock);
	return found;
}

bool hb_memory_table_get(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out)
{
	pthread_mutex_lock(&lock);
	bool found = hand_out(look(kind, handle), false, entry_out);
	pthread_mutex_unlock(&lock);
	return found;
}

size_t hb_memory_table_list(enum hb_memory_kind kind, unsigned gpu, uint64_t *handles, size_t max)
{
	size_t n = 0;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_slots && n < max; i++)
		if (slots[i].kind == kind && slots[i].gpu == gpu)
			handles[n++] = slots[i].handle;
	pthread_mutex_unlock(&lock);
	return n;
}

bool hb_memory_table_hold(uint64_t handle, uint64_t serial, int change, struct hb_memory_entry *entry_out)
{
	bool gone = false;
	pthread_mutex_lock(&lock);
	struct hb_memory_entry *entry = look(HB_MEMORY_PHYSICAL, handle);
	if (entry && entry->serial == serial) {
		entry->holds += (uint32_t)change;
		gone = entry->holds == 0 && hand_out(entry, true, entry_out);
	}
	pthread_mutex_unlock(&lock);
	return gone;
}

static bool begins_in(const struct hb_memory_entry *entry, uint64_t address, uint64_t bytes)
{
	return entry->kind == HB_MEMORY_MAPPING && entry->handle >= address && entry->handle - address < bytes;
}

void hb_memory_table_mark(uint64_t address, uint64_t bytes, bool leaving)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_slots; i++)
		if (begins_in(&slots[i], address, bytes))
			slots[i].leaving = leaving;
	pthread_mutex_unlock(&lock);
}

bool hb_memory_table_take_marked(uint64_t address, uint64_t bytes, struct hb_memory_entry *entry_out)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_slots && !found; i++)
		if (slots[i].leaving && begins_in(&slots[i], address, bytes))
			found = hand_out(&slots[i], true, entry_out);
	pthread_mutex_unlock(&lock);
	return found;
}

bool hb_memory_table_take_owned(uint64_t owner, struct hb_memory_entry *entry_out)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_slots && !found; i++) {
		unsigned kind = slots[i].kind;
		if ((kind == HB_MEMORY_POINTER || kind == HB_MEMORY_ARRAY || kind == HB_MEMORY_MIPMAP) &&
		    slots[i].owner == owner)
			found = hand_out(&slots[i], true, entry_out);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void hb_memory_table_reset(void)
{
	pthread_mutex_init(&lock, NULL);
	/* Not freed: the allocator's own lock may have been held by a thread that does not exist here. */
	slots = NULL;
	n_slots = n_used = 0;
}
