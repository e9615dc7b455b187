/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes an op of the values in a file, and is the one place that checks what a GPU
 * can run. Every reader (trace_csv.c, trace_kineto.c, trace_nsys.c) fills in the
 * values as it found them; when a value is refused it adds the place in the file.
 */
#ifndef HB_SIM_TRACE_OP_H
#define HB_SIM_TRACE_OP_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

enum hb_trace_column {
#define HB_TRACE_COLUMN(id, name, required) HB_TRACE_COLUMN_##id,
#include "trace/trace_columns.def"
#undef HB_TRACE_COLUMN
	HB_TRACE_COLUMNS
};

struct hb_op_values {
	enum hb_op_kind kind;
	int64_t start_ns, duration_ns;
	int64_t host_ns; /* 0 = not known */
	/* Kernels. */
	int64_t grid[3], block[3];
	int64_t registers, shared_bytes, cluster;
	/* Copies and memsets. */
	int64_t bytes;
};

struct hb_op_fault {
	enum hb_trace_column column;
	const char *why; /* "is negative" */
};

/* Sets all fields of *op but the name. Returns 0, or -EINVAL with *fault filled in. */
int hb_op_from_values(const struct hb_op_values *values, struct hb_op *op, struct hb_op_fault *fault);

/*
 * Converts microseconds to ns. A value that does not fit, or is no number, becomes INT64_MAX or INT64_MIN, which every
 * check refuses.
 */
int64_t hb_ns_from_us(double us);

/*
 * Finds the direction in a copy's name, as CUPTI writes it: "Memcpy HtoD (Pageable
 * -> Device)". Copies between GPUs, arrays and the like count as DtoD or as the
 * direction they cross the bus in. Returns false when the name has no direction.
 */
bool hb_copy_direction(const char *name, enum hb_op_kind *kind);

/* Returns NULL, or why the text cannot be the name of a workload ("is empty"). */
const char *hb_workload_name_fault(const char *name);
/* Returns NULL, or why the text cannot be the name of an op. */
const char *hb_op_name_fault(const char *name);
/* Makes a valid name of any text: cut at HB_TRACE_NAME_CUT bytes between characters, '?' for what is not text. */
void hb_op_name_clean(const char *name, char out[static HB_TRACE_NAME_CUT + 1]);

#endif
