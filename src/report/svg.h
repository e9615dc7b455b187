/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small tools for drawing charts as SVG text: escaping, scales, ticks, the look
 * of a series. Used by the plots (plot_*.c) and the report; knows nothing about
 * results. Coordinates are written with one decimal, so the bytes are the same
 * everywhere. Colours are CSS classes of plot.css, so a page can be dark.
 */
#ifndef HB_SIM_SVG_H
#define HB_SIM_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Text as XML and HTML content or attribute value. */
void hb_svg_text(FILE *out, const char *text);
/* A number as people write it, at most 3 significant digits below 1000: 0.77, 12.5, 480, 1250. */
void hb_svg_number(FILE *out, double value);

enum hb_scale_kind {
	HB_SCALE_LINEAR,
	HB_SCALE_LOG,   /* values > 0 */
	HB_SCALE_NINES, /* shares 0..1: equal steps for 0, 90, 99, 99.9 % */
};

struct hb_scale {
	enum hb_scale_kind kind;
	double low, high; /* values at the ends; outside values are clipped to them */
	double from_px, to_px;
};

double hb_scale_map(const struct hb_scale *scale, double value);

#define HB_TICKS_MAX 32
/* Round values within the scale, ascending; `labelled` says which deserve a label. Returns how many. */
size_t hb_scale_ticks(const struct hb_scale *scale, double ticks[HB_TICKS_MAX], bool labelled[HB_TICKS_MAX]);

/*
 * How a series looks. Names that begin with the same letters (mps_prio, mps_88)
 * are a family and share a colour; dashes tell its members apart, and markers
 * also neighbouring families, so nothing depends on colour alone.
 */
struct hb_series_style {
	unsigned color; /* class c0..c7 */
	unsigned dash;  /* 0 = a full line */
	unsigned marker;
};
#define HB_SVG_COLORS 8
#define HB_SVG_DASHES 6
#define HB_SVG_MARKERS 6

/* Style of names[index] among names[0..n). */
struct hb_series_style hb_series_style_of(const char *const *names, size_t n, size_t index);
/* Value of stroke-dasharray. */
const char *hb_series_dash(const struct hb_series_style *style);
void hb_svg_marker(FILE *out, const struct hb_series_style *style, double x, double y, double radius, bool hollow);
/* A short piece of the series' line with its marker in the middle, for legends and tables. */
void hb_svg_key(FILE *out, const struct hb_series_style *style, double x, double y, double width);

#endif
