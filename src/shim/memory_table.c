/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of allocations (memory_table.h). Open addressing with linear probing.
 * Removing an entry moves later entries of its run forward, so there are no
 * tombstones.
 */
#include "shim/memory_table.h"

#include <pthread.h>
#include <stdlib.h>

#define FIRST_SLOTS 256 /* a power of two, as every size after it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hb_memory_entry *slots; /* kind HB_MEMORY_NONE: free */
static size_t n_slots, n_used;

static size_t find_home(unsigned kind, uint64_t handle)
{
	return (size_t)(((handle >> 8) ^ handle ^ kind) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (n_slots - 1);
}

/* Returns the slot of this entry, or the free slot that ends its run; there is always a free slot. */
static struct hb_memory_entry *find_slot(unsigned kind, uint64_t handle)
{
	size_t i = find_home(kind, handle);
	while (slots[i].kind != HB_MEMORY_NONE && (slots[i].kind != kind || slots[i].handle != handle))
		i = (i + 1) & (n_slots - 1);
	return &slots[i];
}

static bool grow_table(void)
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
			*find_slot(old[i].kind, old[i].handle) = old[i];
	free(old);
	return true;
}

static void erase_entry(struct hb_memory_entry *entry)
{
	size_t hole = (size_t)(entry - slots), i = hole;
	for (;;) {
		i = (i + 1) & (n_slots - 1);
		if (slots[i].kind == HB_MEMORY_NONE)
			break;
		/* An entry can move if the hole is between its home and its slot, in the order of the ring. */
		size_t home = find_home(slots[i].kind, slots[i].handle);
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
	bool room = 4 * (n_used + 1) <= 3 * n_slots || grow_table();
	if (room) {
		struct hb_memory_entry *slot = find_slot(entry->kind, entry->handle);
		*replaced_out = *slot;
		n_used += slot->kind == HB_MEMORY_NONE;
		*slot = *entry;
	}
	pthread_mutex_unlock(&lock);
	return room;
}

/* With the lock held. Returns the entry, or NULL. */
static struct hb_memory_entry *find_entry(unsigned kind, uint64_t handle)
{
	struct hb_memory_entry *entry = n_slots ? find_slot(kind, handle) : NULL;
	return entry && entry->kind != HB_MEMORY_NONE ? entry : NULL;
}

/* With the lock held: copies the entry out, and removes it if asked to. */
static bool copy_out(struct hb_memory_entry *entry, bool remove, struct hb_memory_entry *entry_out)
{
	if (!entry)
		return false;
	*entry_out = *entry;
	if (remove)
		erase_entry(entry);
	return true;
}

bool hb_memory_table_take(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out)
{
	pthread_mutex_lock(&lock);
	bool found = copy_out(find_entry(kind, handle), true, entry_out);
	pthread_mutex_unlock(&lock);
	return found;
}

bool hb_memory_table_get(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out)
{
	pthread_mutex_lock(&lock);
	bool found = copy_out(find_entry(kind, handle), false, entry_out);
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

uint64_t hb_memory_table_sum(enum hb_memory_kind kind, unsigned gpu, uint64_t below)
{
	uint64_t bytes = 0;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_slots; i++)
		if (slots[i].kind == kind && slots[i].gpu == gpu && slots[i].bytes < below)
			bytes += slots[i].bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}

bool hb_memory_table_add_references(uint64_t handle, uint64_t serial, int change, struct hb_memory_entry *entry_out)
{
	bool gone = false;
	pthread_mutex_lock(&lock);
	struct hb_memory_entry *entry = find_entry(HB_MEMORY_PHYSICAL, handle);
	if (entry && entry->serial == serial) {
		entry->references += (uint32_t)change;
		gone = entry->references == 0 && copy_out(entry, true, entry_out);
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
			found = copy_out(&slots[i], true, entry_out);
	pthread_mutex_unlock(&lock);
	return found;
}

static bool is_owned(const struct hb_memory_entry *entry, uint64_t owner)
{
	return (entry->kind == HB_MEMORY_POINTER || entry->kind == HB_MEMORY_ARRAY ||
		entry->kind == HB_MEMORY_MIPMAP) &&
	       entry->owner == owner;
}

void hb_memory_table_give_owned(uint64_t owner, uint64_t to)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_slots; i++)
		if (is_owned(&slots[i], owner))
			slots[i].owner = to;
	pthread_mutex_unlock(&lock);
}

bool hb_memory_table_take_owned(uint64_t owner, struct hb_memory_entry *entry_out)
{
	bool found = false;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_slots && !found; i++)
		if (is_owned(&slots[i], owner))
			found = copy_out(&slots[i], true, entry_out);
	pthread_mutex_unlock(&lock);
	return found;
}

void hb_memory_table_reset(void)
{
	pthread_mutex_init(&lock, NULL);
	/* Not freed: a thread that does not exist in the child may have held the allocator's lock. */
	slots = NULL;
	n_slots = n_used = 0;
}
