/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the Prometheus text format; see prom_text.h. */
#include "base/prom_text.h"

#include "base/clock.h"
#include "base/hist.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

const int64_t hb_prom_bounds_ns[HB_PROM_BOUNDS] = {
	10000,    25000,    50000,     100000,    250000,    500000,     1000000,    2500000,    5000000,     10000000,
	25000000, 50000000, 100000000, 250000000, 500000000, 1000000000, 2500000000, 5000000000, 10000000000,
};

static const char *unit_suffix(const char *unit)
{
	if (strcmp(unit, "ns") == 0)
		return "_seconds";
	return strcmp(unit, "bytes") == 0 ? "_bytes" : "";
}

char *hb_prom_counter_name(const char *area, const struct hb_counter_info *info, char name[static HB_PROM_NAME_MAX])
{
	snprintf(name, HB_PROM_NAME_MAX, "hb_%s_%s%s_total", area, info->name, unit_suffix(info->unit));
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

/* The escapes of the format, and a cut that never splits one. */
static size_t escape(char *to, size_t size, const char *from)
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
	n += escape(to + n, size - n - 1, value);
	to[n++] = '"';
	to[n] = '\0';
	return n;
}

static void head(FILE *out, const char *name, const char *labels)
{
	fputs(name, out);
	if (*labels) {
		putc('{', out);
		fputs(labels, out);
		putc('}', out);
	}
	putc(' ', out);
}

void hb_prom_count(FILE *out, const char *name, const char *labels, uint64_t value)
{
	head(out, name, labels);
	fprintf(out, "%" PRIu64 "\n", value);
}

static void write_seconds(FILE *out, uint64_t value_ns)
{
	fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", value_ns / HB_NS_PER_S, value_ns % HB_NS_PER_S);
}

void hb_prom_seconds(FILE *out, const char *name, const char *labels, uint64_t value_ns)
{
	head(out, name, labels);
	write_seconds(out, value_ns);
}

void hb_prom_ratio(FILE *out, const char *name, const char *labels, uint64_t ppm)
{
	head(out, name, labels);
	fprintf(out, "%" PRIu64 ".%06" PRIu64 "\n", ppm / 1000000, ppm % 1000000);
}

void hb_prom_counter(FILE *out, const char *name, const char *labels, const struct hb_counter_info *info,
		     uint64_t value)
{
	if (strcmp(info->unit, "ns") == 0)
		hb_prom_seconds(out, name, labels, value);
	else
		hb_prom_count(out, name, labels, value);
}

void hb_prom_histogram(FILE *out, const char *name, const char *labels, const struct hb_hist *hist)
{
	uint64_t at_most[HB_PROM_BOUNDS] = {0};
	const char *comma = *labels ? "," : "";
	if (hist)
		hb_hist_cumulate(hist, hb_prom_bounds_ns, HB_PROM_BOUNDS, at_most);
	for (size_t i = 0; i < HB_PROM_BOUNDS; i++)
		fprintf(out, "%s_bucket{%s%sle=\"%.10g\"} %" PRIu64 "\n", name, labels, comma,
			(double)hb_prom_bounds_ns[i] / HB_NS_PER_S, at_most[i]);
	fprintf(out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, hist ? hist->count : 0);
	fprintf(out, "%s_sum%s%s%s ", name, *labels ? "{" : "", labels, *labels ? "}" : "");
	write_seconds(out, hist ? hist->sum_ns : 0);
	fprintf(out, "%s_count%s%s%s %" PRIu64 "\n", name, *labels ? "{" : "", labels, *labels ? "}" : "",
		hist ? hist->count : 0);
}
