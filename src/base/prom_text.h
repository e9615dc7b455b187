/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the Prometheus text format 0.0.4, for /metrics of the daemon and of `hb serve`. Names end in the base unit (seconds, bytes, ratio), those of
 * counters in _total. The samples of a family must follow its HELP and TYPE lines directly.
 *
 * `labels` is the text between the braces, built with hb_prom_label() and
 * commas; "" = no labels.
 */
#ifndef HB_BASE_PROM_TEXT_H
#define HB_BASE_PROM_TEXT_H

#include "base/counters.h"

#include <stddef.h>

struct hb_hist;

#define HB_PROM_NAME_MAX 96

enum hb_prom_type { HB_PROM_COUNTER, HB_PROM_GAUGE, HB_PROM_HISTOGRAM };

/* Makes the name hb_AREA_NAME[_seconds|_bytes]_total of a counter table's row. Returns `name`. */
char *hb_prom_counter_name(const char *area, const struct hb_counter_info *info, char name[static HB_PROM_NAME_MAX]);

/* Writes the HELP and TYPE lines. */
void hb_prom_family(FILE *out, const char *name, enum hb_prom_type type, const char *help);

/* Writes NAME="VALUE", escaped and cut to the size. Returns the number of characters. */
size_t hb_prom_label(char *to, size_t size, const char *name, const char *value);

void hb_prom_count(FILE *out, const char *name, const char *labels, uint64_t value);
/* Writes a time in ns as seconds, without rounding. */
void hb_prom_seconds(FILE *out, const char *name, const char *labels, uint64_t value_ns);
/* Writes parts per million as a ratio from 0 to 1. */
void hb_prom_ratio(FILE *out, const char *name, const char *labels, uint64_t ppm);
/* Writes a row of a counter table in its unit. */
void hb_prom_counter(FILE *out, const char *name, const char *labels, const struct hb_counter_info *info,
		     uint64_t value);

/* Upper bounds of the buckets that hb_prom_histogram() writes: from 10 us to 10 s, +Inf beside them. */
#define HB_PROM_BOUNDS 19
extern const int64_t hb_prom_bounds_ns[HB_PROM_BOUNDS];

/* Writes buckets, sum and count in seconds; NULL counts as an empty histogram. */
void hb_prom_histogram(FILE *out, const char *name, const char *labels, const struct hb_hist *hist);

#endif
