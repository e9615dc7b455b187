/* SPDX-License-Identifier: Apache-2.0 */
/* Builds trace sets; see trace_builder.h. */
#include "trace/trace_builder.h"

#include "trace/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t hash_text(const char *text)
{
	uint32_t hash = 2166136261u; /* FNV-1a */
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

/* Returns the slot that holds the name, or the free slot where it belongs. */
static uint32_t *find_slot(const struct hb_trace_builder *builder, const char *name)
{
	uint32_t mask = builder->n_slots - 1;
	for (uint32_t at = hash_text(name) & mask;; at = (at + 1) & mask) {
		uint32_t *slot = &builder->slots[at];
		if (!*slot || strcmp(builder->names[*slot - 1], name) == 0)
			return slot;
	}
}

/* Makes the hash and the table of names at least twice as large as there are names. */
static int grow_names(struct hb_trace_builder *builder)
{
	uint32_t room = builder->n_slots ? builder->n_slots : 512;
	while (room / 2 <= builder->n_names)
		room *= 2;
	if (room == builder->n_slots)
		return 0;
	uint32_t *slots = calloc(room, sizeof *slots);
	char **names = slots ? realloc(builder->names, room / 2 * sizeof *names) : NULL;
	if (!names) {
		free(slots);
		return -ENOMEM;
	}
	free(builder->slots);
	builder->names = names;
	builder->slots = slots;
	builder->n_slots = room;
	for (uint32_t i = 0; i < builder->n_names; i++)
		*find_slot(builder, names[i]) = i + 1;
	return 0;
}

/* Adds a name that is not in the set yet. The builder owns it from then on. */
static int insert_name(struct hb_trace_builder *builder, char *name)
{
	int code = grow_names(builder);
	if (code)
		return code;
	builder->names[builder->n_names++] = name;
	*find_slot(builder, name) = builder->n_names;
	return 0;
}

int hb_trace_builder_init(struct hb_trace_builder *builder, struct hb_trace_set *into)
{
	*builder = (struct hb_trace_builder){.into = into};
	int code = grow_names(builder);
	for (uint32_t i = 0; i < into->n_names && !code; i++)
		code = insert_name(builder, into->names[i]);
	if (code)
		hb_trace_builder_fini(builder);
	return code;
}

void hb_trace_builder_fini(struct hb_trace_builder *builder)
{
	for (uint32_t i = builder->into->n_names; i < builder->n_names; i++)
		free(builder->names[i]);
	for (uint32_t i = 0; i < builder->n_workloads; i++) {
		free(builder->workloads[i].ops);
		free(builder->workloads[i].iterations);
	}
	free(builder->workloads);
	free(builder->names);
	free(builder->slots);
	*builder = (struct hb_trace_builder){.into = builder->into};
}

int hb_trace_builder_name(struct hb_trace_builder *builder, const char *name, uint32_t *index)
{
	uint32_t slot = *find_slot(builder, name);
	if (slot) {
		*index = slot - 1;
		return 0;
	}
	if (builder->n_names == HB_TRACE_NAMES_MAX)
		return -E2BIG;
	char *copy = strdup(name);
	int code = copy ? insert_name(builder, copy) : -ENOMEM;
	if (code) {
		free(copy);
		return code;
	}
	*index = builder->n_names - 1;
	return 0;
}

int hb_trace_builder_workload(struct hb_trace_builder *builder, const char *name)
{
	if (hb_trace_find(builder->into, name) || hb_trace_builder_find(builder, name))
		return -EEXIST;
	if (builder->into->n_workloads + builder->n_workloads >= HB_TRACE_WORKLOADS_MAX)
		return -E2BIG;
	struct hb_workload *grown = realloc(builder->workloads, (builder->n_workloads + 1) * sizeof *grown);
	if (!grown)
		return -ENOMEM;
	builder->workloads = grown;
	struct hb_workload *workload = &grown[builder->n_workloads++];
	*workload = (struct hb_workload){0};
	strncpy(workload->name, name, sizeof workload->name - 1);
	builder->ops_room = builder->iterations_room = 0;
	return 0;
}

int hb_trace_builder_iteration(struct hb_trace_builder *builder)
{
	struct hb_workload *workload = &builder->workloads[builder->n_workloads - 1];
	void *grown = hb_grow(workload->iterations, workload->n_iterations, &builder->iterations_room,
			      sizeof *workload->iterations);
	if (!grown)
		return -ENOMEM;
	workload->iterations = grown;
	workload->iterations[workload->n_iterations++] = (struct hb_iteration){.first_op = workload->n_ops};
	return 0;
}

int hb_trace_builder_op(struct hb_trace_builder *builder, const struct hb_op *op)
{
	struct hb_workload *workload = &builder->workloads[builder->n_workloads - 1];
	if (builder->total_ops == HB_TRACE_OPS_MAX)
		return -E2BIG;
	void *grown = hb_grow(workload->ops, workload->n_ops, &builder->ops_room, sizeof *workload->ops);
	if (!grown)
		return -ENOMEM;
	workload->ops = grown;
	workload->ops[workload->n_ops++] = *op;
	workload->iterations[workload->n_iterations - 1].n_ops++;
	builder->total_ops++;
	return 0;
}

struct hb_workload *hb_trace_builder_find(struct hb_trace_builder *builder, const char *name)
{
	for (uint32_t i = 0; i < builder->n_workloads; i++)
		if (strcmp(builder->workloads[i].name, name) == 0)
			return &builder->workloads[i];
	return NULL;
}

int hb_trace_builder_finish(struct hb_trace_builder *builder)
{
	struct hb_trace_set *set = builder->into;
	uint32_t total = set->n_workloads + builder->n_workloads;
	if (builder->n_workloads) {
		struct hb_workload *grown = realloc(set->workloads, total * sizeof *grown);
		if (!grown)
			return -ENOMEM;
		memcpy(grown + set->n_workloads, builder->workloads, builder->n_workloads * sizeof *grown);
		set->workloads = grown;
		set->n_workloads = total;
	}
	free(set->names);
	set->names = builder->names;
	set->n_names = builder->n_names;
	builder->names = NULL;
	builder->n_names = builder->n_workloads = 0;
	return 0;
}
