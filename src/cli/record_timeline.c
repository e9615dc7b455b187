/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a recording into a timeline; see record_timeline.h. Times are microseconds since the recording's first line. */
#include "cli/record_timeline.h"

#include "base/units.h"
#include "core/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a tenant, from top to bottom; each is a thread of the timeline. Requests may overlap, so they have several rows. */
#define LANES 4
enum recording_row { ROW_BUSY, ROW_LAUNCH, ROW_GATE, ROW_REQUEST, N_ROWS = ROW_REQUEST + LANES };
static const char *const row_names[] = {
	[ROW_REQUEST] = "requests",
	[ROW_BUSY] = "work on the GPU",
	[ROW_LAUNCH] = "launches",
	[ROW_GATE] = "gate closed",
};

struct tenant_lane {
	bool present;
	char name[48];
	int64_t since_ns[N_ROWS]; /* start of the open span in each row; -1 = none */
	int64_t end_ns[LANES];    /* end of the last request in each request row */
};

struct recorded_timeline {
	json_t *events;
	const json_t *status;
	struct tenant_lane (*lanes)[HB_TENANTS_DEFAULT]; /* rows of each tenant, indexed by GPU and tenant id */
	bool gpus[HB_RECORDING_GPUS];
	int64_t begin_ns, end_ns;
	bool begun;
	json_t *kernels; /* names of kernels, by their number in the recording */
};

static double convert_to_microseconds(const struct recorded_timeline *timeline, int64_t at_ns)
{
	return (double)(at_ns - timeline->begin_ns) / 1000;
}

static int find_thread(uint32_t tenant, enum recording_row row)
{
	return (int)(tenant * N_ROWS + row + 1);
}

static void add_event(struct recorded_timeline *timeline, json_t *event)
{
	if (event)
		json_array_append_new(timeline->events, event);
}

static void add_span(struct recorded_timeline *timeline, uint32_t gpu, uint32_t tenant, enum recording_row row,
		     const char *name, int64_t begin_ns, int64_t end_ns)
{
	/* A span that began before the recording is drawn from the recording's first line on. */
	if (begin_ns < timeline->begin_ns)
		begin_ns = timeline->begin_ns;
	if (end_ns > begin_ns)
		add_event(timeline,
			  json_pack("{s:s, s:s, s:i, s:i, s:f, s:f}", "name", name, "ph", "X", "pid", (int)gpu + 1,
				    "tid", find_thread(tenant, row), "ts", convert_to_microseconds(timeline, begin_ns),
				    "dur", (double)(end_ns - begin_ns) / 1000));
}

static void open_span(struct tenant_lane *lane, enum recording_row row, int64_t at_ns)
{
	if (lane->since_ns[row] < 0)
		lane->since_ns[row] = at_ns;
}

static void close_span(struct recorded_timeline *timeline, uint32_t gpu, uint32_t tenant, enum recording_row row,
		       int64_t at_ns)
{
	struct tenant_lane *lane = &timeline->lanes[gpu][tenant];
	if (lane->since_ns[row] >= 0)
		add_span(timeline, gpu, tenant, row, row == ROW_BUSY ? "busy" : row_names[row], lane->since_ns[row],
			 at_ns);
	lane->since_ns[row] = -1;
}

/* Returns VALUE of the word KEY=VALUE, or NULL. */
static const char *find_value(const struct hb_recording_line *line, const char *key)
{
	size_t n = strlen(key);
	for (size_t i = 2; i < line->n_words; i++)
		if (strncmp(line->words[i], key, n) == 0 && line->words[i][n] == '=')
			return line->words[i] + n + 1;
	return NULL;
}

static int64_t read_time(const struct hb_recording_line *line, const char *key)
{
	struct hb_error error;
	int64_t ns = 0;
	const char *value = find_value(line, key);
	return value && hb_duration_parse(value, &ns, &error) == 0 ? ns : 0;
}

/* Returns whether the words contain this flag. */
static bool has_flag(const struct hb_recording_line *line, const char *word)
{
	for (size_t i = 2; i < line->n_words; i++)
		if (strcmp(line->words[i], word) == 0)
			return true;
	return false;
}

static void add_mark(struct recorded_timeline *timeline, const struct hb_recording_line *line, uint32_t tenant,
		     enum recording_row row, const char *name)
{
	add_event(timeline, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f}", "name", name, "ph", "i", "s", "t", "pid",
				      (int)line->gpu + 1, "tid", find_thread(tenant, row), "ts",
				      convert_to_microseconds(timeline, line->at_ns)));
}

static void add_tenant(struct tenant_lane *lane, const struct hb_recording_line *line)
{
	const char *name = find_value(line, "name"), *priority = find_value(line, "priority");
	snprintf(lane->name, sizeof lane->name, "tenant %.16s (%.8s)", name ? name : "?", priority ? priority : "?");
	lane->present = true;
	for (size_t i = 0; i < N_ROWS; i++)
		lane->since_ns[i] = -1;
	memset(lane->end_ns, 0, sizeof lane->end_ns);
}

/* Adds a request to the first free request row; leaves it out when no row is free. */
static void add_request(struct recorded_timeline *timeline, const struct hb_recording_line *line, uint32_t tenant)
{
	struct tenant_lane *lane = &timeline->lanes[line->gpu][tenant];
	int64_t begin_ns = read_time(line, "begin"), end_ns = read_time(line, "end");
	int i = 0;
	while (i < LANES && lane->end_ns[i] > begin_ns)
		i++;
	if (i == LANES)
		return;
	lane->end_ns[i] = end_ns;
	add_span(timeline, line->gpu, tenant, (enum recording_row)(ROW_REQUEST + i),
		 has_flag(line, "held") ? "request, GPU taken over" : "request", begin_ns, end_ns);
}

static void note_event(struct recorded_timeline *timeline, const struct hb_recording_line *line, uint32_t tenant)
{
	struct tenant_lane *lane = &timeline->lanes[line->gpu][tenant];
	const char *what = line->words[0];
	if (strcmp(what, "tenant_add") == 0)
		add_tenant(lane, line);
	else if (strcmp(what, "busy") == 0)
		open_span(lane, ROW_BUSY, line->at_ns);
	else if (strcmp(what, "idle") == 0)
		close_span(timeline, line->gpu, tenant, ROW_BUSY, line->at_ns);
	else if (strcmp(what, "request_past") == 0)
		add_request(timeline, line, tenant);
	else if (strcmp(what, "waiting") == 0 || strcmp(what, "drained") == 0)
		add_mark(timeline, line, tenant, ROW_GATE, what);
}

static void note_action(struct recorded_timeline *timeline, const struct hb_recording_line *line, uint32_t tenant)
{
	struct tenant_lane *lane = &timeline->lanes[line->gpu][tenant];
	const char *what = line->words[0];
	if (strcmp(what, "gate") == 0) {
		const char *state = find_value(line, "state");
		if (state && strcmp(state, "closed") == 0)
			open_span(lane, ROW_GATE, line->at_ns);
		else
			close_span(timeline, line->gpu, tenant, ROW_GATE, line->at_ns);
	} else {
		add_mark(timeline, line, tenant, ROW_GATE, what);
	}
}

/* Reads "launch #ID N" or "name N TEXT". Ignores a number without a name, which no daemon writes. */
static void note_launch(struct recorded_timeline *timeline, const struct hb_recording_line *line)
{
	if (line->n_words != 3)
		return;
	const char *number = line->words[2];
	if (strcmp(line->words[0], "name") == 0) {
		json_object_set_new(timeline->kernels, line->words[1], json_string(line->words[2]));
		return;
	}
	uint32_t tenant = hb_recording_tenant(line->words[1]);
	const char *name = json_string_value(json_object_get(timeline->kernels, number));
	if (tenant == HB_TENANT_NONE || !name || line->at_ns < timeline->begin_ns ||
	    !timeline->lanes[line->gpu][tenant].present)
		return;
	if (line->at_ns > timeline->end_ns)
		timeline->end_ns = line->at_ns;
	add_mark(timeline, line, tenant, ROW_LAUNCH, name);
}

static void note_line(struct recorded_timeline *timeline, const struct hb_recording_line *line)
{
	uint32_t tenant = line->n_words > 1 ? hb_recording_tenant(line->words[1]) : HB_TENANT_NONE;
	if (line->kind == '~') {
		note_launch(timeline, line);
		return;
	}
	if (!timeline->begun)
		timeline->begin_ns = line->at_ns;
	timeline->begun = true;
	timeline->end_ns = line->at_ns > timeline->end_ns ? line->at_ns : timeline->end_ns;
	timeline->gpus[line->gpu] = true;
	if (tenant == HB_TENANT_NONE)
		return;
	if (line->kind == '>')
		note_event(timeline, line, tenant);
	else if (line->kind == '-' && timeline->lanes[line->gpu][tenant].present)
		note_action(timeline, line, tenant);
}

/* --- names ----------------------------------------------------------------------------- */

static void add_name(struct recorded_timeline *timeline, const char *kind, int pid, int tid, const char *name)
{
	add_event(timeline, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", kind, "ph", "M", "pid", pid, "tid", tid,
				      "args", "name", name));
}

static void add_names(struct recorded_timeline *timeline)
{
	for (uint32_t gpu = 0; gpu < HB_RECORDING_GPUS; gpu++) {
		char name[200];
		const json_t *entry = json_array_get(json_object_get(timeline->status, "gpus"), gpu);
		const char *model = json_string_value(json_object_get(entry, "name"));
		snprintf(name, sizeof name, "GPU %" PRIu32 " %.150s", gpu, model ? model : "");
		if (timeline->gpus[gpu])
			add_name(timeline, "process_name", (int)gpu + 1, 0, name);
		for (uint32_t tenant = 0; tenant < HB_TENANTS_DEFAULT; tenant++) {
			const struct tenant_lane *lane = &timeline->lanes[gpu][tenant];
			for (size_t row = 0; lane->present && row < N_ROWS; row++) {
				snprintf(name, sizeof name, "%s: %s", lane->name,
					 row_names[row < ROW_REQUEST ? row : ROW_REQUEST]);
				add_name(timeline, "thread_name", (int)gpu + 1,
					 find_thread(tenant, (enum recording_row)row), name);
			}
		}
	}
}

static void close_all(struct recorded_timeline *timeline)
{
	for (uint32_t gpu = 0; gpu < HB_RECORDING_GPUS; gpu++)
		for (uint32_t tenant = 0; tenant < HB_TENANTS_DEFAULT; tenant++)
			for (size_t row = 0; timeline->lanes[gpu][tenant].present && row < N_ROWS; row++)
				close_span(timeline, gpu, tenant, (enum recording_row)row, timeline->end_ns);
}

static int read_lines(struct recorded_timeline *timeline, const char *text, json_t *lines, struct hb_error *error)
{
	char *copy = strdup(text), *rest = copy, *at;
	int code = copy ? 0 : hb_error_set(error, -ENOMEM, "out of memory");
	while (!code && (at = strsep(&rest, "\n"))) {
		struct hb_recording_line line;
		if (!*at)
			continue;
		json_array_append_new(lines, json_string(at));
		if (*at == '#')
			continue;
		code = hb_recording_read_line(at, &line, error);
		if (!code)
			note_line(timeline, &line);
	}
	free(copy);
	return code;
}

json_t *hb_record_timeline(const char *text, const json_t *status, struct hb_error *error)
{
	struct recorded_timeline timeline = {.events = json_array(), .status = status, .kernels = json_object()};
	json_t *lines = json_array();
	timeline.lanes = calloc(HB_RECORDING_GPUS, sizeof *timeline.lanes);
	int code = timeline.lanes ? read_lines(&timeline, text, lines, error)
				  : hb_error_set(error, -ENOMEM, "out of memory");
	if (!code) {
		close_all(&timeline);
		add_names(&timeline);
	}
	free(timeline.lanes);
	json_decref(timeline.kernels);
	if (code) {
		json_decref(timeline.events);
		json_decref(lines);
		return NULL;
	}
	return json_pack("{s:o, s:s, s:{s:i, s:o}}", "traceEvents", timeline.events, "displayTimeUnit", "ms",
			 "hummingbird", "version", 1, "recording", lines);
}

char *hb_record_text(const json_t *root, const char *origin, struct hb_error *error)
{
	const json_t *lines = json_object_get(json_object_get(root, "hummingbird"), "recording"), *line;
	char *text = NULL;
	size_t length, i;
	if (!json_is_array(lines)) {
		hb_error_set(error, -EINVAL, "%s: this is no recording of hb trace record", origin);
		return NULL;
	}
	FILE *out = open_memstream(&text, &length);
	json_array_foreach(lines, i, line) if (out && json_is_string(line))
		fprintf(out, "%s\n", json_string_value(line));
	if (!out || fclose(out) != 0) {
		hb_error_set(error, -ENOMEM, "out of memory");
		return NULL;
	}
	return text;
}
