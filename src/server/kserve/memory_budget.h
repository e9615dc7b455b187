/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bound on the memory that all requests hold together: what they sent, what
 * reading them makes of it, and answers until their clients have them. Each part
 * of a request adds what it takes to its charge before it takes it, and is refused
 * when the budget is used up; the end of the charge gives it back. Any thread, no
 * lock. Used by both front ends.
 */
#ifndef HB_SERVER_MEMORY_BUDGET_H
#define HB_SERVER_MEMORY_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HB_MEMORY_FULL "the memory for requests is used up by others; try again"

struct hb_memory_budget {
	uint64_t limit_bytes;
	_Atomic uint64_t used_bytes;
};

struct hb_memory_charge {
	struct hb_memory_budget *budget; /* NULL = unlimited */
	uint64_t bytes;
};

/* False: there is not so much left, and nothing was added. */
static inline bool hb_memory_charge_add(struct hb_memory_charge *charge, uint64_t bytes)
{
	struct hb_memory_budget *budget = charge->budget;
	if (!budget)
		return true;
	/* Others may see the sum too large for a moment, and be refused too early. */
	uint64_t before = atomic_fetch_add_explicit(&budget->used_bytes, bytes, memory_order_relaxed);
	if (before > budget->limit_bytes || bytes > budget->limit_bytes - before) {
		atomic_fetch_sub_explicit(&budget->used_bytes, bytes, memory_order_relaxed);
		return false;
	}
	charge->bytes += bytes;
	return true;
}

/* Whether so much is used up that what can wait should not come in: the last quarter is for what cannot. */
static inline bool hb_memory_reserve_in_use(const struct hb_memory_budget *budget)
{
	uint64_t used = atomic_load_explicit(&budget->used_bytes, memory_order_relaxed);
	return used > budget->limit_bytes - budget->limit_bytes / 4;
}

/*
 * Whether so much more for this charge would come out of the last quarter, while others hold a quarter or more: what can
 * wait leaves it to what cannot. One that is nearly alone may take all.
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

static inline void hb_memory_charge_end(struct hb_memory_charge *charge)
{
	if (charge->budget && charge->bytes)
		atomic_fetch_sub_explicit(&charge->budget->used_bytes, charge->bytes, memory_order_relaxed);
	charge->bytes = 0;
}

#endif
