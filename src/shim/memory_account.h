/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tenant's memory account: room is claimed before the driver is asked and
 * given back when it refuses, so the limit holds under any number of threads
 * and processes. Called by the hooks of hook_memory*.c, hook_pools.c and
 * hook_context.c, never on a launch. A process without a page has no limit and keeps no account.
 */
#ifndef HB_SHIM_MEMORY_ACCOUNT_H
#define HB_SHIM_MEMORY_ACCOUNT_H

#include "shim/memory_table.h"

/* Room claimed for a call that is being made. */
struct hb_claim {
	uint64_t bytes;
	unsigned gpu; /* index on the page; HB_PAGE_GPUS: nothing is claimed */
};

/* Claims room; false: the limit or HP's reserve leaves none (counted). A GPU that is not on the page has no limit. */
bool hb_memory_claim(struct hb_claim *claim, unsigned gpu, uint64_t bytes);
/* The driver refused: gives the room back. */
void hb_memory_cancel(const struct hb_claim *claim);
/* The driver took `bytes` in the end (pitches are known only then). */
void hb_memory_adjust(struct hb_claim *claim, uint64_t bytes);
/* The driver gave this handle for it. `owner`: the context it dies with, or 0. */
void hb_memory_note(const struct hb_claim *claim, enum hb_memory_kind kind, uint64_t handle, uint64_t owner);

/* Whether room for this is left now; nothing is claimed. For memory that a graph will take when it runs. */
bool hb_memory_fits(unsigned gpu, uint64_t bytes);

/*
 * Giving up in two steps, because another thread may get the same address the
 * moment the driver has freed it: begin before the call, end after it.
 */
bool hb_memory_begin_free(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out);
void hb_memory_end_free(const struct hb_memory_entry *entry, bool freed);

/*
 * Physical handles. The serial names what is behind the handle now, 0 when it
 * is not on the account. Hold: +1 retained or mapped, -1 released or unmapped;
 * the last one gives the memory back.
 */
uint64_t hb_memory_serial(uint64_t handle);
void hb_memory_hold(uint64_t handle, uint64_t serial, int change);
/* Everything that dies with this context. */
void hb_memory_drop_context(uint64_t context);

/* Memory that the driver keeps for the program beyond what it was asked for now. */
enum hb_kept { HB_KEPT_BY_POOLS, HB_KEPT_BY_GRAPHS, HB_N_KEPT };
/* Brings the account up to date: now it is `bytes` on this GPU, whether that fits or not. */
void hb_memory_set_kept(enum hb_kept by, unsigned gpu, uint64_t bytes);
/* As hb_memory_claim, but takes from what pools keep first, which is on the account already. */
bool hb_memory_claim_kept(struct hb_claim *claim, unsigned gpu, uint64_t bytes);

/* Narrows what the driver says to what the tenant may use. */
void hb_memory_info(unsigned gpu, size_t *free_bytes, size_t *total_bytes);

/* hook_pools.c: asks the driver what it keeps, where this process has pools or graphs that allocate. Not on a launch. */
void hb_memory_look_at_kept(void);
/* hook_pools.c: has it give back what it keeps for nothing. False: nothing can have changed. */
bool hb_memory_shrink_kept(unsigned gpu);
void hb_pools_leave_in_child(void);

void hb_memory_leave_in_child(void);

#endif
