/* SPDX-License-Identifier: Apache-2.0 */
/* The suite `serve` of `hb bench`: see bench_serve.c. Used by cmd_bench.c only. */
#ifndef HB_BENCH_BENCH_SERVE_H
#define HB_BENCH_BENCH_SERVE_H

#include "bench/bench_run.h"

bool hb_bench_is_serve(const struct hb_bench_suite *suite);
/*
 * Becomes bench/serving.py: in virtual time, or with models in PyTorch on a real GPU. out_folder: for serve.json (what was
 * found) and serve/ (what every run gave), NULL = none. Returns on failure only, negative errno.
 */
int hb_bench_serve_become(const struct hb_bench_options *options, const char *out_folder, struct hb_error *error);

#endif
