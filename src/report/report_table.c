/* SPDX-License-Identifier: Apache-2.0 */
/* The report's table of all modes; see report_parts.h. */
#include "report/report_parts.h"

#include "report/output.h"
#include "report/plot.h"

static void header_write(FILE *out, const struct hb_sim_result *first)
{
	fputs("<thead>\n<tr><td></td>", out);
	for (uint32_t i = 0; i < first->n_high; i++) {
		fputs("<th class=\"group\" colspan=\"5\" scope=\"colgroup\">", out);
		hb_svg_text(out, first->high[i].workload);
		fputs("</th>", out);
	}
	for (uint32_t i = 0; i < first->n_low; i++) {
		fputs("<th class=\"group\" colspan=\"2\" scope=\"colgroup\">", out);
		hb_svg_text(out, first->low[i].workload);
		fputs("</th>", out);
	}
	fputs("<td></td></tr>\n<tr><th scope=\"col\">sharing</th>", out);
	for (uint32_t i = 0; i < first->n_high; i++)
		fputs("<th class=\"first\" scope=\"col\">p50</th><th scope=\"col\">p90</th><th scope=\"col\">p99</th><th scope=\"col\">max</th>"
		      "<th scope=\"col\">in SLO</th>",
		      out);
	for (uint32_t i = 0; i < first->n_low; i++)
		fputs("<th class=\"first\" scope=\"col\">it/s</th><th scope=\"col\">of alone</th>", out);
	fputs("<th class=\"first\" scope=\"col\">GPU busy</th></tr>\n</thead>\n", out);
}

static void cell(FILE *out, const char *class, double value, bool known)
{
	fprintf(out, "<td%s>", class);
	if (known)
		hb_svg_number(out, value);
	else
		fputs("&#8211;", out);
	fputs("</td>", out);
}

static void share_cell(FILE *out, const char *class, double share)
{
	fprintf(out, "<td%s>%.1f&#8239;%%</td>", class, 100 * share);
}

static void high_write(FILE *out, const struct hb_sim_high *high)
{
	bool known = high->requests > 0;
	cell(out, " class=\"first\"", (double)high->p50_ns / 1e6, known);
	cell(out, "", (double)high->p90_ns / 1e6, known);
	cell(out, "", (double)high->p99_ns / 1e6, known);
	cell(out, "", (double)high->max_ns / 1e6, known);
	if (known && high->slo_ns > 0)
		share_cell(out, high->attainment < HB_SIM_SLO_KEPT ? " class=\"missed\"" : "", high->attainment);
	else
		cell(out, "", 0, false);
}

static void row_write(FILE *out, const struct hb_sim_result *result, const struct hb_series_style *style)
{
	fprintf(out, "<tr><th scope=\"row\"><svg class=\"c%u\" width=\"34\" height=\"12\" aria-hidden=\"true\">",
		style->color);
	hb_svg_key(out, style, 0, 6, 34);
	fputs("</svg> ", out);
	hb_svg_text(out, result->sharing);
	fputs("</th>", out);
	for (uint32_t i = 0; i < result->n_high; i++)
		high_write(out, &result->high[i]);
	for (uint32_t i = 0; i < result->n_low; i++) {
		cell(out, " class=\"first\"", result->low[i].iterations_per_s, true);
		share_cell(out, "", result->low[i].relative);
	}
	share_cell(out, " class=\"first\"", result->gpu_busy);
	fputs("</tr>\n", out);
}

void hb_report_table_write(FILE *out, const struct hb_sim_result *results, size_t n)
{
	/* Columns; beyond, the table is set closer. */
	bool wide = 5 * results[0].n_high + 2 * results[0].n_low > 10;
	fputs(wide ? "<table class=\"wide\">\n" : "<table>\n", out);
	header_write(out, &results[0]);
	fputs("<tbody>\n", out);
	for (size_t i = 0; i < n; i++) {
		struct hb_series_style style = hb_plot_style(results, n, i);
		row_write(out, &results[i], &style);
	}
	fputs("</tbody>\n</table>", out);
}
