/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a journal of `hb serve` (server/models/journal.h has the lines) and tells how
 * far predictions would have been off, with all parts of the predictor and with
 * parts switched off, for each stretch between two marks. Called by `hb
 * sim-serve --journal`. What is learned in one stretch stays for the next.
 */
#ifndef HB_SIM_SERVE_JOURNAL_H
#define HB_SIM_SERVE_JOURNAL_H

#include "simserving/serving_run.h"

#include <stdio.h>

struct hb_serving_stretch {
	char mark[96]; /* that begins it; "" = before the first */
	struct hb_serving_error_result error[HB_SHADOWS];
};

/* 0, or -EINVAL (error names the line), -EIO, -ENOMEM. *out is from malloc. */
int hb_serving_journal_read(FILE *in, const char *name, struct hb_serving_stretch **out, size_t *n,
			    struct hb_error *error);

#endif
