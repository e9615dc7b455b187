/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads Nsight Systems recordings exported to SQLite (`nsys export --type sqlite`).
 * Columns differ between versions: a missing column is an error only where a
 * trace needs it. Called by trace_import.c; only reads the file.
 */
#include "trace/import_events.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

/* The longest text or query; a name is cut at HB_TRACE_NAME_CUT anyway. */
#define SQLITE_BYTES_MAX (1 << 20)

struct nsys_reader {
	sqlite3 *db;
	const char *path;
	struct hb_import_events *events;
};

/* Columns of the queries for ops; kernels have more. */
enum op_column { OP_ROW, OP_START, OP_END, OP_DEVICE, OP_CORRELATION, OP_PROCESS, OP_BYTES_OR_NAME, OP_COPY_KIND };
enum kernel_column {
	KERNEL_NAME = OP_BYTES_OR_NAME,
	KERNEL_GRID,
	KERNEL_BLOCK = KERNEL_GRID + 3,
	KERNEL_REGISTERS = KERNEL_BLOCK + 3,
	KERNEL_SHARED,
};

static int report_failure(const struct nsys_reader *nsys, struct hb_error *error, const char *table)
{
	int code = sqlite3_errcode(nsys->db) == SQLITE_NOMEM ? -ENOMEM : -EINVAL;
	return hb_error_set(error, code, "%s: %s: %s", nsys->path, table, sqlite3_errmsg(nsys->db));
}

/* Returns whether the table has the column, or exists if `column` is NULL: 1, 0 or a negative errno. */
static int has_column(const struct nsys_reader *nsys, const char *table, const char *column, struct hb_error *error)
{
	static const char tables[] = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
	static const char columns[] = "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2";
	sqlite3_stmt *statement = NULL;
	if (sqlite3_prepare_v2(nsys->db, column ? columns : tables, -1, &statement, NULL) != SQLITE_OK)
		return report_failure(nsys, error, table);
	sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
	if (column)
		sqlite3_bind_text(statement, 2, column, -1, SQLITE_STATIC);
	int step = sqlite3_step(statement);
	int code = step == SQLITE_ROW ? 1 : step == SQLITE_DONE ? 0 : report_failure(nsys, error, table);
	sqlite3_finalize(statement);
	return code;
}

typedef int row_function(struct nsys_reader *nsys, sqlite3_stmt *row, struct hb_error *error);

/* Calls `each` for the rows of a query, whose parameter ?1 is `text` (may be NULL). */
static int visit_rows(struct nsys_reader *nsys, const char *table, const char *query, const char *text,
		      row_function *each, struct hb_error *error)
{
	sqlite3_stmt *statement = NULL;
	if (sqlite3_prepare_v2(nsys->db, query, -1, &statement, NULL) != SQLITE_OK)
		return report_failure(nsys, error, table);
	if (text)
		sqlite3_bind_text(statement, 1, text, -1, SQLITE_STATIC);
	int code = 0, step;
	while (!code && (step = sqlite3_step(statement)) == SQLITE_ROW)
		code = each(nsys, statement, error);
	if (!code && step != SQLITE_DONE)
		code = report_failure(nsys, error, table);
	sqlite3_finalize(statement);
	return code;
}

/* Adds the op of a row. The caller has set all values but the times. */
static int add_op(struct nsys_reader *nsys, sqlite3_stmt *row, const char *table, struct hb_op_values *values,
		  const char *name, struct hb_error *error)
{
	struct hb_op_fault fault;
	long long number = sqlite3_column_int64(row, OP_ROW);
	uint64_t process = (uint64_t)sqlite3_column_int64(row, OP_PROCESS) >> 24;
	uint64_t correlation = (uint64_t)sqlite3_column_int64(row, OP_CORRELATION);
	values->start_ns = sqlite3_column_int64(row, OP_START);
	if (__builtin_sub_overflow(sqlite3_column_int64(row, OP_END), values->start_ns, &values->duration_ns))
		values->duration_ns = INT64_MAX;
	int code = hb_import_add_op(nsys->events, values, name, HB_CORRELATION(process, correlation),
				    HB_GROUP(process, sqlite3_column_int64(row, OP_DEVICE)), &fault);
	if (code == -EINVAL)
		return hb_error_set(error, code, "%s: %s row %lld: its %s %s", nsys->path, table, number,
				    hb_trace_column_name(fault.column), fault.why);
	if (code == -E2BIG)
		return hb_error_set(error, code, "%s: %s row %lld: more ops or kernel names than a trace may hold",
				    nsys->path, table, number);
	return code ? hb_error_set(error, code, "%s: out of memory", nsys->path) : 0;
}

static int add_kernel(struct nsys_reader *nsys, sqlite3_stmt *row, struct hb_error *error)
{
	struct hb_op_values values = {.kind = HB_OP_KERNEL, .cluster = 1};
	const char *name = (const char *)sqlite3_column_text(row, KERNEL_NAME);
	for (int i = 0; i < 3; i++) {
		values.grid[i] = sqlite3_column_int64(row, KERNEL_GRID + i);
		values.block[i] = sqlite3_column_int64(row, KERNEL_BLOCK + i);
	}
	values.registers = sqlite3_column_int64(row, KERNEL_REGISTERS);
	values.shared_bytes = sqlite3_column_int64(row, KERNEL_SHARED);
	return add_op(nsys, row, "CUPTI_ACTIVITY_KIND_KERNEL", &values, name ? name : "?", error);
}

/* Returns the name that CUPTI's own traces use for a CUpti_ActivityMemcpyKind. */
static const char *copy_name(int64_t kind)
{
	static const char *const names[] = {NULL,          "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA",
					    "Memcpy AtoH", "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA",
					    "Memcpy DtoD", NULL,          "Memcpy PtoP"};
	return kind >= 0 && (size_t)kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

static int add_copy(struct nsys_reader *nsys, sqlite3_stmt *row, struct hb_error *error)
{
	struct hb_op_values values = {.bytes = sqlite3_column_int64(row, OP_BYTES_OR_NAME)};
	const char *name = copy_name(sqlite3_column_int64(row, OP_COPY_KIND));
	if (!name || !hb_copy_direction(name, &values.kind))
		return 0; /* host to host, or unknown: no work of the GPU */
	return add_op(nsys, row, "CUPTI_ACTIVITY_KIND_MEMCPY", &values, name, error);
}

static int add_memset(struct nsys_reader *nsys, sqlite3_stmt *row, struct hb_error *error)
{
	struct hb_op_values values = {.kind = HB_OP_MEMSET, .bytes = sqlite3_column_int64(row, OP_BYTES_OR_NAME)};
	return add_op(nsys, row, "CUPTI_ACTIVITY_KIND_MEMSET", &values, "Memset (Device)", error);
}

static int add_launch(struct nsys_reader *nsys, sqlite3_stmt *row, struct hb_error *error)
{
	uint64_t process = (uint64_t)sqlite3_column_int64(row, 2) >> 24;
	uint64_t correlation = (uint64_t)sqlite3_column_int64(row, 1);
	int code = hb_import_add_launch(nsys->events, HB_CORRELATION(process, correlation),
					sqlite3_column_int64(row, 0));
	return code ? hb_error_set(error, code, "%s: too many runtime calls", nsys->path) : 0;
}

static int add_range(struct nsys_reader *nsys, sqlite3_stmt *row, struct hb_error *error)
{
	int code = hb_import_add_range(nsys->events, false, sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1));
	return code ? hb_error_set(error, code, "%s: too many ranges", nsys->path) : 0;
}

static int count_graph(struct nsys_reader *nsys, sqlite3_stmt *row, struct hb_error *error)
{
	nsys->events->closed_graphs = (uint32_t)sqlite3_column_int64(row, 0);
	return 0;
}

/* Queries for the tables; %s is the column for the process, or 0 where older exports have none. */
static const struct nsys_source {
	const char *table, *process;
	const char *query;
	row_function *each;
	bool named; /* ?1 is the name of the user's range; the table is read only when the user named a range */
} sources[] = {
	{"CUPTI_ACTIVITY_KIND_KERNEL", "globalPid",
	 "SELECT k.rowid, k.start, k.end, k.deviceId, k.correlationId, %s,"
	 " coalesce((SELECT value FROM StringIds WHERE id = k.demangledName), (SELECT value FROM StringIds WHERE id = k.shortName)),"
	 " k.gridX, k.gridY, k.gridZ, k.blockX, k.blockY, k.blockZ, k.registersPerThread,"
	 " k.staticSharedMemory + k.dynamicSharedMemory FROM CUPTI_ACTIVITY_KIND_KERNEL AS k",
	 add_kernel, false},
	{"CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid",
	 "SELECT k.rowid, k.start, k.end, k.deviceId, k.correlationId, %s, k.bytes, k.copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY AS k",
	 add_copy, false},
	{"CUPTI_ACTIVITY_KIND_MEMSET", "globalPid",
	 "SELECT k.rowid, k.start, k.end, k.deviceId, k.correlationId, %s, k.bytes FROM CUPTI_ACTIVITY_KIND_MEMSET AS k",
	 add_memset, false},
	{"CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid",
	 "SELECT k.start, k.correlationId, %s FROM CUPTI_ACTIVITY_KIND_RUNTIME AS k", add_launch, false},
	{"CUPTI_ACTIVITY_KIND_GRAPH_TRACE", NULL, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS k",
	 count_graph, false},
	/* The text of a range is in the row or, if it was registered, in the table of strings. */
	{"NVTX_EVENTS", NULL,
	 "SELECT k.start, k.end FROM NVTX_EVENTS AS k WHERE k.end IS NOT NULL AND"
	 " (k.text = ?1 OR k.textId IN (SELECT id FROM StringIds WHERE value = ?1))",
	 add_range, true},
};

static int read_source(struct nsys_reader *nsys, const struct nsys_source *source, const char *range,
		       struct hb_error *error)
{
	char query[768], process[32] = "0";
	int there = has_column(nsys, source->table, NULL, error);
	if (there <= 0 || (source->named && !range))
		return there < 0 ? there : 0;
	there = source->process ? has_column(nsys, source->table, source->process, error) : 0;
	if (there < 0)
		return there;
	if (there)
		snprintf(process, sizeof process, "k.%s", source->process);
	const char *hole = strstr(source->query, "%s");
	int head = hole ? (int)(hole - source->query) : (int)strlen(source->query);
	snprintf(query, sizeof query, "%.*s%s%s", head, source->query, hole ? process : "", hole ? hole + 2 : "");
	return visit_rows(nsys, source->table, query, source->named ? range : NULL, source->each, error);
}

/* Opens the file without trust: no writing, no functions of its schema, no huge texts. */
static int open_database(struct nsys_reader *nsys, struct hb_error *error)
{
	int code = sqlite3_open_v2(nsys->path, &nsys->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
	if (code != SQLITE_OK)
		return hb_error_set(error, code == SQLITE_NOMEM ? -ENOMEM : -EINVAL, "%s: %s", nsys->path,
				    sqlite3_errstr(code));
	sqlite3_limit(nsys->db, SQLITE_LIMIT_LENGTH, SQLITE_BYTES_MAX);
	sqlite3_db_config(nsys->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(nsys->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	return 0;
}

int hb_nsys_read(const char *path, const struct hb_import_options *options, struct hb_import_events *events,
		 struct hb_error *error)
{
	struct nsys_reader nsys = {.path = path, .events = events};
	int code = open_database(&nsys, error);
	if (!code)
		code = has_column(&nsys, "StringIds", NULL, error);
	if (code == 0)
		code = hb_error_set(error, -EINVAL, "%s: no table StringIds: not an export of Nsight Systems", path);
	if (code == 1)
		code = 0;
	for (size_t i = 0; i < sizeof sources / sizeof *sources && !code; i++)
		code = read_source(&nsys, &sources[i], options->range, error);
	sqlite3_close(nsys.db);
	return code;
}
