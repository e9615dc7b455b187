/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters from tables. An area lists its counters once, in AREA_counters.def:
 *
 *   HB_COUNTER(launches, "1", "kernel launches seen")
 *   HB_COUNTER(gate_wait, "ns", "time launches waited at the gate")
 *
 * and makes indices and descriptions from it by including it twice:
 *
 *   enum {
 *   #define HB_COUNTER(name, unit, what) SHIM_##name,
 *   #include "shim/shim_counters.def"
 *   SHIM_COUNTERS };
 *   static const struct hb_counter_info info[] = {
 *   #define HB_COUNTER(name, unit, what) {#name, unit, what},
 *   #include "shim/shim_counters.def"
 *   };
 *
 * The .def file ends with #undef HB_COUNTER.
 *
 * Values may be in shared memory. Adding is one relaxed atomic operation, so any
 * thread may do it on a hot path. Readers see consistent single values, but not
 * all values of one instant.
 */
#ifndef HB_BASE_COUNTERS_H
#define HB_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

typedef _Atomic uint64_t hb_counter;

struct hb_counter_info {
	const char *name;        /* [a-z_]+ */
	const char *unit;        /* "1", "ns", "bytes" */
	const char *description; /* one line, no final stop */
};

struct hb_counter_set {
	const char *area; /* [a-z_]+: "shim", "daemon" */
	const struct hb_counter_info *info;
	hb_counter *values; /* n of them, in table order */
	uint32_t n;
};

static inline void hb_counter_add(hb_counter *counter, uint64_t amount)
{
	atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

/* Copies all values, in table order, into out[set->n]. */
void hb_counters_snapshot(const struct hb_counter_set *set, uint64_t *out);

/* Calls `each` for every counter in table order. */
void hb_counters_each(const struct hb_counter_set *set,
		      void (*each)(void *argument, const struct hb_counter_info *info, uint64_t value), void *argument);

#endif
