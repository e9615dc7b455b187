/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The charts of a comparison of sharing modes, as SVG elements for a page.
 * Caller: report.c.
 */
#ifndef HB_SIM_PLOT_H
#define HB_SIM_PLOT_H

#include "report/svg.h"
#include "sim/result.h"

#include <stdbool.h>
#include <stdio.h>

/* Style of results[index] among its peers; the same in every chart and table. */
struct hb_series_style hb_plot_style(const struct hb_sim_result *results, size_t n, size_t index);

/*
 * Latencies of program `high` under every mode. `id` begins the names of its elements: a page with several
 * comparisons gives each its own.
 */
void hb_plot_cdf_write(FILE *out, const struct hb_sim_result *results, size_t n, uint32_t high, const char *id);

/* Is there anything to plot: a program with an SLO beside a low one? */
bool hb_plot_scatter_possible(const struct hb_sim_result *results, size_t n);
/* Worst attainment against mean LP speed; `style` (NULL = none) is put inside as a style sheet. */
void hb_plot_scatter_write(FILE *out, const struct hb_sim_result *results, size_t n, const char *id, const char *style);

#endif
