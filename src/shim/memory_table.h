/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process has allocated, so that giving it up is accounted with the
 * same size and GPU: a hash table keyed by kind and handle. Any thread; a short
 * lock, never held over a call into the driver. Used by memory_account.c only.
 */
#ifndef HB_SHIM_MEMORY_TABLE_H
#define HB_SHIM_MEMORY_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hb_memory_kind {
	HB_MEMORY_NONE,
	HB_MEMORY_POINTER, /* plain, pitched, managed, stream-ordered: one address space */
	HB_MEMORY_ARRAY,
	HB_MEMORY_MIPMAP,
	HB_MEMORY_PHYSICAL, /* cuMemCreate's handles: live while retained or mapped */
	HB_MEMORY_MAPPING,  /* an address range that keeps a physical handle alive */
	HB_MEMORY_POOL,     /* where a pool's memory lies; holds no bytes itself */
};

struct hb_memory_entry {
	uint64_t handle;
	uint64_t bytes;
	uint64_t owner; /* POINTER, ARRAY, MIPMAP: the context that dies with it; MAPPING: the physical handle */
	uint64_t
		serial; /* PHYSICAL: tells it from an earlier one with the same handle; MAPPING: of its physical handle */
	uint32_t holds; /* PHYSICAL: references and mappings */
	uint8_t kind;   /* enum hb_memory_kind */
	uint8_t gpu;    /* index on the page; HB_PAGE_GPUS: not counted */
	bool leaving;   /* MAPPING: an unmap of it is under way */
};

/*
 * false: out of memory, the entry is not kept. An entry with the same kind and
 * handle is replaced (its memory has gone in a way that we have not seen yet)
 * and handed out; *replaced_out has kind HB_MEMORY_NONE otherwise.
 */
bool hb_memory_table_put(const struct hb_memory_entry *entry, struct hb_memory_entry *replaced_out);
/* Removes and hands out the entry; false: none. */
bool hb_memory_table_take(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out);
/* A copy of the entry; false: none. */
bool hb_memory_table_get(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out);

/* The handles of this kind on this GPU, at most `max`; returns how many. */
size_t hb_memory_table_list(enum hb_memory_kind kind, unsigned gpu, uint64_t *handles, size_t max);

/*
 * Adds to a physical handle's holds. True, with the entry handed out and
 * removed, when none are left; false otherwise, also when there is no such entry.
 */
bool hb_memory_table_hold(uint64_t handle, uint64_t serial, int change, struct hb_memory_entry *entry_out);

/* Marks the mappings that begin in [address, address + bytes) as leaving, or takes the mark off again. */
void hb_memory_table_mark(uint64_t address, uint64_t bytes, bool leaving);
/* Removes one marked mapping that begins in the range and hands it out; false: no more. */
bool hb_memory_table_take_marked(uint64_t address, uint64_t bytes, struct hb_memory_entry *entry_out);
/* Removes one entry that this context owns and hands it out; false: no more. */
bool hb_memory_table_take_owned(uint64_t owner, struct hb_memory_entry *entry_out);

/* Forgets everything and renews the lock; in the child of a fork, where other threads do not exist. */
void hb_memory_table_reset(void);

#endif
