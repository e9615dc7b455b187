/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the readers of recordings: they collect ops, launches and ranges in
 * any order, and import_events.c makes a workload of them. Included by
 * trace_kineto.c, trace_nsys.c and trace_import.c only.
 */
#ifndef HB_SIM_IMPORT_EVENTS_H
#define HB_SIM_IMPORT_EVENTS_H

#include "trace/trace_builder.h"
#include "trace/trace_import.h"
#include "trace/trace_op.h"

struct hb_event_op {
	struct hb_op op;      /* the op, in which start_ns is not set yet */
	int64_t start_ns;     /* all times here are on the recording's clock */
	int64_t launch_ns;    /* time of its launch call; may be HB_LAUNCH_UNKNOWN */
	uint64_t correlation; /* number that it shares with its launch; 0 = none */
	uint64_t group;       /* HB_GROUP(): only one group is imported */
	uint32_t order;       /* order in which it was added, decides where times are equal */
	uint32_t iteration;
};

#define HB_LAUNCH_UNKNOWN INT64_MIN
#define HB_GROUP(process, device) ((uint64_t)(uint32_t)(process) << 32 | (uint32_t)(device))
#define HB_GROUP_DEVICE(group) ((uint32_t)(group))
/* Correlations are counted per process. */
#define HB_CORRELATION(process, correlation) ((uint64_t)(uint32_t)(process) << 32 | (uint32_t)(correlation))

struct hb_event_launch {
	uint64_t correlation;
	int64_t start_ns;
};

struct hb_event_range {
	int64_t start_ns, end_ns;
};

struct hb_event_ranges {
	struct hb_event_range *at;
	size_t n, room;
};

struct hb_import_events {
	struct hb_trace_builder builder; /* holds the names while events are collected */
	struct hb_event_op *ops;
	struct hb_event_launch *launches;
	size_t n_ops, ops_room, n_launches, launches_room;
	struct hb_event_ranges ranges;     /* ranges of the host */
	struct hb_event_ranges gpu_ranges; /* ranges of the GPU; used when the host has none */
	bool by_host_ranges;               /* an op's iteration is an index into ranges.at */
	uint32_t closed_graphs;
	/* Time that the profiler adds to each launch for which the GPU waits. */
	int64_t launch_overhead_ns;
};

int hb_import_events_init(struct hb_import_events *events, struct hb_trace_set *set);
void hb_import_events_fini(struct hb_import_events *events);

/*
 * Adds an op from its values (start_ns is the recording's) and CUPTI's or the
 * kernel's name. Returns 0, -EINVAL with *fault, -E2BIG or -ENOMEM.
 */
int hb_import_add_op(struct hb_import_events *events, const struct hb_op_values *values, const char *name,
		     uint64_t correlation, uint64_t group, struct hb_op_fault *fault);
/* Adds a launch. Returns 0, -E2BIG or -ENOMEM. */
int hb_import_add_launch(struct hb_import_events *events, uint64_t correlation, int64_t start_ns);
int hb_import_add_range(struct hb_import_events *events, bool on_gpu, int64_t start_ns, int64_t end_ns);

/* Joins the workload to the set. Errors begin with the path. */
int hb_import_finish(struct hb_import_events *events, const char *path, const struct hb_import_options *options,
		     struct hb_import_report *report, struct hb_error *error);

/* The readers, which fill in *events. They return 0, or a negative errno with the error's text. */
int hb_kineto_read(const char *path, const struct hb_import_options *options, struct hb_import_events *events,
		   struct hb_error *error);
int hb_nsys_read(const char *path, const struct hb_import_options *options, struct hb_import_events *events,
		 struct hb_error *error);

/* Returns the name of the column in a trace file, for messages about values. */
const char *hb_trace_column_name(enum hb_trace_column column);

#endif
