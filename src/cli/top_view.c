/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the lines of `hb top`; see top_view.h. */
#include "cli/top_view.h"

#include "base/units.h"
#include "cli/status_requests.h"
#include "cli/top_history.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct view_page {
	int width;
	hb_top_line *line;
	void *argument;
	int lines; /* number of lines emitted so far */
};

/* Bytes of the first `width` characters; the bytes of one UTF-8 character stay together. */
static size_t fit_bytes(const char *text, size_t width)
{
	size_t n = 0;
	for (size_t characters = 0; text[n] && n < HB_TOP_LINE_MAX - 4; n++) {
		bool begins = ((unsigned char)text[n] & 0xc0) != 0x80;
		if (begins && characters++ == width)
			break;
	}
	return n;
}

static void emit_line(struct view_page *page, enum hb_top_style style, const char *text)
{
	char cut[HB_TOP_LINE_MAX];
	size_t width = page->width < HB_TOP_LINE_MAX - 1 ? (size_t)page->width : HB_TOP_LINE_MAX - 1;
	size_t n = fit_bytes(text, width);
	memcpy(cut, text, n);
	while (n > 0 && cut[n - 1] == ' ')
		n--;
	cut[n] = '\0';
	page->lines++;
	page->line(page->argument, style, cut);
}

static void emit_format(struct view_page *page, enum hb_top_style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void emit_format(struct view_page *page, enum hb_top_style style, const char *format, ...)
{
	char text[HB_TOP_LINE_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	emit_line(page, style, text);
}

#define WRAP_INDENT 4

/* Breaks a text into lines; all lines but the first are indented. */
static void emit_wrapped(struct view_page *page, enum hb_top_style style, const char *text)
{
	char line[HB_TOP_LINE_MAX];
	int indent = 0;
	while (strlen(text) + (size_t)indent > (size_t)page->width && page->width > 2 * WRAP_INDENT) {
		int n = page->width - indent;
		while (n > 0 && text[n] != ' ')
			n--;
		if (n == 0)
			n = page->width - indent;
		snprintf(line, sizeof line, "%*s%.*s", indent, "", n, text);
		emit_line(page, style, line);
		text += n + (text[n] == ' ');
		indent = WRAP_INDENT;
	}
	snprintf(line, sizeof line, "%*s%s", indent, "", text);
	emit_line(page, style, line);
}

void hb_top_view_columns(int width, hb_top_line *line, void *argument)
{
	struct view_page page = {width, line, argument, 0};
	char text[HB_TOP_LINE_MAX];
	for (size_t i = 0; i < HB_TOP_COLUMNS; i++) {
		snprintf(text, sizeof text, "%-16s %s", hb_top_columns[i].title, hb_top_columns[i].help);
		emit_wrapped(&page, HB_TOP_PLAIN, text);
	}
}

void hb_top_view_text(const char *text, int width, hb_top_line *line, void *argument)
{
	struct view_page page = {width, line, argument, 0};
	emit_wrapped(&page, HB_TOP_PLAIN, text);
}

/* Adds a part to a line if it fits completely. Returns false when it does not fit; then no later part should be added. */
static bool add_part(char line[HB_TOP_LINE_MAX], int width, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static bool add_part(char line[HB_TOP_LINE_MAX], int width, const char *format, ...)
{
	char part[HB_TOP_LINE_MAX];
	size_t used = strlen(line), limit = width < HB_TOP_LINE_MAX ? (size_t)width : HB_TOP_LINE_MAX - 1;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(part, sizeof part, format, arguments);
	va_end(arguments);
	if (used && used + strlen(part) > limit)
		return false;
	snprintf(line + used, HB_TOP_LINE_MAX - used, "%s", part);
	return true;
}

/* --- numbers ------------------------------------------------------------------------- */

/* Formats a time with three digits: 850us, 2.35ms, 12.3s. */
static const char *format_time(int64_t ns, char text[16])
{
	static const struct {
		double ns;
		const char *unit;
	} units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
	size_t i = 0;
	while (i + 1 < sizeof units / sizeof *units && (double)ns < units[i].ns * 0.9995)
		i++;
	double value = (double)ns / units[i].ns;
	int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
	snprintf(text, 16, "%.*f%s", digits, value, units[i].unit);
	return text;
}

static const char *format_percent(double share, bool estimated, char text[16])
{
	if (share < 0)
		return strcpy(text, "-");
	snprintf(text, 16, "%s%.*f%%", estimated ? "~" : "", share < 0.9995 && share > 0 && !estimated ? 1 : 0,
		 100 * share);
	return text;
}

static const char *format_rate(double rate, char text[16])
{
	snprintf(text, 16, "%.*f", rate > 0 && rate < 9.95 ? 1 : 0, rate);
	return text;
}

static const char *format_slo(const struct hb_top_tenant *tenant, char text[16])
{
	if (tenant->slo_ns <= 0)
		return strcpy(text, tenant->slo_ns < 0 ? "auto" : "-");
	return format_time(tenant->slo_ns, text);
}

static bool is_late(const struct hb_top_tenant *tenant)
{
	return tenant->met >= 0 && tenant->met < tenant->target;
}

/* --- columns ----------------------------------------------------------------------------- */

/*
 * X(title, width, rank, left, text, help). A narrow screen drops the columns with the highest rank first; the command gets
 * the rest of the line. `text` formats the tenant `t`; `s` and `room` are buffers for it.
 */
#define COLUMNS(X) \
	X("ID", 4, 0, false, (snprintf(s, 16, "%" PRIu32, t->id), s), "number of the tenant, for hb set") \
	X("PRIO", 4, 0, true, t->server ? "mps" : t->priority, "priority: high or low; mps: the MPS server") \
	X("USER", 8, 9, true, t->user, "the tenant's user") \
	X("SLO", 7, 2, false, format_slo(t, s), "latency objective; auto: not learned yet") \
	X("MET", 6, 1, false, format_percent(t->met, false, s), \
	  "attainment: share of requests within the SLO; a line is red below the target") \
	X("REQ/S", 6, 3, false, t->high ? format_rate(t->requests_s, s) : "-", "requests per second (high priority)") \
	X("P50", 7, 5, false, t->p50_ns ? format_time(t->p50_ns, s) : "-", \
	  "median of the latency of requests since the tenant started") \
	X("P99", 7, 2, false, t->p99_ns ? format_time(t->p99_ns, s) : "-", \
	  "99th percentile of the latency of requests since the tenant started") \
	X("SHARE", 6, 4, false, format_percent(t->share, t->share_estimated, s), \
	  "share of the time on the GPU: in requests (high) or turns (low); ~: estimated from the times of launches") \
	X("LAUNCH/S", 8, 8, false, format_rate(t->launches_s, s), "launches of kernels and graphs per second") \
	X("PREEMPT/S", 9, 7, false, format_rate(t->preemptions_s, s), \
	  "high: requests per second while another tenant had work; low: how often per second its gate was closed " \
	  "with work in flight") \
	X("UNREADY", 7, 8, false, format_percent(t->unready, false, s), \
	  "share of requests that arrived before the GPU was taken over for them") \
	X("MEMORY", 8, 6, false, (hb_bytes_format(t->memory, room), room), "GPU memory that the tenant has allocated") \
	X("AWAY", 8, 9, false, t->away ? (hb_bytes_format(t->away, room), room) : "-", \
	  "part of MEMORY that has moved to another GPU or to the host") \
	X("GATE", 6, 9, true, t->gate, "open: the tenant may launch; closed: it waits")

struct view_column {
	const char *title;
	int width, rank;
	bool left;
};

static const struct view_column columns[] = {
#define X(title, width, rank, left, text, help) {title, width, rank, left},
	COLUMNS(X)
#undef X
};

const struct hb_column_help hb_top_columns[HB_TOP_COLUMNS] = {
#define X(title, width, rank, left, text, help) {title, help},
	COLUMNS(X)
#undef X
		{"COMMAND", "the command without the folder of its program"},
	{"LP active",
	 "line of a GPU: share of the last 5 s in which low priority had it; ~: estimated, because it has no turns"},
	{"not managed", "line of a GPU: processes on it that belong to no tenant"},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)
_Static_assert(HB_TOP_COLUMNS == N_COLUMNS + 3, "every column has a help line");
#define COMMAND_LEAST 12

/* Returns the highest rank whose columns fit beside COMMAND_LEAST characters of the command. */
static int find_fitting_rank(int width)
{
	for (int rank = 9; rank > 0; rank--) {
		int needed = COMMAND_LEAST;
		for (size_t i = 0; i < N_COLUMNS; i++)
			needed += columns[i].rank <= rank ? columns[i].width + 1 : 0;
		if (needed <= width)
			return rank;
	}
	return 0;
}

static void put_cell(char line[HB_TOP_LINE_MAX], size_t *used, const struct view_column *column, const char *text)
{
	int written = snprintf(line + *used, HB_TOP_LINE_MAX - *used, "%*.*s ",
			       column->left ? -column->width : column->width, column->width, text);
	*used += written > 0 ? (size_t)written : 0;
}

static void emit_titles(struct view_page *page, int rank)
{
	char line[HB_TOP_LINE_MAX] = "";
	size_t used = 0;
	for (size_t i = 0; i < N_COLUMNS; i++)
		if (columns[i].rank <= rank)
			put_cell(line, &used, &columns[i], columns[i].title);
	snprintf(line + used, sizeof line - used, "COMMAND");
	emit_line(page, HB_TOP_HEAD, line);
}

/* Returns the command without the folder of its program. */
static const char *strip_folder(const char *command)
{
	const char *start = command;
	for (const char *at = command; *at && *at != ' '; at++)
		if (*at == '/' && at[1] && at[1] != ' ')
			start = at + 1;
	return start;
}

static void emit_tenant(struct view_page *page, int rank, const struct hb_top_tenant *t, bool selected)
{
	char line[HB_TOP_LINE_MAX] = "", s[16], room[HB_UNITS_TEXT_MAX];
	size_t used = 0, i = 0;
#define X(title, width, rank_, left, text, help) \
	if (columns[i].rank <= rank) \
		put_cell(line, &used, &columns[i], text); \
	i++;
	COLUMNS(X)
#undef X
	snprintf(line + used, sizeof line - used, "%s", strip_folder(t->command));
	emit_line(page, selected ? HB_TOP_SELECTED : is_late(t) ? HB_TOP_BAD : HB_TOP_PLAIN, line);
}

/* --- the list -------------------------------------------------------------------------------- */

static void emit_gpu(struct view_page *page, const struct hb_top_gpu *gpu, size_t number)
{
	char used[HB_UNITS_TEXT_MAX] = "?", total[HB_UNITS_TEXT_MAX] = "?", harvest[16], line[HB_TOP_LINE_MAX] = "";
	char history[HB_TOP_HISTORY_MAX];
	if (gpu->memory_total) {
		hb_bytes_format(gpu->memory_used, used);
		hb_bytes_format(gpu->memory_total, total);
	}
	format_percent(gpu->harvest, gpu->harvest_estimated, harvest);
	bool fits = add_part(line, page->width, "GPU %zu: %" PRIu32 " high, %" PRIu32 " low", number, gpu->high,
			     gpu->low);
	/* On a narrow screen the warning comes first. */
	if (gpu->not_managed)
		fits = fits && add_part(line, page->width, ", %" PRIu32 " not managed", gpu->not_managed);
	(void)(fits && add_part(line, page->width, ", LP active %s", harvest) &&
	       (gpu->not_managed || add_part(line, page->width, ", 0 not managed")) &&
	       add_part(line, page->width, "; %s of %s", used, total) &&
	       add_part(line, page->width, "; %s", gpu->engine) && add_part(line, page->width, ", %s", gpu->name));
	emit_line(page, gpu->not_managed ? HB_TOP_BAD : HB_TOP_PLAIN, line);
	if (*hb_top_history_gpu(gpu->json, page->width, history))
		emit_line(page, HB_TOP_SOFT, history);
	if (gpu->lost)
		emit_line(page, HB_TOP_BAD, "  LOST: the GPU does not answer the driver");
	if (*gpu->ejected)
		emit_format(page, HB_TOP_BAD, "  policy ejected: %s", gpu->ejected);
}

static void emit_daemon(struct view_page *page, const struct hb_top_model *model)
{
	const json_t *daemon = json_object_get(model->status, "daemon");
	const char *mps = json_string_value(json_object_get(json_object_get(daemon, "mps"), "state"));
	char over[16] = "", line[HB_TOP_LINE_MAX] = "";
	if (model->seconds > 0)
		format_time((int64_t)(model->seconds * 1e9), over);
	(void)(add_part(line, page->width, "hbd %lld", (long long)json_integer_value(json_object_get(daemon, "pid"))) &&
	       add_part(line, page->width, ", MPS %s", mps ? mps : "?") &&
	       add_part(line, page->width, ", %zu tenants", model->n_tenants) &&
	       add_part(line, page->width, ", rates: %s", *over ? over : "since each tenant started"));
	emit_line(page, HB_TOP_SOFT, line);
}

/* Whether the other engine would give low priority more, in a sentence of the daemon. */
static void emit_advice(struct view_page *page, const struct hb_top_tenant *tenant)
{
	char line[HB_TOP_LINE_MAX];
	const json_t *use;
	size_t i;
	json_array_foreach(json_object_get(tenant->json, "gpus"), i, use)
	{
		const char *advice = json_string_value(json_object_get(use, "engine_advice"));
		snprintf(line, sizeof line, "tenant %" PRIu32 ": %s", tenant->id, advice ? advice : "");
		if (advice && *advice)
			emit_wrapped(page, HB_TOP_SOFT, line);
	}
}

/* Returns the entry of the GPU that the tenant uses most. */
static const json_t *find_main_use(const struct hb_top_tenant *tenant)
{
	const json_t *uses = json_object_get(tenant->json, "gpus"), *use, *found = json_array_get(uses, 0);
	const char *key = tenant->high ? "requests" : "active_ns";
	size_t i;
	json_array_foreach(uses, i, use)
	{
		if (json_integer_value(json_object_get(use, key)) > json_integer_value(json_object_get(found, key)))
			found = use;
	}
	return found;
}

/* The latency of HP's requests in the last minutes. */
static void emit_latency_history(struct view_page *page, const struct hb_top_tenant *tenant)
{
	char history[HB_TOP_HISTORY_MAX], line[HB_TOP_HISTORY_MAX + 32];
	hb_top_history_tenant(tenant, find_main_use(tenant), "p99", page->width, history);
	snprintf(line, sizeof line, "tenant %" PRIu32 ": p99 %s", tenant->id, history);
	if (tenant->high && *history)
		emit_line(page, is_late(tenant) ? HB_TOP_BAD : HB_TOP_SOFT, line);
}

void hb_top_view_list(const struct hb_top_model *model, uint32_t selected, int width, hb_top_line *line, void *argument)
{
	struct view_page page = {width, line, argument, 0};
	int rank = find_fitting_rank(width);
	emit_daemon(&page, model);
	for (size_t i = 0; i < model->n_gpus; i++)
		emit_gpu(&page, &model->gpus[i], i);
	emit_titles(&page, rank);
	for (size_t i = 0; i < model->n_tenants; i++)
		emit_tenant(&page, rank, &model->tenants[i], model->tenants[i].id == selected);
	for (size_t i = 0; i < model->n_tenants; i++)
		emit_latency_history(&page, &model->tenants[i]);
	for (size_t i = 0; i < model->n_tenants; i++)
		emit_advice(&page, &model->tenants[i]);
}

/* --- one tenant --------------------------------------------------------------------------------- */

static int64_t read_bar(const json_t *bars, size_t bar, size_t which)
{
	return json_integer_value(json_array_get(json_array_get(bars, bar), which));
}

/* Sums `step` bars of the status, which one line shows together. */
static int64_t sum_bars(const json_t *bars, size_t first, size_t step)
{
	int64_t sum = 0;
	for (size_t i = first; i < first + step && i < json_array_size(bars); i++)
		sum += read_bar(bars, i, 1);
	return sum;
}

/* Emits the line of the SLO, between the bars below and above it. */
static void emit_objective(struct view_page *page, int64_t slo_ns)
{
	char line[HB_TOP_LINE_MAX], time[16];
	int room = page->width < HB_TOP_LINE_MAX ? page->width : HB_TOP_LINE_MAX - 1;
	int n = snprintf(line, sizeof line, "%8s ", format_time(slo_ns, time));
	memset(line + n, '-', sizeof line - (size_t)n);
	snprintf(line + (room - n > 14 ? room - 4 : n + 9), 5, " SLO");
	emit_line(page, HB_TOP_SOFT, line);
}

static void emit_bar(struct view_page *page, int64_t up_to_ns, int64_t count, int64_t most, bool late)
{
	char bar[HB_TOP_LINE_MAX] = "", time[16];
	int room = page->width - 22 > 4 ? page->width - 22 : 4;
	size_t length = (size_t)(count * room / most), limit = sizeof bar - 1;
	memset(bar, '#', length < limit ? length : limit);
	emit_format(page, late && count ? HB_TOP_BAD : HB_TOP_PLAIN, "%8s %9lld %s%s", format_time(up_to_ns, time),
		    (long long)count, bar, count && !length ? "." : "");
}

static void emit_histogram(struct view_page *page, const char *title, const json_t *hist, int64_t slo_ns, int height)
{
	const json_t *bars = json_object_get(hist, "buckets");
	size_t n = json_array_size(bars), lines = height > 4 ? (size_t)height - 2 : 2, step = (n + lines - 1) / lines;
	int64_t most = 1;
	bool late = slo_ns <= 0; /* the SLO's line has been emitted, or there is no SLO */
	if (n == 0) {
		emit_format(page, HB_TOP_SOFT, "%s: nothing yet", title);
		return;
	}
	emit_format(page, HB_TOP_HEAD, "%s: %lld samples", title,
		    (long long)json_integer_value(json_object_get(hist, "count")));
	for (size_t i = 0; i < n; i += step)
		most = sum_bars(bars, i, step) > most ? sum_bars(bars, i, step) : most;
	for (size_t i = 0; i < n; i += step) {
		size_t last = i + step < n ? i + step - 1 : n - 1;
		if (!late && read_bar(bars, last, 0) > slo_ns) {
			emit_objective(page, slo_ns);
			late = true;
		}
		emit_bar(page, read_bar(bars, last, 0), sum_bars(bars, i, step), most, late && slo_ns > 0);
	}
}

static void emit_mechanisms(struct view_page *page, const json_t *use)
{
	char line[HB_TOP_LINE_MAX];
	const json_t *entry;
	size_t i;
	json_array_foreach(json_object_get(use, "mechanisms"), i, entry)
	{
		const char *name = json_string_value(json_object_get(entry, "mechanism"));
		const char *why = json_string_value(json_object_get(entry, "why"));
		bool enforced = json_is_true(json_object_get(entry, "enforced"));
		snprintf(line, sizeof line, "%-14s %s: %s", name ? name : "?", enforced ? "enforced" : "not enforced",
			 why ? why : "");
		emit_wrapped(page, enforced ? HB_TOP_PLAIN : HB_TOP_BAD, line);
	}
}

static void emit_labelled(struct view_page *page, const char *label, const char *text)
{
	char line[HB_TOP_LINE_MAX];
	if (!*text)
		return;
	snprintf(line, sizeof line, "%-14s %s", label, text);
	emit_wrapped(page, HB_TOP_PLAIN, line);
}

static void emit_head(struct view_page *page, const struct hb_top_tenant *tenant)
{
	char line[HB_TOP_LINE_MAX] = "", slo[16], met[16], p50[16], p99[16], share[16];
	const char *reduced = json_string_value(json_object_get(tenant->json, "reduced"));
	emit_format(page, HB_TOP_HEAD, "tenant %" PRIu32 ", %s, %s: %s", tenant->id, tenant->priority, tenant->user,
		    strip_folder(tenant->command));
	format_percent(tenant->share, tenant->share_estimated, share);
	if (tenant->slo_ns)
		snprintf(line, sizeof line, "SLO %s for %.4g%%, met %s; ", format_slo(tenant, slo),
			 100 * tenant->target, format_percent(tenant->met, false, met));
	size_t used = strlen(line);
	if (tenant->high)
		snprintf(line + used, sizeof line - used, "p50 %s, p99 %s; share %s",
			 tenant->p50_ns ? format_time(tenant->p50_ns, p50) : "-",
			 tenant->p99_ns ? format_time(tenant->p99_ns, p99) : "-", share);
	else
		snprintf(line + used, sizeof line - used, "share %s, %.0f launches/s, gate %s", share,
			 tenant->launches_s, tenant->gate);
	emit_wrapped(page, is_late(tenant) ? HB_TOP_BAD : HB_TOP_PLAIN, line);
	snprintf(line, sizeof line, "got less than it asked for: %s", reduced ? reduced : "");
	if (reduced && *reduced)
		emit_wrapped(page, HB_TOP_BAD, line);
}

void hb_top_view_tenant(const struct hb_top_tenant *tenant, int width, int height, hb_top_line *line, void *argument)
{
	struct view_page page = {width, line, argument, 0};
	const json_t *use = find_main_use(tenant);
	size_t n_gpus = json_array_size(json_object_get(tenant->json, "gpus"));
	const char *uuid = json_string_value(json_object_get(use, "gpu"));
	char text[HB_STATUS_TEXT_MAX], history[HB_TOP_HISTORY_MAX];
	emit_head(&page, tenant);
	if (n_gpus > 1)
		emit_format(&page, HB_TOP_SOFT, "on %s, one of %zu", uuid ? uuid : "?", n_gpus);
	emit_mechanisms(&page, use);
	emit_labelled(&page, "missed", hb_status_format_misses(use, text));
	emit_labelled(&page, "takeovers", hb_status_format_takeovers(tenant->json, text));
	static const char *const drawn[] = {"share", "p50", "p99", "launches", "preemptions", "takeovers"};
	for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
		if (*hb_top_history_tenant(tenant, use, drawn[i], width, history))
			emit_format(&page, HB_TOP_PLAIN, "%-14s %s", drawn[i], history);
	emit_histogram(&page, tenant->high ? "latency of requests" : "waits at the gate",
		       json_object_get(use, tenant->high ? "latency" : "wait"), tenant->high ? tenant->slo_ns : 0,
		       height - page.lines);
}
