/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of plots: bench.html.in with its {{parts}} filled in; see
 * bench_output.h. The plots are those of `hb sim`'s report, which get pooled
 * results in the form they know.
 */
#include "bench/bench_output.h"
#include "bench/bench_overall.h"
#include "bench_assets.h"
#include "report/output.h"
#include "report/plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void text_write(FILE *out, const char *tag, const char *text)
{
	fprintf(out, "<%s>", tag);
	hb_svg_text(out, text);
	fprintf(out, "</%.*s>", (int)strcspn(tag, " "), tag);
}

static int title_write(FILE *out, const struct hb_bench_result *result)
{
	hb_svg_text(out, result->suite);
	fputs(" on ", out);
	hb_svg_text(out, result->gpu);
	return 0;
}

static int command_write(FILE *out, const struct hb_bench_result *result)
{
	hb_svg_text(out, result->command);
	return 0;
}

static void fact_write(FILE *out, const char *name, const char *value)
{
	fputs("<div>", out);
	text_write(out, "dt", name);
	text_write(out, "dd", value);
	fputs("</div>", out);
}

static int facts_write(FILE *out, const struct hb_bench_result *result)
{
	fact_write(out, "GPU", result->gpu);
	fact_write(out, "driver", result->driver);
	fact_write(out, "machine", result->machine);
	fact_write(out, "commit", result->version);
	fact_write(out, "time", result->time);
	return 0;
}

static int rounds_write(FILE *out, const struct hb_bench_result *result)
{
	fprintf(out, "%u rounds with windows of %g s", result->rounds, result->seconds);
	return 0;
}

/* --- numbers ----------------------------------------------------------------------------------------- */

static void number_write(FILE *out, double value, double scale)
{
	if (isnan(value))
		fputs("&#8211;", out);
	else
		hb_svg_number(out, value * scale);
}

/* "12.3 [12.1, 12.6]"; the interval in a softer colour. */
static void estimate_write(FILE *out, const char *class, const struct hb_bench_estimate *estimate, double scale)
{
	fprintf(out, "<td%s>", class);
	number_write(out, estimate->value, scale);
	if (!isnan(estimate->low) || !isnan(estimate->high)) {
		fputs(" <span class=\"soft\">[", out);
		number_write(out, estimate->low, scale);
		fputs(", ", out);
		number_write(out, estimate->high, scale);
		fputs("]</span>", out);
	}
	fputs("</td>", out);
}

static void plain_cell(FILE *out, double value, double scale, const char *unit)
{
	fputs("<td>", out);
	number_write(out, value, scale);
	if (!isnan(value))
		fputs(unit, out);
	fputs("</td>", out);
}

static void name_cell(FILE *out, const struct hb_bench_outcome *outcome, int cell)
{
	text_write(out, "td", cell < 0 ? "none" : outcome->cells[cell].sharing);
}

/* --- headline -------------------------------------------------------------------------------------------- */

static void overall_row(FILE *out, const struct hb_bench_overall_row *row)
{
	fputs("<tr>", out);
	text_write(out, "th scope=\"row\"", row->sharing);
	fprintf(out, "<td>%u</td>", row->cases);
	plain_cell(out, row->attainment, 100, "&#8239;%");
	plain_cell(out, row->least, 100, "&#8239;%");
	plain_cell(out, row->drop, 100, " points");
	plain_cell(out, row->against_spatial, 1, "&#215;");
	plain_cell(out, row->against_temporal, 1, "&#215;");
	plain_cell(out, row->low, 100, "&#8239;%");
	plain_cell(out, row->low_against_temporal, 1, "&#215;");
	fputs("</tr>\n", out);
}

static void overall_head(FILE *out, const struct hb_bench_overall *overall, const char *what, int row)
{
	fprintf(out, "<th scope=\"col\">%s of ", what);
	hb_svg_text(out, row < 0 ? "none" : overall->rows[row].sharing);
	fputs("</th>", out);
}

/* One way of sharing for all cases, so that none is chosen for its best one. */
static int overall_write(FILE *out, const struct hb_bench_result *result)
{
	struct hb_bench_overall overall;
	int code = hb_bench_overall_init(&overall, result);
	if (code)
		return code;
	fputs("<table>\n<thead><tr><th scope=\"col\">all cases</th><th scope=\"col\">cases</th>"
	      "<th scope=\"col\">attainment</th><th scope=\"col\">least</th>"
	      "<th scope=\"col\">below exclusive</th>",
	      out);
	overall_head(out, &overall, "attainment", overall.spatial);
	overall_head(out, &overall, "attainment", overall.temporal);
	fputs("<th scope=\"col\">low priority, of alone</th>", out);
	overall_head(out, &overall, "low priority", overall.temporal);
	fputs("</tr></thead>\n<tbody>\n", out);
	for (unsigned i = 0; i < overall.n; i++)
		overall_row(out, &overall.rows[i]);
	fputs("</tbody>\n</table>", out);
	return 0;
}

/* One point a way of sharing that was measured in all cases: means. Nothing with a single case, whose own plot says it. */
static int overall_plot_write(FILE *out, const struct hb_bench_result *result)
{
	struct hb_bench_overall overall;
	struct hb_sim_result *plots = calloc(HB_BENCH_SHARINGS_MAX, sizeof *plots);
	int code = plots ? hb_bench_overall_init(&overall, result) : -ENOMEM;
	unsigned n = 0;
	for (unsigned i = 0; !code && overall.cases > 1 && i < overall.n; i++) {
		const struct hb_bench_overall_row *row = &overall.rows[i];
		struct hb_sim_result *plot = &plots[n];
		if (row->cases < overall.cases || isnan(row->low) || isnan(row->attainment))
			continue;
		n++;
		*plot = (struct hb_sim_result){.n_high = 1, .n_low = 1};
		snprintf(plot->sharing, sizeof plot->sharing, "%s", row->sharing);
		snprintf(plot->high[0].workload, sizeof plot->high[0].workload, "mean of %u cases", overall.cases);
		snprintf(plot->low[0].workload, sizeof plot->low[0].workload, "low priority, mean");
		plot->high[0].slo_ns = plot->high[0].requests = 1;
		plot->high[0].attainment = row->attainment;
		plot->low[0].relative = row->low;
	}
	if (n > 1) {
		fputs("<figure>\n", out);
		hb_plot_scatter_write(out, plots, n, "all-", NULL);
		fputs("</figure>\n", out);
	}
	free(plots);
	return code;
}

static int headline_row(FILE *out, const struct hb_bench_outcome *outcome, unsigned rounds)
{
	struct hb_bench_headline line;
	struct hb_bench_summary *summary = malloc(sizeof *summary);
	if (!summary || hb_bench_summary_init(summary, outcome, rounds)) {
		free(summary);
		return -ENOMEM;
	}
	hb_bench_headline_of(outcome, summary, &line);
	if (line.ours >= 0) {
		fputs("<tr>", out);
		text_write(out, "th scope=\"row\"", outcome->name);
		name_cell(out, outcome, line.ours);
		plain_cell(out, summary->cells[line.ours].worst_attainment, 100, "&#8239;%");
		plain_cell(out, line.drop, 100, " points");
		name_cell(out, outcome, line.spatial);
		plain_cell(out, line.against_spatial, 1, "&#215;");
		name_cell(out, outcome, line.temporal);
		plain_cell(out, line.against_temporal, 1, "&#215;");
		plain_cell(out, line.low_against_temporal, 1, "&#215;");
		fputs("</tr>\n", out);
	}
	hb_bench_summary_fini(summary);
	free(summary);
	return 0;
}

static int headline_write(FILE *out, const struct hb_bench_result *result)
{
	int code = 0;
	fputs("<table>\n<thead><tr><th scope=\"col\">case</th><th scope=\"col\">engine</th><th scope=\"col\">attainment</th>"
	      "<th scope=\"col\">below exclusive</th><th scope=\"col\">best spatial</th><th scope=\"col\">attainment of it</th>"
	      "<th scope=\"col\">best temporal</th><th scope=\"col\">attainment of it</th>"
	      "<th scope=\"col\">low priority of it</th></tr></thead>\n<tbody>\n",
	      out);
	for (unsigned i = 0; i < result->n_cases && !code; i++)
		if (result->cases[i].n_cells && result->cases[i].n_low)
			code = headline_row(out, &result->cases[i], result->rounds);
	fputs("</tbody>\n</table>", out);
	return code;
}

/* --- a case ------------------------------------------------------------------------------------------------ */

/* Pooled over rounds, as the plots of `hb sim` know results. Latencies still belong to the summary. */
static void plot_fill(const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary, unsigned index,
		      struct hb_sim_result *plot)
{
	const struct hb_bench_cell_summary *cell = &summary->cells[index];
	*plot = (struct hb_sim_result){.n_high = outcome->n_high, .n_low = outcome->n_low};
	snprintf(plot->sharing, sizeof plot->sharing, "%s", outcome->cells[index].sharing);
	for (unsigned i = 0; i < outcome->n_high; i++) {
		const struct hb_bench_high_summary *from = &cell->high[i];
		struct hb_sim_high *to = &plot->high[i];
		snprintf(to->workload, sizeof to->workload, "%.79s", outcome->high[i]);
		to->requests = from->n;
		to->latency_ns = from->all_ns;
		to->slo_ns = summary->slo_ns[i];
		to->attainment = isnan(from->attainment.value) ? 1 : from->attainment.value;
		to->p50_ns = from->n ? (int64_t)(from->p50_us.value * 1e3 + 0.5) : 0;
		to->p99_ns = from->n ? (int64_t)(from->p99_us.value * 1e3 + 0.5) : 0;
		to->max_ns = from->n ? from->all_ns[from->n - 1] : 0;
	}
	for (unsigned i = 0; i < outcome->n_low; i++) {
		snprintf(plot->low[i].workload, sizeof plot->low[i].workload, "%.79s", outcome->low[i]);
		plot->low[i].iterations_per_s = cell->low[i].per_s;
		plot->low[i].relative = cell->low[i].relative.value;
	}
}

static void table_head(FILE *out, const struct hb_bench_outcome *outcome)
{
	fputs("<table>\n<thead><tr><th scope=\"col\">sharing</th>", out);
	if (outcome->n_high > 1)
		fputs("<th scope=\"col\">service</th>", out);
	fputs("<th scope=\"col\">measured</th><th scope=\"col\">p50 &#181;s</th><th scope=\"col\">p99 &#181;s</th>"
	      "<th scope=\"col\">max &#181;s</th><th scope=\"col\">in SLO %</th>",
	      out);
	if (outcome->n_low)
		fputs("<th scope=\"col\">low, % of alone</th>", out);
	fputs("</tr></thead>\n<tbody>\n", out);
}

static void table_row(FILE *out, const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
		      unsigned index, unsigned high, const struct hb_series_style *style)
{
	const struct hb_bench_high_summary *of = &summary->cells[index].high[high];
	fprintf(out, "<tr><th scope=\"row\"><svg class=\"c%u\" width=\"34\" height=\"12\" aria-hidden=\"true\">",
		style->color);
	hb_svg_key(out, style, 0, 6, 34);
	fputs("</svg> ", out);
	hb_svg_text(out, outcome->cells[index].sharing);
	fputs("</th>", out);
	if (outcome->n_high > 1)
		text_write(out, "td", outcome->high[high]);
	fprintf(out, "<td>%llu</td>", (unsigned long long)of->seen);
	estimate_write(out, "", &of->p50_us, 1);
	estimate_write(out, "", &of->p99_us, 1);
	plain_cell(out, of->max_us, 1, "");
	estimate_write(out, of->attainment.value < HB_SIM_SLO_KEPT ? " class=\"missed\"" : "", &of->attainment, 100);
	if (outcome->n_low && high == 0)
		estimate_write(out, "", &summary->cells[index].mean_relative, 100);
	else if (outcome->n_low)
		fputs("<td></td>", out);
	fputs("</tr>\n", out);
}

static void table_write(FILE *out, const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
			const struct hb_sim_result *plots)
{
	fputs("<div class=\"scroll\">", out);
	table_head(out, outcome);
	for (unsigned c = 0; c < outcome->n_cells; c++) {
		struct hb_series_style style = hb_plot_style(plots, outcome->n_cells, c);
		for (unsigned i = 0; i < outcome->n_high; i++)
			table_row(out, outcome, summary, c, i, &style);
	}
	fputs("</tbody>\n</table></div>\n", out);
}

static bool speeds_known(const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary)
{
	for (unsigned c = 0; c < outcome->n_cells; c++)
		for (unsigned i = 0; i < outcome->n_low; i++)
			if (isnan(summary->cells[c].low[i].relative.value))
				return false;
	return true;
}

static void plots_write(FILE *out, const struct hb_bench_outcome *outcome, const struct hb_bench_summary *summary,
			const struct hb_sim_result *plots, const char *id)
{
	if (speeds_known(outcome, summary) && hb_plot_scatter_possible(plots, outcome->n_cells)) {
		fputs("<figure>\n", out);
		hb_plot_scatter_write(out, plots, outcome->n_cells, id, NULL);
		fputs("</figure>\n", out);
	}
	for (unsigned i = 0; i < outcome->n_high; i++) {
		fputs("<figure>\n", out);
		hb_plot_cdf_write(out, plots, outcome->n_cells, i, id);
		fputs("</figure>\n", out);
	}
}

static void case_head(FILE *out, const struct hb_bench_outcome *outcome, unsigned rounds, bool simulated)
{
	fputs("<section class=\"whole\">\n", out);
	text_write(out, "h2", outcome->name);
	fputs("<p class=\"soft\">", out);
	for (unsigned i = 0; i < outcome->n_high; i++) {
		fputs(i ? ", " : "", out);
		hb_svg_text(out, outcome->high[i]);
		fputs(" (", out);
		hb_svg_text(out, outcome->arrivals[i]);
		fputs(")", out);
	}
	for (unsigned i = 0; i < outcome->n_low; i++) {
		fputs(i ? ", " : " beside ", out);
		hb_svg_text(out, outcome->low[i]);
	}
	fputs(strcmp(outcome->world, "virtual") == 0 ? "; recorded programs in virtual time"
	      : simulated && !*outcome->skipped      ? "; real processes over a simulated GPU, in real time"
						     : "",
	      out);
	if (*outcome->unfinished) {
		fputs("; ", out);
		hb_svg_text(out, outcome->unfinished);
	} else if (outcome->rounds && outcome->rounds < rounds) {
		fprintf(out, "; %u rounds only, the time was over", outcome->rounds);
	}
	fputs("</p>\n", out);
}

static void dropped_write(FILE *out, const struct hb_bench_outcome *outcome)
{
	for (unsigned i = 0; i < outcome->n_dropped; i++) {
		fputs("<p>", out);
		hb_svg_text(out, outcome->dropped[i].sharing);
		fputs(" failed: ", out);
		hb_svg_text(out, outcome->dropped[i].why);
		fputs("</p>\n", out);
	}
}

static int case_write(FILE *out, const struct hb_bench_result *result, unsigned index)
{
	char id[16];
	const struct hb_bench_outcome *outcome = &result->cases[index];
	unsigned rounds = result->rounds;
	case_head(out, outcome, rounds, result->simulated);
	if (*outcome->skipped || *outcome->failed) {
		fprintf(out, "<p>%s: ", *outcome->failed ? "Failed" : "Skipped");
		hb_svg_text(out, *outcome->failed ? outcome->failed : outcome->skipped);
		fputs("</p>\n</section>\n", out);
		return 0;
	}
	struct hb_bench_summary *summary = malloc(sizeof *summary);
	struct hb_sim_result *plots = calloc(HB_BENCH_SHARINGS_MAX, sizeof *plots);
	int code = summary && plots ? hb_bench_summary_init(summary, outcome, rounds) : -ENOMEM;
	if (code == 0) {
		for (unsigned c = 0; c < outcome->n_cells; c++)
			plot_fill(outcome, summary, c, &plots[c]);
		snprintf(id, sizeof id, "case%u-", index);
		table_write(out, outcome, summary, plots);
		dropped_write(out, outcome);
		plots_write(out, outcome, summary, plots, id);
		hb_bench_summary_fini(summary);
	}
	free(plots);
	free(summary);
	fputs("</section>\n", out);
	return code;
}

static int cases_write(FILE *out, const struct hb_bench_result *result)
{
	int code = 0;
	for (unsigned i = 0; i < result->n_cases && !code; i++)
		code = case_write(out, result, i);
	return code;
}

static int plot_css_write(FILE *out, const struct hb_bench_result *result)
{
	return fputs(plot_css, out) < 0 ? -EIO : 0;
}

static int report_css_write(FILE *out, const struct hb_bench_result *result)
{
	return fputs(report_css, out) < 0 ? -EIO : 0;
}

static const struct part {
	const char *name;
	int (*write)(FILE *out, const struct hb_bench_result *result);
} parts[] = {
	{"title", title_write},
	{"command", command_write},
	{"facts", facts_write},
	{"overall", overall_write},
	{"overall plot", overall_plot_write},
	{"headline", headline_write},
	{"cases", cases_write},
	{"rounds", rounds_write},
	{"plot.css", plot_css_write},
	{"report.css", report_css_write},
};

static int part_write(FILE *out, const char *name, size_t length, const struct hb_bench_result *result)
{
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (strlen(parts[i].name) == length && strncmp(parts[i].name, name, length) == 0)
			return parts[i].write(out, result);
	return -EINVAL;
}

int hb_bench_page_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error)
{
	const char *rest = bench_html;
	for (const char *open; (open = strstr(rest, "{{"));) {
		const char *name = open + 2;
		const char *close = strstr(name, "}}");
		fwrite(rest, 1, (size_t)(open - rest), out);
		int code = close ? part_write(out, name, (size_t)(close - name), result) : -EINVAL;
		if (code)
			return hb_error_set(error, code, "cannot write the page: %s at '%.20s'", strerror(-code), open);
		rest = close + 2;
	}
	fputs(rest, out);
	return 0;
}
