/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a recorded trace (data/traces/README.md describes the columns) row by
 * row, so that memory is the ops and one line. Everything a row can get wrong
 * is an error with file, line and column: the simulator never sees a value that
 * a GPU could not have run.
 */
#include "sim/csv.h"
#include "sim/number.h"
#include "sim/trace.h"
#include "sim/trace_builder.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum trace_column {
#define HB_TRACE_COLUMN(id, name, required) COLUMN_##id,
#include "sim/trace_columns.def"
#undef HB_TRACE_COLUMN
	N_COLUMNS
};

static const struct hb_csv_column columns[] = {
#define HB_TRACE_COLUMN(id, name, required) { name, required },
#include "sim/trace_columns.def"
#undef HB_TRACE_COLUMN
};

struct csv_reader {
	struct hb_csv csv;
	struct hb_trace_builder builder;
	uint64_t iteration;     /* of the last row */
	int64_t iteration_base; /* start of the iteration's first row */
	int64_t previous_start;
};

/* A microsecond column as ns, at least `least` ns and at most a day. */
static int read_time(struct csv_reader *reader, enum trace_column column, int64_t least, int64_t *out, struct hb_error *error)
{
	double us;
	if (!hb_number_parse(hb_csv_field(&reader->csv, column), &us))
		return hb_csv_field_error(&reader->csv, column, "is not a number of microseconds", error);
	if (us * 1000.0 > (double)HB_TRACE_TIME_MAX_NS)
		return hb_csv_field_error(&reader->csv, column, "is longer than a day (86400000000 us)", error);
	if (us < 0)
		return hb_csv_field_error(&reader->csv, column, "is negative", error);
	int64_t ns = (int64_t)floor(us * 1000.0 + 0.5);
	if (ns < least)
		return hb_csv_field_error(&reader->csv, column, "is less than a nanosecond (0.001)", error);
	*out = ns;
	return 0;
}

/* A whole number up to `max`; an empty field is `when_empty`. */
static int read_count(struct csv_reader *reader, enum trace_column column, uint64_t when_empty, uint64_t max, uint64_t *out,
		      struct hb_error *error)
{
	const char *text = hb_csv_field(&reader->csv, column);
	uint64_t value = 0;
	if (!*text)
		value = when_empty;
	else if (text[strspn(text, "0123456789")])
		return hb_csv_field_error(&reader->csv, column, "is not a whole number", error);
	for (; *text; text++) {
		value = value * 10 + (uint64_t)(*text - '0');
		if (value > max)
			return hb_csv_field_error(&reader->csv, column, "is too large", error);
	}
	*out = value;
	return 0;
}

/* XxYxZ, each 1 to its limit. */
static int read_extent(struct csv_reader *reader, enum trace_column column, const uint32_t max[3], uint32_t out[3],
		       struct hb_error *error)
{
	const char *text = hb_csv_field(&reader->csv, column);
	for (int i = 0; i < 3; i++) {
		size_t digits = strspn(text, "0123456789");
		if (!digits || digits > 10 || text[digits] != (i < 2 ? 'x' : '\0'))
			return hb_csv_field_error(&reader->csv, column, "is not three whole numbers written XxYxZ", error);
		unsigned long long value = strtoull(text, NULL, 10);
		if (!value || value > max[i])
			return hb_csv_field_error(&reader->csv, column,
						  value ? "is larger than CUDA allows" : "has a 0: each of X, Y, Z is at least 1", error);
		out[i] = (uint32_t)value;
		text += digits + 1;
	}
	return 0;
}

static int read_grid(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	static const uint32_t grid_max[3] = { HB_TRACE_GRID_X_MAX, HB_TRACE_GRID_YZ_MAX, HB_TRACE_GRID_YZ_MAX };
	static const uint32_t block_max[3] = { HB_TRACE_THREADS_MAX, HB_TRACE_THREADS_MAX, 64 };
	uint32_t block[3];
	int code = read_extent(reader, COLUMN_GRID, grid_max, op->grid, error);
	if (!code)
		code = read_extent(reader, COLUMN_BLOCK, block_max, block, error);
	if (code)
		return code;
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
	if (threads > HB_TRACE_THREADS_MAX)
		return hb_csv_field_error(&reader->csv, COLUMN_BLOCK, "is more than 1024 threads", error);
	for (int i = 0; i < 3; i++)
		op->block[i] = (uint16_t)block[i];
	op->threads = (uint16_t)threads;
	op->blocks = (uint64_t)op->grid[0] * op->grid[1] * op->grid[2];
	return 0;
}

static int read_kernel(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	uint64_t registers, shared, cluster;
	int code = read_grid(reader, op, error);
	if (!code)
		code = read_count(reader, COLUMN_REGISTERS, 0, HB_TRACE_REGISTERS_MAX, &registers, error);
	if (!code)
		code = read_count(reader, COLUMN_SHARED, 0, HB_TRACE_SHARED_BYTES_MAX, &shared, error);
	if (!code)
		code = read_count(reader, COLUMN_CLUSTER, 1, HB_TRACE_CLUSTER_MAX, &cluster, error);
	if (code)
		return code;
	if (!cluster || op->blocks % cluster)
		return hb_csv_field_error(&reader->csv, COLUMN_CLUSTER, "does not divide the grid's blocks", error);
	op->registers = (uint16_t)registers;
	op->shared_bytes = (uint32_t)shared;
	op->cluster = (uint8_t)cluster;
	return 0;
}

/* A copy's direction is in its name, as CUPTI writes it: "Memcpy HtoD (Pageable -> Device)". */
static int read_kind(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	const char *kind = hb_csv_field(&reader->csv, COLUMN_KIND);
	const char *name = hb_csv_field(&reader->csv, COLUMN_NAME);
	if (strcmp(kind, "kernel") == 0)
		op->kind = HB_OP_KERNEL;
	else if (strcmp(kind, "memset") == 0)
		op->kind = HB_OP_MEMSET;
	else if (strcmp(kind, "memcpy") != 0)
		return hb_csv_field_error(&reader->csv, COLUMN_KIND, "is not kernel, memset or memcpy", error);
	else if (strstr(name, "HtoD"))
		op->kind = HB_OP_COPY_H2D;
	else if (strstr(name, "DtoH"))
		op->kind = HB_OP_COPY_D2H;
	else if (strstr(name, "DtoD"))
		op->kind = HB_OP_COPY_D2D;
	else
		return hb_csv_field_error(&reader->csv, COLUMN_NAME, "does not say the copy's direction (HtoD, DtoH or DtoD)", error);
	return 0;
}

static int read_name(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	const char *name = hb_csv_field(&reader->csv, COLUMN_NAME);
	const char *fault = hb_op_name_fault(name);
	if (fault)
		return hb_csv_field_error(&reader->csv, COLUMN_NAME, fault, error);
	int code = hb_trace_builder_name(&reader->builder, name, &op->name);
	if (code == -E2BIG)
		hb_line_error(reader->csv.lines, error, code, "more than %u different kernel names", HB_TRACE_NAMES_MAX);
	else if (code)
		hb_line_error(reader->csv.lines, error, code, "out of memory");
	return code;
}

static int read_op(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	*op = (struct hb_op){ .cluster = 1 };
	int code = read_kind(reader, op, error);
	if (!code)
		code = read_name(reader, op, error);
	if (!code)
		code = read_time(reader, COLUMN_START, 0, &op->start_ns, error);
	if (!code)
		code = read_time(reader, COLUMN_DURATION, 1, &op->duration_ns, error);
	if (!code && op->kind == HB_OP_KERNEL)
		return read_kernel(reader, op, error);
	if (!code)
		code = read_count(reader, COLUMN_BYTES, 0, HB_TRACE_BYTES_MAX, &op->bytes, error);
	return code;
}

/* Begins a workload when the row names another one than the last row did. */
static int enter_workload(struct csv_reader *reader, bool *entered, struct hb_error *error)
{
	struct hb_trace_builder *builder = &reader->builder;
	const char *name = hb_csv_field(&reader->csv, COLUMN_WORKLOAD);
	*entered = false;
	if (builder->n_workloads && strcmp(builder->workloads[builder->n_workloads - 1].name, name) == 0)
		return 0;
	const char *fault = hb_workload_name_fault(name);
	if (fault)
		return hb_csv_field_error(&reader->csv, COLUMN_WORKLOAD, fault, error);
	int code = hb_trace_builder_workload(builder, name);
	*entered = true;
	if (code == -EEXIST && hb_trace_builder_find(builder, name))
		return hb_csv_field_error(&reader->csv, COLUMN_WORKLOAD, "began further up: a workload's rows must stand together", error);
	if (code == -EEXIST)
		return hb_csv_field_error(&reader->csv, COLUMN_WORKLOAD, "is already there from another trace: rename one", error);
	if (code == -E2BIG)
		return hb_line_error(reader->csv.lines, error, code, "more than %u workloads", HB_TRACE_WORKLOADS_MAX);
	return code ? hb_line_error(reader->csv.lines, error, code, "out of memory") : 0;
}

/* Begins a workload or an iteration when the row says so; op's start becomes relative to the iteration. */
static int place(struct csv_reader *reader, struct hb_op *op, struct hb_error *error)
{
	bool entered;
	uint64_t iteration;
	int code = enter_workload(reader, &entered, error);
	if (!code && !*hb_csv_field(&reader->csv, COLUMN_ITERATION))
		return hb_csv_field_error(&reader->csv, COLUMN_ITERATION, "is not a whole number", error);
	if (!code)
		code = read_count(reader, COLUMN_ITERATION, 0, HB_TRACE_OPS_MAX, &iteration, error);
	if (code)
		return code;
	if (!entered && iteration < reader->iteration)
		return hb_csv_field_error(&reader->csv, COLUMN_ITERATION, "is less than in the row before: iterations must ascend", error);
	if (entered || iteration != reader->iteration) {
		reader->iteration = iteration;
		reader->iteration_base = reader->previous_start = op->start_ns;
		if (hb_trace_builder_iteration(&reader->builder))
			return hb_line_error(reader->csv.lines, error, -ENOMEM, "out of memory");
	}
	if (op->start_ns < reader->previous_start)
		return hb_csv_field_error(&reader->csv, COLUMN_START, "is before the start of the row before: rows must ascend", error);
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
			code = place(reader, &op, error);
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
	struct csv_reader reader = { 0 };
	int code = hb_csv_open(&reader.csv, path, columns, N_COLUMNS, error);
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
