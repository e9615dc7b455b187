/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report: report.html.in with its {{parts}} filled in; see output.h. One
 * file without references to anything else, the same bytes for the same run.
 * Style sheets, script and template are embedded at build time (embed.py).
 */
#include "report/output.h"

#include "report/plot.h"
#include "report/report_parts.h"
#include "report_assets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void names_join(FILE *out, const char *name, uint32_t i, uint32_t n)
{
	if (i > 0)
		fputs(i + 1 == n ? " and " : ", ", out);
	hb_svg_text(out, name);
}

static int title_write(FILE *out, const struct hb_report *report)
{
	const struct hb_sim_result *first = &report->results[0];
	for (uint32_t i = 0; i < first->n_high; i++)
		names_join(out, first->high[i].workload, i, first->n_high);
	if (first->n_high && first->n_low)
		fputs(" beside ", out);
	for (uint32_t i = 0; i < first->n_low; i++)
		names_join(out, first->low[i].workload, i, first->n_low);
	fputs(" on one ", out);
	hb_svg_text(out, first->gpu);
	return 0;
}

static int command_write(FILE *out, const struct hb_report *report)
{
	hb_svg_text(out, report->command);
	return 0;
}

static int facts_write(FILE *out, const struct hb_report *report)
{
	const struct hb_sim_result *first = &report->results[0];
	fputs("<div><dt>GPU</dt><dd>", out);
	hb_svg_text(out, first->gpu);
	fprintf(out, ", simulated</dd></div><div><dt>time</dt><dd>%g s</dd></div><div><dt>seed</dt><dd>%llu</dd></div>",
		first->seconds, (unsigned long long)first->seed);
	for (uint32_t i = 0; i < first->n_high; i++) {
		const struct hb_sim_high *high = &first->high[i];
		fputs("<div><dt>", out);
		hb_svg_text(out, high->workload);
		fputs("</dt><dd>", out);
		if (high->rate_per_s > 0)
			fprintf(out, "%.6g requests/s", high->rate_per_s);
		else
			fputs("one request after the other", out);
		if (high->slo_ns > 0)
			fprintf(out, ", SLO %.2f ms", (double)high->slo_ns / 1e6);
		fputs("</dd></div>", out);
	}
	return 0;
}

static int reading_write(FILE *out, const struct hb_report *report)
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	if (!memory)
		return -ENOMEM;
	hb_result_reading_write(memory, report->results, report->n);
	if (fclose(memory) == 0 && size > 0) {
		fputs("<p class=\"reading\">", out);
		hb_svg_text(out, text);
		fputs("</p>", out);
	}
	free(text);
	return 0;
}

static int table_write(FILE *out, const struct hb_report *report)
{
	hb_report_table_write(out, report->results, report->n);
	return 0;
}

static int scatter_write(FILE *out, const struct hb_report *report)
{
	if (!hb_plot_scatter_possible(report->results, report->n))
		return 0;
	fputs("<section class=\"whole\">\n<h2>What each way of sharing gives to both sides</h2>\n"
	      "<p class=\"soft\">Up: more requests within the SLO, on a scale "
	      "stretched towards all of them. To the right: faster low-priority programs.</p>\n<figure>\n",
	      out);
	hb_plot_scatter_write(out, report->results, report->n, "", NULL);
	fputs("</figure>\n</section>\n", out);
	return 0;
}

static int cdfs_write(FILE *out, const struct hb_report *report)
{
	for (uint32_t i = 0; i < report->results[0].n_high; i++) {
		fputs("<section class=\"whole\">\n<h2>Latency of ", out);
		hb_svg_text(out, report->results[0].high[i].workload);
		fputs("</h2>\n<p class=\"soft\">The share of requests done within a time; further left is better. Equal steps on the vertical axis are "
		      "90&#8239;%, 99&#8239;% and 99.9&#8239;%, because a service is judged by its slowest requests."
		      "<span class=\"screen\"> Point at a name to see its line alone.</span></p>\n<figure>\n",
		      out);
		hb_plot_cdf_write(out, report->results, report->n, i, "");
		fputs("</figure>\n</section>\n", out);
	}
	return 0;
}

static int timeline_write(FILE *out, const struct hb_report *report)
{
	return hb_report_timeline_write(out, report);
}

static int plot_css_write(FILE *out, const struct hb_report *report)
{
	return fputs(plot_css, out) < 0 ? -EIO : 0;
}

static int report_css_write(FILE *out, const struct hb_report *report)
{
	return fputs(report_css, out) < 0 ? -EIO : 0;
}

static int report_js_write(FILE *out, const struct hb_report *report)
{
	return fputs(report_js, out) < 0 ? -EIO : 0;
}

static const struct part {
	const char *name;
	int (*write)(FILE *out, const struct hb_report *report);
} parts[] = {
	{"title", title_write},         {"command", command_write},
	{"facts", facts_write},         {"reading", reading_write},
	{"table", table_write},         {"scatter", scatter_write},
	{"cdfs", cdfs_write},           {"timeline", timeline_write},
	{"plot.css", plot_css_write},   {"report.css", report_css_write},
	{"report.js", report_js_write},
};

static int part_write(FILE *out, const char *name, size_t length, const struct hb_report *report)
{
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (strlen(parts[i].name) == length && strncmp(parts[i].name, name, length) == 0)
			return parts[i].write(out, report);
	return -EINVAL;
}

int hb_report_write(FILE *out, const struct hb_report *report, struct hb_error *error)
{
	const char *rest = report_html;
	if (report->n == 0 || report->n > HB_SIM_RESULTS_MAX)
		return hb_error_set(error, -EINVAL, "a report shows 1 to %d modes, not %zu", HB_SIM_RESULTS_MAX,
				    report->n);
	for (const char *open; (open = strstr(rest, "{{"));) {
		const char *name = open + 2;
		const char *close = strstr(name, "}}");
		fwrite(rest, 1, (size_t)(open - rest), out);
		int rc = close ? part_write(out, name, (size_t)(close - name), report) : -EINVAL;
		if (rc)
			return hb_error_set(error, rc, "cannot write the report: %s at '%.20s'", strerror(-rc), open);
		rest = close + 2;
	}
	fputs(rest, out);
	return 0;
}

int hb_plot_svg_write(FILE *out, const struct hb_sim_result *results, size_t n, struct hb_error *error)
{
	if (!hb_plot_scatter_possible(results, n))
		return hb_error_set(error, -EINVAL,
				    "nothing to plot: give a --high program with an SLO and a --low program");
	hb_plot_scatter_write(out, results, n, "", plot_css);
	return 0;
}
