/* SPDX-License-Identifier: Apache-2.0 */
/* Finds workloads in a finished trace set and frees it. trace_builder.c builds one. */
#include "trace/trace.h"

#include <stdlib.h>
#include <string.h>

void hb_trace_set_fini(struct hb_trace_set *set)
{
	if (!set)
		return;
	for (uint32_t i = 0; i < set->n_workloads; i++) {
		free(set->workloads[i].ops);
		free(set->workloads[i].iterations);
	}
	for (uint32_t i = 0; i < set->n_names; i++)
		free(set->names[i]);
	free(set->workloads);
	free(set->names);
	*set = (struct hb_trace_set){0};
}

const struct hb_workload *hb_trace_find(const struct hb_trace_set *set, const char *name)
{
	for (uint32_t i = 0; i < set->n_workloads; i++)
		if (strcmp(set->workloads[i].name, name) == 0)
			return &set->workloads[i];
	return NULL;
}
