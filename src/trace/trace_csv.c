/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a recorded trace (data/traces/README.md describes the columns) row by
 * row, so that it needs memory for the ops and one line only. A value that no GPU
 * could have run is an error that names file, line and column.
 */
#include "trace/csv.h"
#include "trace/trace.h"
#include "trace/trace_builder.h"
#include "trace/trace_op.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct hb_csv_column columns[] = {
#define HB_TRACE_COLUMN(id, name, required) {name, required},
#include "trace/trace_columns.def"
#undef HB_TRACE_COLUMN
};

struct csv_reader {
	struct hb_csv csv;
	struct hb_trace_builder builder;
	int64_t iteration;      /* iteration number of the last row */
	int64_t iteration_base; /* start of the iteration's first row */
	int64_t previous_start;
};

/* Reads a whole number; one with too many digits becomes INT64_MAX, which is too large for every column. */
static int64_t parse_whole_number(const char *text, size_t digits)
{
	return digits > 18 ? INT64_MAX : strtoll(text, NULL, 10);
}

/* Reads a field that is a whole number; an empty field means `when_empty`. */
static int read_count(struct csv_reader *reader, enum hb_trace_column column, int64_t when_empty, int64_t *out,
		      struct hb_error *error)
{
	const char *text = hb_csv_field(&reader->csv, column);
	size_t digits = strspn(text, "0123456789");
	if (text[digits])
		return hb_csv_field_error(&reader->csv, column, "is not a whole number", error);
	*out = *text ? parse_whole_number(text, digits) : when_empty;
	return 0;
}

/* Reads a field of the form XxYxZ. */
static int read_extent(struct csv_reader *reader, enum hb_trace_column column, int64_t out[3], struct hb_error *error)
{
	const char *text = hb_csv_field(&reader->csv, column);
	for (int i = 0; i < 3; i++) {
		size_t digits = strspn(text, "0123456789");
		if (!digits || text[digits] != (i < 2 ? 'x' : '\0'))
			return hb_csv_field_error(&reader->csv, column, "is not three whole numbers written XxYxZ",
						  error);
		out[i] = parse_whole_number(text, digits);
		text += digits + 1;
	}
	return 0;
}

static int read_kernel(struct csv_reader *reader, struct hb_op_values *values, struct hb_error *error)
{
	int code = read_extent(reader, HB_TRACE_COLUMN_GRID, values->grid, error);
	if (!code)
		code = read_extent(reader, HB_TRACE_COLUMN_BLOCK, values->block, error);
	if (!code)
		code = read_count(reader, HB_TRACE_COLUMN_REGISTERS, 0, &values->registers, error);
	if (!code)
		code = read_count(reader, HB_TRACE_COLUMN_SHARED, 0, &values->shared_bytes, error);
	if (!code)
		code = read_count(reader, HB_TRACE_COLUMN_CLUSTER, 1, &values->cluster, error);
	return code;
}

static int read_kind(struct csv_reader *reader, enum hb_op_kind *kind, struct hb_error *error)
{
	const char *text = hb_csv_field(&reader->csv, HB_TRACE_COLUMN_KIND);
	if (strcmp(text, "kernel") == 0)
		*kind = HB_OP_KERNEL;
	else if (strcmp(text, "memset") == 0)
		*kind = HB_OP_MEMSET;
	else if (strcmp(text, "memcpy") != 0)
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_KIND, "is not kernel, memset or memcpy", error);
	else if (!hb_copy_direction(hb_csv_field(&reader->csv, HB_TRACE_COLUMN_NAME), kind))
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_NAME,
					  "does not say the copy's direction (HtoD, DtoH or DtoD)", error);
	return 0;
}

static int read_values(struct csv_reader *reader, struct hb_op_values *values, struct hb_error *error)
{
	*values = (struct hb_op_values){0};
	int code = read_kind(reader, &values->kind, error);
	if (!code)
		code = hb_csv_us(&reader->csv, HB_TRACE_COLUMN_START, &values->start_ns, error);
	if (!code)
		code = hb_csv_us(&reader->csv, HB_TRACE_COLUMN_DURATION, &values->duration_ns, error);
	if (!code && *hb_csv_field(&reader->csv, HB_TRACE_COLUMN_HOST))
		code = hb_csv_us(&reader->csv, HB_TRACE_COLUMN_HOST, &values->host_ns, error);
	if (!code && values->kind == HB_OP_KERNEL)
		return read_kernel(reader, values, error);
	if (!code)
		code = read_count(reader, HB_TRACE_COLUMN_BYTES, 0, &values->bytes, error);
	return code;
}

static int read_name(struct csv_reader *reader, uint32_t *index, struct hb_error *error)
{
	const char *name = hb_csv_field(&reader->csv, HB_TRACE_COLUMN_NAME);
	const char *why = hb_op_name_fault(name);
	if (why)
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_NAME, why, error);
	int code = hb_trace_builder_name(&reader->builder, name, index);
	if (code == -E2BIG)
		return hb_line_error(reader->csv.lines, error, code, "more than %u different kernel names",
				     HB_TRACE_NAMES_MAX);
	return code ? hb_line_error(reader->csv.lines, error, code, "out of memory") : 0;
}

static int read_op(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	struct hb_op_values values;
	struct hb_op_fault fault;
	int code = read_values(reader, &values, error);
	if (code)
		return code;
	if (hb_op_from_values(&values, op, &fault))
		return hb_csv_field_error(&reader->csv, fault.column, fault.why, error);
	return read_name(reader, &op->name, error);
}

/* Begins a workload if the row names another workload than the row before. */
static int enter_workload(struct csv_reader *reader, bool *entered, struct hb_error *error)
{
	struct hb_trace_builder *builder = &reader->builder;
	const char *name = hb_csv_field(&reader->csv, HB_TRACE_COLUMN_WORKLOAD);
	*entered = false;
	if (builder->n_workloads && strcmp(builder->workloads[builder->n_workloads - 1].name, name) == 0)
		return 0;
	const char *fault = hb_workload_name_fault(name);
	if (fault)
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_WORKLOAD, fault, error);
	int code = hb_trace_builder_workload(builder, name);
	*entered = true;
	if (code == -EEXIST && hb_trace_builder_find(builder, name))
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_WORKLOAD,
					  "began further up: a workload's rows must stand together", error);
	if (code == -EEXIST)
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_WORKLOAD,
					  "is already there from another trace: rename one", error);
	if (code == -E2BIG)
		return hb_line_error(reader->csv.lines, error, code, "more than %u workloads", HB_TRACE_WORKLOADS_MAX);
	return code ? hb_line_error(reader->csv.lines, error, code, "out of memory") : 0;
}

/* Begins a workload or an iteration if the row says so, and makes the op's start relative to the iteration. */
static int place_op(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	bool entered;
	int64_t iteration;
	int code = enter_workload(reader, &entered, error);
	if (!code)
		code = read_count(reader, HB_TRACE_COLUMN_ITERATION, -1, &iteration, error);
	if (code)
		return code;
	if (iteration < 0)
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_ITERATION, "is not a whole number", error);
	if (!entered && iteration < reader->iteration)
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_ITERATION,
					  "is less than in the row before: iterations must ascend", error);
	if (entered || iteration != reader->iteration) {
		reader->iteration = iteration;
		reader->iteration_base = reader->previous_start = op->start_ns;
		if (hb_trace_builder_iteration(&reader->builder))
			return hb_line_error(reader->csv.lines, error, -ENOMEM, "out of memory");
	}
	if (op->start_ns < reader->previous_start)
		return hb_csv_field_error(&reader->csv, HB_TRACE_COLUMN_START,
					  "is before the start of the row before: rows must ascend", error);
	reader->previous_start = op->start_ns;
	op->start_ns -= reader->iteration_base;
	return 0;
}

static int read_rows(struct csv_reader *reader, struct hb_error *error)
{
	int got;
	while ((got = hb_csv_next(&reader->csv, error)) > 0) {
		struct hb_op op;
		int code = read_op(reader, &op, error);
		if (!code)
			code = place_op(reader, &op, error);
		if (code)
			return code;
		code = hb_trace_builder_op(&reader->builder, &op);
		if (code == -E2BIG)
			return hb_line_error(reader->csv.lines, error, code, "more than %u rows", HB_TRACE_OPS_MAX);
		if (code)
			return hb_line_error(reader->csv.lines, error, code, "out of memory");
	}
	if (!got && !reader->builder.n_workloads)
		return hb_line_error(reader->csv.lines, error, -EINVAL, "no rows after the header");
	return got;
}

int hb_trace_read_csv(const char *path, struct hb_trace_set *set, struct hb_error *error)
{
	struct csv_reader reader = {0};
	int code = hb_csv_open(&reader.csv, path, columns, HB_TRACE_COLUMNS, error);
	if (code)
		return code;
	code = hb_trace_builder_init(&reader.builder, set);
	if (code)
		hb_error_set(error, code, "%s: out of memory", path);
	else
		code = read_rows(&reader, error);
	hb_csv_close(&reader.csv);
	if (!code)
		code = hb_trace_read_alone(path, &reader.builder, error);
	if (!code && hb_trace_builder_finish(&reader.builder))
		code = hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	hb_trace_builder_fini(&reader.builder);
	return code;
}
