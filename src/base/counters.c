/* SPDX-License-Identifier: Apache-2.0 */
/* Reading counter sets; see counters.h. */
#include "base/counters.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

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

void hb_counters_write_prometheus(const struct hb_counter_set *set, const char *labels, FILE *out)
{
	for (uint32_t i = 0; i < set->n; i++) {
		const struct hb_counter_info *info = &set->info[i];
		bool bare = !strcmp(info->unit, "1");
		char name[160];
		snprintf(name, sizeof name, "hb_%s_%s%s%s_total", set->area, info->name, bare ? "" : "_",
			 bare ? "" : info->unit);
		fprintf(out, "# HELP %s %s\n# TYPE %s counter\n", name, info->description, name);
		fprintf(out, "%s%s%s%s %" PRIu64 "\n", name, labels ? "{" : "", labels ? labels : "", labels ? "}" : "",
			atomic_load_explicit(&set->values[i], memory_order_relaxed));
	}
}
