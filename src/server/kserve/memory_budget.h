/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit on the memory that all requests take together: their bodies, what
 * reading makes of them, outputs, and answers until their clients have taken them. Each
 * request has charges. Code that allocates for a request adds the bytes to a
 * charge first and refuses the request if the budget is used up. Ending a charge
 * returns its bytes. Any thread, no lock. Used by HTTP and gRPC.
 *
 * The last quarter of the budget is a reserve: requests of low priority that
 * would have to wait do not get it.
 */
#ifndef HB_SERVER_MEMORY_BUDGET_H
#define HB_SERVER_MEMORY_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_MEMORY_FULL "the server's memory for requests is used up; try again later"
#define HB_MEMORY_FIRST_BYTES 1024 /* first capacity of a buffer that receives a request */

struct hb_memory_budget {
	uint64_t limit_bytes;
	_Atomic uint64_t used_bytes;
	_Atomic uint64_t connection_bytes; /* part of used_bytes that connections hold, not requests */
};

struct hb_memory_charge {
	struct hb_memory_budget *budget; /* NULL = unlimited */
	uint64_t bytes;
};

/* Adds bytes to a charge. False: the budget has fewer bytes left, and nothing was added. 0 bytes always have room. */
static inline bool hb_memory_charge_add(struct hb_memory_charge *charge, uint64_t bytes)
{
	struct hb_memory_budget *budget = charge->budget;
	if (!budget || !bytes)
		return true;
	/* Until a refused sum is taken back, other threads see it and may refuse a request that would fit. */
	uint64_t before = atomic_fetch_add_explicit(&budget->used_bytes, bytes, memory_order_relaxed);
	if (before > budget->limit_bytes || bytes > budget->limit_bytes - before) {
		atomic_fetch_sub_explicit(&budget->used_bytes, bytes, memory_order_relaxed);
		return false;
	}
	charge->bytes += bytes;
	return true;
}

/* Sets the charge of a connection. Cannot fail: what connections take is not refused, but leaves less for requests. */
static inline void hb_memory_charge_connection(struct hb_memory_charge *charge, uint64_t bytes)
{
	struct hb_memory_budget *budget = charge->budget;
	if (!budget || bytes == charge->bytes)
		return;
	/* The difference may be negative; unsigned addition wraps to the right sum. */
	atomic_fetch_add_explicit(&budget->used_bytes, bytes - charge->bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&budget->connection_bytes, bytes - charge->bytes, memory_order_relaxed);
	charge->bytes = bytes;
}

/* Returns whether a part of the reserve is in use. */
static inline bool hb_memory_reserve_in_use(const struct hb_memory_budget *budget)
{
	uint64_t used = atomic_load_explicit(&budget->used_bytes, memory_order_relaxed);
	return used > budget->limit_bytes - budget->limit_bytes / 4;
}

/*
 * Returns whether `bytes` more for this charge would come from the reserve while other charges hold a quarter of the
 * budget or more. If they hold less, a single request of low priority may use the entire budget.
 */
static inline bool hb_memory_would_use_reserve(const struct hb_memory_charge *charge, uint64_t bytes)
{
	const struct hb_memory_budget *budget = charge->budget;
	if (!budget)
		return false;
	uint64_t used = atomic_load_explicit(&budget->used_bytes, memory_order_relaxed),
		 quarter = budget->limit_bytes / 4;
	return used + bytes > budget->limit_bytes - quarter && used - charge->bytes >= quarter;
}

/*
 * Returns the capacity to which a buffer grows that receives `bytes` bytes: it doubles, so that appending stays cheap.
 */
static inline size_t hb_memory_grown_capacity(size_t capacity, size_t bytes)
{
	size_t grown = capacity ? capacity : HB_MEMORY_FIRST_BYTES;
	while (grown < bytes)
		grown *= 2;
	return grown;
}

static inline void hb_memory_charge_end(struct hb_memory_charge *charge)
{
	if (charge->budget && charge->bytes)
		atomic_fetch_sub_explicit(&charge->budget->used_bytes, charge->bytes, memory_order_relaxed);
	charge->bytes = 0;
}

#endif
