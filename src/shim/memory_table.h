/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocations of this process, so that a free is accounted with the same size
 * and GPU: a hash table keyed by kind and handle. Called by any thread; its lock is
 * never held during a driver call. Used by memory_account.c and the hooks of memory.
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
	HB_MEMORY_PHYSICAL, /* handles of cuMemCreate: exist while retained or mapped */
	HB_MEMORY_MAPPING,  /* an address range that keeps a physical handle alive */
	HB_MEMORY_POOL,     /* records the GPU of a pool; has no bytes itself */
};

struct hb_memory_entry {
	uint64_t handle;
	uint64_t bytes;
	uint64_t
		owner; /* POINTER, ARRAY, MIPMAP: the context whose destruction frees it; MAPPING: the physical handle */
	uint64_t
		serial; /* PHYSICAL: differs from that of an earlier allocation with the same handle; MAPPING: that of its physical handle */
	uint32_t references; /* PHYSICAL: retained references and mappings */
	uint8_t kind;        /* enum hb_memory_kind */
	uint8_t gpu;         /* index on the page; HB_PAGE_GPUS: not counted */
	bool leaving;        /* MAPPING: a call to unmap it is in progress */
};

/*
 * Stores a copy of the entry. False: out of memory, nothing is stored. An entry with
 * the same kind and handle, whose memory was freed in a way that the shim did not
 * see, is replaced and copied to *replaced_out; otherwise that gets kind
 * HB_MEMORY_NONE.
 */
bool hb_memory_table_put(const struct hb_memory_entry *entry, struct hb_memory_entry *replaced_out);
/* Removes the entry and copies it out. False: there is none. */
bool hb_memory_table_take(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out);
/* Copies the entry out. False: there is none. */
bool hb_memory_table_get(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out);

/* Lists at most `max` handles of this kind on this GPU. Returns how many. */
size_t hb_memory_table_list(enum hb_memory_kind kind, unsigned gpu, uint64_t *handles, size_t max);

/* Adds up the bytes of the allocations of this kind on this GPU that have fewer bytes than `below`. */
uint64_t hb_memory_table_sum(enum hb_memory_kind kind, unsigned gpu, uint64_t below);

/*
 * Changes the number of references of a physical handle. True: none is left; the
 * entry was removed and copied out. False also if there is no such entry.
 */
bool hb_memory_table_add_references(uint64_t handle, uint64_t serial, int change, struct hb_memory_entry *entry_out);

/* Sets `leaving` of the mappings that begin in [address, address + bytes). */
void hb_memory_table_mark(uint64_t address, uint64_t bytes, bool leaving);
/* Removes one leaving mapping that begins in the range and copies it out. False: there is none. */
bool hb_memory_table_take_marked(uint64_t address, uint64_t bytes, struct hb_memory_entry *entry_out);
/* The entries that one context owns belong to another one from now on. */
void hb_memory_table_give_owned(uint64_t owner, uint64_t to);
/* Removes one entry that this context owns and copies it out. False: there is none. */
bool hb_memory_table_take_owned(uint64_t owner, struct hb_memory_entry *entry_out);

/* In a forked child, which has no other threads: forgets everything and initialises the lock again. */
void hb_memory_table_reset(void);

#endif
