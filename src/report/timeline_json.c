/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a result's spans in the Chrome trace event format, for ui.perfetto.dev and chrome://tracing; see output.h. A
 * program is a process, its rows are threads. Events are written one by one, because a run has hundreds of thousands.
 */
#include "report/output.h"

#include "base/json.h"
#include "report/residency.h"

#include <errno.h>
#include <string.h>

#define FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(15) | JSON_ENSURE_ASCII)

/* Rows of a program, from top to bottom. Requests may overlap, so they have several rows (lanes). */
enum timeline_row { ROW_SWITCH, ROW_GATE, ROW_TAKEOVER, ROW_KERNEL, ROW_COPY, ROW_REQUEST };
#define REQUEST_LANES 8
#define N_ROWS (ROW_REQUEST + REQUEST_LANES)
#define TENANTS_MAX (2 * HB_SIM_TENANTS_MAX)

static const char *const row_names[] = {
	[ROW_SWITCH] = "switches to it", [ROW_GATE] = "waits at the gate",
	[ROW_TAKEOVER] = "takeovers",    [ROW_KERNEL] = "kernels",
	[ROW_COPY] = "copies",           [ROW_REQUEST] = "requests",
};

struct timeline_writer {
	FILE *out;
	const struct hb_sim_result *result;
	struct hb_residency *residency;
	int64_t lane_end_ns[TENANTS_MAX][REQUEST_LANES];
	bool used[TENANTS_MAX][N_ROWS];
	bool begun;
};

/* Writes and releases `event`. */
static int write_event(struct timeline_writer *writer, json_t *event)
{
	if (!event)
		return -ENOMEM;
	fputs(writer->begun ? ",\n" : "\n", writer->out);
	writer->begun = true;
	int failed = json_dumpf(event, writer->out, FLAGS);
	json_decref(event);
	return failed ? -EIO : 0;
}

static const char *find_tenant_name(const struct hb_sim_result *result, uint32_t tenant)
{
	return tenant < result->n_high ? result->high[tenant].workload : result->low[tenant - result->n_high].workload;
}

/* Returns the row of the first free lane, or -1 when all lanes are occupied; then the request is left out. */
static int take_request_lane(struct timeline_writer *writer, const struct hb_span *span)
{
	for (int lane = 0; lane < REQUEST_LANES; lane++) {
		if (writer->lane_end_ns[span->tenant][lane] > span->start_ns)
			continue;
		writer->lane_end_ns[span->tenant][lane] = span->end_ns;
		return ROW_REQUEST + lane;
	}
	return -1;
}

static int find_row(struct timeline_writer *writer, const struct hb_span *span)
{
	switch ((enum hb_span_kind)span->kind) {
	case HB_SPAN_REQUEST:
		return take_request_lane(writer, span);
	case HB_SPAN_KERNEL:
		return ROW_KERNEL;
	case HB_SPAN_COPY:
		return ROW_COPY;
	case HB_SPAN_SWITCH:
		return ROW_SWITCH;
	case HB_SPAN_TAKEOVER:
		return ROW_TAKEOVER;
	case HB_SPAN_GATED:
		return ROW_GATE;
	}
	return -1;
}

/* Writes one event for each interval in which the kernel had the GPU. */
static int write_span(struct timeline_writer *writer, const struct hb_span *span)
{
	int row = span->tenant < TENANTS_MAX ? find_row(writer, span) : -1;
	if (row < 0)
		return 0;
	writer->used[span->tenant][row] = true;
	bool named = span->name && *span->name;
	const char *name = named ? span->name : row_names[row > ROW_REQUEST ? ROW_REQUEST : row];
	struct hb_span_piece piece = {.span = span};
	int rc = 0;
	while (!rc && hb_residency_piece(writer->residency, &piece))
		rc = write_event(writer, json_pack("{s:s, s:s, s:i, s:i, s:f, s:f}", "name", name, "ph", "X", "pid",
						   span->tenant + 1, "tid", row + 1, "ts", (double)piece.start_ns / 1e3,
						   "dur", (double)(piece.end_ns - piece.start_ns) / 1e3));
	return rc;
}

static int write_metadata(struct timeline_writer *writer, const char *what, uint32_t tenant, int row, const char *name)
{
	return write_event(writer, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid",
					     tenant + 1, "tid", row + 1, "args", "name", name));
}

static int write_names(struct timeline_writer *writer, uint32_t tenant)
{
	char name[128];
	const struct hb_sim_result *result = writer->result;
	snprintf(name, sizeof name, "%s (%s)", find_tenant_name(result, tenant),
		 tenant < result->n_high ? "high" : "low");
	int rc = write_metadata(writer, "process_name", tenant, 0, name);
	for (int row = 0; row < N_ROWS && !rc; row++) {
		if (!writer->used[tenant][row])
			continue;
		rc = write_metadata(writer, "thread_name", tenant, row,
				    row_names[row > ROW_REQUEST ? ROW_REQUEST : row]);
	}
	return rc;
}

static int write_events(struct timeline_writer *writer)
{
	const struct hb_sim_result *result = writer->result;
	int rc = 0;
	for (size_t i = 0; i < result->n_spans && !rc; i++)
		rc = write_span(writer, &result->spans[i]);
	for (uint32_t tenant = 0; tenant < result->n_high + result->n_low && !rc; tenant++)
		rc = write_names(writer, tenant);
	return rc;
}

static int write_run(FILE *out, const struct hb_sim_result *result)
{
	json_t *run = json_pack("{s:s, s:s, s:f, s:I, s:b}", "gpu", result->gpu, "sharing", result->sharing, "seconds",
				result->seconds, "seed", (json_int_t)result->seed, "truncated",
				result->spans_truncated);
	if (!run)
		return -ENOMEM;
	int failed = json_dumpf(run, out, FLAGS);
	json_decref(run);
	return failed ? -EIO : 0;
}

int hb_timeline_json_write(FILE *out, const struct hb_sim_result *result, struct hb_error *error)
{
	struct timeline_writer writer = {.out = out, .result = result, .residency = hb_residency_new(result)};
	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
	int rc = writer.residency ? write_events(&writer) : -ENOMEM;
	fputs("\n],\"otherData\":", out);
	rc = rc ? rc : write_run(out, result);
	fputs("}\n", out);
	hb_residency_free(writer.residency);
	return rc ? hb_error_set(error, rc, "cannot write the timeline: %s", strerror(-rc)) : 0;
}
