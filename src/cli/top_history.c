/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `hb top` about the last minutes; see top_history.h. */
#include "cli/top_history.h"

#include "base/clock.h"
#include "base/units.h"
#include "cli/sparkline.h"
#include "cli/status_fields.h"

#include <stdio.h>
#include <string.h>

#define PPM 1e6

/* Formats the share of the last step; "-" if it is not known. */
static const char *format_last(const json_t *shares, char text[16])
{
	const json_t *last = json_array_get(shares, json_array_size(shares) - 1);
	if (!json_is_number(last))
		return strcpy(text, "-");
	snprintf(text, 16, "%.0f%%", 100 * json_number_value(last) / PPM);
	return text;
}

const char *hb_top_history_gpu(const json_t *gpu, int width, char text[HB_TOP_HISTORY_MAX])
{
	const json_t *history = json_object_get(gpu, "history");
	const json_t *high = json_object_get(history, "high_ppm"), *low = json_object_get(history, "low_ppm");
	char bars[2][HB_SPARKLINE_MAX], last[2][16];
	size_t steps = json_array_size(high);
	int64_t covered_ns = (int64_t)steps * hb_status_number(history, "step_ns");
	text[0] = '\0';
	if (!steps || width < 60)
		return text;
	size_t room = ((size_t)width - 40) / 2;
	snprintf(text, HB_TOP_HISTORY_MAX, "  last %lld s: high %s %s  low %s %s",
		 (long long)(covered_ns / HB_NS_PER_S), hb_sparkline(high, PPM, room, bars[0]),
		 format_last(high, last[0]), hb_sparkline(low, PPM, room, bars[1]), format_last(low, last[1]));
	return text;
}

static double find_most(const json_t *numbers)
{
	const json_t *number;
	double most = 0;
	size_t i;
	json_array_foreach(numbers, i, number) most = json_number_value(number) > most ? json_number_value(number)
										       : most;
	return most;
}

/* Three digits. */
static int64_t round_ns(int64_t ns)
{
	int64_t unit = 1;
	while (ns / unit >= 1000)
		unit *= 10;
	return ns / unit * unit;
}

/* The units of the numbers in a tenant's lists. */
enum list_unit { SHARE, LATENCY, COUNT };

static enum list_unit find_key(const char *what, char key[32])
{
	bool is_share = strcmp(what, "share") == 0, is_latency = strcmp(what, "p50") == 0 || strcmp(what, "p99") == 0;
	snprintf(key, 32, "%s%s", what, is_share ? "_ppm" : is_latency ? "_ns" : "");
	return is_share ? SHARE : is_latency ? LATENCY : COUNT;
}

const char *hb_top_history_tenant(const struct hb_top_tenant *tenant, const json_t *use, const char *what, int width,
				  char text[HB_TOP_HISTORY_MAX])
{
	char key[32], bars[HB_SPARKLINE_MAX], most_text[HB_UNITS_TEXT_MAX], slo_text[HB_UNITS_TEXT_MAX];
	enum list_unit unit = find_key(what, key);
	const json_t *history = json_object_get(use, "history"), *numbers = json_object_get(history, key);
	double most = find_most(numbers), full = unit == SHARE ? PPM : unit == LATENCY ? (double)tenant->slo_ns : 0;
	double step_s = (double)hb_status_number(history, "step_ns") / (double)HB_NS_PER_S;
	text[0] = '\0';
	if (most <= 0 || width < 60 || (unit == COUNT && step_s <= 0))
		return text;
	hb_sparkline(numbers, full > most ? full : most, (size_t)width - 50, bars);
	if (unit == SHARE)
		snprintf(text, HB_TOP_HISTORY_MAX, "%s up to %.0f%%", bars, 100 * most / PPM);
	else if (unit == COUNT)
		snprintf(text, HB_TOP_HISTORY_MAX, "%s up to %.*f/s", bars, most / step_s < 10 ? 1 : 0, most / step_s);
	else
		snprintf(text, HB_TOP_HISTORY_MAX, "%s up to %s%s%s", bars,
			 hb_duration_format(round_ns((int64_t)most), most_text), tenant->slo_ns > 0 ? ", SLO " : "",
			 tenant->slo_ns > 0 ? hb_duration_format(tenant->slo_ns, slo_text) : "");
	return text;
}
