/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds workloads op by op and joins them to a trace set at the end, all or
 * nothing. Used by every reader (trace_csv.c, trace_kineto.c, trace_nsys.c),
 * which checks values first; the builder checks amounts and names only.
 */
#ifndef HB_SIM_TRACE_BUILDER_H
#define HB_SIM_TRACE_BUILDER_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct hb_trace_builder {
	struct hb_trace_set *into;
	struct hb_workload *workloads;
	char **names;    /* all names; the first into->n_names belong to *into */
	uint32_t *slots; /* hash of names: index + 1, 0 = free */
	uint32_t n_workloads, n_names, n_slots, total_ops;
	size_t ops_room, iterations_room; /* capacity of the last workload's arrays */
};

/* Begins to build; *into must not change until finish or fini. Returns 0 or -ENOMEM. */
int hb_trace_builder_init(struct hb_trace_builder *builder, struct hb_trace_set *into);
/* Frees the builder, also after finish. Workloads that were not joined are dropped. */
void hb_trace_builder_fini(struct hb_trace_builder *builder);

/* Finds the index of a kernel's name; a new name is added. Returns 0, -E2BIG or -ENOMEM. */
int hb_trace_builder_name(struct hb_trace_builder *builder, const char *name, uint32_t *index);
/* Begins a workload. Returns 0, -EEXIST, -E2BIG or -ENOMEM. */
int hb_trace_builder_workload(struct hb_trace_builder *builder, const char *name);
/* Begins an iteration of the last workload. Returns 0 or -ENOMEM. */
int hb_trace_builder_iteration(struct hb_trace_builder *builder);
/* Adds an op to the last iteration. Returns 0, -E2BIG or -ENOMEM. */
int hb_trace_builder_op(struct hb_trace_builder *builder, const struct hb_op *op);
/* Returns the workload of that name among those built so far, or NULL. */
struct hb_workload *hb_trace_builder_find(struct hb_trace_builder *builder, const char *name);
/* Joins all workloads and names to *into. Returns 0, or -ENOMEM with *into unchanged. */
int hb_trace_builder_finish(struct hb_trace_builder *builder);

/* Fills in alone_ns and alone_graph_ns from the companion of the trace at `path`, if it exists. */
int hb_trace_read_alone(const char *path, struct hb_trace_builder *builder, struct hb_error *error);

#endif
