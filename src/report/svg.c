/* SPDX-License-Identifier: Apache-2.0 */
/* Escaping, scales, ticks and series styles for SVG charts; see svg.h. */
#include "report/svg.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

void hb_svg_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		switch (c) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		case '\'':
			fputs("&#39;", out);
			break;
		/* Control characters are illegal in XML, also when escaped. */
		default:
			fputc(c < 0x20 && c != '\t' && c != '\n' ? '?' : c, out);
		}
	}
}

void hb_svg_number(FILE *out, double value)
{
	double size = fabs(value);
	bool small = size > 0 && size < 0.1; /* two places that say something */
	int decimals = size >= 100 ? 0 : size >= 10 ? 1 : !small ? 2 : size >= 0.01 ? 3 : 4;
	fprintf(out, "%.*f", decimals, value);
}

static double transform(enum hb_scale_kind kind, double value)
{
	switch (kind) {
	case HB_SCALE_LOG:
		return log10(value);
	case HB_SCALE_NINES:
		return -log10(1 - value);
	case HB_SCALE_LINEAR:
		break;
	}
	return value;
}

double hb_scale_map(const struct hb_scale *scale, double value)
{
	double clipped = value < scale->low ? scale->low : value > scale->high ? scale->high : value;
	double low = transform(scale->kind, scale->low);
	double high = transform(scale->kind, scale->high);
	double share = high > low ? (transform(scale->kind, clipped) - low) / (high - low) : 0.5;
	return scale->from_px + share * (scale->to_px - scale->from_px);
}

/* A little over the end still counts: 0.1 + 0.2 is not 0.3. */
static bool within(const struct hb_scale *scale, double value)
{
	double slack = 1e-9 * (fabs(scale->high) + fabs(scale->low));
	return value >= scale->low - slack && value <= scale->high + slack;
}

static size_t linear_ticks(const struct hb_scale *scale, double *ticks, bool *labelled)
{
	double raw = (scale->high - scale->low) / 6;
	double step = pow(10, floor(log10(raw)));
	step *= raw / step > 5 ? 10 : raw / step > 2 ? 5 : raw / step > 1 ? 2 : 1;
	size_t n = 0;
	double first = ceil(scale->low / step - 1e-9);
	for (; n < HB_TICKS_MAX && within(scale, (first + (double)n) * step); n++) {
		ticks[n] = (first + (double)n) * step;
		labelled[n] = true;
	}
	return n;
}

/* 1, 2 and 5 of every decade, more when the scale is short; only the decades are labelled when it is long. */
static size_t log_ticks(const struct hb_scale *scale, double *ticks, bool *labelled)
{
	static const double usual[] = {1, 2, 5};
	static const double dense[] = {1, 1.5, 2, 3, 4, 5, 7};
	double decades = log10(scale->high / scale->low);
	const double *mantissas = decades < 1.2 ? dense : usual;
	size_t count = decades < 1.2 ? sizeof dense / sizeof dense[0] : sizeof usual / sizeof usual[0];
	size_t n = 0;
	for (double decade = floor(log10(scale->low)); decade <= log10(scale->high); decade++) {
		for (size_t i = 0; i < count; i++) {
			double value = mantissas[i] * pow(10, decade);
			if (n == HB_TICKS_MAX || !within(scale, value))
				continue;
			ticks[n] = value;
			labelled[n++] = i == 0 || decades < 3;
		}
	}
	return n;
}

static size_t nines_ticks(const struct hb_scale *scale, double *ticks, bool *labelled)
{
	static const double shares[] = {0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999};
	size_t n = 0;
	for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
		if (!within(scale, shares[i]))
			continue;
		ticks[n] = shares[i];
		labelled[n++] = true;
	}
	return n;
}

size_t hb_scale_ticks(const struct hb_scale *scale, double ticks[HB_TICKS_MAX], bool labelled[HB_TICKS_MAX])
{
	if (!(scale->high > scale->low))
		return 0;
	switch (scale->kind) {
	case HB_SCALE_LOG:
		return log_ticks(scale, ticks, labelled);
	case HB_SCALE_NINES:
		return nines_ticks(scale, ticks, labelled);
	case HB_SCALE_LINEAR:
		break;
	}
	return linear_ticks(scale, ticks, labelled);
}

static size_t family_length(const char *name)
{
	size_t length = 0;
	while (isalpha((unsigned char)name[length]))
		length++;
	return length;
}

static bool same_family(const char *a, const char *b)
{
	size_t length = family_length(a);
	return length == family_length(b) && strncmp(a, b, length) == 0;
}

struct hb_series_style hb_series_style_of(const char *const *names, size_t n, size_t index)
{
	unsigned family = 0;
	unsigned member = 0;
	for (size_t i = 0; i < n && i < index; i++) {
		bool new_family = true;
		for (size_t j = 0; j < i; j++)
			new_family &= !same_family(names[i], names[j]);
		if (same_family(names[i], names[index]))
			member++;
		/* Families seen before this one's first member. */
		family += new_family && member == 0;
	}
	return (struct hb_series_style){family % HB_SVG_COLORS, member % HB_SVG_DASHES,
					(family + member) % HB_SVG_MARKERS};
}

const char *hb_series_dash(const struct hb_series_style *style)
{
	static const char *const dashes[HB_SVG_DASHES] = {"none", "8 3", "2 3", "9 3 2 3", "5 2", "12 3 2 3 2 3"};
	return dashes[style->dash];
}

void hb_svg_marker(FILE *out, const struct hb_series_style *style, double x, double y, double radius, bool hollow)
{
	/* Corners around (0, 0) for radius 1; the first is a circle. */
	static const char *const shapes[HB_SVG_MARKERS] = {
		NULL,
		"M-.9 -.9H.9V.9H-.9Z",
		"M0 -1.15L1.1 .85H-1.1Z",
		"M0 -1.25L1.25 0L0 1.25L-1.25 0Z",
		"M0 1.15L1.1 -.85H-1.1Z",
		"M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
	};
	const char *class = hollow ? "m hollow" : "m";
	const char *shape = shapes[style->marker];
	if (shape)
		fprintf(out, "<path class=\"%s\" transform=\"translate(%.1f %.1f) scale(%.1f)\" d=\"%s\"/>", class, x,
			y, radius, shape);
	else
		fprintf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", class, x, y, radius);
}

void hb_svg_key(FILE *out, const struct hb_series_style *style, double x, double y, double width)
{
	fprintf(out, "<path class=\"l\" stroke-dasharray=\"%s\" d=\"M%.1f %.1fh%.1f\"/>", hb_series_dash(style), x, y,
		width);
	hb_svg_marker(out, style, x + width / 2, y, 4, false);
}
