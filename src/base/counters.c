/* SPDX-License-Identifier: Apache-2.0 */
/* Reads sets of counters; see counters.h. */
#include "base/counters.h"

void hb_counters_snapshot(const struct hb_counter_set *set, uint64_t *out)
{
	for (uint32_t i = 0; i < set->n; i++)
		out[i] = atomic_load_explicit(&set->values[i], memory_order_relaxed);
}

void hb_counters_each(const struct hb_counter_set *set,
		      void (*each)(void *argument, const struct hb_counter_info *info, uint64_t value), void *argument)
{
	for (uint32_t i = 0; i < set->n; i++)
		each(argument, &set->info[i], atomic_load_explicit(&set->values[i], memory_order_relaxed));
}
