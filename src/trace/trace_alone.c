/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes the companion of a trace, X.alone.csv. The companion says how
 * long an iteration takes alone on the GPU without a profiler (columns workload, alone_us, alone_graph_us; the
 * last may be empty or absent). Called by trace_csv.c for every trace it reads.
 */
#include "trace/csv.h"
#include "trace/trace_builder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum alone_column { ALONE_WORKLOAD, ALONE_US, ALONE_GRAPH_US, N_COLUMNS };

static const struct hb_csv_column columns[N_COLUMNS] = {
	[ALONE_WORKLOAD] = {"workload", 1},
	[ALONE_US] = {"alone_us", 1},
	[ALONE_GRAPH_US] = {"alone_graph_us", 0},
};

/* Returns the length of `path` without the ending, if it has that ending. */
static size_t find_length_without(const char *path, size_t length, const char *ending)
{
	size_t bytes = strlen(ending);
	return length > bytes && memcmp(path + length - bytes, ending, bytes) == 0 ? length - bytes : length;
}

char *hb_trace_alone_path(const char *path)
{
	static const char companion[] = ".alone.csv";
	size_t length = find_length_without(path, find_length_without(path, strlen(path), ".gz"), ".csv");
	char *out = malloc(length + sizeof companion);
	if (out) {
		memcpy(out, path, length);
		memcpy(out + length, companion, sizeof companion);
	}
	return out;
}

static int read_us(struct hb_csv *csv, enum alone_column column, int64_t *ns, struct hb_error *error)
{
	int code = hb_csv_us(csv, column, ns, error);
	if (code)
		return code;
	if (*ns <= 0)
		return hb_csv_field_error(csv, column, "is not above 0", error);
	if (*ns > HB_TRACE_TIME_MAX_NS)
		return hb_csv_field_error(csv, column, "is more than a day (86400000000 us)", error);
	return 0;
}

static int read_row(struct hb_csv *csv, struct hb_trace_builder *builder, struct hb_error *error)
{
	int64_t alone_ns, graph_ns = 0;
	struct hb_workload *workload = hb_trace_builder_find(builder, hb_csv_field(csv, ALONE_WORKLOAD));
	if (!workload)
		return hb_csv_field_error(csv, ALONE_WORKLOAD, "is not a workload of the trace beside this file",
					  error);
	if (workload->alone_ns)
		return hb_csv_field_error(csv, ALONE_WORKLOAD, "is there twice", error);
	int code = read_us(csv, ALONE_US, &alone_ns, error);
	if (!code && *hb_csv_field(csv, ALONE_GRAPH_US))
		code = read_us(csv, ALONE_GRAPH_US, &graph_ns, error);
	if (code)
		return code;
	workload->alone_ns = alone_ns;
	workload->alone_graph_ns = graph_ns;
	return 0;
}

static int read_file(const char *path, struct hb_trace_builder *builder, struct hb_error *error)
{
	struct hb_csv csv;
	int code = hb_csv_open(&csv, path, columns, N_COLUMNS, error);
	if (code)
		return code;
	while ((code = hb_csv_next(&csv, error)) > 0) {
		code = read_row(&csv, builder, error);
		if (code)
			break;
	}
	hb_csv_close(&csv);
	return code;
}

int hb_trace_read_alone(const char *path, struct hb_trace_builder *builder, struct hb_error *error)
{
	char *companion = hb_trace_alone_path(path);
	if (!companion)
		return hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	int code = 0;
	if (access(companion, F_OK) == 0)
		code = read_file(companion, builder, error);
	free(companion);
	return code;
}

static void write_us(FILE *out, int64_t ns)
{
	fprintf(out, ",%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

int hb_trace_write_alone_csv(FILE *out, const struct hb_trace_set *set)
{
	fputs("workload,alone_us,alone_graph_us\n", out);
	for (uint32_t i = 0; i < set->n_workloads; i++) {
		const struct hb_workload *workload = &set->workloads[i];
		if (!workload->alone_ns)
			continue;
		fputs(workload->name, out);
		write_us(out, workload->alone_ns);
		if (workload->alone_graph_ns)
			write_us(out, workload->alone_graph_ns);
		else
			fputc(',', out);
		fputc('\n', out);
	}
	return fflush(out) || ferror(out) ? -EIO : 0;
}
