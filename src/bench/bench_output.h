/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to show results of `hb bench`: a table for people, JSON with all raw
 * values, a page of plots. Pure: the same results give the same bytes, also
 * after a trip through the file. Caller: `hb bench`.
 */
#ifndef HB_BENCH_BENCH_OUTPUT_H
#define HB_BENCH_BENCH_OUTPUT_H

#include "base/error.h"
#include "bench/bench_result.h"

#include <stdio.h>

/* 0 or negative errno with *error. */
int hb_bench_table_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error);
int hb_bench_page_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error);
int hb_bench_json_write(FILE *out, const struct hb_bench_result *result, struct hb_error *error);
/* From a file, plain or gzip. *result is written only on success; release with hb_bench_result_fini(). */
int hb_bench_json_load(const char *path, struct hb_bench_result *result, struct hb_error *error);

#endif
