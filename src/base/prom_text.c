/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the Prometheus text format; see prom_text.h. */
#include "base/prom_text.h"

#include "base/clock.h"
#include "base/hist.h"

#include <stdbool.h>
#include <string.h>

const int64_t hb_prom_bounds_ns[HB_PROM_BOUNDS] = {
	10000,    25000,    50000,     100000,    250000,    500000,     1000000,    2500000,    5000000,     10000000,
	25000000, 50000000, 100000000, 250000000, 500000000, 1000000000, 2500000000, 5000000000, 10000000000,
};

static const char *find_unit_suffix(const char *unit)
{
	if (strcmp(unit, "ns") == 0)
		return "_seconds";
	return strcmp(unit, "bytes") == 0 ? "_bytes" : "";
}

char *hb_prom_counter_name(const char *area, const struct hb_counter_info *info, char name[static HB_PROM_NAME_MAX])
{
	snprintf(name, HB_PROM_NAME_MAX, "hb_%s_%s%s_total", area, info->name, find_unit_suffix(info->unit));
	return name;
}

void hb_prom_family(FILE *out, const char *name, enum hb_prom_type type, const char *help)
{
	static const char *const types[] = {
		[HB_PROM_COUNTER] = "counter",
		[HB_PROM_GAUGE] = "gauge",
		[HB_PROM_HISTOGRAM] = "histogram",
	};
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

/* Escapes a text as the format demands. A cut never splits an escape. */
static size_t escape_label(char *to, size_t size, const char *from)
{
	size_t n = 0;
	for (; *from; from++) {
		bool special = *from == '\\' || *from == '"' || *from == '\n';
		if (n + special + 1 >= size)
			break;
		if (special)
			to[n++] = '\\';
		to[n++] = *from;
		if (*from == '\n')
			to[n - 1] = 'n';
	}
	to[n] = '\0';
	return n;
}

size_t hb_prom_label(char *to, size_t size, const char *name, const char *value)
{
	size_t n = strlen(name);
	if (n + 4 >= size) {
		if (size)
			to[0] = '\0';
		return 0;
	}
	memcpy(to, name, n);
	to[n++] = '=';
	to[n++] = '"';
	n += escape_label(to + n, size - n - 1, value);
	to[n++] = '"';
	to[n] = '\0';
	return n;
}

static void write_name(FILE *out, const char *name, const char *labels)
{
	fputs(name, out);
	if (*labels) {
		putc('{', out);
		fputs(labels, out);
		putc('}', out);
	}
	putc(' ', out);
}

/* Writes at least `digits` digits. A scrape has thousands of numbers, and printf would take most of the time. */
static void write_number(FILE *out, uint64_t value, int digits)
{
	char text[24];
	size_t at = sizeof text;
	text[--at] = '\0';
	for (; value || digits > 0; digits--, value /= 10)
		text[--at] = (char)('0' + value % 10);
	fputs(text + at, out);
}

static void write_line(FILE *out, uint64_t value)
{
	write_number(out, value, 1);
	putc('\n', out);
}

void hb_prom_count(FILE *out, const char *name, const char *labels, uint64_t value)
{
	write_name(out, name, labels);
	write_line(out, value);
}

static void write_seconds(FILE *out, uint64_t value_ns)
{
	write_number(out, value_ns / HB_NS_PER_S, 1);
	putc('.', out);
	write_number(out, value_ns % HB_NS_PER_S, 9);
	putc('\n', out);
}

void hb_prom_seconds(FILE *out, const char *name, const char *labels, uint64_t value_ns)
{
	write_name(out, name, labels);
	write_seconds(out, value_ns);
}

void hb_prom_ratio(FILE *out, const char *name, const char *labels, uint64_t ppm)
{
	write_name(out, name, labels);
	write_number(out, ppm / 1000000, 1);
	putc('.', out);
	write_number(out, ppm % 1000000, 6);
	putc('\n', out);
}

void hb_prom_counter(FILE *out, const char *name, const char *labels, const struct hb_counter_info *info,
		     uint64_t value)
{
	if (strcmp(info->unit, "ns") == 0)
		hb_prom_seconds(out, name, labels, value);
	else
		hb_prom_count(out, name, labels, value);
}

static void write_bucket(FILE *out, const char *name, const char *labels, const char *bound, uint64_t count)
{
	fputs(name, out);
	fputs("_bucket{", out);
	fputs(labels, out);
	fputs(*labels ? ",le=\"" : "le=\"", out);
	fputs(bound, out);
	fputs("\"} ", out);
	write_line(out, count);
}

void hb_prom_histogram(FILE *out, const char *name, const char *labels, const struct hb_hist *hist)
{
	static const char *const bounds[HB_PROM_BOUNDS] = {
		"1e-05", "2.5e-05", "5e-05", "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01",
		"0.025", "0.05",    "0.1",   "0.25",   "0.5",     "1",      "2.5",   "5",      "10",
	};
	uint64_t at_most[HB_PROM_BOUNDS] = {0};
	char full[HB_PROM_NAME_MAX];
	if (hist)
		hb_hist_cumulate(hist, hb_prom_bounds_ns, HB_PROM_BOUNDS, at_most);
	for (size_t i = 0; i < HB_PROM_BOUNDS; i++)
		write_bucket(out, name, labels, bounds[i], at_most[i]);
	write_bucket(out, name, labels, "+Inf", hist ? hist->count : 0);
	snprintf(full, sizeof full, "%s_sum", name);
	hb_prom_seconds(out, full, labels, hist ? hist->sum_ns : 0);
	snprintf(full, sizeof full, "%s_count", name);
	hb_prom_count(out, full, labels, hist ? hist->count : 0);
}
