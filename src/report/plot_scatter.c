/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each way of sharing gives to both sides: the worst attainment of the
 * services against the mean speed of the low-priority programs; see plot.h.
 * Labels are placed so that they cover neither points nor each other.
 */
#include "report/output.h"
#include "report/plot.h"

#include <math.h>
#include <string.h>

#define WIDTH 960
#define LEFT 76
#define RIGHT 930
#define TOP 24
#define BOTTOM 430
#define HEIGHT 490
#define GLYPH_WIDTH 7.4 /* of the label font, on the wide side */
#define LABEL_HEIGHT 16.0
#define CAPTION_WIDTH 240.0
#define POINT_RADIUS 6.0
/* What the outermost element needs when it is no part of a page. */
#define STANDALONE " xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"490\""
#define ATTAINMENT_TOP 0.999 /* more than that is shown there */

struct box {
	double left, top, right, bottom;
};

struct point {
	const char *name;
	double attainment, relative;
	double x, y;
	struct box label;
	struct hb_series_style style;
	bool reference; /* a GPU each: no way to share */
};

struct chart {
	struct hb_scale x, y;
	struct point points[HB_SIM_RESULTS_MAX];
	size_t n;
	struct box caption; /* of the good corner; no label may cover it */
};

struct hb_series_style hb_plot_style(const struct hb_sim_result *results, size_t n, size_t index)
{
	const char *names[HB_SIM_RESULTS_MAX];
	size_t count = n < HB_SIM_RESULTS_MAX ? n : HB_SIM_RESULTS_MAX;
	for (size_t i = 0; i < count; i++)
		names[i] = results[i].sharing;
	return hb_series_style_of(names, count, index);
}

bool hb_plot_scatter_possible(const struct hb_sim_result *results, size_t n)
{
	if (n == 0 || results[0].n_low == 0)
		return false;
	for (uint32_t i = 0; i < results[0].n_high; i++)
		if (results[0].high[i].slo_ns > 0 && results[0].high[i].requests > 0)
			return true;
	return false;
}

static struct point point_of(const struct hb_sim_result *result)
{
	struct point point = {.name = result->sharing, .attainment = 1};
	for (uint32_t i = 0; i < result->n_high; i++)
		if (result->high[i].slo_ns > 0 && result->high[i].attainment < point.attainment)
			point.attainment = result->high[i].attainment;
	for (uint32_t i = 0; i < result->n_low; i++)
		point.relative += result->low[i].relative / result->n_low;
	point.reference = strcmp(result->sharing, "exclusive") == 0;
	return point;
}

/* From a round tenth below the slowest to a little over the fastest. */
static struct hb_scale speed_scale(double lowest, double highest)
{
	return (struct hb_scale){HB_SCALE_LINEAR, fmax(0, floor((lowest - 0.03) * 10) / 10), fmax(1.02, highest + 0.02),
				 LEFT, RIGHT};
}

/* Stretched towards all requests like the latency plots, from the round share below the worst. */
static struct hb_scale attainment_scale(double lowest)
{
	static const double floors[] = {0.9, 0.8, 0.5};
	struct hb_scale scale = {HB_SCALE_NINES, 0, ATTAINMENT_TOP, BOTTOM, TOP};
	for (size_t i = 0; i < sizeof floors / sizeof floors[0] && scale.low == 0; i++)
		if (lowest > floors[i] + 0.02)
			scale.low = floors[i];
	return scale;
}

static void chart_fit(struct chart *chart, const struct hb_sim_result *results, size_t n)
{
	double lowest_x = 1, lowest_y = 1, highest_x = 0;
	chart->n = n < HB_SIM_RESULTS_MAX ? n : HB_SIM_RESULTS_MAX;
	for (size_t i = 0; i < chart->n; i++) {
		struct point *point = &chart->points[i];
		*point = point_of(&results[i]);
		point->style = hb_plot_style(results, n, i);
		lowest_x = fmin(lowest_x, point->relative);
		highest_x = fmax(highest_x, point->relative);
		lowest_y = fmin(lowest_y, point->attainment);
	}
	chart->x = speed_scale(lowest_x, highest_x);
	chart->y = attainment_scale(lowest_y);
	chart->caption = (struct box){RIGHT - 8 - CAPTION_WIDTH, TOP + 4, RIGHT - 8, TOP + 4 + LABEL_HEIGHT};
	for (size_t i = 0; i < chart->n; i++) {
		chart->points[i].x = hb_scale_map(&chart->x, chart->points[i].relative);
		chart->points[i].y = hb_scale_map(&chart->y, chart->points[i].attainment);
	}
}

static double overlap(const struct box *a, const struct box *b)
{
	double width = fmin(a->right, b->right) - fmax(a->left, b->left);
	double height = fmin(a->bottom, b->bottom) - fmax(a->top, b->top);
	return width > 0 && height > 0 ? width * height : 0;
}

/* Area in which a label at `box` would cover something or leave the chart. */
static double label_cost(const struct chart *chart, size_t index, const struct box *box)
{
	static const struct box inside = {LEFT + 4, TOP, RIGHT, BOTTOM - 4};
	double cost = (box->right - box->left) * (box->bottom - box->top) - overlap(box, &inside) +
		      overlap(box, &chart->caption);
	for (size_t i = 0; i < chart->n; i++) {
		const struct point *other = &chart->points[i];
		struct box marker = {other->x - POINT_RADIUS - 2, other->y - POINT_RADIUS - 2,
				     other->x + POINT_RADIUS + 2, other->y + POINT_RADIUS + 2};
		cost += overlap(box, &marker);
		if (i < index)
			cost += overlap(box, &other->label);
	}
	return cost;
}

static struct box label_box(const struct point *point, double width, double angle, double distance)
{
	double x = point->x + cos(angle) * distance;
	double y = point->y + sin(angle) * distance;
	/* The side of the label that faces the point touches (x, y). */
	double left = x - width * (1 - cos(angle)) / 2;
	return (struct box){left, y - LABEL_HEIGHT / 2, left + width, y + LABEL_HEIGHT / 2};
}

/* Tries rings of growing distance, to the left and right first; the first free place wins. */
static void label_place(struct chart *chart, size_t index)
{
	static const double angles[] = {0, M_PI, -M_PI / 4, M_PI / 4, -3 * M_PI / 4, 3 * M_PI / 4, -M_PI / 2, M_PI / 2};
	struct point *point = &chart->points[index];
	double width = GLYPH_WIDTH * (double)strlen(point->name) + (point->reference ? GLYPH_WIDTH * 13 : 0);
	double best = INFINITY;
	for (double distance = POINT_RADIUS + 6; distance < 150 && best > 0; distance += 9) {
		for (size_t i = 0; i < sizeof angles / sizeof angles[0]; i++) {
			struct box box = label_box(point, width, angles[i], distance);
			double cost = label_cost(chart, index, &box);
			if (cost >= best - 0.5)
				continue;
			best = cost;
			point->label = box;
		}
	}
}

static void axes_write(FILE *out, const struct chart *chart)
{
	double ticks[HB_TICKS_MAX];
	bool labelled[HB_TICKS_MAX];
	size_t n = hb_scale_ticks(&chart->x, ticks, labelled);
	for (size_t i = 0; i < n; i++) {
		double x = hb_scale_map(&chart->x, ticks[i]);
		fprintf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", x, TOP, BOTTOM);
		fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g%%</text>\n", x,
			BOTTOM + 20, 100 * ticks[i]);
	}
	n = hb_scale_ticks(&chart->y, ticks, labelled);
	for (size_t i = 0; i < n; i++) {
		double y = hb_scale_map(&chart->y, ticks[i]);
		fprintf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
		fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g%%</text>\n", LEFT - 8,
			y + 4.5, 100 * ticks[i]);
	}
	fprintf(out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
}

static void names_write(FILE *out, const struct hb_sim_result *first)
{
	fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + RIGHT) / 2, BOTTOM + 48);
	if (first->n_low == 1)
		hb_svg_text(out, first->low[0].workload);
	else
		fputs("low-priority programs (mean)", out);
	fputs(": speed, of alone</text>\n", out);
	fprintf(out, "<text class=\"name\" transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">",
		(TOP + BOTTOM) / 2);
	if (first->n_high == 1)
		hb_svg_text(out, first->high[0].workload);
	else
		fputs("worst service", out);
	fputs(": requests within the SLO</text>\n", out);
}

/* Where both sides get nearly everything. */
static void good_corner_write(FILE *out, const struct chart *chart)
{
	double left = hb_scale_map(&chart->x, chart->x.high - (chart->x.high - chart->x.low) * 0.3);
	double bottom = hb_scale_map(&chart->y, HB_SIM_SLO_KEPT);
	fprintf(out, "<rect class=\"good\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%.1f\"/>", left, TOP,
		RIGHT - left, bottom - TOP);
	fprintf(out,
		"<text class=\"good\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">good corner: both keep what they had</text>\n",
		RIGHT - 8, chart->caption.bottom - 3.5);
}

static void point_write(FILE *out, const struct point *point)
{
	double middle = (point->label.left + point->label.right) / 2;
	double nearest_x = fmax(point->label.left, fmin(point->x, point->label.right));
	double nearest_y = fmax(point->label.top + 3, fmin(point->y, point->label.bottom - 3));
	fprintf(out, "<g class=\"s c%u\"><title>", point->style.color);
	hb_svg_text(out, point->name);
	fprintf(out, ": %.1f%% of requests within the SLO, low at %.1f%% of alone</title>", 100 * point->attainment,
		100 * point->relative);
	if (hypot(nearest_x - point->x, nearest_y - point->y) > POINT_RADIUS + 9)
		fprintf(out, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>", point->x, point->y, nearest_x,
			nearest_y);
	hb_svg_marker(out, &point->style, point->x, point->y, POINT_RADIUS, point->reference);
	fprintf(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", middle,
		point->label.bottom - 3.5);
	hb_svg_text(out, point->name);
	fputs(point->reference ? " (a GPU each)</text></g>\n" : "</text></g>\n", out);
}

void hb_plot_scatter_write(FILE *out, const struct hb_sim_result *results, size_t n, const char *id, const char *style)
{
	struct chart chart;
	chart_fit(&chart, results, n);
	for (size_t i = 0; i < chart.n; i++)
		label_place(&chart, i);
	fprintf(out,
		"<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%sscatter-t %sscatter-d\"%s>\n",
		WIDTH, HEIGHT, id, id, style ? STANDALONE : "");
	if (style)
		fprintf(out, "<style>%s</style>\n<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", style, WIDTH,
			HEIGHT);
	fprintf(out,
		"<title id=\"%sscatter-t\">What each way of sharing gives to both sides</title>\n"
		"<desc id=\"%sscatter-d\">One point a sharing mode: up, more requests within the SLO; to the right, faster low-priority "
		"programs. The numbers are in the table.</desc>\n",
		id, id);
	good_corner_write(out, &chart);
	axes_write(out, &chart);
	names_write(out, &results[0]);
	for (size_t i = 0; i < chart.n; i++)
		point_write(out, &chart.points[i]);
	fputs("</svg>\n", out);
}
