/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latency distributions of one program under every mode; see plot.h. The share
 * axis is stretched towards its end (90, 99, 99.9 % at equal steps): what a
 * service promises is decided there.
 */
#include "report/plot.h"

#include <math.h>
#include <string.h>

#define WIDTH 960
#define LEFT 70
#define RIGHT 690
#define TOP 30
#define BOTTOM 410
#define HEIGHT 470
#define LEGEND_X 712
#define LEGEND_STEP 24.0
#define SHARE_TOP 0.999

struct frame {
	struct hb_scale x, y;
};

/* Room for all latencies and the SLO, with a little air. */
static struct frame frame_fit(const struct hb_sim_result *results, size_t n, uint32_t index)
{
	int64_t low = INT64_MAX;
	int64_t high = 0;
	for (size_t i = 0; i < n; i++) {
		const struct hb_sim_high *program = &results[i].high[index];
		if (program->requests == 0)
			continue;
		low = program->latency_ns[0] < low ? program->latency_ns[0] : low;
		high = program->max_ns > high ? program->max_ns : high;
		high = program->slo_ns > high ? program->slo_ns : high;
	}
	low = low == INT64_MAX || low < 1 ? 1 : low;
	high = high < low ? low : high;
	return (struct frame){
		.x = {HB_SCALE_LOG, (double)low / 1e6 * 0.9, (double)high / 1e6 * 1.1, LEFT, RIGHT},
		.y = {HB_SCALE_NINES, 0, SHARE_TOP, BOTTOM, TOP},
	};
}

static void axes_write(FILE *out, const struct frame *frame)
{
	double ticks[HB_TICKS_MAX];
	bool labelled[HB_TICKS_MAX];
	size_t n = hb_scale_ticks(&frame->x, ticks, labelled);
	for (size_t i = 0; i < n; i++) {
		double x = hb_scale_map(&frame->x, ticks[i]);
		fprintf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", x, TOP, BOTTOM);
		if (labelled[i])
			fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", x,
				BOTTOM + 20, ticks[i]);
	}
	n = hb_scale_ticks(&frame->y, ticks, labelled);
	for (size_t i = 0; i < n; i++) {
		double y = hb_scale_map(&frame->y, ticks[i]);
		fprintf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
		if (labelled[i])
			fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g%%</text>\n",
				LEFT - 8, y + 4.5, 100 * ticks[i]);
	}
	fprintf(out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
	fprintf(out,
		"<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">latency from arrival, ms (log scale)</text>\n",
		(LEFT + RIGHT) / 2, BOTTOM + 46);
	fprintf(out,
		"<text class=\"name\" transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">requests done within</text>\n",
		(TOP + BOTTOM) / 2);
}

static void slo_write(FILE *out, const struct frame *frame, int64_t slo_ns)
{
	if (slo_ns <= 0)
		return;
	double x = hb_scale_map(&frame->x, (double)slo_ns / 1e6);
	bool left = x > (LEFT + RIGHT) / 2.0;
	fprintf(out, "<path class=\"slo\" d=\"M%.1f %dV%d\"/>", x, TOP - 6, BOTTOM);
	fprintf(out, "<text class=\"slo\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">SLO ", x + (left ? -6 : 6), TOP - 10,
		left ? "end" : "start");
	hb_svg_number(out, (double)slo_ns / 1e6);
	fputs(" ms</text>\n", out);
}

/* A step for every request, without those that would not be seen. */
static void line_write(FILE *out, const struct frame *frame, const struct hb_sim_high *program,
		       const struct hb_series_style *style)
{
	double seen_x = hb_scale_map(&frame->x, (double)program->latency_ns[0] / 1e6);
	double seen_y = hb_scale_map(&frame->y, 0);
	fprintf(out, "<path class=\"l\" stroke-dasharray=\"%s\" d=\"M%.1f %.1f", hb_series_dash(style), seen_x, seen_y);
	/* Beyond the top of the axis there is nothing to see. */
	double top_y = hb_scale_map(&frame->y, SHARE_TOP);
	for (uint64_t i = 0; i < program->requests && seen_y > top_y; i++) {
		double x = hb_scale_map(&frame->x, (double)program->latency_ns[i] / 1e6);
		double y = hb_scale_map(&frame->y, (double)(i + 1) / (double)program->requests);
		if (fabs(x - seen_x) < 0.7 && fabs(y - seen_y) < 0.7 && i + 1 < program->requests)
			continue;
		fprintf(out, "H%.1fV%.1f", x, y);
		seen_x = x;
		seen_y = y;
	}
	fputs("\"/>", out);
	hb_svg_marker(out, style, hb_scale_map(&frame->x, (double)program->p99_ns / 1e6), hb_scale_map(&frame->y, 0.99),
		      4.5, false);
}

static void series_write(FILE *out, const struct frame *frame, const struct hb_sim_result *result, uint32_t index,
			 const struct hb_series_style *style, double legend_y)
{
	const struct hb_sim_high *program = &result->high[index];
	fprintf(out, "<g class=\"s c%u\"><title>", style->color);
	hb_svg_text(out, result->sharing);
	fputs("</title>", out);
	if (program->requests)
		line_write(out, frame, program, style);
	fprintf(out, "<rect class=\"hit\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"20\"/>", LEGEND_X - 6,
		legend_y - 10, WIDTH - LEGEND_X + 6);
	hb_svg_key(out, style, LEGEND_X, legend_y, 34);
	fprintf(out, "<text x=\"%d\" y=\"%.1f\">", LEGEND_X + 42, legend_y + 4.5);
	hb_svg_text(out, result->sharing);
	fprintf(out, "</text><text class=\"num\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", WIDTH - 4, legend_y + 4.5);
	if (program->requests)
		hb_svg_number(out, (double)program->p99_ns / 1e6);
	else
		fputs("-", out);
	fputs("</text></g>\n", out);
}

void hb_plot_cdf_write(FILE *out, const struct hb_sim_result *results, size_t n, uint32_t high, const char *id)
{
	struct frame frame = frame_fit(results, n, high);
	double step = LEGEND_STEP;
	if ((double)n * step > BOTTOM - TOP)
		step = (double)(BOTTOM - TOP) / (double)n;
	fprintf(out,
		"<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%scdf%u-t %scdf%u-d\">\n",
		WIDTH, HEIGHT, id, high, id, high);
	fprintf(out, "<title id=\"%scdf%u-t\">Latency of ", id, high);
	hb_svg_text(out, results[0].high[high].workload);
	fprintf(out,
		" under each way of sharing</title>\n<desc id=\"%scdf%u-d\">One line a sharing mode: the share of requests done within a latency. "
		"Lines further left are better; the numbers are in the table.</desc>\n",
		id, high);
	axes_write(out, &frame);
	slo_write(out, &frame, results[0].high[high].slo_ns);
	fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">p99, ms</text>\n", WIDTH - 4,
		TOP - 10);
	for (size_t i = 0; i < n; i++) {
		struct hb_series_style style = hb_plot_style(results, n, i);
		series_write(out, &frame, &results[i], high, &style, TOP + step * ((double)i + 0.5));
	}
	fputs("</svg>\n", out);
}
