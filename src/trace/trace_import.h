/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Imports profiler recordings as traces, for `hb trace import`. A recording
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
	const char *name; /* name of the workload */
	/*
	 * How iterations are found, at most one of: ranges (annotation or NVTX)
	 * of this name; a new iteration after this long without work; this
	 * number of iterations. With none of them the profiler's step marks
	 * count; without such marks all is one iteration.
	 */
	const char *range;
	int64_t split_gap_ns;
	uint32_t iterations;
	int device;       /* -1 = the device with the most work */
	int64_t alone_ns; /* time alone as measured by the user; 0 = estimate it */
};

struct hb_import_report {
	enum hb_import_format format;
	uint32_t ops, iterations;
	uint32_t outside;       /* number of ops dropped because they are in no range */
	uint32_t elsewhere;     /* number of ops of other devices or processes */
	uint32_t closed_graphs; /* graph launches recorded without their kernels */
	const char *split;      /* text for people: how iterations were found */
	bool alone_estimated;
};

/*
 * Appends the workload to *set. Returns 0, -EINVAL (bad content or options; the error names
 * the file and the line or row), -E2BIG, -ENOENT or -ENOMEM. *set and *report are
 * unchanged on an error.
 */
int hb_trace_import(const char *path, const struct hb_import_options *options, struct hb_trace_set *set,
		    struct hb_import_report *report, struct hb_error *error);

#endif
