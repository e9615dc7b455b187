/* SPDX-License-Identifier: Apache-2.0 */
/* See top_view.h. */
#include "cli/top_view.h"

#include "base/units.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct page {
	int width;
	hb_top_line *line;
	void *argument;
};

static void emit(const struct page *page, enum hb_top_style style, const char *text)
{
	char cut[HB_TOP_LINE_MAX];
	size_t width = page->width < HB_TOP_LINE_MAX - 1 ? (size_t)page->width : HB_TOP_LINE_MAX - 1;
	size_t n = strnlen(text, width);
	memcpy(cut, text, n);
	while (n > 0 && cut[n - 1] == ' ')
		n--;
	cut[n] = '\0';
	page->line(page->argument, style, cut);
}

static void emit_format(const struct page *page, enum hb_top_style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void emit_format(const struct page *page, enum hb_top_style style, const char *format, ...)
{
	char text[HB_TOP_LINE_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	emit(page, style, text);
}

/* --- numbers ------------------------------------------------------------------------- */

/* Three digits: 850us, 2.35ms, 12.3s. */
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
 * X(title, width, rank, left, text): the columns with the highest rank are dropped
 * first where the line is too narrow; the command takes what is left. `text` is
 * made of `t`, with `s` for room.
 */
#define COLUMNS(X) \
	X("ID", 4, 0, false, (snprintf(s, 16, "%" PRIu32, t->id), s)) \
	X("PRIO", 4, 0, true, t->server ? "mps" : t->priority) \
	X("USER", 8, 9, true, t->user) \
	X("SLO", 7, 2, false, format_slo(t, s)) \
	X("MET", 6, 1, false, format_percent(t->met, false, s)) \
	X("REQ/S", 6, 3, false, t->high ? format_rate(t->requests_s, s) : "-") \
	X("P50", 7, 5, false, t->p50_ns ? format_time(t->p50_ns, s) : "-") \
	X("P99", 7, 2, false, t->p99_ns ? format_time(t->p99_ns, s) : "-") \
	X("SHARE", 6, 4, false, format_percent(t->share, t->share_estimated, s)) \
	X("LAUNCH/S", 8, 8, false, format_rate(t->launches_s, s)) \
	X("PREEMPT/S", 9, 7, false, format_rate(t->preemptions_s, s)) \
	X("UNHELD", 6, 8, false, format_percent(t->missed, false, s)) \
	X("MEMORY", 8, 6, false, (hb_bytes_format(t->memory, room), room)) \
	X("GATE", 6, 9, true, t->gate)

struct column {
	const char *title;
	int width, rank;
	bool left;
};

static const struct column columns[] = {
#define X(title, width, rank, left, text) {title, width, rank, left},
	COLUMNS(X)
#undef X
};
#define N_COLUMNS (sizeof columns / sizeof *columns)
#define COMMAND_LEAST 12

/* The highest rank that still fits beside a bit of the command. */
static int fitting_rank(int width)
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

static void put_cell(char line[HB_TOP_LINE_MAX], size_t *used, const struct column *column, const char *text)
{
	int written = snprintf(line + *used, HB_TOP_LINE_MAX - *used, "%*.*s ",
			       column->left ? -column->width : column->width, column->width, text);
	*used += written > 0 ? (size_t)written : 0;
}

static void emit_titles(const struct page *page, int rank)
{
	char line[HB_TOP_LINE_MAX] = "";
	size_t used = 0;
	for (size_t i = 0; i < N_COLUMNS; i++)
		if (columns[i].rank <= rank)
			put_cell(line, &used, &columns[i], columns[i].title);
	snprintf(line + used, sizeof line - used, "COMMAND");
	emit(page, HB_TOP_HEAD, line);
}

static void emit_tenant(const struct page *page, int rank, const struct hb_top_tenant *t, bool selected)
{
	char line[HB_TOP_LINE_MAX] = "", s[16], room[HB_UNITS_TEXT_MAX];
	size_t used = 0, i = 0;
#define X(title, width, rank_, left, text) \
	if (columns[i].rank <= rank) \
		put_cell(line, &used, &columns[i], text); \
	i++;
	COLUMNS(X)
#undef X
	snprintf(line + used, sizeof line - used, "%s", t->command);
	emit(page, selected ? HB_TOP_SELECTED : is_late(t) ? HB_TOP_BAD : HB_TOP_PLAIN, line);
}

/* --- the list -------------------------------------------------------------------------------- */

static void emit_gpu(const struct page *page, const struct hb_top_gpu *gpu, size_t number)
{
	char used[HB_UNITS_TEXT_MAX] = "?", total[HB_UNITS_TEXT_MAX] = "?", harvest[16];
	if (gpu->memory_total) {
		hb_bytes_format(gpu->memory_used, used);
		hb_bytes_format(gpu->memory_total, total);
	}
	emit_format(page, gpu->uncovered ? HB_TOP_BAD : HB_TOP_PLAIN,
		    "GPU %zu: %" PRIu32 " high, %" PRIu32 " low, low has it %s, %" PRIu32
		    " not covered; %s of %s; %s, %s",
		    number, gpu->high, gpu->low, format_percent(gpu->harvest, gpu->harvest_estimated, harvest),
		    gpu->uncovered, used, total, gpu->engine, gpu->name);
	if (*gpu->ejected)
		emit_format(page, HB_TOP_BAD, "  policy ejected: %s", gpu->ejected);
}

void hb_top_view_list(const struct hb_top_model *model, uint32_t selected, int width, hb_top_line *line, void *argument)
{
	const struct page page = {width, line, argument};
	const json_t *daemon = json_object_get(model->status, "daemon");
	const char *mps = json_string_value(json_object_get(json_object_get(daemon, "mps"), "state"));
	int rank = fitting_rank(width);
	char over[16] = "since each began";
	if (model->seconds > 0)
		format_time((int64_t)(model->seconds * 1e9), over);
	emit_format(&page, HB_TOP_SOFT, "hbd %lld, MPS %s, %zu tenants, rates: %s",
		    (long long)json_integer_value(json_object_get(daemon, "pid")), mps ? mps : "?", model->n_tenants,
		    model->seconds > 0 ? over : "since each began");
	for (size_t i = 0; i < model->n_gpus; i++)
		emit_gpu(&page, &model->gpus[i], i);
	emit_titles(&page, rank);
	for (size_t i = 0; i < model->n_tenants; i++)
		emit_tenant(&page, rank, &model->tenants[i], model->tenants[i].id == selected);
}

/* --- one tenant --------------------------------------------------------------------------------- */

static int64_t bar_number(const json_t *bars, size_t bar, size_t which)
{
	return json_integer_value(json_array_get(json_array_get(bars, bar), which));
}

/* `step` bars of the status together are one line here. */
static int64_t sum_bars(const json_t *bars, size_t first, size_t step)
{
	int64_t sum = 0;
	for (size_t i = first; i < first + step && i < json_array_size(bars); i++)
		sum += bar_number(bars, i, 1);
	return sum;
}

static void emit_histogram(const struct page *page, const char *title, const json_t *hist, int height)
{
	const json_t *bars = json_object_get(hist, "buckets");
	size_t n = json_array_size(bars), lines = height > 3 ? (size_t)height - 1 : 2, step = (n + lines - 1) / lines;
	int room = page->width - 22 > 4 ? page->width - 22 : 4;
	int64_t most = 1;
	char time[16];
	if (n == 0) {
		emit_format(page, HB_TOP_SOFT, "%s: nothing yet", title);
		return;
	}
	emit_format(page, HB_TOP_HEAD, "%s: %lld samples", title,
		    (long long)json_integer_value(json_object_get(hist, "count")));
	for (size_t i = 0; i < n; i += step)
		most = sum_bars(bars, i, step) > most ? sum_bars(bars, i, step) : most;
	for (size_t i = 0; i < n; i += step) {
		char bar[HB_TOP_LINE_MAX] = "";
		int64_t count = sum_bars(bars, i, step);
		size_t last = i + step < n ? i + step - 1 : n - 1;
		size_t length = (size_t)(count * room / most), limit = sizeof bar - 1;
		memset(bar, '#', length < limit ? length : limit);
		emit_format(page, HB_TOP_PLAIN, "%8s %9lld %s%s", format_time(bar_number(bars, last, 0), time),
			    (long long)count, bar, count && !length ? "." : "");
	}
}

static void emit_mechanisms(const struct page *page, const json_t *use)
{
	const json_t *entry;
	size_t i;
	json_array_foreach(json_object_get(use, "mechanisms"), i, entry)
	{
		const char *name = json_string_value(json_object_get(entry, "mechanism"));
		const char *why = json_string_value(json_object_get(entry, "why"));
		bool enforced = json_is_true(json_object_get(entry, "enforced"));
		emit_format(page, enforced ? HB_TOP_PLAIN : HB_TOP_SOFT, "%-14s %s: %s", name ? name : "?",
			    enforced ? "enforced" : "not enforced", why ? why : "");
	}
}

void hb_top_view_tenant(const struct hb_top_tenant *tenant, int width, int height, hb_top_line *line, void *argument)
{
	const struct page page = {width, line, argument};
	const json_t *use = json_array_get(json_object_get(tenant->json, "gpus"), 0);
	const char *reduced = json_string_value(json_object_get(tenant->json, "reduced"));
	char slo[16], met[16], p50[16], p99[16], share[16];
	emit_format(&page, HB_TOP_HEAD, "tenant %" PRIu32 ", %s, %s: %s", tenant->id, tenant->priority, tenant->user,
		    tenant->command);
	emit_format(&page, is_late(tenant) ? HB_TOP_BAD : HB_TOP_PLAIN,
		    "SLO %s for %.4g%%, met %s; p50 %s, p99 %s; share %s", format_slo(tenant, slo),
		    100 * tenant->target, format_percent(tenant->met, false, met),
		    tenant->p50_ns ? format_time(tenant->p50_ns, p50) : "-",
		    tenant->p99_ns ? format_time(tenant->p99_ns, p99) : "-",
		    format_percent(tenant->share, tenant->share_estimated, share));
	if (reduced && *reduced)
		emit_format(&page, HB_TOP_BAD, "got less than asked: %s", reduced);
	emit_mechanisms(&page, use);
	emit_histogram(&page, tenant->high ? "latency of requests" : "waits at the gate",
		       json_object_get(use, tenant->high ? "latency" : "wait"), height - 6);
}
