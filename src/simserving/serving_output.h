/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the results of evaluation runs as a table or as JSON. Callers: `hb sim-serve`, bench/journal. */
#ifndef HB_SIMSERVING_OUTPUT_H
#define HB_SIMSERVING_OUTPUT_H

#include "simserving/serving_run.h"

#include <jansson.h>
#include <stdio.h>

/* The result of one run with the options in which it differs from the other rows. */
struct hb_serving_row {
	const char *policy;
	double load;
	const char *traffic;
	uint64_t seed;
	struct hb_serving_run_result result;
};

/* Writes a table with one line per run. */
void hb_serving_table_write(FILE *out, const struct hb_serving_row *rows, size_t n);
/* Writes {OPTION: VALUE, ..., "runs": [...]}. Returns 0, -EIO, -EINVAL or -ENOMEM. */
int hb_serving_json_write(FILE *out, const struct hb_serving_run_options *options, const struct hb_serving_row *rows,
			  size_t n, struct hb_error *error);
/*
 * Packs the errors of the HB_ERROR_ROWS predictors as one object: {"all_parts": {"batches": N, "median": X, ...}, ...}.
 * NULL = no memory.
 */
json_t *hb_serving_errors_pack(const struct hb_serving_error_result *errors, struct hb_error *error);

#endif
