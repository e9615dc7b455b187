/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tenant's memory account. Room is claimed before the driver is called and
 * given back if the driver refuses, so the limit holds with any number of threads
 * and processes. Called by the hooks of hook_memory*.c, hook_pools.c and
 * hook_context.c, never at a launch. A process without a page has no limit and no
 * account.
 */
#ifndef HB_SHIM_MEMORY_ACCOUNT_H
#define HB_SHIM_MEMORY_ACCOUNT_H

#include "shim/memory_table.h"

/* Room claimed for a driver call in progress. */
struct hb_claim {
	uint64_t bytes;
	unsigned gpu; /* index on the page; HB_PAGE_GPUS: nothing is claimed */
};

/* Claims room. False: the tenant's limit or HP's reserve leaves none (counted). A GPU that is not on the page has no limit. */
bool hb_memory_claim(struct hb_claim *claim, unsigned gpu, uint64_t bytes);
/* The same, but not counted: a part may fit. */
bool hb_memory_try_claim(struct hb_claim *claim, unsigned gpu, uint64_t bytes);
/* Time and rounds that a refused allocation of HP has used; begins as {0}. */
struct hb_room {
	int64_t until_ns;
	int rounds;
};
/*
 * The driver has refused the claimed allocation with CUDA_ERROR_OUT_OF_MEMORY. True: memory of LP has moved away
 * (decision 0025), so the driver should be called again; at most three times within 3 s. In LP: memory that the GPU has lent to
 * other GPUs was taken back.
 */
bool hb_memory_make_room(struct hb_room *room, const struct hb_claim *claim);
/* Calls the driver, and again after room was made. */
#define HB_WITH_ROOM(claim, call) \
	({ \
		struct hb_room hb_room_ = {0}; \
		CUresult hb_result_ = (call); \
		while (hb_result_ == CUDA_ERROR_OUT_OF_MEMORY && hb_memory_make_room(&hb_room_, (claim))) \
			hb_result_ = (call); \
		hb_result_; \
	})

/* Claims what there is room for without asking anybody: a multiple of `unit`, at most `bytes`. Returns how much; 0: nothing. */
uint64_t hb_memory_claim_part(struct hb_claim *claim, unsigned gpu, uint64_t bytes, uint64_t unit);
/* Gives the room back, because the driver refused. */
void hb_memory_cancel(const struct hb_claim *claim);
/* Corrects the claim to `bytes`, because the pitch is known only after the call. */
void hb_memory_adjust(struct hb_claim *claim, uint64_t bytes);
/* Records the allocation under its handle. `owner`: the context whose destruction frees the memory, or 0. */
void hb_memory_note(const struct hb_claim *claim, enum hb_memory_kind kind, uint64_t handle, uint64_t owner);

/* Whether there is room now, without a claim; for memory that a graph allocates when it runs. */
bool hb_memory_fits(unsigned gpu, uint64_t bytes);

/*
 * A free has two steps, one before the driver call and one after it, because another
 * thread may get the same address as soon as the driver has freed it.
 */
bool hb_memory_begin_free(enum hb_memory_kind kind, uint64_t handle, struct hb_memory_entry *entry_out);
void hb_memory_end_free(const struct hb_memory_entry *entry, bool freed);

/*
 * Physical handles (cuMemCreate). hb_memory_serial() returns the number of the
 * allocation that the handle stands for now, 0 if it is not on the account.
 * hb_memory_add_references() adds 1 for a retain or a mapping, -1 for a release or
 * an unmapping; the last reference gives the memory back.
 */
uint64_t hb_memory_serial(uint64_t handle);
void hb_memory_add_references(uint64_t handle, uint64_t serial, int change);
/* Gives back all memory that this context owned. */
void hb_memory_drop_context(uint64_t context);

/* Memory that the driver keeps for the program beyond its current allocations. */
enum hb_kept { HB_KEPT_BY_POOLS, HB_KEPT_BY_GRAPHS, HB_N_KEPT };
/* Sets what the driver keeps on this GPU now, whether it exceeds the limit or not. */
void hb_memory_set_kept(enum hb_kept by, unsigned gpu, uint64_t bytes);
/* Like hb_memory_claim(), but first uses memory kept by pools, which is already on the account. */
bool hb_memory_claim_kept(struct hb_claim *claim, unsigned gpu, uint64_t bytes);

/* Reduces the driver's figures to what the tenant may use. */
void hb_memory_info(unsigned gpu, size_t *free_bytes, size_t *total_bytes);

/* hook_pools.c: asks the driver what it keeps, if this process allocates from pools or in graphs. Not at a launch. */
void hb_memory_update_kept(void);
/* hook_pools.c: makes the driver free memory that it keeps without use. False: nothing has changed. */
bool hb_memory_shrink_kept(unsigned gpu);
void hb_pools_leave_in_child(void);

void hb_memory_leave_in_child(void);

#endif
