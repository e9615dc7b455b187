/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiler recordings as traces: what is behind `hb trace import`. A recording
 * becomes one workload; docs/traces.md says how iterations are found and how
 * the time alone is estimated.
 */
#ifndef HB_SIM_TRACE_IMPORT_H
#define HB_SIM_TRACE_IMPORT_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

enum hb_import_format { HB_IMPORT_AUTO, HB_IMPORT_KINETO, HB_IMPORT_NSYS };

struct hb_import_options {
	enum hb_import_format format;
	const char *name; /* of the workload */
	/*
	 * Iterations, at most one of these: ranges (annotation or NVTX) of this
	 * name; a new one after so long without work; so many. None: the
	 * profiler's own step marks, else all is one iteration.
	 */
	const char *range;
	int64_t split_gap_ns;
	uint32_t iterations;
	int device;       /* -1 = the one with the most work */
	int64_t alone_ns; /* measured by the user; 0 = estimate */
};

struct hb_import_report {
	enum hb_import_format format;
	uint32_t ops, iterations;
	uint32_t outside;       /* ops dropped because they are in no range */
	uint32_t elsewhere;     /* ops of other devices or processes */
	uint32_t closed_graphs; /* graph launches recorded without their kernels */
	const char *split;      /* how iterations were found, for people */
	bool alone_estimated;
};

/*
 * Appends the workload to *set. 0; -EINVAL: bad content or options, error names
 * the file and the line or row; -E2BIG; -ENOENT; -ENOMEM. *set and *report are
 * as they were on an error.
 */
int hb_trace_import(const char *path, const struct hb_import_options *options, struct hb_trace_set *set,
		    struct hb_import_report *report, struct hb_error *error);

#endif
