/* SPDX-License-Identifier: Apache-2.0 */
/* How evaluation runs of `serve` are shown; called by `hb sim-serve`. */
#ifndef HB_SIM_SERVE_OUTPUT_H
#define HB_SIM_SERVE_OUTPUT_H

#include "simserving/serving_journal.h"
#include "simserving/serving_run.h"

#include <stdio.h>

/* A run with what told it apart from the others. */
struct hb_serving_row {
	const char *policy;
	double load;
	bool bursts;
	uint64_t seed;
	struct hb_serving_run_result result;
};

/* One line a run. */
void hb_serving_table_write(FILE *out, const struct hb_serving_row *rows, size_t n);
/* {"options": ..., "runs": [...]}. 0, -EIO, -EINVAL, -ENOMEM. */
int hb_serving_json_write(FILE *out, const struct hb_serving_run_options *options, const struct hb_serving_row *rows,
			  size_t n, struct hb_error *error);
/* {"stretches": [{"mark": ..., "prediction_error": ...}]}, those without batches left out. As above. */
int hb_serving_stretches_write(FILE *out, const struct hb_serving_stretch *stretches, size_t n, struct hb_error *error);

#endif
